package admin_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/server/admin"
	"github.com/headgate-io/headgate/server/record"
)

const ourKey = `"8e03978e-40d5-43dd-bc93-6894a57f9324"`

// A change that is asked for again under its key is made once, and answered as it was; the same key
// with anything else is refused.
func TestChangesOfBucketsAreMadeOnceUnderAKey(t *testing.T) {
	var limiter *headgate.Limiter
	s := newSite(t, func(o *admin.Options) { limiter = o.Limiter })
	set := s.call(s.all(), "PUT", "/v1/policies", `{"endpoint":"GET /v1/items/{id}","limit":10,"per":"1h"}`)
	if set.status != 200 {
		t.Fatal(set.body)
	}
	use := func(n int) {
		t.Helper()
		for range n {
			if d := limiter.Check(t.Context(), headgate.Request{Method: "GET", Target: "/v1/items/7",
				Peer: netip.MustParseAddr("192.0.2.7")}); !d.Allowed {
				t.Fatal(d.Reason)
			}
		}
	}
	grant := func(amount int, key string) answer {
		var header []string
		if key != "" {
			header = []string{"Idempotency-Key", key}
		}
		return s.call(s.token(record.RoleGrant), "POST", "/v1/buckets/grant",
			fmt.Sprintf(`{"endpoint":"GET /v1/items/{id}","address":"192.0.2.7","amount":%d}`, amount), header...)
	}
	left := func(got answer) (change admin.BucketChange) {
		t.Helper()
		if got.status != 200 {
			t.Fatal(got.body)
		}
		must(t, json.Unmarshal([]byte(got.body), &change))
		return change
	}
	use(8)
	first := grant(3, ourKey)
	if got := left(first); got.Given != 3 || got.Bucket.Remaining != 5 {
		t.Fatalf("%+v, want three more than two", got)
	}
	if again := grant(3, ourKey); again.body != first.body {
		t.Errorf("repeated: %s, want %s", again.body, first.body)
	}
	use(1)
	if again := grant(3, ourKey); again.body != first.body {
		t.Errorf("repeated later: %s, want %s", again.body, first.body)
	}
	if got := grant(4, ourKey); got.status != 422 || got.kind() != "idempotency-key-reused" {
		t.Errorf("another amount under the key: %d %s", got.status, got.body)
	}
	if got := s.call(s.token(record.RoleGrant), "POST", "/v1/buckets/reset",
		`{"endpoint":"GET /v1/items/{id}","address":"192.0.2.7"}`, "Idempotency-Key",
		ourKey); got.kind() != "idempotency-key-reused" {
		t.Errorf("a reset under the key of a grant: %d %s", got.status, got.body)
	}
	for _, bad := range []string{`8e03978e-40d5-43dd-bc93-6894a57f9324`, `"short"`, `""`, `"a space in it and more"`,
		`"sixteen\"characters"`, `"8e03978e-40d5-43dd-bc93-6894a57f9324";a=1`} {
		if got := grant(3, bad); got.status != 400 || got.kind() != "invalid-request" {
			t.Errorf("key %s: %d %s, want that it is refused", bad, got.status, got.body)
		}
	}
	if got := left(grant(3, "")); got.Bucket.Remaining != 7 {
		t.Errorf("without a key: %+v, want three more than four", got)
	}
	entries, err := s.db.ListAudit(t.Context(), 10)
	must(t, err)
	entries = slices.DeleteFunc(entries, func(a record.Audit) bool { return a.Action != record.ActionGrant })
	if len(entries) != 2 {
		t.Errorf("the audit has %d grants, want one for each that was made", len(entries))
	}
	s.now = s.now.Add(24 * time.Hour)
	if got := left(grant(3, ourKey)); got.Bucket.Remaining != 10 {
		t.Errorf("a day later: %+v, want that nobody remembers", got)
	}
}

// What failed was not made: under its key it is asked for anew.
func TestAChangeThatFailedIsRepeated(t *testing.T) {
	s := newSite(t)
	reset := func(endpoint string) answer {
		return s.call(s.all(), "POST", "/v1/buckets/reset",
			fmt.Sprintf(`{"endpoint":%q,"address":"192.0.2.7"}`, endpoint), "Idempotency-Key", ourKey)
	}
	if got := reset("GET /none"); got.status != 422 || got.kind() != "unacceptable" {
		t.Fatal(got.body)
	}
	if got := reset("GET /v1/items/{id}"); got.status != 200 {
		t.Errorf("%d %s, want that the key is free again", got.status, got.body)
	}
}
