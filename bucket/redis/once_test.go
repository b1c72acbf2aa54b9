//go:build unix

package redis_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/rate"
)

// What is given under a name is given once, whoever repeats it, whatever others do in between.
func TestChangesUnderANameAreMadeOnce(t *testing.T) {
	server := redistest.Start(t)
	a, b := open(t, redis.Options{Server: connect(t, server)}), open(t, redis.Options{Server: connect(t, server)})
	of, other := take(t, 1, rate.Limit{Tokens: 1, Per: 1000 * time.Hour, Burst: 10}, 8),
		take(t, 2, rate.Limit{Tokens: 1, Per: 1000 * time.Hour, Burst: 10}, 8)
	try(t, a, 0, of)
	try(t, a, 0, other)
	unit := of.Shape.Unit
	rounded := func(moved int64) int64 { // as a part of a token has drained by then
		if moved < 0 {
			return -((-moved + unit - 1) / unit)
		}
		return moved / unit
	}
	for i, step := range []struct {
		s     *redis.Store
		of    bucket.Take
		units int64
		once  bucket.Once
		moved int64 // tokens
		err   error
		left  int64
	}{
		{a, of, -3 * unit, bucket.Once{Name: 1, Of: 7}, -3, nil, 5},
		{a, of, -3 * unit, bucket.Once{Name: 1, Of: 7}, -3, nil, 5},
		{b, of, -3 * unit, bucket.Once{Name: 1, Of: 7}, -3, nil, 5},
		{b, of, -4 * unit, bucket.Once{Name: 1, Of: 8}, 0, bucket.ErrAnother, 5},
		{b, other, -3 * unit, bucket.Once{Name: 1, Of: 7}, -3, nil, 5}, // names are the bucket's
		{b, of, -3 * unit, bucket.Once{Name: 2, Of: 7}, -3, nil, 8},
		{b, of, -3 * unit, bucket.Once{}, -2, nil, 10},
		{a, of, -3 * unit, bucket.Once{Name: 3, Of: 7}, 0, nil, 10}, // a full bucket, and that is remembered
		{a, of, 5 * unit, bucket.Once{}, 5, nil, 5},
		{b, of, -3 * unit, bucket.Once{Name: 3, Of: 7}, 0, nil, 5},
		{a, of, bucket.Fill, bucket.Once{Name: 4, Of: 1}, -5, nil, 10},
		{a, of, 5 * unit, bucket.Once{}, 5, nil, 5},
		{b, of, bucket.Fill, bucket.Once{Name: 4, Of: 1}, -5, nil, 5},
	} {
		moved := make([]int64, 1)
		change := bucket.Change{Key: step.of.Key, Shape: step.of.Shape, Units: step.units, Once: step.once}
		if err := step.s.Correct(context.Background(), 0, []bucket.Change{change}, moved); !errors.Is(err, step.err) ||
			rounded(moved[0]) != step.moved {
			t.Fatalf("step %d: %d moved, %v, want %d, %v", i, rounded(moved[0]), err, step.moved, step.err)
		}
		if got := left(t, a, 0, step.of); got != step.left {
			t.Fatalf("step %d: %d are left, want %d", i, got, step.left)
		}
	}
	for _, name := range server.Do("KEYS", "*o").([]any) {
		if ms, _ := server.Do("PTTL", name.(string)).(int64); ms <= 0 || ms > 25*time.Hour.Milliseconds() {
			t.Errorf("a name is remembered for %d ms, want some and at most 25 hours", ms)
		}
	}
}
