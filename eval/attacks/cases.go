package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/server/attack"
)

// outcome is what one limiter admitted under one attack.
type outcome struct {
	attack string // its name in the paper and ours
	setup  setup

	sent, admitted int
	took           time.Duration
	envelope       float64 // the most that the limit admits in took
	beyond         int64   // requests above the envelope of the interval in which most were
	note           string

	lockout *lockout // of A1
}

// factor is what was admitted, relative to the limit.
func (o outcome) factor() float64 { return float64(o.admitted) / o.envelope }

func (o outcome) String() string {
	return fmt.Sprintf("%-44s %-46s admitted %5d of %5d, envelope %6.1f, factor %6.2f, beyond %d  %s", o.attack,
		o.setup, o.admitted, o.sent, o.envelope, o.factor(), o.beyond, o.note)
}

// kase is an attack and the setups that it is tried on.
type kase struct {
	name   string
	limit  limit
	setups []setup
	alone  bool // one setup at a time, as it takes the whole machine
	run    func(l *lab, url string, s setup, lim limit, span time.Duration) (outcome, error)
}

// usual is the limit of most cases: 5 a second, 10 at once.
var usual = limit{rate: 5, burst: 10}

// The endpoints of the API.
var routes = []string{"GET /v1/items/{id}", "POST /v1/login"}

var headgateUsual = headgateSetup("", routes)

func cases() ([]kase, error) {
	corpus, err := readCorpus()
	if err != nil {
		return nil, err
	}
	return []kase{
		{"A2 header spoofing, from anywhere", usual,
			[]setup{headgateUsual, headgateCount, headgateSingle, headgateBalancer, httprateIP, httprateRealIP,
				tollboothAddr, tollboothXFF, tollboothReal, nginxAddr,
				envoyAddr, envoyHop, envoyGlobally, envoyGlobalHop, haproxyAddr, haproxyHop, redisCell, wafAddr,
				wafForwarded}, false, spoofDirect},
		{"A2 header spoofing, through the proxy", usual,
			[]setup{headgateUsual, headgateCount, headgateSingle, httprateIP, httprateRealIP, tollboothXFF,
				tollboothReal, nginxAddr,
				envoyHop, envoyGlobalHop, haproxyHop, redisCell, wafForwarded}, false, spoofThrough},
		{"A2 header spoofing, through a balancer", usual, []setup{headgateBalancer}, false, spoofBalanced},
		{"A2 PROXY headers, from anywhere", usual, []setup{headgateBalancer}, false, spoofPreface},
		{"A3 one path in many spellings", usual,
			append([]setup{headgateUsual, httprateEndpoint, httprateRouted, tollboothAddr, nginxAddr, nginxLocation,
				nginxURI, nginxTarget}, byAddress...), false, spell},
		{"A3 corpus of targets", limit{rate: 1, burst: 2},
			[]setup{corpus.headgate(), httprateEndpoint, tollboothAddr, nginxAddr, nginxURI, nginxTarget},
			false, corpus.run},
		{"A4 churn", limit{rate: 1, burst: 20},
			[]setup{headgateSetup("1024 buckets", routes, "--max-buckets", "1024"), httprateIP, tollboothXFF,
				nginxSmall, envoyDefault, haproxySmall, redisCell}, true, churn},
		{"A5 random keys and forged tokens", usual,
			append([]setup{headgateUsual, headgateTokens, httprateHeader, tollboothHeader, nginxKeyCheck, nginxKey,
				nginxAddr}, byAddress...), false, present},
		{heldCredential, usual,
			[]setup{headgateKeys, headgateTokens.holding(attack.Field{Name: "Authorization",
				Value: "Bearer " + theIssuer().token(0, nil)}),
				httprateHeader.holding(attack.Field{Name: "X-Access-Token", Value: "abc123"}),
				tollboothHeader.holding(attack.Field{Name: "X-Access-Token", Value: "abc123"}),
				nginxKeyCheck.holding(attack.Field{Name: "Apikey", Value: nginxValidKey}),
				nginxKey.holding(attack.Field{Name: "Apikey", Value: nginxValidKey})}, false, presentHeld},
		{"A6 fake endpoints", usual,
			append([]setup{headgateSetup("unknown: reject", routes),
				headgateSetup("unknown: limit", routes, "--unknown", "limit"), httprateEndpoint, httprateRouted,
				tollboothAddr, nginxAddr, nginxURI}, byAddress...), false, fake},
	}, nil
}

// runAll runs every case, and A1, and tells each outcome as it comes.
func (l *lab) runAll(span time.Duration, progress io.Writer) ([]outcome, error) {
	found, err := l.lockouts(span, progress)
	if err != nil {
		return nil, err
	}
	list, err := cases()
	if err != nil {
		return nil, err
	}
	for _, c := range list {
		got, err := l.runCase(c, span)
		if err != nil {
			return nil, err
		}
		for _, o := range got {
			fmt.Fprintln(progress, o)
		}
		found = append(found, got...)
	}
	return found, nil
}

// runCase tries an attack on every setup, each started anew.
func (l *lab) runCase(c kase, span time.Duration) ([]outcome, error) {
	room, err := l.room()
	if err != nil {
		return nil, err
	}
	defer room.close()
	urls := make([]string, len(c.setups))
	for i, s := range c.setups {
		if urls[i], err = s.start(room, c.limit); err != nil {
			return nil, fmt.Errorf("%s: %w", s, err)
		}
	}
	outcomes, errs := make([]outcome, len(c.setups)), make([]error, len(c.setups))
	var wg sync.WaitGroup
	for i, s := range c.setups {
		work := func() {
			outcomes[i], errs[i] = c.run(room, urls[i], s, c.limit, span)
			outcomes[i].attack, outcomes[i].setup = c.name, s
		}
		if c.alone {
			work()
		} else {
			wg.Go(work)
		}
	}
	wg.Wait()
	return outcomes, errors.Join(append(errs, l.ctx.Err())...)
}

// pace is the requests a second of an attack.
const pace = 100

// count is how many requests an attack makes in a span.
func count(span time.Duration) int { return int(span.Seconds() * pace) }

// judge says what was admitted of the requests that arrived and count.
func judge(r record, lim limit, counts func(seen) bool) outcome {
	l := attack.Limit{Requests: lim.rate, Per: time.Second, Burst: lim.burst}
	var spans []attack.Span
	for _, s := range r.reached {
		if counts(s) {
			spans = append(spans, s.Span)
		}
	}
	return outcome{
		sent:     r.sent,
		admitted: len(spans),
		took:     r.took,
		envelope: l.Envelope(r.took),
		beyond:   l.Beyond(spans),
	}
}

func always(seen) bool { return true }

const item = "/v1/items/1"

var plain = attack.Request{Method: "GET", Target: item}

// search tries all families of an attack in turn, then goes on with the one that got most: so does
// an attacker. from is who sends, and what happens to a request on its way.
func search(l *lab, url string, lim limit, span time.Duration, families []attack.Family, from func(attack.Request) shot,
	counts func(seen) bool) outcome {
	n := count(span)
	scouts := max(n/4, 3*len(families))
	first := l.fire(barrage{url, scouts, 2 * pace, func(i int) shot {
		return from(families[i%len(families)].Make(plain, i/len(families)))
	}})
	got, best := make([]int, len(families)), 0
	for _, s := range first.reached {
		if which := s.i % len(families); counts(s) {
			if got[which]++; got[which] > got[best] {
				best = which
			}
		}
	}
	then := l.fire(barrage{url, n, pace, func(i int) shot { return from(families[best].Make(plain, scouts+i)) }})
	all := record{
		sent:    first.sent + then.sent,
		took:    first.took + then.took,
		reached: slices.Concat(first.reached, then.reached),
	}
	o := judge(all, lim, counts)
	if o.beyond > 0 {
		o.note = families[best].Name
	}
	return o
}

func direct(r attack.Request) shot { return shot{Request: r, from: attacker} }

// through is a request that comes by a proxy which appends to X-Forwarded-For and sets X-Real-IP,
// as nginx's documentation has it.
func through(r attack.Request) shot { return shot{Request: forwarded(r, "203.0.113.7"), from: proxy} }

// spoofDirect claims another address in every request, from an address that nobody trusts.
func spoofDirect(l *lab, url string, _ setup, lim limit, span time.Duration) (outcome, error) {
	return search(l, url, lim, span, attack.Headers.Families, direct, always), nil
}

// spoofThrough does it from behind the operator's proxy.
func spoofThrough(l *lab, url string, _ setup, lim limit, span time.Duration) (outcome, error) {
	return search(l, url, lim, span, attack.Headers.Families, through, always), nil
}

// forwarded is a request after the operator's proxy: client is the address that the proxy saw.
func forwarded(r attack.Request, client string) attack.Request {
	chain := []string{}
	var kept []attack.Field
	for _, f := range r.Header {
		switch {
		case strings.EqualFold(f.Name, "X-Forwarded-For"):
			chain = append(chain, f.Value)
		case !strings.EqualFold(f.Name, "X-Real-IP"):
			kept = append(kept, f)
		}
	}
	r.Header = append(kept, attack.Field{Name: "X-Forwarded-For", Value: strings.Join(append(chain, client), ", ")},
		attack.Field{Name: "X-Real-IP", Value: client})
	return r
}

// spell asks for one item in other spellings. What counts is what the API serves as that item.
func spell(l *lab, url string, _ setup, lim limit, span time.Duration) (outcome, error) {
	return search(l, url, lim, span, attack.Spelling.Families, direct, func(s seen) bool { return s.resource == item }),
		nil
}

// present shows another key or token in every request.
func present(l *lab, url string, _ setup, lim limit, span time.Duration) (outcome, error) {
	return search(l, url, lim, span, slices.Concat(attack.Keys.Families, attack.Tokens.Families,
		theIssuer().forgeries()), direct, always), nil
}

// heldCredential is the second part of A5.
const heldCredential = "A5 a valid credential, from 20 addresses"

// presentHeld shows a valid credential from many addresses, claimed ones too: beside made-up ones,
// repeated, and in other spellings of its field. All of it is to be that credential's.
func presentHeld(l *lab, url string, s setup, lim limit, span time.Duration) (outcome, error) {
	given, ok := l.credential(url)
	if !ok {
		return outcome{}, fmt.Errorf("%s has no valid credential", s)
	}
	families := slices.Concat(attack.Credential(given).Families, attack.Respelled(given),
		attack.Claimed(given).Families)
	var sent atomic.Int64
	roaming := func(r attack.Request) shot {
		return shot{Request: r, from: accomplice(int(sent.Add(1) % 20))}
	}
	return search(l, url, lim, span, families, roaming, always), nil
}

// fake asks for what is not there. All of it is to share one budget, or none of it to arrive.
func fake(l *lab, url string, _ setup, lim limit, span time.Duration) (outcome, error) {
	return search(l, url, lim, span, attack.Unknown.Families, direct, always), nil
}

// churn drains its own budget again and again, and between has a botnet behind the proxy use up the
// limiter's memory: who is forgotten begins anew.
func churn(l *lab, url string, _ setup, lim limit, span time.Duration) (outcome, error) {
	const junk = 3000 // three times the states of the small tables
	var all record
	flooded := 0
	start := l.api.since()
	for rounds := 0; (rounds < 3 || l.api.since()-start < span) && l.ctx.Err() == nil; rounds++ {
		own := l.fire(barrage{url, int(lim.burst) + 5, 0, func(int) shot { return through(plain) }})
		all.sent += own.sent
		all.reached = append(all.reached, own.reached...)
		l.fire(barrage{url, junk, 0, func(i int) shot {
			n := flooded + i
			return shot{
				Request: forwarded(plain, netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}).String()),
				from:    proxy,
			}
		}})
		flooded += junk
	}
	all.took = l.api.since() - start
	o := judge(all, lim, always)
	o.note = fmt.Sprintf("%d other clients", flooded)
	return o, nil
}

// corpus is the targets of endpoint/testdata whose reading servers disagree about.
type corpus struct {
	targets   []string
	resources []string // what they are to nginx, each once
}

func readCorpus() (corpus, error) {
	root, err := harness.Root()
	if err != nil {
		return corpus{}, err
	}
	var oracles struct{ Cases []struct{ Raw string } }
	var cves struct{ Cases []struct{ Request string } }
	for name, into := range map[string]any{"path-oracles.json": &oracles, "path-confusion-cves.json": &cves} {
		text, err := os.ReadFile(filepath.Join(root, "endpoint", "testdata", name))
		if err == nil {
			err = json.Unmarshal(text, into)
		}
		if err != nil {
			return corpus{}, err
		}
	}
	var c corpus
	for _, one := range oracles.Cases {
		if !strings.ContainsAny(one.Raw, " \r\n") { // these end the request line
			c.targets = append(c.targets, one.Raw)
		}
	}
	for _, one := range cves.Cases {
		for _, word := range strings.Fields(one.Request) {
			if strings.HasPrefix(word, "/") {
				c.targets = append(c.targets, word)
			}
		}
	}
	slices.Sort(c.targets)
	c.targets = slices.Compact(c.targets)
	for _, t := range c.targets {
		c.resources = append(c.resources, resource(t))
	}
	slices.Sort(c.resources)
	c.resources = slices.DeleteFunc(slices.Compact(c.resources), func(s string) bool { return s == "" })
	return c, nil
}

// headgate declares every resource of the corpus that a template can name.
func (c corpus) headgate() setup {
	var list []string
	for _, path := range c.resources {
		plain := func(r rune) bool {
			return r == '/' || r == '-' || r == '_' || r == '.' || 'a' <= r|0x20 && r|0x20 <= 'z' ||
				'0' <= r && r <= '9'
		}
		path = strings.TrimSuffix(path, "/")
		if path != "" && !strings.Contains(path, "...") &&
			strings.IndexFunc(path, func(r rune) bool { return !plain(r) }) < 0 {
			list = append(list, "GET "+path)
		}
	}
	slices.Sort(list)
	return headgateSetup("an endpoint for every resource", slices.Compact(list))
}

// run sends every target several times over, and looks for the resource that got most.
func (c corpus) run(l *lab, url string, _ setup, lim limit, _ time.Duration) (outcome, error) {
	const times = 5
	r := l.fire(barrage{url, times * len(c.targets), 4 * pace, func(i int) shot {
		return shot{Request: attack.Request{Method: "GET", Target: c.targets[i%len(c.targets)]}, from: attacker}
	}})
	byResource := map[string]bool{}
	for _, s := range r.reached {
		if s.resource != "" { // no server reads it
			byResource[s.resource] = true
		}
	}
	worst, widened := outcome{}, 0
	for _, name := range slices.Sorted(maps.Keys(byResource)) {
		o := judge(r, lim, func(s seen) bool { return s.resource == name })
		o.note = name
		if o.beyond > 0 {
			widened++
		}
		if cmp.Or(cmp.Compare(o.beyond, worst.beyond), cmp.Compare(o.admitted, worst.admitted)) > 0 {
			worst = o
		}
	}
	worst.sent, worst.took = r.sent, r.took
	worst.note = fmt.Sprintf("most of %s; %d of %d resources beyond", worst.note, widened, len(byResource))
	return worst, nil
}
