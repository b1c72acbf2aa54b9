package replay

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate-io/headgate/reservation"
)

// What a request holds whose turn has come is forgotten, and what is to be settled is not, so that a log of any length
// takes no more than it has requests under way.
func TestWhoseTurnHasComeHoldsNothing(t *testing.T) {
	r, err := New("decisions", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.reserved["kept"] = holding{until: reservation.Never}
	most := 0
	for i := range 100 * minPurge {
		at := int64(i) * int64(10*time.Millisecond)
		r.now.Store(at)
		if r.full() {
			t.Fatalf("full at request %d", i)
		}
		r.reserved[fmt.Sprint(i)] = holding{until: at + int64(2*time.Second)}
		most = max(most, len(r.reserved))
	}
	if _, kept := r.reserved["kept"]; !kept || most > 2*minPurge {
		t.Errorf("%d requests held something at once, and the one to be settled %v; want %d at most, and true",
			most, kept, 2*minPurge)
	}
	for i := range maxReserved {
		r.reserved[fmt.Sprint("more", i)] = holding{until: reservation.Never}
	}
	if !r.full() {
		t.Errorf("%d hold something, want no room for more than %d", len(r.reserved), maxReserved)
	}
}
