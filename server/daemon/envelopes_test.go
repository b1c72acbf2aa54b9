package daemon_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/server/daemon"
	"github.com/headgate-io/headgate/server/descriptor"
	"github.com/headgate-io/headgate/server/metrics"
)

func TestEnvelopes(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	l, set := limiter(t, []policy.Rule{
		{Endpoint: "default", Limit: 10}, // which says it all
		{Endpoint: "GET /a", Limit: 100, Per: time.Minute, Burst: 300, Scope: policy.Split, Name: "reads"},
		{Endpoint: "GET /b", Limit: 2, Burst: 7, Scope: policy.Split, Name: "reads"},
		{Endpoint: "GET /c", Limit: 3, Burst: 5, Scope: policy.Split},
		{Endpoint: "GET /c", Limit: 900, Scope: policy.Split, Tier: "gold"},
		{Endpoint: "GET /c", Limit: 900, Scope: policy.Split, Project: "acme"},
		{Endpoint: "GET /b", Limit: 900, Scope: policy.Split, Expires: now.Add(time.Minute)},
	})
	reads := metrics.Envelope{Rule: "reads", Scope: "split", Burst: 300, Tokens: 2, Per: time.Second}
	third := metrics.Envelope{Rule: "GET /c", Scope: "split", Burst: 5, Tokens: 3, Per: time.Second}
	temporary := metrics.Envelope{Rule: "GET /b", Scope: "split", Burst: 900, Tokens: 900, Per: time.Second}
	for _, c := range []struct {
		at   time.Time
		most int
		want map[metrics.Envelope]bool
	}{
		{now, 10, map[metrics.Envelope]bool{reads: true, third: true, temporary: true}},
		{now.Add(time.Hour), 10, map[metrics.Envelope]bool{reads: true, third: true}},
	} {
		got := map[metrics.Envelope]bool{}
		for _, e := range daemon.Envelopes(l, set, c.at.UnixNano(), c.most) {
			got[e] = true
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("at %v: %v, want %v", c.at, got, c.want)
		}
	}
	if got := daemon.Envelopes(l, set, now.UnixNano(), 1); len(got) != 1 {
		t.Errorf("at most one: %v", got)
	}
}

// Where there are more titles than are told, what is told of one is true all the same of each rule that has it.
func TestEnvelopesOfOneTitleBeyondTheMost(t *testing.T) {
	l, set := limiter(t, []policy.Rule{
		{Endpoint: "GET /a", Limit: 1, Scope: policy.Split, Name: "reads"},
		{Endpoint: "GET /b", Limit: 1, Scope: policy.Split},
		{Endpoint: "GET /c", Limit: 9, Scope: policy.Split, Name: "reads"},
	})
	want := []metrics.Envelope{{Rule: "reads", Scope: "split", Burst: 9, Tokens: 9, Per: time.Second}}
	if got := daemon.Envelopes(l, set, time.Now().UnixNano(), 1); !reflect.DeepEqual(got, want) {
		t.Errorf("the first of two titles is %v, want %v", got, want)
	}
}

// limiter is one over rules for GET /a, /b and /c.
func limiter(t *testing.T, rules []policy.Rule) (*headgate.Limiter, *policy.Set) {
	t.Helper()
	var templates []endpoint.Template
	for _, text := range []string{"GET /a", "GET /b", "GET /c"} {
		template, err := endpoint.ParseTemplate(text)
		if err != nil {
			t.Fatal(err)
		}
		templates = append(templates, template)
	}
	endpoints, err := endpoint.Compile(templates, endpoint.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	set, problems := policy.Compile(policy.Document{Rules: rules}, policy.CompileOptions{Endpoints: endpoints})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	buckets, err := memory.New(memory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	who, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := headgate.New(headgate.Options{
		Endpoints:  endpoints,
		Policies:   headgate.Fixed(set),
		Identities: who,
		Buckets:    buckets,
	})
	if err != nil {
		t.Fatal(err)
	}
	return l, set
}

// Two rules of one title, as names are free, are no reason for the page to fail.
func TestMetricsTellEnvelopes(t *testing.T) {
	p := newProcess(t, []policy.Rule{
		{Endpoint: "GET /v1/items/{id}", Limit: 120, Per: time.Minute, Burst: 9, Scope: policy.Split, Name: "items"},
		{Endpoint: "POST /v1/items", Limit: 60, Per: time.Minute, Scope: policy.Split, Name: "items"},
	})
	status, page := call(t, "GET", p.admin+"/metrics", "")
	for _, line := range []string{
		`headgate_envelope_burst_tokens{rule="items",scope="split"} 60`,
		`headgate_envelope_tokens_per_second{rule="items",scope="split"} 2`,
		`headgate_envelope_excess_tokens{rule="items",scope="split"} 0`,
	} {
		if status != 200 || !strings.Contains(page, line+"\n") {
			t.Errorf("the page with status %d has no %s", status, line)
		}
	}
}

// What Envoys that decide by themselves may admit beyond a limit is what drains in a TTL and a second, of each
// limit that can refuse.
func TestLentEnvelopes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	text := "domain: a\ndescriptors:\n- {key: ip, rate_limit: {unit: second, requests_per_unit: 100}}\n- {key: " +
		"slow, rate_limit: {unit: hour, requests_per_unit: 36}}\n" +
		"- {key: none, rate_limit: {unit: hour, requests_per_unit: 0}}\n- {key: free, rate_limit: {unlimited: " +
		"true}}\n- {key: tried, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}\n" +
		"- {key: b/c, rate_limit: {unit: second, requests_per_unit: 1}}\n---\ndomain: a/b\ndescriptors: [{key: c, " +
		"rate_limit: {unit: second, requests_per_unit: 2}}]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	limits, err := descriptor.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []metrics.Envelope{
		{Rule: "a/ip", Scope: "quota", Burst: 100, Tokens: 100, Per: time.Second, Excess: 600},
		{Rule: "a/slow", Scope: "quota", Burst: 36, Tokens: 36, Per: time.Hour, Excess: 1},
		{Rule: "a/b/c", Scope: "quota", Burst: 2, Tokens: 2, Per: time.Second, Excess: 12}, // both that are called so
	}
	if got := daemon.LentEnvelopes(limits, 5*time.Second, 10); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := daemon.LentEnvelopes(limits, 5*time.Second, 2); len(got) != 2 {
		t.Errorf("at most two: %v", got)
	}
}
