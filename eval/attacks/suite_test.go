package main

import (
	"bufio"
	"bytes"
	"container/list"
	"encoding/json"
	"encoding/xml"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/server/attack"
)

// The attacks of the page in short.
const briefly = 800 * time.Millisecond

func testLab(t *testing.T) *lab {
	t.Helper()
	l, err := openLab(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return l
}

func allCases(t *testing.T) []kase {
	t.Helper()
	list, err := cases()
	if err != nil {
		t.Fatal(err)
	}
	for i := range list {
		// its rounds are of so many requests that on a slow machine a burst would be there again
		// before the next
		if list[i].alone {
			list[i].limit.burst *= 4
		}
	}
	return list
}

// only is a case with the setups that keep says.
func (c kase) only(keep func(setup) bool) kase {
	var kept []setup
	for _, s := range c.setups {
		if keep(s) {
			kept = append(kept, s)
		}
	}
	c.setups = kept
	return c
}

// TestA2ToA6HeadgateAdmitsTheEnvelope attacks the real process: no interval of what the API saw
// exceeds the limit, and honest requests of the same client still have their budget, so it is not
// for want of traffic.
func TestA2ToA6HeadgateAdmitsTheEnvelope(t *testing.T) {
	l := testLab(t)
	for _, c := range allCases(t) {
		t.Run(c.name, func(t *testing.T) {
			found, err := l.runCase(c.only(setup.ours), briefly)
			if err != nil {
				t.Fatal(err)
			}
			if len(found) == 0 {
				t.Fatal("no setup of Headgate is in this case")
			}
			for _, o := range found {
				t.Log(o)
				if o.beyond > 0 {
					t.Errorf("%s admitted %d requests beyond the envelope", o.setup, o.beyond)
				}
				if float64(o.sent) < 1.5*o.envelope {
					t.Errorf("%d requests were sent, and the envelope is %.1f: this shows nothing", o.sent, o.envelope)
				}
				// Who is no balancer has no connection where the PROXY protocol is on.
				stranger := o.setup.String() == headgateBalancer.String() && strings.Contains(o.attack, "from anywhere")
				if refuses := stranger || strings.Contains(o.setup.name, "reject"); refuses != (o.admitted == 0) {
					t.Errorf("%s admitted %d requests", o.setup, o.admitted)
				}
			}
		})
	}
}

// TestTheAttacksBreakOthers shows that the attacks are strong enough to find what they look for:
// each of these is known to give way.
func TestTheAttacksBreakOthers(t *testing.T) {
	l := testLab(t)
	weak := map[string][]setup{
		"A2 header spoofing, from anywhere":     {httprateRealIP, tollboothXFF, envoyHop},
		"A2 header spoofing, through the proxy": {httprateRealIP},
		"A3 one path in many spellings":         {httprateEndpoint, nginxTarget},
		"A3 corpus of targets":                  {tollboothAddr},
		"A4 churn":                              {nginxSmall, envoyDefault},
		"A5 random keys and forged tokens":      {httprateHeader, nginxKey},
		heldCredential:                          {httprateHeader, nginxKey},
		"A6 fake endpoints":                     {httprateEndpoint, nginxURI},
	}
	for _, c := range allCases(t) {
		if len(c.only(setup.ours).setups) == len(c.setups) {
			continue // nobody else speaks this protocol; a naive limiter does, below
		}
		t.Run(c.name, func(t *testing.T) {
			names := map[string]bool{}
			for _, s := range weak[c.name] {
				names[s.String()] = true
			}
			found, err := l.runCase(c.only(func(s setup) bool { return names[s.String()] }), briefly)
			if err != nil {
				t.Fatal(err)
			}
			if len(found) != len(names) || len(names) == 0 {
				t.Fatalf("%d setups were tried, want %d", len(found), len(names))
			}
			for _, o := range found {
				t.Log(o)
				if o.beyond < 5 {
					t.Errorf("%s admitted %d beyond the envelope, %.2f of it: it is known to admit much more", o.setup,
						o.beyond, o.factor())
				}
			}
		})
	}
}

// naive is a limiter that believes everything: its exact buckets are named by whatever the client
// sent, in a table that forgets the oldest.
type naive struct {
	lim  limit
	next http.Handler

	mu      sync.Mutex
	buckets map[string]*list.Element // guarded by mu
	oldest  *list.List               // guarded by mu
}

type naiveBucket struct {
	name   string
	tokens float64
	at     time.Time
}

func (n *naive) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.RemoteAddr[:strings.LastIndex(r.RemoteAddr, ":")]
	if claimed := r.Header.Get("X-Forwarded-For"); claimed != "" {
		name = claimed
	}
	name += " " + r.RequestURI + " " + r.Header.Get("X-Api-Key") + r.Header.Get("Authorization")
	if !n.take(name) {
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	n.next.ServeHTTP(w, r)
}

func (n *naive) take(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	e := n.buckets[name]
	if e == nil {
		e = n.oldest.PushBack(&naiveBucket{name, float64(n.lim.burst), now})
		n.buckets[name] = e
		if n.oldest.Len() > 1024 {
			delete(n.buckets, n.oldest.Remove(n.oldest.Front()).(*naiveBucket).name)
		}
	}
	b := e.Value.(*naiveBucket)
	b.tokens = min(float64(n.lim.burst), b.tokens+now.Sub(b.at).Seconds()*float64(n.lim.rate))
	b.at = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

var naiveSetup = setup{"naive", "", "nowhere", func(l *lab, lim limit) (string, error) {
	server := httptest.NewUnstartedServer(&naive{lim: lim, next: goProxy(l), buckets: map[string]*list.Element{},
		oldest: list.New()})
	server.Listener = believer{server.Listener}
	server.Start()
	l.atEnd(server.Close)
	return server.URL, nil
}}

// believer is a listener that takes everybody's word in a PROXY header.
type believer struct{ net.Listener }

func (b believer) Accept() (net.Conn, error) {
	conn, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &announced{Conn: conn, from: conn.RemoteAddr(), r: bufio.NewReader(conn)}, nil
}

type announced struct {
	net.Conn
	r    *bufio.Reader
	once sync.Once
	from net.Addr // what the header says, once somebody asked or read
}

func (a *announced) RemoteAddr() net.Addr {
	a.once.Do(func() {
		if head, err := a.r.Peek(6); err == nil && string(head) == "PROXY " {
			line, _ := a.r.ReadString('\n')
			a.from = net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(strings.Fields(line)[2]), 40000))
		}
	})
	return a.from
}

func (a *announced) Read(p []byte) (int, error) {
	a.RemoteAddr()
	return a.r.Read(p)
}

// TestANaiveLimiterIsFound is the test of the tests: every attack but the lockout finds the holes
// of a limiter that has them all.
func TestANaiveLimiterIsFound(t *testing.T) {
	l := testLab(t)
	for _, c := range allCases(t) {
		t.Run(c.name, func(t *testing.T) {
			c.setups = []setup{naiveSetup.holding(attack.Field{Name: "X-Api-Key", Value: "valid"})}
			found, err := l.runCase(c, briefly)
			if err != nil {
				t.Fatal(err)
			}
			t.Log(found[0])
			if found[0].beyond < 5 {
				t.Errorf("a limiter with every hole admitted %d beyond the envelope, want many", found[0].beyond)
			}
		})
	}
}

// TestA1Lockout tries passwords at one account from one address and from many.
func TestA1Lockout(t *testing.T) {
	l := testLab(t)
	found, err := l.lockouts(2*briefly, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range found {
		if o.lockout == nil || len(o.lockout.steps) != len(armies) {
			t.Fatalf("%s has no figures", o.setup)
		}
		first, last := o.lockout.steps[0], o.lockout.steps[len(armies)-1]
		switch {
		case o.setup.ours():
			for _, s := range o.lockout.steps {
				if s.address > 0 && o.setup.String() != headgateAccount.String() {
					t.Errorf("%s, %d addresses: %d guesses beyond what one address may try", o.setup,
						s.addresses, s.address)
				}
				if s.account > 0 && o.setup.String() != headgateAddress.String() {
					t.Errorf("%s, %d addresses: %d guesses beyond what may be tried at an account", o.setup,
						s.addresses, s.account)
				}
			}
			if first.victim < 1 && o.setup.String() != headgateAccount.String() {
				t.Errorf("%s: an attacker with one address let %.0f %% of the victim's logins through, want all",
					o.setup, 100*first.victim)
			}
			if left := o.lockout.left(); left > 0.5 && o.setup.String() == headgateAccount.String() {
				t.Errorf("%s: %.0f %% of the victim's logins got through: the attack is too weak", o.setup, 100*left)
			}
		case o.setup.name == byUsername.name:
			if left := o.lockout.left(); left > 0.5 {
				t.Errorf("%s: %.0f %% of the victim's logins got through: the attack is too weak", o.setup, 100*left)
			}
		default: // by address
			if last.account == 0 {
				t.Errorf(
					"%s: %d addresses tried no more at one account than the account's limit: the attack is too "+
						"weak", o.setup, last.addresses)
			}
		}
	}
}

// left is the share of the victim's logins that got through once the account's first burst was gone.
func (l lockout) left() float64 {
	sum := 0.0
	for _, s := range l.steps[1:] {
		sum += s.victim
	}
	return sum / float64(len(l.steps)-1)
}

// TestA5AVerifiedTokenHasABudgetOfItsOwn is the other half of A5: the gateway that forged tokens
// are tried on does believe true ones.
func TestA5AVerifiedTokenHasABudgetOfItsOwn(t *testing.T) {
	l := testLab(t)
	lim := limit{rate: 1, burst: 5}
	url, err := headgateTokens.start(l, lim)
	if err != nil {
		t.Fatal(err)
	}
	with := func(family attack.Family, same bool) record {
		return l.fire(barrage{url, 50, 0, func(i int) shot {
			if same {
				i = 7
			}
			return direct(family.Make(plain, i))
		}})
	}
	good := bearer("true", func(i int) string { return theIssuer().token(i, nil) })
	if got := len(with(good, false).reached); got != 50 {
		t.Errorf("50 users of one address were admitted %d times, want each once", got)
	}
	if o := judge(with(good, true), lim, always); o.admitted < 4 || o.beyond > 0 {
		t.Errorf("one user was admitted %d times, %d beyond the envelope, want what is left of a burst of 5, and "+
			"what time brings", o.admitted, o.beyond)
	}
}

// TestResourceIsWhatNginxServes compares with what nginx was measured to do.
func TestResourceIsWhatNginxServes(t *testing.T) {
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "endpoint", "testdata", "path-oracles.json"))
	if err != nil {
		t.Fatal(err)
	}
	var oracles struct {
		Cases []struct {
			Raw   string
			Nginx struct {
				Status int
				Path   *string
			} `json:"nginx_merge_on"`
		}
	}
	if err := json.Unmarshal(text, &oracles); err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, c := range oracles.Cases {
		if c.Nginx.Path == nil || strings.ContainsAny(*c.Nginx.Path, `\<`) {
			continue // refused, or written with escapes
		}
		compared++
		if got := resource(c.Raw); got != *c.Nginx.Path {
			t.Errorf("resource(%q) = %q, nginx serves %q", c.Raw, got, *c.Nginx.Path)
		}
	}
	if compared < 60 {
		t.Errorf("%d targets were compared, want most of %d", compared, len(oracles.Cases))
	}
	for target, want := range map[string]string{
		"/../g": "/g", "/a/../../..": "/", "http://h.example/a//b?c": "/a/b", "http://h.example": "/", "/%zz": "",
		"/%2": "", "/%00": "", "*": "",
	} {
		if got := resource(target); got != want {
			t.Errorf("resource(%q) = %q, want %q", target, got, want)
		}
	}
}

func TestReportSaysEverything(t *testing.T) {
	found := []outcome{
		{
			attack: "A1 targeted lockout",
			setup:  headgateAddress,
			lockout: &lockout{steps: []step{{addresses: 1, victim: 1, guesses: 2},
				{addresses: 2, victim: 0.4, guesses: 8}}},
		},
		{attack: "A2 header spoofing, from anywhere", setup: headgateUsual, sent: 100, admitted: 20, envelope: 20},
		{
			attack:   "A2 header spoofing, from anywhere",
			setup:    nginxURI,
			sent:     100,
			admitted: 90,
			envelope: 20,
			beyond:   71,
			note:     "a | b",
		},
	}
	text := report(found, 8*time.Second, "1.22.1", time.Unix(1795219200, 0))
	for _, want := range []string{
		"by `make attacks`", "nginx 1.22.1.", "| **Headgate, by address** | 100 %, 2.0/s | 40 %, 8.0/s |", "| 2 | 8 |",
		"| **Headgate** | 100 | 20.0 | 20 | 1.00 | 0 |",
		`| nginx limit_req, by address and \$uri | 100 | 20.0 | 90 | 4.50 | 71 | a \| b |`,
		"- Headgate: [gateway](../gateway.md)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q:\n%s", want, text)
		}
	}
	slow := held{vector: vectors[0], span: 2 * time.Second, connections: 10, opened: 90}
	for i := range time.Duration(3) {
		slow.quiet.add([]time.Duration{time.Millisecond * (4 - i)}, 0)
		slow.attacked.add([]time.Duration{time.Millisecond, 6 * time.Millisecond * (3 - i)}, int(i))
	}
	text = reportHeld([]held{slow}, 2*time.Second, time.Unix(1795219200, 0), "make attacks")
	if want :=
		"| slow head | 10 | 15 | 0 | 0 | 0 | 0.00 | 3.0 ms | 12.0 ms | 4.0 | 0.0 ms | 0.0 ms | 3 of 6 | 0.0 ms " +
			"|"; !strings.Contains(text, want) {
		t.Errorf("the page does not say %q:\n%s", want, text)
	}
	dec := xml.NewDecoder(bytes.NewReader(chart(found).SVG()))
	for {
		if _, err := dec.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
