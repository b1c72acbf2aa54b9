package usage_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/usage"
)

var (
	epoch = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	peer  = netip.MustParseAddr("192.0.2.7")
)

// named believes every token that begins with "of-", and its subject is the rest.
type named struct{}

func (named) Verify(_ context.Context, token string) (identity.Claims, error) {
	subject, ok := strings.CutPrefix(token, "of-")
	if !ok {
		return identity.Claims{}, errors.New("made up")
	}
	return identity.Claims{Subject: subject, Project: "acme", Until: time.Now().Add(time.Hour)}, nil
}

// world is a real Limiter whose decisions a Table counts.
type world struct {
	*headgate.Limiter
	table *usage.Table
	twin  twin
	set   *policy.Set
	now   time.Time
}

func newWorld(t testing.TB, callers int, templates []string, rules []policy.Rule,
	change ...func(*headgate.Options)) *world {
	t.Helper()
	w := &world{now: epoch, twin: twin{}}
	parsed := make([]endpoint.Template, len(templates))
	for i, text := range templates {
		var err error
		if parsed[i], err = endpoint.ParseTemplate(text); err != nil {
			t.Fatal(err)
		}
	}
	endpoints, err := endpoint.Compile(parsed, endpoint.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	set, problems := policy.Compile(policy.Document{Rules: rules},
		policy.CompileOptions{Endpoints: endpoints, Now: epoch})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	w.set = set
	buckets, err := memory.New(memory.Options{MaxBuckets: 1 << 14})
	if err != nil {
		t.Fatal(err)
	}
	who, err := identity.New(identity.Options{Tokens: named{}, TokenFailures: -1})
	if err != nil {
		t.Fatal(err)
	}
	clock := func() time.Time { return w.now }
	if w.table, err = usage.New(usage.Options{MaxCallers: callers, Now: clock}); err != nil {
		t.Fatal(err)
	}
	o := headgate.Options{
		Endpoints: endpoints, Policies: headgate.Fixed(set), Buckets: buckets, Identities: who, Now: clock,
		Observe: func(r *headgate.Request, d *headgate.Decision) {
			w.table.Observe(r, d)
			w.twin.observe(w.now, d)
		},
	}
	for _, c := range change {
		c(&o)
	}
	if w.Limiter, err = headgate.New(o); err != nil {
		t.Fatal(err)
	}
	return w
}

func bearer(subject string) http.Header {
	return http.Header{"Authorization": {"Bearer " + subject}}
}

func (w *world) get(subject, target string) headgate.Decision {
	return w.Check(context.Background(), headgate.Request{Method: "GET", Target: target, Peer: peer,
		Header: bearer("of-" + subject)})
}

func (w *world) of(subject string) usage.Usage {
	return w.table.Of(identity.Principal{Kind: identity.Token, ID: subject, Project: "acme"})
}

// id is the identity of the rule with a title.
func (w *world) id(t *testing.T, title string) uint64 {
	t.Helper()
	for i := range w.set.Len() {
		if w.set.Rule(policy.RuleID(i)).Title() == title {
			return w.set.Terms(policy.RuleID(i)).ID
		}
	}
	t.Fatalf("no rule has the title %q", title)
	return 0
}

// twin remembers every request, and counts those that a Count claims to.
type twin map[string][]event

type event struct {
	at      time.Time
	allowed bool
	rules   map[uint64]bool // admitted
}

func (t twin) observe(at time.Time, d *headgate.Decision) {
	if d.Principal.Kind == identity.Address {
		return
	}
	e := event{at, d.Allowed, map[uint64]bool{}}
	for _, v := range d.Verdicts() {
		if v.Outcome.Allowed && !d.Allowed {
			continue
		}
		e.rules[d.Policies().Terms(v.Rule).ID] = v.Outcome.Allowed
	}
	t[d.Principal.ID] = append(t[d.Principal.ID], e)
}

func (t twin) total(subject string, since time.Time) (admitted, denied uint64) {
	for _, e := range t[subject] {
		switch {
		case e.at.Before(since):
		case e.allowed:
			admitted++
		default:
			denied++
		}
	}
	return admitted, denied
}

func (t twin) rule(subject string, id uint64, since time.Time) (admitted, denied uint64) {
	for _, e := range t[subject] {
		allowed, counted := e.rules[id]
		switch {
		case !counted || e.at.Before(since):
		case allowed:
			admitted++
		default:
			denied++
		}
	}
	return admitted, denied
}

var rules = []policy.Rule{
	{Endpoint: "GET /a", Limit: 1, Per: time.Minute, Name: "slow"},
	{Endpoint: policy.Default, Limit: 100, Name: "others"},
	{
		Endpoint: "GET /a",
		Limit:    1,
		Per:      time.Hour,
		Subject:  policy.SubjectProject,
		Mode:     policy.Shadow,
		Name:     "on trial",
	},
}

func TestCountsByRule(t *testing.T) {
	w := newWorld(t, 100, []string{"GET /a", "GET /b"}, rules)
	for range 3 {
		w.get("ann", "/a")
		w.get("ann", "/b")
	}
	w.get("ben", "/b")
	for _, c := range []struct {
		subject, rule    string
		admitted, denied uint64
	}{
		{"ann", "slow", 1, 2},
		{"ann", "others", 3, 0},
		{"ann", "on trial", 1, 2},
		{"ben", "others", 1, 0},
		{"ben", "slow", 0, 0},
		{"cyd", "slow", 0, 0},
	} {
		u := w.of(c.subject)
		if got := u.Rule(w.id(t, c.rule)); got.Admitted != c.admitted || got.Denied != c.denied {
			t.Errorf("%s under %q: %d admitted and %d denied, want %d and %d", c.subject, c.rule, got.Admitted,
				got.Denied, c.admitted, c.denied)
		}
	}
	if got := w.of("ann").Total; got.Admitted != 4 || got.Denied != 2 {
		t.Errorf("all of ann's: %+v, want 4 admitted and 2 denied", got)
	}
}

// Who left before its turn used nothing: it is taken back where it was counted, in all and under each rule.
func TestWhoLeftIsTakenBack(t *testing.T) {
	var w *world
	leave := func() {}
	w = newWorld(t, 100, []string{"GET /a"}, []policy.Rule{
		{Endpoint: policy.Default, Limit: 1, Per: 20 * time.Minute, Burst: 3, Algorithm: policy.LeakyBucket,
			Name: "queue"},
		{Endpoint: policy.All, Limit: 9, Per: time.Hour, Name: "all"},
	}, func(o *headgate.Options) {
		observe := o.Observe
		o.Observe = func(r *headgate.Request, d *headgate.Decision) {
			observe(r, d)
			leave()
		}
		o.Abandoned = func(r *headgate.Request, d *headgate.Decision, at int64) { w.table.Abandoned(r, d, at) }
	})
	w.get("ann", "/a")
	w.get("ben", "/a")
	for range 2 { // the second one in the place that the first gave back
		ctx, end := context.WithCancel(t.Context())
		leave = func() {
			w.now = w.now.Add(3 * time.Minute)
			end()
		}
		d, err := w.Wait(ctx, headgate.Request{Method: "GET", Target: "/a", Peer: peer, Header: bearer("of-ann")})
		if err == nil || d.Reason != headgate.Abandoned {
			t.Errorf("a request that left: %v, %v", d.Reason, err)
		}
	}
	ann := w.of("ann")
	for what, c := range map[string]usage.Count{"all": ann.Total, "the queue": ann.Rule(w.id(t, "queue")),
		"the budget for all": ann.Rule(w.id(t, "all")), "another's": w.of("ben").Total} {
		if c.Admitted != 1 || c.Denied != 0 {
			t.Errorf("of %s %d admitted and %d denied, want 1 and 0", what, c.Admitted, c.Denied)
		}
	}
	if n := len(ann.AdmittedBy); ann.AdmittedBy[n-4] != 1 {
		t.Errorf("admitted by cell %v, want the one that was served six minutes ago", ann.AdmittedBy)
	}
}

func TestHourPasses(t *testing.T) {
	w := newWorld(t, 100, []string{"GET /a", "GET /b"}, rules)
	w.now = epoch.Add(time.Minute)
	w.get("ann", "/b")
	for _, step := range []struct {
		at       time.Duration
		admitted uint64
		since    time.Duration
		complete bool
	}{
		{time.Minute, 1, 0, false},
		{30 * time.Minute, 1, 0, false},
		{58*time.Minute - 1, 1, 0, false},
		{58 * time.Minute, 1, 0, true},
		{60*time.Minute - 1, 1, 0, true},
		{60 * time.Minute, 0, 2 * time.Minute, true},
		{24 * time.Hour, 0, 24*time.Hour - 58*time.Minute, true},
		// the clock steps back: what was counted last stays the end
		{2 * time.Minute, 0, 24*time.Hour - 58*time.Minute, true},
	} {
		w.now = epoch.Add(step.at)
		got := w.of("ann").Total
		want := usage.Count{Admitted: step.admitted, Since: epoch.Add(step.since), Complete: step.complete}
		if got != want {
			t.Errorf("at %v: %+v, want %+v", step.at, got, want)
		}
	}
	w.get("ann", "/b")
	if got := w.of("ann").Total.Admitted; got != 1 {
		t.Errorf("after a step back, %d requests count, want 1", got)
	}
}

// Any history: every number is what was seen since the time that goes with it,
// however many callers and rules there is no room for.
func TestAgreesWithTheTwin(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	var templates []string
	var rules []policy.Rule
	for i := range 12 {
		templates = append(templates, fmt.Sprintf("GET /%c", 'a'+i))
		rules = append(rules, policy.Rule{Endpoint: templates[i], Limit: 1, Burst: 3, Name: fmt.Sprint("rule ", i)})
	}
	rules = append(rules, policy.Rule{Endpoint: policy.All, Limit: 2, Burst: 9, Name: "all"})
	// in an hour more come than there is room for, wherever the table's own secret puts them
	w := newWorld(t, 16, templates, rules)
	forgotten, whole := 0, 0
	for range 20_000 {
		switch random.IntN(100) {
		case 0:
			w.now = w.now.Add(time.Duration(random.Int64N(int64(20 * time.Minute))))
		default:
			w.now = w.now.Add(time.Duration(random.Int64N(int64(2 * time.Second))))
		}
		subject := fmt.Sprint("s", random.IntN(40)*random.IntN(40))
		w.get(subject, fmt.Sprintf("/%c", 'a'+random.IntN(1+random.IntN(12))))
		if random.IntN(5) > 0 {
			continue
		}
		u := w.of(subject)
		if u.Total.Complete {
			whole++
		} else {
			forgotten++
		}
		if admitted, denied := w.twin.total(subject, u.Total.Since); u.Total.Admitted != admitted ||
			u.Total.Denied != denied {
			t.Fatalf("at %v, %s since %v: %d admitted and %d denied, want %d and %d", w.now, subject, u.Total.Since,
				u.Total.Admitted, u.Total.Denied, admitted, denied)
		}
		for i := range w.set.Len() {
			id := w.set.Terms(policy.RuleID(i)).ID
			got := u.Rule(id)
			if admitted, denied := w.twin.rule(subject, id, got.Since); got.Admitted != admitted ||
				got.Denied != denied {
				t.Fatalf("at %v, %s under rule %d since %v: %d admitted and %d denied, want %d and %d", w.now, subject,
					i, got.Since, got.Admitted, got.Denied, admitted, denied)
			}
		}
	}
	if forgotten < 50 || whole < 50 {
		t.Errorf("%d answers were complete and %d were not, want some of both", whole, forgotten)
	}
}

// Credentials that nobody gave out enter nowhere: they neither drive out a
// caller nor make an answer less complete.
func TestMadeUpCallersNeverEnter(t *testing.T) {
	w := newWorld(t, 1, []string{"GET /a", "GET /b"}, rules)
	w.get("ann", "/b")
	for i := range 100_000 {
		w.Check(context.Background(), headgate.Request{Method: "GET", Target: "/b", Peer: peer,
			Header: bearer(fmt.Sprint("forged-", i))})
	}
	w.now = epoch.Add(58 * time.Minute)
	if got := w.of("ann").Total; got.Admitted != 1 || !got.Complete {
		t.Errorf("after a flood of made-up tokens: %+v, want the one request, complete", got)
	}
}

// Those who were forgotten are told so, and those who stayed are not.
func TestForgettingIsSaid(t *testing.T) {
	w := newWorld(t, 1, []string{"GET /a", "GET /b"}, rules)
	w.now = epoch.Add(2 * time.Hour)
	w.get("first", "/b")
	w.now = w.now.Add(10 * time.Minute)
	for i := range 10_000 {
		w.get(fmt.Sprint("s", i), "/b")
	}
	w.get("last", "/b")
	if got := w.of("first").Total; got.Admitted != 0 || got.Complete ||
		got.Since.Before(epoch.Add(2*time.Hour+2*time.Minute)) {
		t.Errorf("the one who was driven out: %+v, want nothing since a time after its request", got)
	}
	if got := w.of("last").Total; got.Admitted != 1 && got.Complete {
		t.Errorf("the newest: %+v, want its request, and not complete", got)
	}
	w.now = w.now.Add(time.Hour)
	if got := w.of("first").Total; got.Admitted != 0 || !got.Complete {
		t.Errorf("an hour later: %+v, want nothing, complete", got)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, most := range []int{-1, 0, 1_000_001} {
		if _, err := usage.New(usage.Options{MaxCallers: most}); err == nil {
			t.Errorf("New with MaxCallers %d: no error", most)
		}
	}
}

// TestMemoryIsFixed pins what docs/developers.md says of it.
func TestMemoryIsFixed(t *testing.T) {
	table, err := usage.New(usage.Options{MaxCallers: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	if got := table.Bytes(); got < 20<<20 || got > 32<<20 {
		t.Errorf("10000 callers take %d bytes, want 20 to 32 MiB as the page says", got)
	}
}

func TestObserveAllocatesNothing(t *testing.T) {
	w := newWorld(t, 100, []string{"GET /a", "GET /b"}, rules)
	d := w.get("ann", "/a")
	if n := testing.AllocsPerRun(100, func() { w.table.Observe(nil, &d) }); n != 0 {
		t.Errorf("Observe allocates %v times, want 0", n)
	}
}

func TestObserveFromManyGoroutines(t *testing.T) {
	w := newWorld(t, 100, []string{"GET /a", "GET /b"}, rules, func(o *headgate.Options) { o.Observe = nil })
	var all sync.WaitGroup
	for i := range 8 {
		d := w.get(fmt.Sprint("s", i%2), "/b")
		all.Go(func() {
			for range 1000 {
				w.table.Observe(nil, &d)
				w.of("s1")
			}
		})
	}
	all.Wait()
	for _, subject := range []string{"s0", "s1"} {
		if got := w.of(subject).Total.Admitted; got != 4000 {
			t.Errorf("%s has %d requests, want 4000", subject, got)
		}
	}
}

// BenchmarkObserve is what counting adds to a request: of one caller, and of
// many who come in turn.
func BenchmarkObserve(b *testing.B) {
	for _, callers := range []int{1, 1000} {
		w := newWorld(b, 10_000, []string{"GET /a", "GET /b"}, rules, func(o *headgate.Options) { o.Observe = nil })
		table, err := usage.New(usage.Options{MaxCallers: 10_000})
		if err != nil {
			b.Fatal(err)
		}
		decisions := make([]headgate.Decision, callers)
		for i := range decisions {
			decisions[i] = w.get(fmt.Sprint("s", i), "/b")
		}
		b.Run(fmt.Sprint(callers, "callers"), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				table.Observe(nil, &decisions[i%callers])
			}
		})
		b.Run(fmt.Sprint(callers, "callers/parallel"), func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := rand.IntN(callers); pb.Next(); i++ {
					table.Observe(nil, &decisions[i%callers])
				}
			})
		})
	}
}

// BenchmarkCheck is a whole decision without counting and with it.
func BenchmarkCheck(b *testing.B) {
	for _, counted := range []bool{false, true} {
		w := newWorld(b, 10_000, []string{"GET /a", "GET /b"},
			[]policy.Rule{{Endpoint: policy.Default, Limit: 1 << 40}}, func(o *headgate.Options) {
				table, err := usage.New(usage.Options{MaxCallers: 10_000})
				if err != nil {
					b.Fatal(err)
				}
				o.Now, o.Observe = nil, nil
				if counted {
					o.Observe = table.Observe
				}
			})
		request := headgate.Request{Method: "GET", Target: "/b", Peer: peer, Header: bearer("of-ann")}
		b.Run(fmt.Sprint("counted=", counted), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w.Check(context.Background(), request)
			}
		})
	}
}
