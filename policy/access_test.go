package policy_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
)

// rank orders the rules that could settle a request: a block first, then the endpoint's own, the project's,
// the tier's, one caller's, the smaller network's. It is Set.Access said slowly.
func rank(r policy.Rule, known bool, ep string, c policy.Caller, tier string) (order []int, ok bool) {
	bit := func(b bool) int {
		if b {
			return 0
		}
		return 1
	}
	tenant := map[bool]int{}
	switch {
	case r.Project != "":
		tenant[true] = 0
		if r.Project != c.Project {
			return nil, false
		}
	case r.Tier != "":
		tenant[true] = 1
		if r.Tier != tier {
			return nil, false
		}
	default:
		tenant[true] = 2
	}
	if r.Endpoint != policy.All && r.Endpoint != ep && (known || r.Endpoint != policy.UnknownEndpoint) {
		return nil, false
	}
	whom := 1000
	if r.Only != "" {
		kind, value, _ := strings.Cut(r.Only, ":")
		if kind == "ip" {
			network, err := netip.ParsePrefix(value)
			if err != nil {
				a := netip.MustParseAddr(value)
				network = netip.PrefixFrom(a, a.BitLen())
			}
			if !network.Contains(c.Address) {
				return nil, false
			}
			whom = 500 - network.Bits()
		} else {
			if c.ID == "" || kind != c.Kind || value != c.ID {
				return nil, false
			}
			whom = 0
		}
	}
	return []int{bit(r.Mode == policy.Block), bit(r.Endpoint != policy.All), tenant[true], whom}, true
}

// TestAccess compares Set.Access with rank, on rules and callers drawn at random, with limits and rules that
// expire among them.
func TestAccess(t *testing.T) {
	endpoints := table(t, "GET /a", "GET /b")
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	pick := func(rng *rand.Rand, of ...string) string { return of[rng.IntN(len(of))] }
	found := map[policy.Mode]int{}
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		doc := policy.Document{Projects: map[string]string{"acme": "gold"}}
		seen := map[string]bool{}
		for range 1 + rng.IntN(10) {
			r := policy.Rule{
				Endpoint: pick(rng, "GET /a", "GET /b", "UNKNOWN", "*"),
				Mode:     policy.Allow + policy.Mode(rng.IntN(2)),
			}
			switch rng.IntN(3) {
			case 0:
				r.Project = pick(rng, "acme", "other")
			case 1:
				r.Tier = pick(rng, "gold", "free")
			}
			if err := r.SetSubject(pick(rng, "principal", "ip:10.0.0.0/8", "ip:10.1.0.0/16", "ip:10.1.2.3",
				"ip:0.0.0.0/0", "ip:2001:db8::/32", "ip:2001:db8::1", "token:alice", "api_key:alice")); err != nil {
				t.Fatal(err)
			}
			if rng.IntN(3) == 0 {
				r.Expires = now.Add(time.Duration(rng.IntN(3)-1) * time.Hour)
			}
			if rng.IntN(6) == 0 && r.Only == "" { // a limit in its place
				r.Mode, r.Limit = policy.Enforce, 5
			}
			if key := fmt.Sprint(r.Endpoint, r.Project, r.Tier, r.SubjectText(), r.Expires.IsZero()); !seen[key] {
				seen[key] = true
				doc.Rules = append(doc.Rules, r)
			}
		}
		set, problems := policy.Compile(doc, policy.CompileOptions{Endpoints: endpoints, Now: now})
		if set == nil {
			t.Fatalf("seed %d: %v", seed, problems)
		}
		live := slices.DeleteFunc(slices.Clone(doc.Rules), func(r policy.Rule) bool {
			if !r.Expires.IsZero() {
				return !r.Expires.After(now)
			}
			return slices.ContainsFunc(doc.Rules, func(o policy.Rule) bool { // what stands in its place
				return o.Expires.After(now) && o.Endpoint == r.Endpoint && o.Project == r.Project && o.Tier == r.Tier &&
					o.SubjectText() == r.SubjectText()
			})
		})
		for range 20 {
			c := policy.Caller{Kind: pick(rng, "token", "api_key", "address"), Project: pick(rng, "", "acme", "other"),
				Tier: pick(rng, "", "free"),
				Address: netip.MustParseAddr(pick(rng, "10.1.2.3", "10.2.0.1", "192.0.2.1", "2001:db8::1",
					"2001:db9::1"))}
			if c.Kind != "address" {
				c.ID = pick(rng, "alice", "bob")
			}
			ep := pick(rng, "GET /a", "GET /b", "GET /nowhere")
			m := endpoints.Match("GET", strings.TrimPrefix(ep, "GET "))
			tier := c.Tier
			if tier == "" {
				tier = doc.Projects[c.Project]
			}
			var best policy.Rule
			var order []int
			for _, r := range live {
				if at, ok := rank(r, m.Status == endpoint.Known, ep, c, tier); ok && !r.Mode.Limits() &&
					(order == nil || slices.Compare(at, order) < 0) {
					best, order = r, at
				}
			}
			n, mode, ok := set.Access(now.UnixNano(), m, &c)
			if ok != (order != nil) || ok && set.AccessRule(n) != best {
				t.Fatalf("seed %d: %s of %+v: got %v %v, want %+v of\n%+v", seed, ep, c, ok, mode, best, live)
			}
			if ok {
				found[mode]++
			}
		}
	}
	if found[policy.Allow] < 1000 || found[policy.Block] < 1000 {
		t.Errorf("settled %v, want 1000 of each mode or more", found)
	}
}

func TestAccessAllocatesNothing(t *testing.T) {
	set := compile(t, policy.Document{Rules: []policy.Rule{
		{Endpoint: "*", Mode: policy.Block, Subject: policy.SubjectIP, Only: "ip:10.0.0.0/8"},
		{Endpoint: "*", Mode: policy.Allow, Only: "token:alice"},
	}}, policy.CompileOptions{})
	c := policy.Caller{Kind: "token", ID: "bob", Project: "acme", Address: netip.MustParseAddr("192.0.2.1")}
	if n := testing.AllocsPerRun(100, func() { set.Access(0, endpoint.Match{}, &c) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func TestSetSubject(t *testing.T) {
	for written, want := range map[string]string{
		"ip": "ip", "principal": "principal", "ip:192.0.2.7": "ip:192.0.2.7", "ip:192.0.2.7/32": "ip:192.0.2.7",
		"ip:192.0.2.7/24":     "ip:192.0.2.0/24",
		"ip:::ffff:192.0.2.7": "ip:192.0.2.7", "ip:2001:DB8::1/32": "ip:2001:db8::/32", "token:a:b": "token:a:b",
		"api_key:k1":       "api_key:k1",
		"certificate:CN=x": "certificate:CN=x", "user:ann": "user:ann",
		"ip:": "", "ip:192.0.2": "", "ip:fe80::1%eth0": "", "ip:::ffff:192.0.2.0/120": "", "token:": "", "token:\n": "",
		"project:acme": "", "nobody": "", "": "",
		"token:" + strings.Repeat("a", 250): "", "user:\xff": "",
	} {
		var r policy.Rule
		err := r.SetSubject(written)
		if want == "" {
			if err == nil {
				t.Errorf("%q is read as %q, want an error", written, r.SubjectText())
			}
			continue
		}
		if err != nil || r.SubjectText() != want {
			t.Errorf("%q is read as %q, %v, want %q", written, r.SubjectText(), err, want)
		}
		var again policy.Rule
		if err := again.SetSubject(r.SubjectText()); err != nil || again != r {
			t.Errorf("%q is read as %+v, %v, want %+v", r.SubjectText(), again, err, r)
		}
	}
}

// TestAccessProblems: what is said of a limit is refused where there is none, and nothing is said twice of a
// place.
func TestAccessProblems(t *testing.T) {
	hour := time.Date(2026, 3, 1, 1, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		rules []policy.Rule
		want  string
	}{
		"limit": {[]policy.Rule{{Endpoint: "*", Mode: policy.Allow, Limit: 5, Burst: 5, Project: "p"}},
			"burst is 5, want none, because mode is allow"},
		"scope": {[]policy.Rule{{Endpoint: "*", Mode: policy.Block, Scope: policy.Strict, Project: "p"}},
			`scope is "strict", want none, because mode is block`},
		"default": {[]policy.Rule{{Endpoint: "default", Mode: policy.Allow}},
			`endpoint is "default", want a template, "UNKNOWN" or "*" for all requests`},
		"by ip": {[]policy.Rule{{Endpoint: "*", Mode: policy.Allow, Subject: policy.SubjectIP}},
			`subject is "ip", want none for everybody, or one network or caller`},
		"named limit": {[]policy.Rule{{Endpoint: "*", Limit: 5, Subject: policy.SubjectIP, Only: "ip:10.0.0.0/8"}},
			"one network or caller is for mode allow or block"},
		"not as read": {[]policy.Rule{{Endpoint: "*", Mode: policy.Allow, Subject: policy.SubjectIP,
			Only: "ip:10.0.0.1/8"}}, "want a network or a caller as Rule.SetSubject reads it"},
		"twice": {[]policy.Rule{{Endpoint: "*", Mode: policy.Allow, Project: "p"},
			{Endpoint: "*", Mode: policy.Block, Project: "p"}}, "want one of this and rules[0]"},
		"beside a limit": {[]policy.Rule{{Endpoint: "*", Limit: 5}, {Endpoint: "*", Mode: policy.Block}},
			"want one of this and rules[0]"},
		"under a limit": {[]policy.Rule{{Endpoint: "*", Mode: policy.Block}, {Endpoint: "*", Limit: 5}},
			"want one of this and rules[0]"},
		"both temporary": {[]policy.Rule{{Endpoint: "*", Mode: policy.Block, Expires: hour},
			{Endpoint: "*", Limit: 5, Expires: hour}}, "want one of this and rules[0]"},
		"everything": {[]policy.Rule{{Endpoint: "*", Mode: policy.Allow}}, "now no limit holds for any request"},
		"every address": {[]policy.Rule{{Endpoint: "*", Mode: policy.Block, Subject: policy.SubjectIP,
			Only: "ip:::/0"}}, "now every request is refused"},
		"over": {[]policy.Rule{{Endpoint: "*", Mode: policy.Allow, Project: "p",
			Expires: hour.Add(-2 * time.Hour)}}, "want a time in the future; the rule no longer applies"},
		"not an endpoint": {[]policy.Rule{{Endpoint: "GET /nowhere", Mode: policy.Allow}},
			"want the template of an endpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			problems := policy.Lint(policy.Document{Rules: c.rules},
				policy.CompileOptions{Endpoints: table(t, "GET /a"), Now: hour.Add(-time.Hour)})
			if !slices.ContainsFunc(problems,
				func(p policy.Problem) bool { return strings.Contains(p.Error(), c.want) }) {
				t.Errorf("got %v, want %q among them", problems, c.want)
			}
		})
	}
}

// BenchmarkAccess asks a Set that blocks so many networks, of all lengths from /8 to /32, about an address in none of
// them.
func BenchmarkAccess(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var doc policy.Document
			for i := range n {
				network := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32-i%25)
				r := policy.Rule{Endpoint: policy.All, Mode: policy.Block, Project: fmt.Sprint("p", i)}
				if i%25 == 0 || n == 1 {
					r.Project = ""
				}
				if err := r.SetSubject("ip:" + network.String()); err != nil {
					b.Fatal(err)
				}
				doc.Rules = append(doc.Rules, r)
			}
			set := compile(b, doc, policy.CompileOptions{})
			c := policy.Caller{Address: netip.MustParseAddr("192.0.2.1")}
			b.ReportAllocs()
			for b.Loop() {
				set.Access(0, endpoint.Match{}, &c)
			}
		})
	}
}
