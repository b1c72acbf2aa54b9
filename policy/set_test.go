package policy_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
)

// applies writes what Resolve returns as people read it: level, limit and, if
// it is not the default, subject.
func applies(s *policy.Set, now int64, m endpoint.Match, project, tier string) []string {
	out := []string{}
	for _, a := range s.Resolve(nil, now, m, project, tier) {
		r := s.Rule(a.Rule)
		text := fmt.Sprintf("%v %d", a.Level, r.Limit)
		if r.Subject != policy.SubjectPrincipal {
			text += " per " + r.Subject.String()
		}
		out = append(out, text)
	}
	return out
}

// TestResolvePrecedence walks down the chain of the paper, section 6.2, with
// tiers in between.
func TestResolvePrecedence(t *testing.T) {
	now := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	doc := policy.Document{
		Projects: map[string]string{"acme": "gold", "umbrella": "gold", "initech": "silver"},
		Rules: []policy.Rule{
			{Endpoint: "GET /v1/items/{id}", Project: "acme", Limit: 1},
			{Endpoint: "GET /v1/items/{name}", Tier: "gold", Limit: 2},
			{Endpoint: "GET /v1/items/{id}", Limit: 3},
			{Endpoint: policy.Default, Project: "acme", Limit: 4},
			{Endpoint: policy.Default, Tier: "gold", Limit: 5},
			{Endpoint: policy.Default, Limit: 6},
			{Endpoint: policy.UnknownEndpoint, Limit: 7},
			{Endpoint: policy.All, Project: "acme", Limit: 8},
			{Endpoint: policy.All, Tier: "gold", Limit: 9},
			{Endpoint: policy.All, Limit: 10},

			{Endpoint: "GET /v1/items/{id}", Limit: 11, Subject: policy.SubjectIP},
			{Endpoint: policy.UnknownEndpoint, Limit: 12, Subject: policy.SubjectIP},
			{Endpoint: "POST /v1/login", Project: "acme", Limit: 13, Expires: now.Add(time.Second)},
			{Endpoint: policy.UnknownEndpoint, Limit: 14, Subject: policy.SubjectRegion},
		},
	}
	endpoints := table(t, "GET /v1/items/{id}", "POST /v1/login")
	set := compile(t, doc, policy.CompileOptions{Endpoints: endpoints, Now: now})
	tests := []struct {
		name, endpoint, project, tier string
		after                         time.Duration
		want                          []string
	}{
		{name: "project's own", endpoint: "GET /v1/items/{id}", project: "acme",
			want: []string{"(endpoint, project) 1", "(endpoint) 11 per ip", "(UNKNOWN) 14 per region",
				"(*, project) 8"}},
		{name: "tier by the document", endpoint: "GET /v1/items/{id}", project: "umbrella",
			want: []string{"(endpoint, tier) 2", "(endpoint) 11 per ip", "(UNKNOWN) 14 per region", "(*, tier) 9"}},
		{name: "tier by the request", endpoint: "GET /v1/items/{id}", project: "initech", tier: "gold",
			want: []string{"(endpoint, tier) 2", "(endpoint) 11 per ip", "(UNKNOWN) 14 per region", "(*, tier) 9"}},
		{name: "the request's tier wins", endpoint: "GET /v1/items/{id}", project: "umbrella", tier: "lead",
			want: []string{"(endpoint) 3", "(endpoint) 11 per ip", "(UNKNOWN) 14 per region", "(*) 10"}},
		{name: "tier without a project", endpoint: "GET /v1/items/{id}", tier: "gold",
			want: []string{"(endpoint, tier) 2", "(endpoint) 11 per ip", "(UNKNOWN) 14 per region", "(*, tier) 9"}},
		{name: "everybody's", endpoint: "GET /v1/items/{id}",
			want: []string{"(endpoint) 3", "(endpoint) 11 per ip", "(UNKNOWN) 14 per region", "(*) 10"}},
		{name: "a project is no tier", endpoint: "GET /v1/items/{id}", project: "gold",
			want: []string{"(endpoint) 3", "(endpoint) 11 per ip", "(UNKNOWN) 14 per region", "(*) 10"}},
		{name: "default of the tier", endpoint: "POST /v1/login", project: "umbrella",
			want: []string{"(default, tier) 5", "(UNKNOWN) 12 per ip", "(UNKNOWN) 14 per region", "(*, tier) 9"}},
		{name: "default", endpoint: "POST /v1/login", project: "initech",
			want: []string{"(default) 6", "(UNKNOWN) 12 per ip", "(UNKNOWN) 14 per region", "(*) 10"}},
		{name: "until it expires", endpoint: "POST /v1/login", project: "acme", after: time.Second - 1,
			want: []string{"(endpoint, project) 13", "(UNKNOWN) 12 per ip", "(UNKNOWN) 14 per region",
				"(*, project) 8"}},
		{name: "once it expired", endpoint: "POST /v1/login", project: "acme", after: time.Second,
			want: []string{"(default, project) 4", "(UNKNOWN) 12 per ip", "(UNKNOWN) 14 per region", "(*, project) 8"}},
		{name: "unknown sees UNKNOWN alone", project: "acme",
			want: []string{"(UNKNOWN) 7", "(UNKNOWN) 12 per ip", "(UNKNOWN) 14 per region"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := endpoint.Match{Status: endpoint.UnknownPath}
			if tt.endpoint != "" {
				m = endpoint.Match{ID: lookup(t, endpoints, tt.endpoint), Status: endpoint.Known}
			}
			got := applies(set, now.Add(tt.after).UnixNano(), m, tt.project, tt.tier)
			if !slices.Equal(got, tt.want) {
				t.Errorf("Resolve(%q, project %q, tier %q)\n got %q\nwant %q", tt.endpoint, tt.project,
					tt.tier, got, tt.want)
			}
		})
	}
}

// TestResolveOverrideKeepsTheGuard: a tenant's override replaces the limit of
// the same subject and never switches off another's.
func TestResolveOverrideKeepsTheGuard(t *testing.T) {
	endpoints := table(t, "POST /v1/login")
	set := compile(t, policy.Document{Rules: []policy.Rule{
		{Endpoint: "POST /v1/login", Limit: 5, Subject: policy.SubjectIP},
		{Endpoint: "POST /v1/login", Project: "acme", Limit: 1000},
	}}, policy.CompileOptions{Endpoints: endpoints})
	got := applies(set, 0, endpoint.Match{ID: 1, Status: endpoint.Known}, "acme", "")
	want := []string{"(endpoint, project) 1000", "(endpoint) 5 per ip"}
	if !slices.Equal(got, want) {
		t.Errorf("Resolve = %q, want %q", got, want)
	}
}

// A limit on trial must never switch off the one that holds.
func TestResolveShadowHidesNothing(t *testing.T) {
	endpoints := table(t, "GET /a")
	set := compile(t, policy.Document{Rules: []policy.Rule{
		{Endpoint: "GET /a", Project: "acme", Limit: 1, Mode: policy.Shadow},
		{Endpoint: "GET /a", Limit: 2, Mode: policy.Shadow},
		{Endpoint: policy.Default, Limit: 3},
		{Endpoint: policy.UnknownEndpoint, Limit: 4, Mode: policy.Shadow},
		{Endpoint: policy.All, Project: "acme", Limit: 5, Mode: policy.Shadow},
		{Endpoint: policy.All, Limit: 6},
	}}, policy.CompileOptions{Endpoints: endpoints})
	for project, want := range map[string][]int64{"acme": {1, 3, 5, 6}, "": {2, 3, 6}} {
		var got []int64
		for _, a := range set.Resolve(nil, 0, endpoint.Match{ID: 1, Status: endpoint.Known}, project, "") {
			got = append(got, set.Rule(a.Rule).Limit)
		}
		if !slices.Equal(got, want) {
			t.Errorf("limits that apply to project %q = %v, want %v", project, got, want)
		}
	}
}

func TestResolveWithoutRules(t *testing.T) {
	set := compile(t, policy.Document{}, policy.CompileOptions{})
	for _, status := range []endpoint.Status{endpoint.Known, endpoint.UnknownPath, endpoint.UnknownMethod,
		endpoint.Invalid} {
		if got := set.Resolve(nil, 0, endpoint.Match{ID: 1, Status: status}, "acme", "gold"); len(got) != 0 {
			t.Errorf("Resolve(%v) = %v, want no rules", status, got)
		}
	}
}

func TestRuleRoundTrip(t *testing.T) {
	rule := policy.Rule{
		Endpoint: "GET /v1/items/{id}", Tier: "gold", Limit: 7, Per: time.Minute, Burst: 9,
		Subject: policy.SubjectRegion, Mode: policy.Shadow, OnStoreLoss: policy.LossOpen,
		Expires: time.Date(2027, 1, 1, 0, 0, 0, 5, time.UTC), Name: "items",
	}
	set := compile(t, policy.Document{Rules: []policy.Rule{rule}},
		policy.CompileOptions{Endpoints: table(t, "GET /v1/items/{id}")})
	if got := set.Rule(0); got != rule {
		t.Errorf("Rule(0) = %+v, want %+v", got, rule)
	}
	shape, err := rate.Compile(rate.Limit{Tokens: 7, Per: time.Minute, Burst: 9})
	if err != nil {
		t.Fatal(err)
	}
	want := policy.Terms{
		Shape:       shape,
		ID:          set.Terms(0).ID,
		Subject:     policy.SubjectRegion,
		Mode:        policy.Shadow,
		OnStoreLoss: policy.LossOpen,
	}
	if got := set.Terms(0); got != want {
		t.Errorf("Terms(0) = %+v, want %+v", got, want)
	}
}

func TestDefaultsAreFilledIn(t *testing.T) {
	tests := []struct {
		limit, percent, burst int64
	}{
		{limit: 10, percent: 0, burst: 10},
		{limit: 10, percent: 250, burst: 25},
		{limit: 1, percent: 199, burst: 1},
		{limit: 3, percent: 150, burst: 4},
	}
	for _, tt := range tests {
		set := compile(t, policy.Document{Rules: []policy.Rule{{Endpoint: policy.Default, Limit: tt.limit}}},
			policy.CompileOptions{BurstPercent: tt.percent})
		want := policy.Rule{Endpoint: policy.Default, Limit: tt.limit, Per: time.Second, Burst: tt.burst}
		if got := set.Rule(0); got != want {
			t.Errorf("at %d%%: Rule(0) = %+v, want %+v", tt.percent, got, want)
		}
	}
}

// TestTermsIDIsStable pins the hash: buckets in a shared store are named by it.
func TestTermsIDIsStable(t *testing.T) {
	endpoints := table(t, "GET /v1/items/{id}")
	id := func(r policy.Rule) uint64 {
		return compile(t, policy.Document{Rules: []policy.Rule{r}},
			policy.CompileOptions{Endpoints: endpoints}).Terms(0).ID
	}
	base := policy.Rule{Endpoint: "GET /v1/items/{id}", Project: "acme", Limit: 1}
	const want = 0xb78eaeafee41ff39
	if got := id(base); got != want {
		t.Errorf("ID = %#x, want %#x, as in every version before", got, uint64(want))
	}
	same := base
	same.Endpoint, same.Limit, same.Mode, same.Name = "GET /v1/items/{item}", 99, policy.Shadow, "x"
	if id(same) != want {
		t.Errorf("ID depends on more than endpoint, project, tier and subject")
	}
	seen := map[uint64]policy.Rule{want: base}
	for _, r := range []policy.Rule{
		{Endpoint: "GET /v1/items/{id}", Tier: "acme"},
		{Endpoint: "GET /v1/items/{id}", Project: "acm"},
		{Endpoint: "GET /v1/items/{id}"},
		{Endpoint: policy.Default, Project: "acme"},
		{Endpoint: policy.All, Project: "acme"},
		{Endpoint: policy.Default},
		{Endpoint: policy.UnknownEndpoint},
		{Endpoint: policy.All},
		{Endpoint: policy.All, Subject: policy.SubjectIP},
	} {
		r.Limit = 1
		if other, ok := seen[id(r)]; ok {
			t.Errorf("%+v and %+v have one ID", r, other)
		}
		seen[id(r)] = r
	}
}

// TestTermsSince tells one rule's life through reloads.
func TestTermsSince(t *testing.T) {
	base := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	first := table(t, "GET /a", "GET /b/{id}")
	second := table(t, "GET /0", "GET /b/{name}", "GET /a") // other IDs
	rule := policy.Rule{Endpoint: "GET /b/{id}", Project: "acme", Limit: 10}
	other := policy.Rule{Endpoint: policy.Default, Limit: 1}
	steps := []struct {
		at        time.Duration
		endpoints *endpoint.Table
		limit     int64 // 0: the rule is gone
		name      string
		percent   int64
		want      time.Duration // of Since after base; -1: always
	}{
		{at: 0, endpoints: first, limit: 10, want: -1},
		{at: 1 * time.Second, endpoints: first, limit: 10, name: "renamed", want: -1},
		{at: 2 * time.Second, endpoints: first, limit: 20, want: 2 * time.Second},
		{at: 3 * time.Second, endpoints: second, limit: 20, want: 2 * time.Second},
		{at: 4 * time.Second, endpoints: second, limit: 20, percent: 200, want: 4 * time.Second},
		{at: 3 * time.Second, endpoints: second, limit: 30, want: 4 * time.Second}, // the clock stepped back
		{at: 5 * time.Second, endpoints: second},
		// nothing was changed about its buckets
		{at: 6 * time.Second, endpoints: second, limit: 30, want: 4 * time.Second},
		{at: 7 * time.Second, endpoints: second},
		{at: 8 * time.Second, endpoints: second, limit: 40, want: 8 * time.Second},
	}
	var previous *policy.Set
	for i, step := range steps {
		doc := policy.Document{Rules: []policy.Rule{other}}
		if step.limit != 0 {
			r := rule
			r.Limit, r.Name = step.limit, step.name
			doc.Rules = append(doc.Rules, r)
		}
		set := compile(t, doc, policy.CompileOptions{
			Endpoints: step.endpoints, BurstPercent: step.percent, Previous: previous, Now: base.Add(step.at),
		})
		previous = set
		if step.limit == 0 {
			continue
		}
		m := endpoint.Match{ID: lookup(t, step.endpoints, "GET /b/{id}"), Status: endpoint.Known}
		since := set.Terms(set.Resolve(nil, 0, m, "acme", "")[0].Rule).Since
		want := int64(0)
		if step.want >= 0 {
			want = base.Add(step.want).UnixNano()
		}
		if since != want {
			t.Errorf("step %d: Since = %d, want %d", i, since, want)
		}
	}
}

func TestSetVersion(t *testing.T) {
	doc := bigDocument(100)
	doc.Projects["acme"] = "gold"
	base := doc.Fingerprint()
	reversed := policy.Document{Rules: slices.Clone(doc.Rules), Projects: doc.Projects, Source: "elsewhere"}
	slices.Reverse(reversed.Rules)
	if got := reversed.Fingerprint(); got != base {
		t.Errorf("Fingerprint depends on order or source: %s and %s", got, base)
	}
	if got := compile(t, doc, policy.CompileOptions{Endpoints: bigTable(t)}).Version(); got != base {
		t.Errorf("Version = %s, want the document's Fingerprint %s", got, base)
	}
	changes := map[string]func(*policy.Document){
		"limit":   func(d *policy.Document) { d.Rules[5].Limit++ },
		"expires": func(d *policy.Document) { d.Rules[5].Expires = time.Unix(1, 0) },
		"mode":    func(d *policy.Document) { d.Rules[5].Mode = policy.Shadow },
		"rule":    func(d *policy.Document) { d.Rules = d.Rules[1:] },
		"tier":    func(d *policy.Document) { d.Projects = map[string]string{"acme": "lead"} },
	}
	for name, change := range changes {
		other := policy.Document{Rules: slices.Clone(doc.Rules), Projects: doc.Projects}
		change(&other)
		if other.Fingerprint() == base {
			t.Errorf("Fingerprint is the same after a change of %s", name)
		}
	}
}

func TestRate(t *testing.T) {
	for want, r := range map[string]policy.Rule{
		"5 per 1s":     {Limit: 5},
		"10 per 1m":    {Limit: 10, Per: time.Minute},
		"1 per 1h":     {Limit: 1, Per: time.Hour},
		"1 per 1h30m":  {Limit: 1, Per: 90 * time.Minute},
		"1 per 1h0m1s": {Limit: 1, Per: time.Hour + time.Second},
		"1 per 24h":    {Limit: 1, Per: 24 * time.Hour},
		"7 per 1m10s":  {Limit: 7, Per: 70 * time.Second},
		"7 per 10m":    {Limit: 7, Per: 10 * time.Minute},
	} {
		if got := r.Rate(); got != want {
			t.Errorf("Rate of %d per %v = %q, want %q", r.Limit, r.Per, got, want)
		}
	}
}

func TestTitle(t *testing.T) {
	tests := []struct {
		rule policy.Rule
		want string
	}{
		{policy.Rule{Endpoint: "GET /v1/x", Project: "acme"}, "GET /v1/x"},
		{policy.Rule{Endpoint: "GET /v1/x", Subject: policy.SubjectIP}, "GET /v1/x per ip"},
		{policy.Rule{Endpoint: policy.All, Subject: policy.SubjectProject}, "* per project"},
		{policy.Rule{Endpoint: "GET /v1/x", Name: "my limit"}, "my limit"},
		{policy.Rule{Endpoint: "GET /ä\x00"}, "GET /%C3%A4%00"},
	}
	for _, tt := range tests {
		if got := tt.rule.Title(); got != tt.want {
			t.Errorf("Title of %+v = %q, want %q", tt.rule, got, tt.want)
		}
	}
}

func TestEnumTexts(t *testing.T) {
	var s policy.Subject
	for want := policy.SubjectPrincipal; want <= policy.SubjectIdentifier; want++ {
		text, err := want.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.UnmarshalText(text); err != nil || s != want {
			t.Errorf("UnmarshalText(%q) = %v, %v, want %v", text, s, err, want)
		}
	}
	for _, text := range []string{"", "Principal", "ip ", "user"} {
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("UnmarshalText(%q) = nil, want an error", text)
		}
	}
	if _, err := policy.Mode(9).MarshalText(); err == nil {
		t.Error("MarshalText of mode 9 = nil, want an error")
	}
}

func TestResolveAllocatesNothing(t *testing.T) {
	endpoints := bigTable(t)
	set := compile(t, bigDocument(10_000), policy.CompileOptions{Endpoints: endpoints})
	m := endpoint.Match{ID: lookup(t, endpoints, bigTemplate(3)), Status: endpoint.Known}
	dst := make([]policy.Applied, 0, policy.MaxApplied)
	var terms policy.Terms
	n := testing.AllocsPerRun(100, func() {
		for _, project := range []string{"project-1", "nobody", ""} {
			dst = set.Resolve(dst[:0], 1, m, project, "")
			terms = set.Terms(dst[0].Rule)
		}
		dst = set.Resolve(dst[:0], 1, endpoint.Match{}, "project-1", "gold")
	})
	if n != 0 {
		t.Errorf("Resolve and Terms allocate %v times, want 0 (terms %v)", n, terms)
	}
}

// TestResolveDuringSwaps is for the race detector: readers hold whichever Set
// they found and are never disturbed.
func TestResolveDuringSwaps(t *testing.T) {
	endpoints := bigTable(t)
	o := policy.CompileOptions{Endpoints: endpoints, Now: time.Unix(1_800_000_000, 0)}
	var current atomic.Pointer[policy.Set]
	current.Store(compile(t, bigDocument(500), o))
	m := endpoint.Match{ID: lookup(t, endpoints, bigTemplate(3)), Status: endpoint.Known}
	var done atomic.Bool
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			var dst []policy.Applied
			for !done.Load() {
				set := current.Load()
				dst = set.Resolve(dst[:0], 1, m, "project-0", "")
				if len(dst) != 3 || set.Rule(dst[0].Rule).Project != "project-0" {
					t.Errorf("Resolve = %v, want project-0's three rules", dst)
					return
				}
			}
		})
	}
	for i := range 50 {
		o.Previous = current.Load()
		current.Store(compile(t, bigDocument(500+i), o))
	}
	done.Store(true)
	readers.Wait()
}

// TestBytesPerRule bounds the memory of a large Set.
func TestBytesPerRule(t *testing.T) {
	o := policy.CompileOptions{Endpoints: bigTable(t), Now: time.Unix(1_800_000_000, 0)}
	doc := flatDocument(200_000)
	before := heap()
	set := compile(t, doc, o)
	bytes := float64(heap()-before) / float64(set.Len())
	if bytes > 100 {
		t.Errorf("a rule takes %.0f bytes when each has a project of its own, want 100 at most", bytes)
	}
	if set.Len() != len(doc.Rules) {
		t.Errorf("Len = %d, want %d", set.Len(), len(doc.Rules))
	}
}

// TestAlgorithmsAreThoseOfRate: a rule's algorithm is the number that package rate counts by.
func TestAlgorithmsAreThoseOfRate(t *testing.T) {
	for a, want := range map[policy.Algorithm]rate.Algorithm{
		policy.TokenBucket: rate.TokenBucket, policy.LeakyBucket: rate.LeakyBucket,
		policy.FixedWindow: rate.FixedWindow, policy.SlidingWindow: rate.SlidingWindow,
		policy.SlidingLog: rate.SlidingLog,
	} {
		set, problems := policy.Compile(policy.Document{Rules: []policy.Rule{{Endpoint: policy.Default, Limit: 6,
			Algorithm: a}}}, policy.CompileOptions{BurstPercent: 200})
		if problems.Err() != nil {
			t.Fatal(problems)
		}
		burst := int64(6) // windows have no burst that could be a percentage
		if want.Drains() {
			burst = 12
		}
		rule, shape := set.Rule(0), set.Terms(0).Shape
		if rule.Algorithm != a || shape.Algorithm != want || rule.Burst != burst || shape.Burst() != burst {
			t.Errorf("%v: rule %+v, shape %+v, want algorithm %d with burst %d", a, rule, shape, want, burst)
		}
	}
}

// TestChangedAlgorithmCountsFromNow: another algorithm is another shape, whatever the numbers.
func TestChangedAlgorithmCountsFromNow(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	rule := policy.Rule{Endpoint: policy.Default, Limit: 6}
	before, _ := policy.Compile(policy.Document{Rules: []policy.Rule{rule}}, policy.CompileOptions{Now: at})
	rule.Algorithm = policy.LeakyBucket
	after, _ := policy.Compile(policy.Document{Rules: []policy.Rule{rule}},
		policy.CompileOptions{Now: at.Add(time.Hour), Previous: before})
	if got := after.Terms(0); got.Since != at.Add(time.Hour).UnixNano() || got.ID != before.Terms(0).ID {
		t.Errorf("Terms = %+v, want those of the same bucket since an hour later", got)
	}
}
