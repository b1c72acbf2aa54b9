package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"
)

// Of answers the latest are remembered, and so are requests that are being served; each caller has keys of its own.
func TestRepeatsAreBounded(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var p repeats
	ask := func(actor string, n int) (repeated, *BucketChange, error) {
		r := httptest.NewRequest("POST", "/v1/buckets/grant", nil)
		r = r.WithContext(context.WithValue(context.Background(), callerKey{}, caller{actor: actor}))
		r.Header.Set("Idempotency-Key", fmt.Sprintf(`"sixteen-characters-%d"`, n))
		return p.begin(r, now, "grant", &BucketRequest{Amount: int64(n)})
	}
	served, _, err := ask("ann", -1)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := ask("ann", -1); !errors.Is(err, errKeyInUse) {
		t.Errorf("the same while it is served: %v, want %v", err, errKeyInUse)
	}
	for n := range mostRepeats + 10 {
		one, before, err := ask("ann", n)
		if before != nil || err != nil {
			t.Fatal(before, err)
		}
		one.end(now, &BucketChange{Audit: int64(n)})
	}
	if len(p.byKey) != mostRepeats+1 || len(p.oldest) != mostRepeats {
		t.Errorf("%d answers are remembered, want %d and one request", len(p.byKey), mostRepeats)
	}
	if _, before, err := ask("ann", mostRepeats); before == nil || before.Audit != mostRepeats || err != nil {
		t.Errorf("a late one: %+v, %v, want its answer", before, err)
	}
	if _, before, err := ask("bob", mostRepeats); before != nil || err != nil {
		t.Errorf("somebody else's key: %+v, %v, want no answer", before, err)
	}
	if _, before, err := ask("ann", 9); before != nil || err != nil {
		t.Errorf("an early one: %+v, %v, want that it is forgotten", before, err)
	}
	served.end(now, nil)
	if _, before, err := ask("ann", -1); before != nil || err != nil {
		t.Errorf("after a failure: %+v, %v, want that the key is free", before, err)
	}
}
