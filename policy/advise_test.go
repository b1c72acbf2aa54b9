package policy_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
)

// lintNow is when the documents of these tests are linted.
var lintNow = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// TestLintDoubts holds for every warning and note beyond one rule's own fields
// where it stands and, as much, where it does not: a finding about what is
// meant so is a reason to read none of them.
func TestLintDoubts(t *testing.T) {
	item, items, login := "GET /items/{id}", "POST /items", "POST /login"
	guard := policy.Rule{Endpoint: policy.All, Subject: policy.SubjectIP, Limit: 100}
	last := []policy.Rule{{Endpoint: policy.Default, Limit: 1000, Subject: policy.SubjectIP},
		{Endpoint: policy.UnknownEndpoint, Limit: 5}}
	day := 24 * time.Hour
	tests := []struct {
		name     string
		code     string
		rules    []policy.Rule
		projects map[string]string
		want     bool
	}{
		{"faster than the guard, in smaller bursts", "above_guard",
			[]policy.Rule{{Endpoint: item, Project: "acme", Limit: 50, Burst: 50},
				{Endpoint: policy.All, Limit: 10, Burst: 500}}, nil, true},
		{"as fast as the guard", "above_guard",
			[]policy.Rule{{Endpoint: item, Project: "acme", Limit: 10}, {Endpoint: policy.All, Limit: 10, Burst: 500}},
			nil, false},
		{"the same rate in other words", "above_guard",
			[]policy.Rule{{Endpoint: item, Project: "acme", Limit: 600, Per: time.Minute, Burst: 10},
				{Endpoint: policy.All, Limit: 10, Burst: 500}}, nil, false},
		{"faster, and everybody's", "above_guard",
			[]policy.Rule{{Endpoint: item, Limit: 50, Burst: 50}, {Endpoint: policy.All, Limit: 10, Burst: 500}}, nil,
			false},
		{"the guard of the project is another", "above_guard",
			[]policy.Rule{{Endpoint: item, Project: "acme", Limit: 50, Burst: 50},
				{Endpoint: policy.All, Limit: 10, Burst: 500},
				{Endpoint: policy.All, Project: "acme", Limit: 100, Burst: 500}}, nil, false},
		{"the guard only counts", "above_guard",
			[]policy.Rule{{Endpoint: item, Project: "acme", Limit: 50, Burst: 50},
				{Endpoint: policy.All, Limit: 10, Burst: 500, Mode: policy.Shadow}}, nil, false},
		{"the guard ends", "above_guard",
			[]policy.Rule{{Endpoint: item, Project: "acme", Limit: 50, Burst: 50},
				{Endpoint: policy.All, Limit: 10, Burst: 500, Expires: lintNow.Add(day)}}, nil, false},
		{"void already", "above_guard",
			[]policy.Rule{{Endpoint: item, Project: "acme", Limit: 50}, {Endpoint: policy.All, Limit: 10}}, nil, false},
		{"a window as guard", "above_guard",
			[]policy.Rule{{Endpoint: item, Project: "acme", Limit: 50},
				{Endpoint: policy.All, Limit: 10, Algorithm: policy.FixedWindow}}, nil, true},

		{"above the guard per address", "above_address_guard",
			[]policy.Rule{{Endpoint: item, Project: "acme", Limit: 500}, guard}, nil, true},
		{"above it, of a tier", "above_address_guard",
			[]policy.Rule{{Endpoint: item, Tier: "gold", Limit: 500}, guard}, nil, true},
		{"below it", "above_address_guard", []policy.Rule{{Endpoint: item, Project: "acme", Limit: 100}, guard}, nil,
			false},
		{"of a whole project", "above_address_guard",
			[]policy.Rule{{Endpoint: item, Project: "acme", Limit: 500, Subject: policy.SubjectProject}, guard}, nil,
			false},
		{"with a guard of its own", "above_address_guard",
			[]policy.Rule{{Endpoint: item, Project: "acme", Limit: 500}, guard,
				{Endpoint: policy.All, Project: "acme", Limit: 500, Subject: policy.SubjectIP}}, nil, false},
		{"with its tier's guard", "above_address_guard",
			[]policy.Rule{{Endpoint: item, Project: "acme", Limit: 500}, guard,
				{Endpoint: policy.All, Tier: "gold", Limit: 500, Subject: policy.SubjectIP}},
			map[string]string{"acme": "gold"}, false},

		{"two minutes", "burst_high", []policy.Rule{{Endpoint: item, Limit: 1, Burst: 120}}, nil, true},
		{"a minute", "burst_high", []policy.Rule{{Endpoint: item, Limit: 1, Burst: 60}}, nil, false},
		{"the default of a slow rate", "burst_high",
			[]policy.Rule{{Endpoint: item, Limit: 5, Per: time.Hour}}, nil, false},
		{"twice a slow rate", "burst_high", []policy.Rule{{Endpoint: item, Limit: 5, Per: time.Hour, Burst: 10}}, nil,
			false},
		{"more than twice a slow rate", "burst_high",
			[]policy.Rule{{Endpoint: item, Limit: 5, Per: time.Hour, Burst: 12}}, nil, true},

		{"5 ms", "burst_low", []policy.Rule{{Endpoint: item, Limit: 1000, Burst: 5}}, nil, true},
		{"50 ms", "burst_low", []policy.Rule{{Endpoint: item, Limit: 1000, Burst: 50}}, nil, false},
		{"one at a time", "burst_low", []policy.Rule{{Endpoint: item, Limit: 5, Burst: 1}}, nil, false},
		{"a queue", "burst_low", []policy.Rule{{Endpoint: item, Limit: 1000, Burst: 5, Algorithm: policy.LeakyBucket}},
			nil, false},
		{"the default of a fast rate", "burst_low", []policy.Rule{{Endpoint: item, Limit: 1000}}, nil, false},

		{"fixed", "window_edge", []policy.Rule{{Endpoint: item, Limit: 10, Algorithm: policy.FixedWindow}}, nil, true},
		{"sliding", "window_edge", []policy.Rule{{Endpoint: item, Limit: 10, Algorithm: policy.SlidingLog}}, nil,
			false},

		{"ends tomorrow", "expires_soon", []policy.Rule{{Endpoint: item, Limit: 10, Expires: lintNow.Add(day)}}, nil,
			true},
		{"ends in a week", "expires_soon", []policy.Rule{{Endpoint: item, Limit: 10, Expires: lintNow.Add(7 * day)}},
			nil, false},
		{"has ended", "expires_soon", []policy.Rule{{Endpoint: item, Limit: 10, Expires: lintNow.Add(-day)}}, nil,
			false},
		{"ends after 2262", "expires_soon", []policy.Rule{{Endpoint: item, Limit: 10,
			Expires: time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC)}}, nil, false},

		{"ends tomorrow, and a lasting one is there", "expires_soon",
			[]policy.Rule{{Endpoint: item, Limit: 10}, {Endpoint: item, Limit: 20, Expires: lintNow.Add(day)}}, nil,
			false},

		{"an override says what the lasting rule says", "redundant",
			[]policy.Rule{{Endpoint: item, Limit: 10}, {Endpoint: item, Limit: 10, Expires: lintNow.Add(day)}}, nil,
			true},
		{"an override says it of a share", "redundant",
			[]policy.Rule{{Endpoint: item, Limit: 10},
				{Endpoint: item, Limit: 10, EnforcePercent: 50, Expires: lintNow.Add(day)}}, nil, false},
		{"an override that is over says it", "redundant",
			[]policy.Rule{{Endpoint: item, Limit: 10}, {Endpoint: item, Limit: 10, Expires: lintNow.Add(-day)}}, nil,
			false},
		{"an override of the guard", "above_guard",
			[]policy.Rule{{Endpoint: item, Project: "acme", Limit: 50, Burst: 50},
				{Endpoint: policy.All, Limit: 10, Burst: 500},
				{Endpoint: policy.All, Limit: 100, Burst: 500, Expires: lintNow.Add(day)}}, nil, false},
		{"an override of the guard that is over", "above_guard",
			[]policy.Rule{{Endpoint: item, Project: "acme", Limit: 50, Burst: 50},
				{Endpoint: policy.All, Limit: 10, Burst: 500},
				{Endpoint: policy.All, Limit: 100, Burst: 500, Expires: lintNow.Add(-day)}}, nil, true},
		{"an override above the guard", "above_guard",
			[]policy.Rule{{Endpoint: item, Project: "acme", Limit: 5},
				{Endpoint: item, Project: "acme", Limit: 50, Burst: 50, Expires: lintNow.Add(day)},
				{Endpoint: policy.All, Limit: 10, Burst: 500}}, nil, true},
		{"the guard is tried beside another", "above_guard",
			[]policy.Rule{{Endpoint: item, Project: "acme", Limit: 50, Burst: 50},
				{Endpoint: policy.All, Limit: 10, Burst: 500},
				{Endpoint: policy.All, Limit: 100, Burst: 500, Expires: lintNow.Add(day), Mode: policy.Shadow}}, nil,
			true},
		{"the guard is for a share", "above_guard",
			[]policy.Rule{{Endpoint: item, Project: "acme", Limit: 50, Burst: 50},
				{Endpoint: policy.All, Limit: 10, Burst: 500, EnforcePercent: 99}}, nil, false},
		{"void by a rule for a share", "void",
			[]policy.Rule{{Endpoint: item, Limit: 50}, {Endpoint: policy.All, Limit: 10, EnforcePercent: 99}}, nil,
			false},
		{"a rule for a share is void", "void",
			[]policy.Rule{{Endpoint: item, Limit: 50, EnforcePercent: 10}, {Endpoint: policy.All, Limit: 10}}, nil,
			true},
		{"an override makes it void, for a time", "void",
			[]policy.Rule{{Endpoint: item, Limit: 50}, {Endpoint: policy.All, Limit: 100},
				{Endpoint: policy.All, Limit: 10, Expires: lintNow.Add(day)}}, nil, false},
		{"a share of shadow", "percent_in_shadow",
			[]policy.Rule{{Endpoint: item, Limit: 10, Mode: policy.Shadow, EnforcePercent: 25}}, nil, true},
		{"a share", "percent_in_shadow", []policy.Rule{{Endpoint: item, Limit: 10, EnforcePercent: 25}}, nil, false},

		{"repeats everybody's", "redundant", []policy.Rule{{Endpoint: item, Limit: 10},
			{Endpoint: item, Project: "acme", Limit: 10}}, nil, true},
		{"repeats it in other words", "redundant", []policy.Rule{{Endpoint: item, Limit: 10},
			{Endpoint: item, Project: "acme", Limit: 10, Per: time.Second, Burst: 10}}, nil, true},
		{"repeats its tier's", "redundant", []policy.Rule{{Endpoint: item, Tier: "gold", Limit: 10},
			{Endpoint: item, Project: "acme", Limit: 10}},
			map[string]string{"acme": "gold"}, true},
		{"repeats everybody's, and its tier has more", "redundant",
			[]policy.Rule{{Endpoint: item, Limit: 10}, {Endpoint: item, Tier: "gold", Limit: 20},
				{Endpoint: item, Project: "acme", Limit: 10}}, map[string]string{"acme": "gold"}, false},
		{"repeats everybody's, and its tier is not known", "redundant",
			[]policy.Rule{{Endpoint: item, Limit: 10}, {Endpoint: item, Tier: "gold", Limit: 20},
				{Endpoint: item, Project: "acme", Limit: 10}}, nil, false},
		{"has a burst", "redundant", []policy.Rule{{Endpoint: item, Limit: 10},
			{Endpoint: item, Project: "acme", Limit: 10, Burst: 20}}, nil, false},
		{"has a name", "redundant", []policy.Rule{{Endpoint: item, Limit: 10},
			{Endpoint: item, Project: "acme", Limit: 10, Name: "acme's"}}, nil, false},
		{"splits a shared bucket", "redundant",
			[]policy.Rule{{Endpoint: item, Limit: 10, Subject: policy.SubjectEndpoint},
				{Endpoint: item, Project: "acme", Limit: 10, Subject: policy.SubjectEndpoint}}, nil, false},
		{"repeats default for one endpoint", "redundant",
			[]policy.Rule{{Endpoint: policy.Default, Limit: 10}, {Endpoint: item, Limit: 10}}, nil, false},

		{"no project has it", "tier_unused", []policy.Rule{{Endpoint: item, Tier: "gold", Limit: 10},
			{Endpoint: item, Tier: "lead", Limit: 5}},
			map[string]string{"acme": "lead"}, true},
		{"projects have it", "tier_unused", []policy.Rule{{Endpoint: item, Tier: "gold", Limit: 10}},
			map[string]string{"acme": "gold"}, false},
		{"keys name tiers", "tier_unused", []policy.Rule{{Endpoint: item, Tier: "gold", Limit: 10}}, nil, false},

		{"no rule names it", "tier_without_rule", []policy.Rule{{Endpoint: item, Tier: "gold", Limit: 10}},
			map[string]string{"acme": "glod", "u": "gold"}, true},
		{"a rule for all endpoints names it", "tier_without_rule",
			[]policy.Rule{{Endpoint: policy.All, Tier: "gold", Limit: 10}}, map[string]string{"acme": "gold"}, false},

		{"only per caller", "login_open", []policy.Rule{{Endpoint: login, Limit: 1},
			{Endpoint: policy.Default, Limit: 10}}, nil, true},
		{"in shadow", "login_open", []policy.Rule{{Endpoint: login, Limit: 1, Subject: policy.SubjectIP,
			Mode: policy.Shadow}, {Endpoint: policy.Default, Limit: 10}}, nil, true},
		{"of one project alone", "login_open", []policy.Rule{{Endpoint: login, Project: "acme", Limit: 1,
			Subject: policy.SubjectIP}, {Endpoint: policy.Default, Limit: 10}}, nil, true},
		{"per address", "login_open", []policy.Rule{{Endpoint: login, Limit: 1, Subject: policy.SubjectIP},
			{Endpoint: policy.Default, Limit: 10}}, nil, false},
		{"per login name", "login_open", []policy.Rule{{Endpoint: login, Limit: 1, Subject: policy.SubjectIdentifier},
			{Endpoint: policy.Default, Limit: 10}}, nil, false},
		{"by the guard", "login_open", []policy.Rule{guard, {Endpoint: policy.Default, Limit: 10}}, nil, false},
	}
	endpoints := table(t, item, items, login, "GET /login", "GET /tokens/{token}", "POST /tokenizer/{password}",
		"POST /pets/{my_token_id}")
	for _, tt := range tests {
		t.Run(tt.code+"/"+tt.name, func(t *testing.T) {
			rules := tt.rules
			if !slices.ContainsFunc(rules, func(r policy.Rule) bool { return r.Endpoint == policy.Default }) {
				rules = append(rules, last[0])
			}
			doc := policy.Document{Rules: append(rules, last[1]), Projects: tt.projects}
			problems := policy.Lint(doc, policy.CompileOptions{Endpoints: endpoints, Now: lintNow})
			var found policy.Problems
			for _, p := range problems {
				if p.Code == tt.code {
					found = append(found, p)
				}
			}
			if len(found) > 1 || (len(found) == 1) != tt.want || len(problems.Errors()) > 0 {
				t.Errorf("Lint finds %d of %s, want %v once\n%v", len(found), tt.code, tt.want, problems)
			}
			_, compiled := policy.Compile(doc, policy.CompileOptions{Endpoints: endpoints, Now: lintNow})
			if len(compiled.Notes()) > 0 {
				t.Errorf("Compile reports notes: %v", compiled)
			}
			if len(compiled.Warnings()) != len(problems.Warnings()) {
				t.Errorf("Compile warns of\n%v\nLint of\n%v", compiled.Warnings(), problems.Warnings())
			}
		})
	}
}

// TestVoidRulesAreVoid plays random traffic into pairs of limits: where lint
// calls a rule void because of another that counts the same requests, the rule
// alone never denies what the other lets pass.
func TestVoidRulesAreVoid(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	endpoints := table(t, "GET /items")
	voids := 0
	for range 2000 {
		limit := func() policy.Rule {
			return policy.Rule{
				Limit: 1 + random.Int64N(6),
				Per:   time.Duration(1+random.IntN(3)) * time.Second,
				Burst: 1 + random.Int64N(8),
			}
		}
		fine, coarse := limit(), limit()
		fine.Endpoint, coarse.Endpoint = "GET /items", policy.All
		problems := policy.Lint(policy.Document{Rules: []policy.Rule{fine, coarse}},
			policy.CompileOptions{Endpoints: endpoints, Now: lintNow})
		void := slices.ContainsFunc(problems, func(p policy.Problem) bool { return p.Code == "void" && p.Rule == 0 })
		if void {
			voids++
		}
		a, b := newMeter(t, fine), newMeter(t, coarse)
		bound := false // the fine rule denied what the coarse one had let pass
		for now := time.Duration(0); now < 40*time.Second; now += time.Duration(
			random.Int64N(int64(700 * time.Millisecond))) {
			if b.has(now) {
				if a.has(now) {
					a.take(now)
					b.take(now)
				} else {
					bound = true
				}
			}
		}
		if void && bound {
			t.Fatalf("%s burst %d is called void beside %s burst %d, and denies", fine.Rate(), fine.Burst,
				coarse.Rate(), coarse.Burst)
		}
	}
	if voids < 100 {
		t.Errorf("only %d pairs were void, want enough to try", voids)
	}
}

// meter is a token bucket in rational numbers: level is in tokens × per.
type meter struct {
	limit      policy.Rule
	level, per int64
	at         time.Duration
}

func newMeter(t *testing.T, r policy.Rule) *meter {
	t.Helper()
	if _, err := rate.Compile(rate.Limit{Tokens: r.Limit, Per: r.Per, Burst: r.Burst}); err != nil {
		t.Fatal(err)
	}
	return &meter{limit: r, level: r.Burst * int64(r.Per), per: int64(r.Per)}
}

func (m *meter) fill(now time.Duration) {
	m.level = min(m.limit.Burst*m.per, m.level+int64(now-m.at)*m.limit.Limit)
	m.at = now
}

func (m *meter) has(now time.Duration) bool { m.fill(now); return m.level >= m.per }
func (m *meter) take(now time.Duration)     { m.level -= m.per }

// TestLintSecretsInNames: what looks like a credential is found and not
// repeated; what projects and rules are called is not.
func TestLintSecretsInNames(t *testing.T) {
	for _, secret := range []string{
		"hg_003aUlTJC7tjlCTQj2uNU3MFagCXG9LRKRcwGkBIDlf1sh72b",
		"sk" + "_live_4eC39HqLyjWDarjtT1zdp7dc",
		"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
		"ann@example.com", "limits of <ann@example.co.uk>",
		"kJ8sQ2xV7bN4mP9wR3tY6uI1oL5zA0cE",
	} {
		problems := policy.Lint(policy.Document{
			Rules: []policy.Rule{
				{Endpoint: policy.Default, Project: secret, Limit: 1},
				{Endpoint: policy.Default, Project: secret, Limit: 2, Subject: policy.SubjectIP},
				{Endpoint: policy.UnknownEndpoint, Project: secret, Limit: 1},
				{Endpoint: policy.All, Tier: secret, Project: "x", Limit: 1},
			},
			Projects: map[string]string{secret: "nobody"},
		}, policy.CompileOptions{Now: lintNow})
		found := 0
		for _, p := range problems {
			if p.Code == "secret_in_name" {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%q is found %d times, want once\n%v", secret, found, problems)
		}
		if text := problems.String(); strings.Contains(text, secret[3:]) {
			t.Errorf("the messages repeat %q:\n%s", secret, text)
		}
	}
	for _, name := range []string{
		"acme", "a", "gold", "logins per address", "org_2NxYzBvUqE0hTjKd4LmPq9sRtVw", // a KSUID with a prefix
		"550e8400-e29b-41d4-a716-446655440000", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
		"01ARZ3NDEKTSV4RRFFQ69G5FAV", "arn:aws:iam::123456789012:user/Development/product_1234/*",
		"projects/very-long-project-name-of-the-Payments-Team-2", "@acme/web", "team@acme", "hg_internal",
		"QuickBrownFoxJumpsOverLazyDogsVexingWizard", "QuickBrownFoxJumpsOverLazyDogsVexing2024",
		"sk-stockholm-office-payments",
	} {
		for _, p := range policy.Lint(policy.Document{Rules: []policy.Rule{{Endpoint: policy.Default, Project: name,
			Limit: 1}}}, policy.CompileOptions{Now: lintNow}) {
			if p.Code == "secret_in_name" {
				t.Errorf("%q is taken for a secret: %v", name, p)
			}
		}
	}
}

// TestIgnore: what is accepted is marked and no longer warned of, for the rules
// that the entry names and no others.
func TestIgnore(t *testing.T) {
	doc := policy.Document{
		Rules: []policy.Rule{
			{Endpoint: policy.Default, Project: "acme", Limit: 1, Expires: lintNow.Add(-time.Hour)},
			{Endpoint: policy.Default, Project: "umbrella", Limit: 1, Expires: lintNow.Add(-time.Hour)},
			{Endpoint: policy.UnknownEndpoint, Limit: 1},
		},
		Ignore: []policy.Ignore{
			{Code: "expired", Project: "acme", Reason: "kept for the audit"},
			{Code: "no_default", Reason: "there is another gateway"},
			{Code: "void", Endpoint: policy.Default, Reason: "none"},
		},
	}
	o := policy.CompileOptions{Endpoints: table(t, "GET /items"), Now: lintNow}
	problems := policy.Lint(doc, o)
	want := `warning: rules[0] (default, project acme): expires is 2025-12-31T23:00:00Z, want a time in the future; the rule no longer applies
warning: rules[1] (default, project umbrella): expires is 2025-12-31T23:00:00Z, want a time in the future; the rule no longer applies
warning: rules: default is missing, want a rule with endpoint "default"; endpoints without a rule of their own have that of UNKNOWN
note: ignore[2]: code is "void", want a finding that there is, or no such entry`
	if got := problems.String(); got != want {
		t.Errorf("Lint\n got %s\nwant %s", got, want)
	}
	if w, a, n := problems.Warnings(), problems.Accepted(), problems.Notes(); len(w) != 1 || w[0].Rule != 1 ||
		len(n) != 1 ||
		len(a) != 2 || a[0].Accepted != "kept for the audit" {
		t.Errorf("warnings %v\naccepted %v\nnotes %v", w, a, n)
	}
	set, problems := policy.Compile(doc, o)
	if set == nil || len(problems) != 1 || problems[0].Rule != 1 {
		t.Errorf("Compile = %v, %v, want the one warning that is not accepted", set, problems)
	}
}

func TestIgnoreIsChecked(t *testing.T) {
	doc := policy.Document{
		Rules: []policy.Rule{{Endpoint: policy.Default, Limit: 0}, {Endpoint: policy.UnknownEndpoint, Limit: 1}},
		Ignore: []policy.Ignore{
			{Code: "limit", Reason: "we like it"}, {Code: "expird", Reason: "x"}, {Code: "expired", Reason: " "},
		},
	}
	want := `error: ignore[0]: code is "limit", want the code of a warning or a note, because a document with errors is not loaded
error: ignore[1]: code is "expird", want the code of a check; the closest is "expired"
error: ignore[2]: reason is missing, want why the finding is accepted
error: rules[0] (default): limit is 0, want 1 or more`
	if got := policy.Lint(doc, policy.CompileOptions{Now: lintNow}).String(); got != want {
		t.Errorf("Lint\n got %s\nwant %s", got, want)
	}
}

// Accepted findings take no room from others of their kind.
func TestAcceptedProblemsAreBoundedApart(t *testing.T) {
	doc := policy.Document{Ignore: []policy.Ignore{{Code: "expired", Endpoint: policy.Default, Reason: "so"}}}
	for i := range 1000 {
		doc.Rules = append(doc.Rules, policy.Rule{
			Endpoint: policy.Default,
			Project:  fmt.Sprint("p", i),
			Limit:    1,
			Expires:  lintNow.Add(-time.Hour),
		})
	}
	doc.Rules = append(doc.Rules, policy.Rule{Endpoint: policy.All, Limit: 1, Expires: lintNow.Add(-time.Hour)})
	problems := policy.Lint(doc, policy.CompileOptions{Now: lintNow})
	expired := 0
	for _, p := range problems.Warnings() {
		if p.Code == "expired" {
			expired++
		}
	}
	if expired != 1 || len(problems.Accepted()) != 100 {
		t.Errorf("%d expired rules are reported and %d accepted, want 1 and 100", expired, len(problems.Accepted()))
	}
}

// TestEveryProblemIsOfACheck: no code is reported that the list of checks does
// not have, with another severity or at all.
func TestEveryProblemIsOfACheck(t *testing.T) {
	severities := map[string]policy.Severity{}
	for _, check := range policy.Checks() {
		if _, twice := severities[check.Code]; twice {
			t.Errorf("%s stands twice", check.Code)
		}
		severities[check.Code] = check.Severity
	}
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	endpoints := table(t, "GET /items", "POST /login")
	seen := map[string]bool{}
	for range 3000 {
		doc := policy.Document{Projects: map[string]string{}}
		for range random.IntN(6) {
			doc.Rules = append(doc.Rules, policy.Rule{
				Endpoint: pick("GET /items", "POST /login", "GET /itms", "default", "UNKNOWN", "*", "/x"),
				Project:  pick("", "", "acme", " "), Tier: pick("", "", "", "gold"),
				Name:  pick("", "", "ü", "ann@example.com"),
				Limit: random.Int64N(20) * random.Int64N(10),
				Burst: random.Int64N(3) * random.Int64N(100) * random.Int64N(2),
				Per:   time.Duration(random.IntN(3)) * time.Second, Algorithm: policy.Algorithm(random.IntN(5)),
				Mode:    policy.Mode(random.IntN(2)),
				Subject: policy.Subject(random.IntN(9)), Expires: lintNow.AddDate(0, 0, random.IntN(30)-10),
			})
		}
		if random.IntN(2) == 0 {
			doc.Projects["acme"] = pick("gold", "silver", "")
		}
		for _, p := range policy.Lint(doc, policy.CompileOptions{
			Endpoints: endpoints,
			Now:       lintNow,
			Unseen:    []policy.Subject{policy.SubjectRegion},
		}) {
			severity, ok := severities[p.Code]
			if !ok || severity != p.Severity {
				t.Fatalf("%v %s is no check: %v", p.Severity, p.Code, p)
			}
			seen[p.Code] = true
		}
	}
	if len(seen) < 20 {
		t.Errorf("only %d kinds of problem came up, want enough to try", len(seen))
	}
}

// TestLintBoundsOfBursts: times and products beyond 64 bits.
func TestLintBoundsOfBursts(t *testing.T) {
	const most = math.MaxInt64
	for _, r := range []policy.Rule{
		{Endpoint: policy.Default, Limit: 1, Per: 24 * time.Hour, Burst: most / int64(24*time.Hour)},
		{Endpoint: policy.Default, Limit: most, Burst: 1},
		{Endpoint: policy.Default, Limit: most, Burst: most - 1},
	} {
		policy.Lint(policy.Document{Rules: []policy.Rule{r}}, policy.CompileOptions{Now: lintNow}) // must not panic
	}
}

// A table of a million rules that all deserve a note is linted in the time of
// a compilation, and the notes that are left out are counted.
func TestNotesAreBounded(t *testing.T) {
	doc := policy.Document{Rules: []policy.Rule{{Endpoint: policy.UnknownEndpoint, Limit: 1},
		{Endpoint: policy.Default, Limit: 10, Burst: 1000}}}
	for i := range 5000 {
		doc.Rules = append(doc.Rules, policy.Rule{Endpoint: policy.Default, Project: fmt.Sprint("p", i),
			Limit: 10, Burst: 1000})
	}
	allocs := testing.AllocsPerRun(1, func() {
		problems := policy.Lint(doc, policy.CompileOptions{Now: lintNow})
		n := map[string]int{}
		for _, p := range problems {
			n[p.Code]++
		}
		if n["redundant"] != 101 || n["burst_high"] != 101 {
			t.Errorf("notes: %v, want 100 of each and one for the rest", n)
		}
		for _, want := range []string{"redundant is wrong 4900 times more", "burst_high is wrong 4901 times more"} {
			if !strings.Contains(problems.String(), want) {
				t.Errorf("Lint does not say %q", want)
			}
		}
	})
	if allocs > 10_000 {
		t.Errorf("Lint of 5000 rules that deserve notes allocates %v times, want some for each that is shown", allocs)
	}
}
