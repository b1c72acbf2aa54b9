package charge_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/policy"
)

// oneEach is a Limiter under which every caller has one request an hour, with
// keys by their text.
func oneEach(t *testing.T, keys map[string]identity.Key) (check func(http.Header) bool, buckets func() int64) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	template, err := endpoint.ParseTemplate("GET /v1/items/{id}")
	must(err)
	table, err := endpoint.Compile([]endpoint.Template{template}, endpoint.Profile{})
	must(err)
	set, problems := policy.Compile(policy.Document{Rules: []policy.Rule{{Endpoint: policy.Default, Limit: 1,
		Per: time.Hour}}}, policy.CompileOptions{Endpoints: table})
	must(problems.Err())
	store, err := memory.New(memory.Options{MaxBuckets: 1 << 10})
	must(err)
	digester, err := identity.NewDigester(make([]byte, 32))
	must(err)
	var records []identity.KeyRecord
	for text, key := range keys {
		records = append(records, identity.KeyRecord{Digest: digester.Digest(text), Key: key})
	}
	ring := &identity.Keyring{}
	must(ring.Replace(records))
	who, err := identity.New(identity.Options{Keys: ring, Digester: digester})
	must(err)
	now := time.Unix(1_800_000_000, 0)
	lim, err := headgate.New(headgate.Options{
		Endpoints:  table,
		Policies:   headgate.Fixed(set),
		Buckets:    store,
		Identities: who,
		Now:        func() time.Time { return now },
	})
	must(err)
	return func(h http.Header) bool {
		return lim.Check(context.Background(), headgate.Request{Method: "GET", Target: "/v1/items/7",
			Peer: trial.Client, Header: h}).Allowed
	}, func() int64 { return int64(store.Stats(now.UnixNano()).Created) }
}

// TestNoKeyIsNoWayAround: limiters are known where a request without the header
// that they count by, or with an empty one, is not limited at all (tollbooth,
// nginx with an empty key, Envoy with a missing descriptor), or where each value
// that a client makes up is a budget. Here all of these are one address.
func TestNoKeyIsNoWayAround(t *testing.T) {
	text, err := identity.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	check, buckets := oneEach(t, map[string]identity.Key{text: {ID: "revoked", Revoked: true}})
	for i, h := range []http.Header{
		nil, {}, {"X-Api-Key": nil}, {"X-Api-Key": {""}}, {"X-Api-Key": {" "}}, {"X-Api-Key": {"", ""}},
		{"X-Api-Key": {"null"}}, {"X-Api-Key": {"undefined"}},
		{"X-Api-Key": {text}}, {"X-Api-Key": {text + " "}}, {"X-Api-Key": {text + "\x00"}},
		{"X-Api-Key": {strings.ToUpper(text)}}, {"X-Api-Key": {text, text}},
		{"X-Api-Key": {strings.Repeat(text, 1000)}}, {"X-Api-Key": {"k_1"}}, {"X-Api-Key": {"revoked"}},
		{"X-Api-Key": {"203.0.113.9"}},
		{"Authorization": {"Bearer"}}, {"Authorization": {"Bearer " + text}}, {"Authorization": {"Basic " + text}},
		{"Authorization": {text}},
		{"X-Api-Key-Id": {"k_1"}}, {"X-Consumer-Id": {"k_1"}}, {"X-Forwarded-For": {"6.6.6.6"}},
	} {
		if got := check(h); got != (i == 0) {
			t.Errorf("request %d, %q: allowed %v, want the address's one request alone", i, h, got)
		}
	}
	if n := buckets(); n != 1 {
		t.Errorf("%d buckets, want 1", n)
	}
}

// TestKeysShareNoBudget: limiters are known that merge callers whose names
// agree when joined by a separator (envoyproxy/ratelimit, better-auth, httprate)
// or in their first 32 bytes (HAProxy's string keys).
func TestKeysShareNoBudget(t *testing.T) {
	long := strings.Repeat("a", 32)
	keys := map[string]identity.Key{}
	var texts []string
	for _, k := range []identity.Key{
		{Project: "a", ID: "b_c"}, {Project: "a_b", ID: "c"}, {Project: "a:b", ID: "c"}, {Project: "a", ID: "b:c"},
		{Project: "ab", ID: "c"}, {Project: "a", ID: "bc"},
		{Project: "", ID: "abc"}, {Project: "abc", ID: "a"}, {Project: "p", ID: long + "1"},
		{Project: "p", ID: long + "2"}, {Project: long + "1", ID: "k"}, {Project: long + "2", ID: "k"},
		{Project: "p", ID: "203.0.113.9"}, {Project: "A", ID: "b_c"},
	} {
		text, err := identity.NewKey()
		if err != nil {
			t.Fatal(err)
		}
		keys[text] = k
		texts = append(texts, text)
	}
	check, buckets := oneEach(t, keys)
	for _, text := range texts {
		h := http.Header{"X-Api-Key": {text}}
		if first, second := check(h), check(h); !first || second {
			t.Errorf("key %+v: allowed %v, %v, want its own one request", keys[text], first, second)
		}
	}
	if n := buckets(); n != int64(len(texts)) {
		t.Errorf("%d buckets for %d keys", n, len(texts))
	}
}
