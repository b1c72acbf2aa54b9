package policy_test

import (
	"strings"
	"testing"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
)

func TestPriorities(t *testing.T) {
	for text, want := range map[string]string{
		"low": "low", " critical ": "critical", "": "",
		"high:30,normal:20,low:10":            "high:30,normal:20,low:10",
		"critical:0, high : 05 , low:85":      "critical:0,high:5,low:85",
		"critical:10,high:10,normal:10,low:1": "critical:10,high:10,normal:10,low:1",
	} {
		var p policy.Priority
		if err := p.UnmarshalText([]byte(text)); err != nil || string(p) != want {
			t.Errorf("%q is read as %q, %v, want %q", text, p, err, want)
		}
	}
	for _, text := range []string{
		"urgent", "Low", ",", "low:10", "low:10,high:10", "high:10,high:10", "high:50,low:41", "high:-1,low:1",
		"high:10,low", "high:10,low:", "high:10,low:1%", "high:10,low:10,", "high:1e1,low:1", ":10,low:5",
		"high:200,low:5", "low:99999999999999999999,high:1",
	} {
		p := policy.Priority("high")
		if err := p.UnmarshalText([]byte(text)); err == nil || p != "high" {
			t.Errorf("%q is read as %q, want an error", text, p)
		}
	}
}

// TestWhatAClassLeaves for others: what all are guaranteed, and an equal part of the rest for each class above.
func TestWhatAClassLeaves(t *testing.T) {
	for _, test := range []struct {
		priority   string
		kept       [4]int // of critical, high, normal and low
		guaranteed [4]int
	}{
		{"critical:10,high:10,normal:10,low:10", [4]int{40, 55, 70, 85}, [4]int{10, 10, 10, 10}},
		{"high:20,low:10", [4]int{30, 30, 65, 65}, [4]int{20, 20, 10, 10}},
		{"critical:0,high:0", [4]int{0, 50, 50, 50}, [4]int{0, 0, 0, 0}},
		{"normal:45,low:45", [4]int{90, 90, 90, 95}, [4]int{45, 45, 45, 45}},
	} {
		terms, err := policy.Priority(test.priority).Terms()
		if err != nil {
			t.Fatal(err)
		}
		for i := range test.kept {
			class := policy.Critical + policy.Class(i)
			kept, guaranteed := terms.Kept(class), terms.Guaranteed(class).Percent
			if kept != test.kept[i] || guaranteed != test.guaranteed[i] {
				t.Errorf("%s: class %v leaves %d %% and is guaranteed %d %%, want %d and %d", test.priority, class,
					kept, guaranteed, test.kept[i], test.guaranteed[i])
			}
		}
	}
}

// FuzzPriority: what is read is written in one form, which is read the same, and leaves every class something.
func FuzzPriority(f *testing.F) {
	for _, text := range []string{
		"low", "high:30,normal:20,low:10", "critical:0, high : 05 , low:85", "high:45,low:46",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var p, again policy.Priority
		if p.UnmarshalText([]byte(text)) != nil || p == "" {
			return
		}
		if err := again.UnmarshalText([]byte(p)); err != nil || again != p || len(p) > 64 {
			t.Fatalf("%q is read as %q, and that as %q, %v", text, p, again, err)
		}
		terms, err := p.Terms()
		if err != nil || (terms.Class == policy.Unclassed) != (terms.Shares != nil) {
			t.Fatalf("%q is %+v, %v", text, terms, err)
		}
		if terms.Shares == nil {
			return
		}
		guaranteed, kept := 0, 0
		for class := policy.Critical; class <= policy.Low; class++ {
			if k := terms.Kept(class); k < kept || k > 99 {
				t.Fatalf("%q: class %v leaves %d %%, after %d %%", p, class, k, kept)
			} else {
				kept = k
			}
		}
		for _, s := range terms.Shares {
			guaranteed += s.Percent
		}
		if first := terms.Kept(policy.Critical); first != guaranteed || guaranteed > 90 {
			t.Fatalf("%q: the highest leaves %d %%, all are guaranteed %d %%", p, first, guaranteed)
		}
	})
}

func TestFindingsOfPriorities(t *testing.T) {
	shared := policy.Rule{Endpoint: policy.All, Limit: 100, Subject: policy.SubjectEndpoint, Priority: "high:20,low:10"}
	with := func(change func(*policy.Rule)) policy.Rule {
		r := shared
		change(&r)
		return r
	}
	low := policy.Rule{Endpoint: "GET /a", Limit: 5, Priority: "low"}
	high := policy.Rule{Endpoint: "GET /b", Limit: 5, Priority: "high"}
	both := []policy.Rule{shared, low, high}
	for name, test := range map[string]struct {
		rules []policy.Rule
		cost  int64 // of GET /a
		want  string
	}{
		"fine": {both, 1, ""},
		"in windows": {[]policy.Rule{with(func(r *policy.Rule) { r.Algorithm = policy.SlidingLog }), low, high}, 1,
			`error: rules[0] (*, per endpoint): algorithm is "sliding_log", want "token_bucket", "leaky_bucket" or "concurrency"`},
		"taken in advance": {[]policy.Rule{with(func(r *policy.Rule) { r.Scope = policy.Lease }), low, high}, 1,
			`error: rules[0] (*, per endpoint): scope is "lease", want "local", "split" or "strict", because classes share`},
		"places of several gateways": {[]policy.Rule{with(func(r *policy.Rule) {
			r.Subject, r.Algorithm = r.Subject.Counting(policy.CountsUnderWay), policy.Concurrency
			r.Scope = policy.Strict
		}), low, high}, 1, `error: rules[0] (*, per in_flight:endpoint): scope is "strict", want "local", because class`},
		"with a penalty": {[]policy.Rule{with(func(r *policy.Rule) { r.Penalty = "10 in 1m for 15m" }), low, high}, 1,
			`error: rules[0] (*, per endpoint): penalty is "10 in 1m for 15m", want none, because classes share`},
		"less than a token": {[]policy.Rule{with(func(r *policy.Rule) { r.Limit = 9 }), low, high}, 1,
			`error: rules[0] (*, per endpoint): priority is "high:20,low:10", want a burst of 10 or more, so that what low is ` +
				`guaranteed (10 % of 9) is a token at least`},
		"of an exempt endpoint": {
			[]policy.Rule{{Endpoint: "GET /a", Mode: policy.Allow, Priority: "low"}, shared, high},
			1, `error: rules[0] (GET /a): priority is "low", want none, because`,
		},
		"written otherwise": {
			[]policy.Rule{with(func(r *policy.Rule) { r.Priority = "high: 20,low:10" }), low, high}, 1,
			`error: rules[0] (*, per endpoint): priority is "high: 20,low:10", want "high:20,low:10", which is how`,
		},
		"dearer than low has": {both, 36, `warning: rules[0] (*, per endpoint): burst is 100, want a larger one, or no such ` +
			`cost: GET /a costs 36, and class low never has more than 35 of it at once`},
		"nothing is shared": {[]policy.Rule{low, high}, 1, `note: rules[0] (GET /a): priority is "low", want a rule whose ` +
			`budget classes share`},
		"in shadow": {
			[]policy.Rule{shared, {Endpoint: "GET /a", Limit: 5, Priority: "low", Mode: policy.Shadow}, high}, 1,
			`note: rules[1] (GET /a): priority is "low", want mode enforce`,
		},
		"nobody is high": {[]policy.Rule{shared, low}, 1,
			`note: rules[0] (*, per endpoint): priority is "high:20,low:10", want a rule, a tier or an endpoint with ` +
				"priority high: no request"},
	} {
		t.Run(name, func(t *testing.T) {
			templates := table(t, "GET /a", "GET /b")
			rules := append(test.rules, policy.Rule{Endpoint: policy.Default, Limit: 50},
				policy.Rule{Endpoint: policy.UnknownEndpoint, Limit: 5})
			o := policy.CompileOptions{Endpoints: templates, Shared: true}
			if test.cost > 1 {
				o.Costs = map[endpoint.ID]int64{1: test.cost}
				for i := range rules {
					rules[i].Limit = max(rules[i].Limit, 100)
				}
			}
			found := ""
			for _, p := range policy.Lint(policy.Document{Rules: rules}, o) {
				about := strings.Contains(p.Code, "priority") || strings.Contains(p.Code, "class")
				if about || p.Severity == policy.Error {
					found += p.Severity.String() + ": " + p.Error() + "\n"
				}
			}
			if test.want == "" && found != "" || !strings.HasPrefix(found, test.want) {
				t.Errorf("lint says\n%swant\n%s", found, test.want)
			}
		})
	}
}
