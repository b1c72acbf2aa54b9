package outbox_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/internal/outbox"
)

// account is what a test tells about.
type account struct {
	mu     sync.Mutex
	queued bool // guarded by mu
	due    int  // guarded by mu; that is not sent yet
	told   int  // guarded by mu
	errs   int  // guarded by mu
}

// thing is what is sent of it.
type thing struct {
	amount int
	err    error
}

// Whatever is posted is told of once, by messages of some things each, of which so many are under way at a time; and
// all of what came until a message leaves is in it.
func TestBox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const together, atOnce, accounts, each = 3, 2, 10, 5
		lost := errors.New("lost")
		var mu sync.Mutex
		under, most, messages, failed := 0, 0, 0, 0
		var box outbox.Box[account, thing]
		box.Open(outbox.Options[account, thing]{
			Due: func(a *account, _ bucket.Take) (thing, bool) {
				a.mu.Lock()
				defer a.mu.Unlock()
				due := a.due
				a.queued, a.due = false, 0
				return thing{amount: due}, due > 0
			},
			Send: func(ctx context.Context, things []thing) {
				mu.Lock()
				messages++
				under++
				most = max(most, under)
				last := messages == 4
				mu.Unlock()
				time.Sleep(time.Millisecond)
				if len(things) > together {
					t.Errorf("a message has %d things, want %d at most", len(things), together)
				}
				if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) != 4*time.Millisecond {
					t.Errorf("a message may take %v more, want 4ms", time.Until(deadline))
				}
				if last {
					things[0].err = lost
				}
				mu.Lock()
				under--
				mu.Unlock()
			},
			Deadline: 5 * time.Millisecond, Together: together, AtOnce: atOnce,
			Of: func(t *thing) (int, error) { return 0, t.err },
			Ended: func(_ *thing, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					failed++
				}
			},
			Came: func(a *account, one *thing) {
				a.mu.Lock()
				defer a.mu.Unlock()
				a.told += one.amount
				if one.err != nil {
					a.errs++
				}
			},
		})
		all := make([]account, accounts)
		began := time.Now()
		var posting sync.WaitGroup
		for i := range all {
			for n := range each {
				posting.Go(func() {
					a := &all[i]
					a.mu.Lock()
					defer a.mu.Unlock()
					a.due++
					box.Post(&bucket.Take{}, a, &a.queued, n%2, time.Duration(1+n%2)*10*time.Millisecond)
				})
			}
		}
		posting.Wait()
		time.Sleep(12*time.Millisecond - time.Since(began)) // 10 for others, and one for each two of four messages
		synctest.Wait()
		errs := 0
		for i := range all {
			a := &all[i]
			a.mu.Lock()
			errs += a.errs
			if a.told != each || a.queued {
				t.Errorf("account %d: told %d of %d, queued %t", i, a.told, each, a.queued)
			}
			a.mu.Unlock()
		}
		mu.Lock()
		defer mu.Unlock()
		if messages != 4 || most != atOnce || failed != 1 || errs != 1 {
			t.Errorf("%d messages, %d at once, %d failed with %d things; want 4, %d, 1 and 1", messages, most,
				failed, errs, atOnce)
		}
		if things, sent := box.Things.Load(), box.Messages.Load(); things != accounts || sent != 4 {
			t.Errorf("counted %d things in %d messages, want %d in 4", things, sent, accounts)
		}
		time.Sleep(time.Second) // the later departure finds nothing
	})
}
