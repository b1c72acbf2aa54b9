package buckettest

import (
	"context"
	"errors"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/key"
)

// Correct changes the debts of buckets, one after the other.
func (w *Twin) Correct(_ context.Context, now int64, changes []bucket.Change, moved []int64) error {
	if len(moved) < len(changes) {
		return errors.New("too few results")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, c := range changes {
		var after bucket.State
		after, moved[i] = w.find(now, bucket.Take{Key: c.Key, Shape: c.Shape, Since: c.Since}).Shift(now, c.Shape, c.Units)
		if moved[i] == 0 {
			continue
		}
		if w.buckets == nil {
			w.buckets = map[key.Key]held{}
		}
		w.buckets[c.Key] = held{after, c.Shape}
	}
	return nil
}
