package headgate_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"testing"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// roomy rules never deny: what is measured is the way, not the refusal.
var roomy = []policy.Rule{{Endpoint: policy.Default, Limit: 1 << 40}}

var threeRules = []policy.Rule{
	{Endpoint: policy.Default, Limit: 1 << 40},
	{Endpoint: policy.Default, Limit: 1 << 40, Subject: policy.SubjectIP},
	{Endpoint: policy.All, Limit: 1 << 40, Subject: policy.SubjectEndpoint},
}

// newLive is a Limiter as a process runs it: the real clock, a table of the
// default size, an API key among many.
func newLive(t testing.TB, rules []policy.Rule) (lim *headgate.Limiter, keyText string) {
	t.Helper()
	digester, err := identity.NewDigester(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	if keyText, err = identity.NewKey(); err != nil {
		t.Fatal(err)
	}
	records := []identity.KeyRecord{{Digest: digester.Digest(keyText),
		Key: identity.Key{ID: "k_0123456789abcdef0123", Project: "acme"}}}
	for i := range 10_000 {
		records = append(records, identity.KeyRecord{
			Digest: identity.Digest{byte(i), byte(i >> 8), 1},
			Key:    identity.Key{ID: fmt.Sprint("k_", i)},
		})
	}
	ring := &identity.Keyring{}
	if err := ring.Replace(records); err != nil {
		t.Fatal(err)
	}
	who, err := identity.New(identity.Options{
		Keys:           ring,
		Digester:       digester,
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
	})
	if err != nil {
		t.Fatal(err)
	}
	buckets, err := memory.New(memory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := trial.New(t, trial.StripeTemplates(t), rules, func(o *headgate.Options) {
		o.Now, o.Identities, o.Buckets = nil, who, buckets
	})
	return b.Limiter, keyText
}

// trips are the ways that must not allocate.
func trips(keyText string) map[string]headgate.Request {
	clean := "/v1/customers/cus_1234567890abcdef/sources"
	return map[string]headgate.Request{
		"address": {Method: "GET", Target: clean, Peer: trial.Client, Header: http.Header{"User-Agent": {"x"}}},
		"forwarded": {
			Method: "GET",
			Target: clean,
			Peer:   netip.MustParseAddr("10.0.0.1"),
			Header: http.Header{"X-Forwarded-For": {"203.0.113.9, 10.1.1.1"}},
		},
		"key":     {Method: "GET", Target: clean, Peer: trial.Client, Header: http.Header{"X-Api-Key": {keyText}}},
		"dirty":   {Method: "GET", Target: "//v1/./%63ustomers/cus_1/sources?x=1", Peer: trial.Client},
		"unknown": {Method: "GET", Target: "/no/such/path/anywhere", Peer: trial.Client},
		"invalid": {Method: "GET", Target: "/v1/%00", Peer: trial.Client},
	}
}

func TestCheckAllocatesNothing(t *testing.T) {
	for _, rules := range map[string][]policy.Rule{"one rule": roomy, "three rules": threeRules} {
		lim, keyText := newLive(t, rules)
		for name, r := range trips(keyText) {
			t.Run(fmt.Sprintf("%s, %d rules", name, len(rules)), func(t *testing.T) {
				ctx := context.Background()
				if n := testing.AllocsPerRun(1000, func() { lim.Check(ctx, r) }); n >= trial.Allocations {
					t.Errorf("Check allocates %v times, want 0", n)
				}
			})
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	for _, rules := range [][]policy.Rule{roomy, threeRules} {
		lim, keyText := newLive(b, rules)
		for name, r := range trips(keyText) {
			b.Run(fmt.Sprintf("%s/rules=%d", name, len(rules)), func(b *testing.B) {
				ctx := context.Background()
				b.ReportAllocs()
				for b.Loop() {
					lim.Check(ctx, r)
				}
			})
		}
	}
}

func BenchmarkCheckParallel(b *testing.B) {
	lim, _ := newLive(b, roomy)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		ctx := context.Background()
		r := headgate.Request{Method: "GET", Target: "/v1/customers/cus_1234567890abcdef/sources"}
		peer := trial.Client.As4()
		for pb.Next() {
			peer[1]++
			r.Peer = netip.AddrFrom4(peer)
			lim.Check(ctx, r)
		}
	})
}
