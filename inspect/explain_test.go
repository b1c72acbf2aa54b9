package inspect_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/slot"
)

// A request that is refused for what it presents has no rules that apply, and
// is explained all the same.
func TestExplainTooManyCredentials(t *testing.T) {
	digester, err := identity.NewDigester(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	who, err := identity.New(identity.Options{
		Keys:       new(identity.Keyring),
		Digester:   digester,
		KeySources: identity.KeySources{Header: "X-Api-Key"},
	})
	if err != nil {
		t.Fatal(err)
	}
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{{Endpoint: "GET /a", Limit: 5}},
		func(o *headgate.Options) { o.Identities = who })
	header := http.Header{}
	for i := range identity.MaxCredentials + 1 {
		header.Add("X-Api-Key", fmt.Sprint("key", i))
	}
	r := headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client, Header: header}
	if d := b.Check(context.Background(), r); d.Reason != headgate.TooManyCredentials {
		t.Fatalf("Check = %v, want too_many_credentials", d.Reason)
	}
	x := b.Explain(context.Background(), r)
	if x.Verdict.Allowed || x.Verdict.Reason != "too_many_credentials" || x.Identity == nil || len(x.Buckets) != 0 {
		t.Errorf("Explain = %+v, want the verdict, and whose the request is", x)
	}
}

// TestExplainSaysWhatCheckWould: however a request ends, Explain says so.
func TestExplainSaysWhatCheckWould(t *testing.T) {
	one := []policy.Rule{{Endpoint: "GET /a", Limit: 1}}
	request := func(method, target string, cost int64) headgate.Request {
		return headgate.Request{Method: method, Target: target, Peer: trial.Client, Cost: cost}
	}
	for name, c := range map[string]struct {
		rules  []policy.Rule
		change func(*headgate.Options)
		ask    headgate.Request
		want   headgate.Reason
	}{
		"within limits":    {one, nil, request("GET", "/a", 1), headgate.WithinLimits},
		"cost above burst": {one, nil, request("GET", "/a", 9), headgate.CostAboveBurst},
		"no such cost":     {one, nil, request("GET", "/a", -1), headgate.InvalidCost},
		"no such path":     {one, nil, request("GET", "/b", 1), headgate.UnknownEndpoint},
		"no such method":   {one, nil, request("PUT", "/a", 1), headgate.UnknownMethod},
		"no safe reading":  {one, nil, request("GET", "/a%2Fb", 1), headgate.InvalidTarget},
		"no rule": {[]policy.Rule{{Endpoint: "POST /a", Limit: 1}}, nil, request("GET", "/a", 1),
			headgate.NoRule},
		"no rule, denied": {[]policy.Rule{{Endpoint: "POST /a", Limit: 1}},
			func(o *headgate.Options) { o.DenyWithoutRule = true },
			request("GET", "/a", 1), headgate.NoRule},
		"no rules": {one, func(o *headgate.Options) { o.Policies = headgate.Fixed(nil) }, request("GET", "/a", 1),
			headgate.NoPolicies},
	} {
		t.Run(name, func(t *testing.T) {
			var change []func(*headgate.Options)
			if c.change != nil {
				change = append(change, c.change)
			}
			b := trial.New(t, []string{"GET /a", "POST /a"}, c.rules, change...)
			x := b.Explain(t.Context(), c.ask)
			d := b.Check(t.Context(), c.ask)
			if d.Reason != c.want || x.Verdict.Reason != d.Reason.String() || x.Verdict.Allowed != d.Allowed {
				t.Errorf("Check = %v, %v and Explain = %+v, want %v of both", d.Allowed, d.Reason, x.Verdict, c.want)
			}
		})
	}
}

// Whatever times callers of one bucket have, Explain tells each what Check then does, and
// changes nothing by it.
func TestExplainTellsTimes(t *testing.T) {
	rules := []policy.Rule{{Endpoint: "GET /a", Limit: 1, Per: time.Second, Burst: 3, Subject: policy.SubjectEndpoint}}
	words := map[string]bool{}
	for _, o := range []slot.Options{{}, {Reserve: true}, {Reserve: true, MaxAhead: int64(4 * time.Second)},
		{Reserve: true, Grace: int64(time.Second)}} {
		b := trial.New(t, []string{"GET /a"}, rules, func(g *headgate.Options) { g.Slots = slot.New(o) })
		random := rand.New(rand.NewPCG(uint64(o.MaxAhead), uint64(o.Grace)))
		for i := range 2000 {
			b.Now = b.Now.Add(time.Duration(random.Int64N(int64(time.Second))))
			header := http.Header{}
			if random.IntN(2) == 0 {
				header.Set(slot.FieldPending, strconv.Itoa(random.IntN(3)))
			}
			r := headgate.Request{
				Method: "GET",
				Target: "/a",
				Peer:   netip.AddrFrom4([4]byte{192, 0, 2, byte(random.IntN(6))}),
				Header: header,
			}
			x := b.Explain(t.Context(), r)
			d := b.Check(t.Context(), r)
			said := x.Buckets[0].Time
			if x.Verdict.Allowed != d.Allowed || x.Verdict.RetryAfter != d.RetryAfter || (said == nil) != d.Allowed ||
				said != nil && said.Reserved != d.Slot.Reserved {
				t.Fatalf("%+v, request %d: Check = %v, %v, %+v and Explain = %+v, %+v", o, i, d.Allowed, d.RetryAfter,
					d.Slot, x.Verdict, said)
			}
			if said != nil {
				words[strings.Map(func(c rune) rune {
					if c >= '0' && c <= '9' {
						return 'N'
					}
					return c
				}, said.Why)] = true
			}
		}
	}
	for _, want := range []string{
		"when the bucket has room: nobody has an earlier time", "behind N other callers", "behind N other caller",
		"the time that it was given",
		"behind N other caller, for whom what the bucket holds is reserved",
		"the time that it was given; what the bucket holds is reserved for others",
		"as late as callers are told: behind N other callers, its own would be too far ahead, or there are too many",
	} {
		if !words[want] {
			t.Errorf("nobody was told %q, only %v", want, words)
		}
	}
	plain := trial.New(t, []string{"GET /a"}, rules)
	for range 3 {
		plain.Check(t.Context(), headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client})
	}
	x := plain.Explain(t.Context(), headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client})
	if x.Buckets[0].Time == nil || !strings.Contains(x.Buckets[0].Time.Why, "retry_after: truth") {
		t.Errorf("%+v, want word that all are told the same", x.Buckets[0].Time)
	}
}
