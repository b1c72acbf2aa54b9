package headgate_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
)

// Rules in lines make a whole limiter: what they name has its own limits, and everything else one together.
func TestRulesInLines(t *testing.T) {
	t.Parallel()
	lim, err := headgate.New(headgate.Options{Rules: []string{
		"POST /v1/login 2/h", "POST /v1/login 3/d by endpoint", "GET /v1/reports/{report} 1/h burst 2",
		"default 1/h burst 4",
	}})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(from, method, target string) headgate.Reason {
		request := headgate.Request{Method: method, Target: target, Peer: netip.MustParseAddr(from)}
		return lim.Check(context.Background(), request).Reason
	}
	for i, c := range []struct {
		from, method, target string
		want                 headgate.Reason
	}{
		{"192.0.2.1", "POST", "/v1/login", headgate.WithinLimits},
		{"192.0.2.1", "POST", "/v1/login/", headgate.WithinLimits}, // a slash at the end is no other endpoint
		{"192.0.2.1", "POST", "/v1/login", headgate.OverLimit},
		{"192.0.2.2", "POST", "/v1/login", headgate.WithinLimits},
		{"192.0.2.3", "POST", "/v1/login", headgate.OverLimit}, // three a day from everybody
		{"192.0.2.1", "GET", "/v1/reports/1", headgate.WithinLimits},
		{"192.0.2.1", "GET", "/v1/reports/2", headgate.WithinLimits},
		{"192.0.2.1", "GET", "/v1/reports/3", headgate.OverLimit},
		{"192.0.2.1", "GET", "/v1/%72eports/4", headgate.InvalidTarget},
		{"192.0.2.1", "GET", "/static/", headgate.WithinLimits}, // everything else, together
		{"192.0.2.1", "GET", "/", headgate.WithinLimits},
		{"192.0.2.1", "DELETE", "/v1/login", headgate.WithinLimits},
		{"192.0.2.1", "GET", "/a/b/c", headgate.WithinLimits},
		{"192.0.2.1", "GET", "/a/b/d", headgate.OverLimit},
		{"192.0.2.4", "GET", "/a/b/d", headgate.WithinLimits},
	} {
		if got := ask(c.from, c.method, c.target); got != c.want {
			t.Errorf("%d: %s %s from %s: %v, want %v", i, c.method, c.target, c.from, got, c.want)
		}
	}
}

// With endpoints of one's own, others are unknown as ever.
func TestRulesInLinesForDeclaredEndpoints(t *testing.T) {
	t.Parallel()
	template, err := endpoint.ParseTemplate("GET /a")
	if err != nil {
		t.Fatal(err)
	}
	table, err := endpoint.Compile([]endpoint.Template{template}, endpoint.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	lim, err := headgate.New(headgate.Options{Endpoints: table, Rules: []string{"default 1/h"}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []headgate.Reason{headgate.WithinLimits, headgate.OverLimit, headgate.UnknownEndpoint} {
		target := []string{"/a", "/a", "/b"}[i]
		request := headgate.Request{Method: "GET", Target: target, Peer: netip.MustParseAddr("192.0.2.1")}
		if got := lim.Check(context.Background(), request).Reason; got != want {
			t.Errorf("%s: %v, want %v", target, got, want)
		}
	}
}

// One line is enough, and counts by each of its subjects.
func TestRulesInLinesForEverything(t *testing.T) {
	t.Parallel()
	lim, err := headgate.New(headgate.Options{Rules: []string{"default 2/h", "default 3/h by endpoint"}})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		from, target string
		want         headgate.Reason
	}{
		{"192.0.2.1", "/", headgate.WithinLimits},
		{"192.0.2.1", "/a", headgate.WithinLimits},
		{"192.0.2.1", "/b", headgate.OverLimit},
		{"192.0.2.2", "/b", headgate.WithinLimits},
		{"192.0.2.3", "/b", headgate.OverLimit},
	} {
		request := headgate.Request{Method: "GET", Target: c.target, Peer: netip.MustParseAddr(c.from)}
		if got := lim.Check(context.Background(), request).Reason; got != c.want {
			t.Errorf("%d: %s from %s: %v, want %v", i, c.target, c.from, got, c.want)
		}
	}
}

func TestRulesInLinesSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	item, err := endpoint.ParseTemplate("GET /items/{id...}")
	if err != nil {
		t.Fatal(err)
	}
	table, err := endpoint.Compile([]endpoint.Template{item}, endpoint.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		options headgate.Options
		want    []string
	}{
		"lines": {
			headgate.Options{Rules: []string{"GET /a 1", "default 1/s by moon"}},
			[]string{"Rules[0]", `limit is "1"`, "Rules[1]", `"moon"`},
		},
		"all that is wrong, at once": {
			headgate.Options{Rules: []string{
				"GET a 1/s", "GET b 1", "GET /a 1/s", "GET /a 2/s", "GET /c 1/s burst 9000000000000000000",
			}},
			[]string{
				"Rules[0]", `"GET a"`, "Rules[1]", `"GET b"`, `limit is "1"`, "rules[3]", "rules[2]", "rules[4]",
				"burst",
			},
		},
		"all that is wrong with given endpoints, at once": {
			headgate.Options{Endpoints: table, Rules: []string{"GET /items/{id} 1/s", "default 1", "UNKNOWN 1/s"}},
			[]string{"Rules[1]", `limit is "1"`, `the closest is "GET /items/{id...}"`},
		},
		"nothing else, and more": {
			headgate.Options{Rules: []string{"GET /a 1/s", "GET /a 2/s"}},
			[]string{`none is for everything else`, "rules[1]"},
		},
		"nothing else": {
			headgate.Options{Rules: []string{"GET /a 1/s"}}, []string{`none is for everything else`, `"default 20/s"`},
		},
		"an endpoint that is none": {
			headgate.Options{Endpoints: table, Rules: []string{"GET /items/{id} 1/s", "default 1/s"}},
			[]string{`"GET /items/{id}"`, `the closest is "GET /items/{id...}"`},
		},
		"no template": {headgate.Options{Rules: []string{"GET a 1/s", "default 1/s"}}, []string{`"GET a"`}},
		"twice":       {headgate.Options{Rules: []string{"default 1/s", "default 2/s"}}, []string{"default"}},
		"a burst too large": {
			headgate.Options{Rules: []string{"default 1/s burst 9000000000000000000"}}, []string{"default"},
		},
		"rules twice": {
			headgate.Options{Rules: []string{"default 1/s"}, Policies: headgate.Fixed(nil)},
			[]string{"Rules and Policies are both set"},
		},
	} {
		_, err := headgate.New(c.options)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q in it", name, err, want)
			}
		}
	}
}
