package policy_test

import (
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/policy/file"
	"github.com/headgate-io/headgate/rate"
)

var update = flag.Bool("update", false, "write what the documents in testdata report; read the diff")

// TestTestdata lints every document in testdata, which is named after its
// fault, and compares with the messages in the file of the same name that ends
// in .want.
func TestTestdata(t *testing.T) {
	endpoints := table(t, "GET /v1/items", "GET /v1/items/{id}", "POST /v1/export", "POST /v1/login")
	o := policy.CompileOptions{
		Endpoints: endpoints,
		Costs:     map[endpoint.ID]int64{lookup(t, endpoints, "POST /v1/export"): 10},
		Now:       time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC),
	}
	paths, err := filepath.Glob("testdata/*.json")
	if err != nil || len(paths) < 40 {
		t.Fatalf("testdata has %d documents (%v), want all of them", len(paths), err)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		t.Run(name, func(t *testing.T) {
			got := lintFile(t, path, o)
			wantPath := strings.TrimSuffix(path, ".json") + ".want"
			if *update {
				if err := os.WriteFile(wantPath, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(wantPath)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%swant\n%s", got, want)
			}
			kind, _, _ := strings.Cut(name, "_")
			errs, warns := strings.Contains(got, "error: "), strings.Contains(got, "warning: ")
			if errs != (kind == "bad") || warns != (kind == "warn") {
				t.Errorf("a document named %q reports\n%s", name, got)
			}
		})
	}
}

func lintFile(t *testing.T, path string, o policy.CompileOptions) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var text string
	doc, err := file.Decode(data, filepath.Base(path))
	if err != nil {
		text = "error: " + strings.ReplaceAll(err.Error(), "\n", "\nerror: ")
	} else {
		text = policy.Lint(doc, o).String()
	}
	if text == "" {
		return ""
	}
	return text + "\n"
}

// TestLintRule covers what a file cannot say, because decoding refuses it
// already, and a table or a program can.
func TestLintRule(t *testing.T) {
	tests := []struct {
		name   string
		change func(*policy.Rule)
		want   string
	}{
		{"limit 0", func(r *policy.Rule) { r.Limit = 0 },
			`test: rules[0] (GET /v1/items): limit is 0, want 1 or more`},
		{"limit negative", func(r *policy.Rule) { r.Limit = math.MinInt64 },
			`test: rules[0] (GET /v1/items): limit is -9223372036854775808, want 1 or more`},
		{"per negative", func(r *policy.Rule) { r.Per = -time.Second },
			`test: rules[0] (GET /v1/items): per is -1s, want whole seconds, 1 or more, or none for 1`},
		{"per not whole", func(r *policy.Rule) { r.Per = 1500 * time.Millisecond },
			`test: rules[0] (GET /v1/items): per is 1.5s, want whole seconds, 1 or more, or none for 1`},
		{"burst negative", func(r *policy.Rule) { r.Burst = -1 },
			`test: rules[0] (GET /v1/items): burst is -1, want 1 or more, or none for 100% of limit`},
		{"endpoint empty", func(r *policy.Rule) { r.Endpoint = "" },
			`test: rules[0] (no endpoint): endpoint is "", want a template such as "GET /v1/items/{id}", or "default", "UNKNOWN" or "*" (want a method, a space and a path, like "GET /v1/items/{id}")`},
		{"project not UTF-8", func(r *policy.Rule) { r.Project = "\xff" },
			`test: rules[0] (GET /v1/items, project %FF): project is "\xff", want a project in UTF-8, or none for all projects`},
		{"subject", func(r *policy.Rule) { r.Subject = 99 },
			`test: rules[0] (GET /v1/items, per subject(99)): subject is 99, want "principal", "ip", "principal_ip", "project", "region", "endpoint", "identifier", "identifier_ip" or "site"; or "path:NAME" for a parameter of the path, "claim:NAME" for a claim of the token; each also behind "requests:" or "in_flight:"`},
		{"algorithm", func(r *policy.Rule) { r.Algorithm = 254 },
			`test: rules[0] (GET /v1/items): algorithm is 254, want "token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log", "calendar" or "concurrency"`},
		{"scope", func(r *policy.Rule) { r.Scope = 9 },
			`test: rules[0] (GET /v1/items): scope is 9, want "local", "split", "strict", "lease", "sync" or "gossip"`},
		{"mode", func(r *policy.Rule) { r.Mode = 9 },
			`test: rules[0] (GET /v1/items): mode is 9, want "enforce", "shadow", "allow" or "block"`},
		{"on_store_loss", func(r *policy.Rule) { r.OnStoreLoss = 3 },
			`test: rules[0] (GET /v1/items): on_store_loss is 3, want "closed", "share" or "open"`},
		{"expires", func(r *policy.Rule) { r.Expires = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
			`test: rules[0] (GET /v1/items): expires is in the year 10000, want a time that RFC 3339 can write, up to the year 9999`},
		{"enforce_percent negative", func(r *policy.Rule) { r.EnforcePercent = -1 },
			`test: rules[0] (GET /v1/items): enforce_percent is -1, want 1 to 100, or none for 100`},
		{"enforce_percent above 100", func(r *policy.Rule) { r.EnforcePercent = 257 },
			`test: rules[0] (GET /v1/items): enforce_percent is 257, want 1 to 100, or none for 100`},
		{"name with a line end", func(r *policy.Rule) { r.Name = "a\nb" },
			`test: rules[0] (GET /v1/items): name is "a\nb", want printable ASCII, because clients see it in a header`},
	}
	endpoints := table(t, "GET /v1/items")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := policy.Rule{Endpoint: "GET /v1/items", Limit: 1}
			tt.change(&r)
			doc := policy.Document{Source: "test", Rules: []policy.Rule{r}}
			set, problems := policy.Compile(doc, policy.CompileOptions{Endpoints: endpoints})
			if set != nil {
				t.Errorf("Compile returned a Set for %+v", r)
			}
			if got := problems.Err(); got == nil || got.Error() != tt.want {
				t.Errorf("Compile(%+v)\n got %v\nwant %s", r, got, tt.want)
			}
		})
	}
}

// TestLintPassesOnWhatRateSays: which limits can be counted exactly is for
// package rate to say.
func TestLintUnseenSubjects(t *testing.T) {
	doc := policy.Document{Rules: []policy.Rule{
		{Endpoint: policy.Default, Limit: 1, Subject: policy.SubjectRegion}, {Endpoint: policy.Default, Limit: 1},
	}}
	for _, p := range policy.Lint(doc, policy.CompileOptions{Unseen: []policy.Subject{policy.SubjectRegion}}) {
		if p.Code == "unseen" && p.Severity == policy.Warning && p.Rule == 0 {
			return
		}
	}
	t.Error("a rule for a subject that the process cannot tell apart gets no warning")
}

func TestLintPassesOnWhatRateSays(t *testing.T) {
	const most = math.MaxInt64
	_, err := rate.Compile(rate.Limit{Tokens: most, Per: 365 * 24 * time.Hour, Burst: most})
	if err == nil {
		t.Fatal("rate.Compile accepts the limit, want another for this test")
	}
	_, problems := policy.Compile(policy.Document{Rules: []policy.Rule{
		{Endpoint: policy.Default, Limit: most, Per: 365 * 24 * time.Hour},
	}}, policy.CompileOptions{})
	want := "rules[0] (default): limit is 9223372036854775807 per 8760h with burst 9223372036854775807, " +
		"want one that counts exactly: " + strings.ReplaceAll(err.Error(), "\n", "; ")
	if got := problems.Err(); got == nil || got.Error() != want {
		t.Errorf("Compile\n got %v\nwant %s", got, want)
	}
}

func TestLintOptions(t *testing.T) {
	endpoints := table(t, "GET /v1/items")
	doc := policy.Document{
		Rules: []policy.Rule{
			{Endpoint: policy.Default, Limit: 1, Subject: policy.SubjectIP},
			{Endpoint: policy.UnknownEndpoint, Limit: 1},
		},
		Projects: map[string]string{"": "gold", "acme": ""},
	}
	problems := policy.Lint(doc, policy.CompileOptions{
		Endpoints: endpoints, BurstPercent: 99,
		Costs: map[endpoint.ID]int64{0: 2, 1: -1, 2: 1},
	})
	want := `error: burst_percent is 99, want 100 or more, or 0 for 100
error: projects: project is "", want a project in UTF-8
error: projects["acme"]: tier is "", want a tier in UTF-8; leave out projects that have none
error: costs: endpoint is 0, want an endpoint of the table, 1 to 1
error: costs: endpoint is 2, want an endpoint of the table, 1 to 1
error: costs: GET /v1/items is -1, want 0 or more`
	if got := problems.String(); got != want {
		t.Errorf("Lint\n got %s\nwant %s", got, want)
	}
}

// TestLintCostKnowsWhatARequestResolvesTo: a cost is only held against rules
// that the endpoint's requests can meet.
func TestLintCostKnowsWhatARequestResolvesTo(t *testing.T) {
	soon := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	tests := []struct {
		name  string
		rules []policy.Rule
		want  string // of the rule at fault, or ""
	}{
		{"default is replaced", []policy.Rule{
			{Endpoint: "POST /export", Limit: 10}, {Endpoint: policy.Default, Limit: 9},
		}, ""},
		{"default is replaced for a while", []policy.Rule{
			{Endpoint: "POST /export", Limit: 10, Expires: soon}, {Endpoint: policy.Default, Limit: 9},
		}, "default"},
		{"default of another subject", []policy.Rule{
			{Endpoint: "POST /export", Limit: 10}, {Endpoint: policy.Default, Limit: 9, Subject: policy.SubjectIP},
		}, "default"},
		{"default of a tenant that has a rule", []policy.Rule{
			{Endpoint: "POST /export", Project: "acme", Limit: 10},
			{Endpoint: policy.Default, Project: "acme", Limit: 9},
		}, ""},
		{"default of a tenant whose tier has a rule", []policy.Rule{
			{Endpoint: "POST /export", Tier: "gold", Limit: 10}, {Endpoint: policy.Default, Project: "acme", Limit: 9},
		}, ""},
		{"default of a tenant of another tier", []policy.Rule{
			{Endpoint: "POST /export", Tier: "lead", Limit: 10}, {Endpoint: policy.Default, Project: "acme", Limit: 9},
		}, "default"},
		{"UNKNOWN behind a default", []policy.Rule{
			{Endpoint: policy.Default, Limit: 10}, {Endpoint: policy.UnknownEndpoint, Limit: 9},
		}, ""},
		{"UNKNOWN as the last resort", []policy.Rule{
			{Endpoint: policy.UnknownEndpoint, Limit: 9},
		}, "UNKNOWN"},
		{"another endpoint", []policy.Rule{
			{Endpoint: "GET /items", Limit: 9}, {Endpoint: policy.Default, Limit: 10},
		}, ""},
	}
	endpoints := table(t, "GET /items", "POST /export")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			doc := policy.Document{Rules: tt.rules, Projects: map[string]string{"acme": "gold"}}
			errs := policy.Lint(doc, policy.CompileOptions{
				Endpoints: endpoints, Now: soon.Add(-time.Hour),
				Costs: map[endpoint.ID]int64{lookup(t, endpoints, "POST /export"): 10},
			}).Errors()
			var got string
			for _, p := range errs {
				got += doc.Rules[p.Rule].Endpoint
			}
			if got != tt.want {
				t.Errorf("rules at fault: %q, want %q\n%v", got, tt.want, errs)
			}
		})
	}
}

// TestLintVoidKeepsSilentWhereItDepends: a warning about a rule that is needed
// would be worse than none.
func TestLintVoidKeepsSilentWhereItDepends(t *testing.T) {
	item := policy.Rule{Endpoint: "GET /items", Limit: 20}
	all := policy.Rule{Endpoint: policy.All, Limit: 20}
	with := func(r policy.Rule, change func(*policy.Rule)) policy.Rule {
		change(&r)
		return r
	}
	acme := func(r *policy.Rule) { r.Project = "acme" }
	gold := func(r *policy.Rule) { r.Tier = "gold" }
	tests := []struct {
		name  string
		rules []policy.Rule
		void  bool
	}{
		{"equal", []policy.Rule{item, all}, true},
		{"tenant's rule", []policy.Rule{with(item, acme), all}, true},
		{"tier's rule", []policy.Rule{with(item, gold), all}, true},
		{"all allows more at once", []policy.Rule{item, with(all, func(r *policy.Rule) { r.Burst = 21 })}, false},
		{"all allows more in the long run", []policy.Rule{item,
			with(all, func(r *policy.Rule) { r.Limit, r.Burst = 21, 20 })}, false},
		{"the same in other words", []policy.Rule{item,
			with(all, func(r *policy.Rule) { r.Limit, r.Per, r.Burst = 1200, time.Minute, 20 })}, true},
		{"all only counts", []policy.Rule{item, with(all, func(r *policy.Rule) { r.Mode = policy.Shadow })}, false},
		{"all ends", []policy.Rule{item, with(all, func(r *policy.Rule) { r.Expires = time.Unix(4e9, 0) })}, false},
		{"all per another subject", []policy.Rule{item,
			with(all, func(r *policy.Rule) { r.Subject = policy.SubjectIP })}, false},
		{"all per everybody", []policy.Rule{item,
			with(all, func(r *policy.Rule) { r.Subject = policy.SubjectEndpoint })}, true},
		{"some tenant has another all", []policy.Rule{item, all,
			with(with(all, acme), func(r *policy.Rule) { r.Limit = 99 })}, false},
		{"some tier has another all", []policy.Rule{with(item, acme), all,
			with(with(all, gold), func(r *policy.Rule) { r.Limit = 99 })}, false},
		{"the tenant's all", []policy.Rule{with(item, acme), with(all, acme)}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			problems := policy.Lint(policy.Document{Rules: tt.rules}, policy.CompileOptions{
				Endpoints: table(t, "GET /items"), Now: time.Unix(1_800_000_000, 0),
			})
			void := false
			for _, p := range problems {
				void = void || p.Code == "void"
			}
			if void != tt.void {
				t.Errorf("void = %v, want %v\n%v", void, tt.void, problems)
			}
		})
	}
}

func TestProblemsAreBounded(t *testing.T) {
	doc := policy.Document{Rules: make([]policy.Rule, 5000)}
	for i := range doc.Rules {
		doc.Rules[i] = policy.Rule{Endpoint: "GET /v1/items", Limit: int64(-i), Subject: policy.Subject(200)}
	}
	problems := policy.Lint(doc, policy.CompileOptions{Endpoints: table(t, "GET /v1/items")})
	if got := len(problems.Errors()); got != 202 {
		t.Errorf("5000 rules with two faults each report %d errors, want 2 * (100 and one for the rest)", got)
	}
	last := problems[len(problems)-1].Error()
	if want := "rules: subject is wrong 4900 times more, want the problems above mended first"; last != want {
		t.Errorf("the last problem is %q, want %q", last, want)
	}
}

func TestProblemsUnwrap(t *testing.T) {
	problems := policy.Lint(policy.Document{Rules: []policy.Rule{{Endpoint: policy.Default}}}, policy.CompileOptions{})
	var p policy.Problem
	if !errors.As(problems.Err(), &p) || p.Code != "limit" || p.Rule != 0 {
		t.Errorf("errors.As(%v) = %+v, want the problem with the limit of rule 0", problems.Err(), p)
	}
	if err := problems.Warnings().Err(); err != nil {
		t.Errorf("Err of warnings = %v, want nil", err)
	}
}

// Where identifiers are read is asked of each endpoint; rules for several are
// taken to mean those.
func TestLintUnseenIdentifiers(t *testing.T) {
	endpoints := table(t, "POST /v1/login", "POST /v1/orders")
	login := lookup(t, endpoints, "POST /v1/login")
	doc := policy.Document{Rules: []policy.Rule{
		{Endpoint: "POST /v1/login", Limit: 1, Subject: policy.SubjectIdentifier},
		{Endpoint: "POST /v1/login", Limit: 2, Subject: policy.SubjectIdentifierIP},
		{Endpoint: "POST /v1/orders", Limit: 1, Subject: policy.SubjectIdentifierIP},
		{Endpoint: policy.All, Limit: 5, Subject: policy.SubjectIdentifier},
		{Endpoint: policy.Default, Limit: 5, Subject: policy.SubjectRegion},
	}}
	for name, c := range map[string]struct {
		identified []endpoint.ID
		want       []int
	}{
		"none": {nil, []int{0, 1, 2, 3, 4}}, "the login": {[]endpoint.ID{login}, []int{2, 4}},
	} {
		var got []int
		for _, p := range policy.Lint(doc, policy.CompileOptions{Endpoints: endpoints, Identified: c.identified,
			Unseen: []policy.Subject{policy.SubjectRegion, policy.SubjectIdentifier, policy.SubjectIdentifierIP}}) {
			if p.Code == "unseen" {
				got = append(got, p.Rule)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: warned of rules %v, want %v", name, got, c.want)
		}
	}
}

// A rule by identifier alone lets one address lock an account out, unless a
// rule beside it gives the address less.
func TestLintLockout(t *testing.T) {
	endpoints := table(t, "POST /v1/login", "POST /v1/orders")
	login := lookup(t, endpoints, "POST /v1/login")
	const at = "POST /v1/login"
	byName := policy.Rule{Endpoint: at, Limit: 100, Per: time.Hour, Subject: policy.SubjectIdentifier}
	guard := func(change func(*policy.Rule)) []policy.Rule {
		r := policy.Rule{Endpoint: at, Limit: 5, Per: time.Hour, Subject: policy.SubjectIdentifierIP}
		change(&r)
		return []policy.Rule{byName, r}
	}
	shadow, orders := byName, byName
	shadow.Mode, orders.Endpoint = policy.Shadow, "POST /v1/orders"
	for name, c := range map[string]struct {
		rules []policy.Rule
		want  int
	}{
		"alone":            {[]policy.Rule{byName}, 1},
		"with the pair":    {guard(func(*policy.Rule) {}), 0},
		"with the address": {guard(func(r *policy.Rule) { r.Subject = policy.SubjectIP }), 0},
		"with the address at default": {guard(func(r *policy.Rule) {
			r.Endpoint, r.Subject = policy.Default,
				policy.SubjectIP
		}), 0},
		"with the pair at all":    {guard(func(r *policy.Rule) { r.Endpoint = policy.All }), 0},
		"with the pair elsewhere": {guard(func(r *policy.Rule) { r.Endpoint = "POST /v1/orders" }), 1},
		"with the principal":      {guard(func(r *policy.Rule) { r.Subject = policy.SubjectPrincipal }), 1},
		"with as much":            {guard(func(r *policy.Rule) { r.Limit = 100 }), 1},
		"with a loose guard": {guard(func(r *policy.Rule) {
			r.Subject, r.Per = policy.SubjectIP,
				time.Second
		}), 1},
		"with a guard in shadow":        {guard(func(r *policy.Rule) { r.Mode = policy.Shadow }), 1},
		"with a guard that has expired": {guard(func(r *policy.Rule) { r.Expires = time.Unix(1, 0) }), 1},
		"with a guard for one project":  {guard(func(r *policy.Rule) { r.Project = "acme" }), 1},
		"in shadow":                     {[]policy.Rule{shadow}, 0},
		"where no body is read":         {[]policy.Rule{orders}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := 0
			for _, p := range policy.Lint(policy.Document{Rules: c.rules},
				policy.CompileOptions{Endpoints: endpoints, Identified: []endpoint.ID{login}}) {
				if p.Code == "lockout" && p.Severity == policy.Warning && p.Rule == 0 {
					got++
				}
			}
			if got != c.want {
				t.Errorf("Lint warned %d times, want %d", got, c.want)
			}
		})
	}
	unread := policy.CompileOptions{
		Endpoints: endpoints,
		Unseen:    []policy.Subject{policy.SubjectIdentifier, policy.SubjectIdentifierIP},
	}
	if text := policy.Lint(policy.Document{Rules: []policy.Rule{byName}},
		unread).String(); strings.Contains(text, "lockout") {
		t.Errorf("where no body is read Lint says\n%s\nwant nothing of locking out", text)
	}
}

// Bodies are read for rules by what stands in them.
func TestLintUnusedIdentifiers(t *testing.T) {
	endpoints := table(t, "POST /v1/login", "POST /v1/orders")
	o := policy.CompileOptions{Endpoints: endpoints, Identified: []endpoint.ID{lookup(t, endpoints, "POST /v1/login")}}
	for name, c := range map[string]struct {
		rule policy.Rule
		want bool
	}{
		"by address": {policy.Rule{Endpoint: "POST /v1/login", Limit: 1, Subject: policy.SubjectIP}, true},
		"by the pair": {policy.Rule{Endpoint: "POST /v1/login", Limit: 1,
			Subject: policy.SubjectIdentifierIP}, false},
		"by name, everywhere": {policy.Rule{Endpoint: policy.All, Limit: 1, Subject: policy.SubjectIdentifier},
			false},
		"by name, at default": {policy.Rule{Endpoint: policy.Default, Limit: 1, Subject: policy.SubjectIdentifier,
			Project: "acme"}, false},
		"by name, elsewhere": {policy.Rule{Endpoint: "POST /v1/orders", Limit: 1, Subject: policy.SubjectIdentifier},
			true},
		"by name, in the past": {policy.Rule{
			Endpoint: "POST /v1/login",
			Limit:    1,
			Subject:  policy.SubjectIdentifier,
			Expires:  time.Unix(1, 0),
		}, true},
		"by name, tried shadow": {policy.Rule{
			Endpoint: "POST /v1/login",
			Limit:    1,
			Subject:  policy.SubjectIdentifier,
			Mode:     policy.Shadow,
		}, false},
	} {
		text := policy.Lint(policy.Document{Rules: []policy.Rule{c.rule}}, o).String()
		if got := strings.Contains(text,
			"identifiers: POST /v1/login is read, want a rule by identifier_ip or identifier that applies "+
				"there"); got != c.want {
			t.Errorf("%s: Lint says\n%s\nunused: %v, want %v", name, text, got, c.want)
		}
	}
}
