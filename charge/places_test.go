package charge_test

import (
	"context"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
)

// slowly is a store that several processes share, whose answers take a second where places are renewed, and two where
// they are given back.
type slowly struct {
	bucket.Store
	mu            sync.Mutex
	renewed, back map[uint32]int // guarded by mu; by place
}

// seen is how often which places were renewed and given back.
func (s *slowly) seen() (renewed, back map[uint32]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.renewed), maps.Clone(s.back)
}

func (s *slowly) Correct(ctx context.Context, now int64, changes []bucket.Change, moved []int64) error {
	s.mu.Lock()
	for _, c := range changes {
		if c.Renew {
			s.renewed[c.Place]++
		} else {
			s.back[c.Place]++
		}
	}
	s.mu.Unlock()
	if changes[0].Renew {
		time.Sleep(time.Second)
	} else {
		time.Sleep(2 * time.Second)
	}
	return s.Store.Correct(ctx, now, changes, moved)
}

// A request that ends while its place is renewed gives it back once more, since the message that renews it may have
// arrived last; and nobody waits for it meanwhile.
func TestAPlaceThatEndsWhileItIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names, err := key.NewNamer([]byte("a secret of replicas"))
		if err != nil {
			t.Fatal(err)
		}
		store := &slowly{Store: newStore(t), renewed: map[uint32]int{}, back: map[uint32]int{}}
		b := trial.New(t, []string{"GET /a"}, []policy.Rule{{Endpoint: policy.Default, Limit: 5, Scope: policy.Strict,
			Per: 30 * time.Second, Subject: policy.SubjectIP.Counting(policy.CountsUnderWay)}},
			func(o *headgate.Options) { o.Buckets, o.Names, o.Now = store, names, time.Now })
		var made [2]headgate.Reservation
		for i := range made {
			var d headgate.Decision
			r := headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client}
			if made[i], d, _ = b.WaitAnswer(t.Context(), r, headgate.UntilSettled); !d.Allowed {
				t.Fatalf("request %d is denied: %v", i, d.Reason)
			}
		}
		for renewed, _ := store.seen(); len(renewed) == 0; renewed, _ = store.seen() {
			time.Sleep(10 * time.Millisecond)
		}
		if _, err := b.Settle(t.Context(), made[0].ID, made[0].Cost); err != nil { // while they are renewed
			t.Fatal(err)
		}
		time.Sleep(11 * time.Second)
		renewed, back := store.seen()
		if len(renewed) != 2 || len(back) != 1 {
			t.Fatalf("renewed %v, given back %v, want two and one", renewed, back)
		}
		for place, times := range back {
			if times != 2 || renewed[place] != 1 {
				t.Errorf("renewed %v, given back %v, want the one that ended given back again and renewed no more",
					renewed, back)
			}
		}
		if _, err := b.Settle(t.Context(), made[1].ID, made[1].Cost); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
	})
}
