package lease_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/lease"
)

// batcher is an authority that answers many questions at once.
type batcher struct {
	authority
	messages []int // guarded by authority.mu; how many questions each had
}

func (b *batcher) AskAll(ctx context.Context, replica uint64, asked []lease.Asked) {
	b.mu.Lock()
	b.messages = append(b.messages, len(asked))
	b.mu.Unlock()
	var all sync.WaitGroup
	for i := range asked {
		all.Go(func() {
			asked[i].Answer, asked[i].Err = b.Ask(ctx, replica, asked[i].Of, asked[i].Question)
		})
	}
	all.Wait()
}

func (b *batcher) sent() []int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]int(nil), b.messages...)
}

// Questions about many buckets go by one message if they come within the time that is given them,
// and in several side by side if there are very many.
func TestQuestionsGoTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &batcher{authority: authority{delay: time.Millisecond}}
		s := open(t, lease.Options{Authority: b, Gather: time.Millisecond})
		sh := shape(t, 100, 100)
		began := time.Now()
		var all sync.WaitGroup
		for n := range 200 {
			all.Go(func() {
				ok, err := s.TryConsume(t.Context(), 0, []bucket.Take{of(uint64(n%150), sh, 1)},
					make([]bucket.Outcome, 1))
				if !ok || err != nil {
					t.Errorf("take of bucket %d: %t, %v", n%150, ok, err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took != 2*time.Millisecond {
			t.Errorf("the last answer came after %v, want a millisecond for others and one for both messages", took)
		}
		if got := b.sent(); len(got) != 2 || max(got[0], got[1]) != 128 || min(got[0], got[1]) != 22 {
			t.Errorf("messages with %v questions, want 128 and 22: one for a bucket, also where several requests "+
				"wait for it", got)
		}
	})
}

// However many questions there are, no more than eight messages are under way at once.
func TestMessagesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &batcher{authority: authority{delay: time.Millisecond}}
		s := open(t, lease.Options{Authority: b, Gather: time.Millisecond})
		sh := shape(t, 100, 100)
		began := time.Now()
		var all sync.WaitGroup
		for n := range 128 * 20 {
			all.Go(func() {
				if ok, err := s.TryConsume(t.Context(), 0, []bucket.Take{of(uint64(n), sh, 1)},
					make([]bucket.Outcome, 1)); !ok || err != nil {
					t.Errorf("take of bucket %d: %t, %v", n, ok, err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took != 4*time.Millisecond {
			t.Errorf(
				"the last answer came after %v, want a millisecond for others, and one for each eight of 20 "+
					"messages", took)
		}
		if got := len(b.sent()); got != 20 {
			t.Errorf("%d messages, want 20", got)
		}
	})
}

// A question that nobody waits for waits longer, and goes with the first that somebody waits for.
func TestCalmQuestionsGoWithUrgentOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &batcher{authority: authority{delay: time.Millisecond}}
		s := open(t, lease.Options{Authority: b, Gather: time.Millisecond})
		sh := shape(t, 1000, 1000)
		together, alone := 0, 0
		for i := range 200 {
			for range 4 {
				consume(t, s, of(1, sh, 1)) // enough for it to ask ahead
			}
			before := len(b.sent())
			began := time.Now()
			consume(t, s, of(uint64(1000+i), sh, 1)) // waits
			if took := time.Since(began); took > 2*time.Millisecond {
				t.Fatalf("request %d waited %v, want 2ms at most: a millisecond for others, and one for the answer", i,
					took)
			}
			for _, n := range b.sent()[before:] {
				if n == 2 {
					together++
				} else {
					alone++
				}
			}
		}
		if together == 0 || alone < 150 {
			t.Errorf("%d messages with two questions and %d with one, want some with those that were asked ahead",
				together, alone)
		}
		time.Sleep(time.Second) // so that whatever is about to be sent is
	})
}

// When a message gets no answer, all who wait for one of its answers are told so.
func TestQuestionsFailTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &batcher{}
		b.behave(0, errAway)
		s := open(t, lease.Options{Authority: b})
		var failures atomic.Int64
		s.OnAnswer(func(_ *bucket.Take, err error) {
			if err != nil {
				failures.Add(1)
			}
		})
		var all sync.WaitGroup
		for n := range 20 {
			all.Go(func() {
				if ok, err := s.TryConsume(t.Context(), 0, []bucket.Take{of(uint64(n), shape(t, 100, 100), 1)},
					make([]bucket.Outcome, 1)); ok || err != errAway {
					t.Errorf("take of bucket %d: %t, %v, want %v", n, ok, err, errAway)
				}
			})
		}
		all.Wait()
		if sent := len(b.sent()); failures.Load() != int64(sent) {
			t.Errorf("%d messages failed, and %d failures were told of", sent, failures.Load())
		}
	})
}
