package inspect_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// holder is a caller with an API key.
var holder = identity.Principal{
	Kind:    identity.APIKey,
	ID:      "k_1",
	Project: "acme",
	Client:  trial.Client,
	Prefix:  netip.PrefixFrom(trial.Client, 32),
}

// keyed makes requests those of holder when they carry its key.
func keyed(t testing.TB, scopes ...string) (change func(*headgate.Options), header http.Header) {
	t.Helper()
	allowed, err := identity.ParseScopes(scopes)
	if err != nil {
		t.Fatal(err)
	}
	who, text := trial.Holder(t, identity.Key{ID: holder.ID, Project: holder.Project, Scopes: allowed})
	return func(o *headgate.Options) { o.Identities = who }, http.Header{"X-Api-Key": {text}}
}

func use(b *trial.Bench, target string, header http.Header, times int) {
	for range times {
		b.Check(context.Background(), headgate.Request{Method: "GET", Target: target, Peer: trial.Client,
			Header: header})
	}
}

// line is a Budget as a table shows it.
func line(b inspect.Budget) string {
	text := fmt.Sprintf("%s %s, %d endpoints", b.Rule.Title(), b.Rule.Rate(), b.Endpoints)
	if b.Shadow {
		text += ", shadow"
	}
	if b.Needs != "" {
		return text + ", needs " + b.Needs
	}
	text += fmt.Sprintf(": %d at %s", b.State.Remaining, b.State.Endpoint)
	for _, u := range b.Used {
		text += fmt.Sprintf(", used %s %d full in %v", u.Endpoint, u.Remaining, u.ResetAfter)
	}
	return text
}

func lines(found inspect.Budgets) (texts []string) {
	for _, b := range found.Rules {
		texts = append(texts, line(b))
	}
	return texts
}

func TestBudgetsAreALineARule(t *testing.T) {
	change, header := keyed(t)
	b := trial.New(t, []string{"GET /a", "GET /b", "GET /c", "POST /login"}, []policy.Rule{
		{Endpoint: policy.Default, Limit: 10},
		{Endpoint: "GET /a", Limit: 5, Burst: 20, Project: "acme"},
		{Endpoint: "GET /a", Limit: 7},
		{Endpoint: policy.All, Limit: 50, Subject: policy.SubjectProject, Project: "acme", Name: "everything"},
		{Endpoint: policy.All, Limit: 5000, Subject: policy.SubjectIP},
		{Endpoint: "POST /login", Limit: 3, Per: time.Minute, Subject: policy.SubjectIdentifier},
		{Endpoint: policy.UnknownEndpoint, Limit: 2},
		{Endpoint: "GET /b", Limit: 1, Per: time.Hour, Mode: policy.Shadow, Name: "on trial"},
		{Endpoint: policy.Default, Limit: 99, Project: "somebody else"},
	}, change, func(o *headgate.Options) { o.Unknown = headgate.LimitUnknown })
	use(b, "/a", header, 21)
	use(b, "/b", header, 3)
	use(b, "/c", header, 1)
	want := []string{
		"GET /a 5 per 1s, 1 endpoints: 0 at GET /a, used GET /a 0 full in 4s",
		"on trial 1 per 1h, 1 endpoints, shadow: 0 at GET /b, used GET /b 0 full in 1h0m0s",
		"POST /login per identifier 3 per 1m, 1 endpoints, needs what a request tries to be, such as a login name",
		"default 10 per 1s, 3 endpoints: 7 at GET /b, used GET /b 7 full in 300ms, used GET /c 9 full in 100ms",
		"UNKNOWN 2 per 1s, 1 endpoints: 2 at UNKNOWN",
		"everything 50 per 1s, 0 endpoints: 26 at *, used * 26 full in 480ms",
		"* per ip 5000 per 1s, 0 endpoints: 4976 at *, used * 4976 full in 4.8ms",
	}
	for range 2 { // looking takes nothing
		found, err := b.Budgets(context.Background(), holder, "")
		if got := lines(found); err != nil || !slices.Equal(got, want) {
			t.Fatalf("Budgets:\n%q\nwant\n%q\n(%v)", got, want, err)
		}
	}
	// Somebody else has used nothing, and sees no rule of acme's.
	other := identity.Principal{Kind: identity.APIKey, ID: "k_2", Project: "other"}
	want = []string{
		"GET /a 7 per 1s, 1 endpoints: 7 at GET /a",
		"on trial 1 per 1h, 1 endpoints, shadow: 1 at GET /b",
		"POST /login per identifier 3 per 1m, 1 endpoints, needs what a request tries to be, such as a login name",
		"default 10 per 1s, 3 endpoints: 10 at GET /b",
		"UNKNOWN 2 per 1s, 1 endpoints: 2 at UNKNOWN",
		"* per ip 5000 per 1s, 0 endpoints, needs an address",
	}
	if found, err := b.Budgets(context.Background(), other, ""); err != nil || !slices.Equal(lines(found), want) {
		t.Errorf("Budgets of another:\n%q\nwant\n%q\n(%v)", lines(found), want, err)
	}
	want = []string{"on trial 1 per 1h, 1 endpoints, shadow: 0 at GET /b, used GET /b 0 full in 1h0m0s",
		"default 10 per 1s, 1 endpoints: 7 at GET /b, used GET /b 7 full in 300ms"}
	found, err := b.Budgets(context.Background(), holder, "GET /b")
	if got := lines(found); err != nil || len(got) < 2 || !slices.Contains(got, want[0]) ||
		!slices.Contains(got, want[1]) {
		t.Errorf("Budgets at GET /b:\n%q\nwant among them\n%q\n(%v)", got, want, err)
	}
	if _, err := b.Budgets(context.Background(), holder, "GET /nowhere"); err == nil {
		t.Error("Budgets at an endpoint that there is not: no error")
	}
}

// What Budgets says of an endpoint is what Inspect says of its bucket.
func TestBudgetsAgreeWithInspect(t *testing.T) {
	change, header := keyed(t)
	var templates []string
	for i := range 40 {
		templates = append(templates, fmt.Sprintf("GET /e%d", i))
	}
	b := trial.New(t, templates, []policy.Rule{{Endpoint: policy.Default, Limit: 10}}, change)
	for i := range templates {
		use(b, fmt.Sprintf("/e%d", i), header, i*7%13)
	}
	b.Now = b.Now.Add(150 * time.Millisecond)
	found, err := b.Budgets(context.Background(), holder, "")
	if err != nil || len(found.Rules) != 1 || len(found.Rules[0].Used) != inspect.MaxUsed ||
		found.Rules[0].Endpoints != 40 {
		t.Fatalf("Budgets = %+v, %v, want a line of 40 endpoints with %d in use", found, err, inspect.MaxUsed)
	}
	used := found.Rules[0].Used
	if found.Rules[0].State != used[0] {
		t.Errorf("the state of the line is %+v, want that of the emptiest, %+v", found.Rules[0].State, used[0])
	}
	var all []inspect.Bucket
	for _, template := range templates {
		in, err := b.Inspect(context.Background(),
			inspect.Query{Endpoint: template, KeyID: holder.ID, Project: holder.Project})
		if err != nil || len(in.Buckets) != 1 {
			t.Fatal(in, err)
		}
		all = append(all, in.Buckets[0])
	}
	slices.SortStableFunc(all, func(a, b inspect.Bucket) int {
		if a.Remaining != b.Remaining {
			return int(a.Remaining - b.Remaining)
		}
		if a.Wait != b.Wait {
			return int(b.Wait - a.Wait)
		}
		return int(b.ResetAfter - a.ResetAfter)
	})
	for i, u := range used {
		w := all[i]
		if u.Remaining != w.Remaining || u.ResetAfter != w.ResetAfter || u.Wait != w.Wait {
			t.Errorf("used[%d] is %+v, want what Inspect says, %+v", i, u, w)
		}
	}
}

// A key with scopes sees its budgets, and none of the endpoints where it does
// not count.
// TestBudgetsOfAllEndpointsTogether: a rule for "*" is asked about by that name, which is no endpoint's.
func TestBudgetsOfAllEndpointsTogether(t *testing.T) {
	b := trial.New(t, []string{"GET /a", "GET /b"},
		[]policy.Rule{{Endpoint: policy.All, Limit: 5}, {Endpoint: policy.Default, Limit: 3}})
	use(b, "/a", nil, 2)
	who := identity.Principal{Kind: identity.Address, Client: trial.Client, Prefix: netip.PrefixFrom(trial.Client, 32)}
	got, err := b.Budgets(t.Context(), who, policy.All)
	if err != nil || !slices.ContainsFunc(got.Rules,
		func(one inspect.Budget) bool { return one.Rule.Endpoint == policy.All && one.State.Remaining == 3 }) {
		t.Errorf("BudgetsOf(*) = %+v, %v, want 3 left of 5", got, err)
	}
	found, err := b.Inspect(t.Context(), inspect.Query{Endpoint: policy.All, Address: trial.Client})
	if err != nil || len(found.Buckets) != 1 || found.Buckets[0].Remaining != 3 {
		t.Errorf("Inspect(*) = %+v, %v, want 3 left of 5", found, err)
	}
}

func TestBudgetsOfAKeyWithScopes(t *testing.T) {
	change, header := keyed(t, "GET /a")
	b := trial.New(t, []string{"GET /a", "GET /b"}, []policy.Rule{{Endpoint: policy.Default, Limit: 10}}, change,
		func(o *headgate.Options) { o.Unknown = headgate.LimitUnknown })
	use(b, "/a", header, 2)
	who, err := b.Caller(context.Background(), inspect.Query{Peer: trial.Client, Header: header})
	if err != nil || who.Kind != identity.APIKey || who.ID != holder.ID {
		t.Fatalf("Caller = %v, %v, want the key's holder", who, err)
	}
	found, err := b.Budgets(context.Background(), who, "")
	want := []string{"default 10 per 1s, 1 endpoints: 8 at GET /a, used GET /a 8 full in 200ms"}
	if err != nil || !slices.Equal(lines(found), want) {
		t.Errorf("Budgets = %q, %v, want %q", lines(found), err, want)
	}
	if d := b.Check(context.Background(), headgate.Request{Method: "GET", Target: "/b", Peer: trial.Client,
		Header: header}); d.Principal.Rejected != identity.KeyOutOfScope {
		t.Errorf("a request out of scope is %v, want the address's as ever", d.Principal)
	}
}

// A caller sees at most MaxBudgets rules, and how many more there are.
func TestBudgetsAreBounded(t *testing.T) {
	var templates []string
	var rules []policy.Rule
	for i := range inspect.MaxBudgets + 5 {
		templates = append(templates, fmt.Sprintf("GET /e%d", i))
		rules = append(rules, policy.Rule{Endpoint: templates[i], Limit: int64(i) + 1})
	}
	b := trial.New(t, templates, rules)
	found, err := b.Budgets(context.Background(), holder, "")
	if err != nil || len(found.Rules) != inspect.MaxBudgets || found.More != 5 {
		t.Errorf("Budgets has %d lines and %d more (%v), want %d and 5", len(found.Rules), found.More, err,
			inspect.MaxBudgets)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := b.Budgets(ctx, holder, ""); err == nil {
		t.Error("Budgets for somebody who left: no error")
	}
}

// BenchmarkBudgets is the page of a caller at an API with 5,000 endpoints, most
// of them without a rule of their own.
func BenchmarkBudgets(b *testing.B) {
	var templates []string
	for i := range 5000 {
		templates = append(templates, fmt.Sprintf("GET /e%d", i))
	}
	w := trial.New(b, templates, []policy.Rule{
		{Endpoint: policy.Default, Limit: 1 << 40},
		{Endpoint: policy.Default, Limit: 1 << 40, Subject: policy.SubjectIP},
		{Endpoint: policy.All, Limit: 1 << 40, Subject: policy.SubjectEndpoint},
		{Endpoint: "GET /e7", Limit: 1},
	})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.Budgets(context.Background(), holder, ""); err != nil {
			b.Fatal(err)
		}
	}
}
