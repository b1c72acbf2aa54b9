package memory_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/rate"
)

// A bucket that nobody knows of, and whose past was spent, owes since then all that it holds; one
// that is known owes what it owes.
func TestAnUnknownBucketWhosePastWasSpent(t *testing.T) {
	ten, err := rate.Compile(rate.Limit{Tokens: 1, Per: time.Second, Burst: 10})
	if err != nil {
		t.Fatal(err)
	}
	five, err := rate.Compile(rate.Limit{Tokens: 1, Per: 2 * time.Second, Burst: 5})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).UnixNano()
	spent := &rate.Past{Spent: true}
	since := func(sh rate.Shape, at time.Duration, before *rate.Past) bucket.Take {
		return bucket.Take{Shape: sh, Since: start + int64(at), Before: before}
	}
	// At 3 s seven of ten are owed, at 4 s five of five; one drains in two seconds from then on.
	halved := since(five, 4*time.Second, &rate.Past{Shape: ten, Since: start, Before: spent})
	for name, steps := range map[string][]struct {
		at   time.Duration
		take bucket.Take
		cost int64
		left int64
	}{
		"as time goes by": {{0, since(ten, 0, spent), 0, 0},
			{3500 * time.Millisecond, since(ten, 0, spent), 0, 3}, {time.Hour, since(ten, 0, spent), 0, 10}},
		"after a change of limit": {{4 * time.Second, halved, 0, 0}, {8 * time.Second, halved, 0, 2},
			{time.Hour, halved, 0, 5}},
		"once it is known": {{5 * time.Second, since(ten, 0, spent), 2, 3},
			{6 * time.Second, since(ten, 0, spent), 0, 4}, {7 * time.Second, since(ten, 0, nil), 0, 5}},
		"before it began":      {{-time.Second, since(ten, 0, spent), 0, 0}},
		"that was never spent": {{0, since(ten, 0, &rate.Past{Shape: five}), 0, 10}},
	} {
		t.Run(name, func(t *testing.T) {
			store, err := memory.New(memory.Options{MaxBuckets: 64})
			if err != nil {
				t.Fatal(err)
			}
			for i, step := range steps {
				step.take.Key, step.take.Cost = buckettest.Key(1), step.cost
				outs := make([]bucket.Outcome, 1)
				if _, err := store.TryConsume(context.Background(), start+int64(step.at), []bucket.Take{step.take},
					outs); err != nil {
					t.Fatal(err)
				}
				if outs[0].Remaining != step.left {
					t.Errorf("step %d, at %v: %+v, want %d left", i, step.at, outs[0], step.left)
				}
			}
		})
	}
}
