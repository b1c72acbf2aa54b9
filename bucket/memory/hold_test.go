package memory

import (
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// holding is how many entries a table has, and how many cells of its lanes are written.
func holding(s *Store) (entries, cells int) {
	for i := range s.shards {
		k := &s.shards[i].traces
		k.catchUp()
		for _, ln := range k.ledger {
			for _, e := range ln.entries {
				if e != 0 {
					entries++
				}
			}
		}
		for _, since := range k.lanes.cells {
			if since != 0 {
				cells++
			}
		}
	}
	return entries, cells
}

// TestPassedTracesAreHeldUntilAChangeIsSettled: after a change of limits a time that has passed may matter, until
// nothing is owed any more that was owed then. Afterwards it is dropped as if nothing had ever changed, and buckets
// that are full leave nothing.
func TestPassedTracesAreHeldUntilAChangeIsSettled(t *testing.T) {
	shape := compiled(t, rate.Limit{Tokens: 1, Per: time.Second, Burst: 5})
	settled := noon + int64(time.Hour)
	charge := func(s *Store, now int64) {
		for n := range uint64(8) {
			k := key.Key{Hi: n << 40, Lo: spread(uint64(now) + n)}
			if ok, _ := take(t, s, now, bucket.Take{Key: k, Shape: shape, Cost: 5}); !ok {
				t.Fatal("a new bucket denies its burst")
			}
		}
	}
	for _, c := range []struct {
		name           string
		at             time.Duration // of the charges, after the change
		entries, cells bool          // that are left when all that was charged has drained
	}{
		{"before", 10 * time.Minute, false, true},
		{"at the end", time.Hour - time.Minute, false, true},
		{"after", time.Hour + time.Second, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newTable(t, Options{MaxBuckets: 8})
			s.Learn(noon, settled)
			now := noon + int64(c.at)
			charge(s, now)
			evictAll(t, s, now)
			if entries, _ := holding(s); entries != 8 {
				t.Fatalf("%d entries, want one for each bucket in debt", entries)
			}
			now += int64(50 * time.Second) // a lap of the cursor
			s.Stats(now)
			if entries, cells := holding(s); entries > 0 != c.entries || cells > 0 != c.cells {
				t.Errorf("%d entries and %d cells are left, want some: %t, %t", entries, cells, c.entries, c.cells)
			}
		})
	}

	s := newTable(t, Options{MaxBuckets: 8})
	charge(s, noon-1)
	s.Learn(noon, settled)
	evictAll(t, s, settled+1)
	if entries, cells := holding(s); entries+cells > 0 {
		t.Errorf("buckets that were full for an hour left %d entries and %d cells", entries, cells)
	}
}

// TestCountingDropsNothingThatIsHeld: a limit becomes slower while the trace of its bucket passes, and nothing happens
// in the shard meanwhile but that its traces are counted.
func TestCountingDropsNothingThatIsHeld(t *testing.T) {
	fast := compiled(t, rate.Limit{Tokens: 1, Per: time.Second, Burst: 5})
	slow := compiled(t, rate.Limit{Tokens: 1, Per: time.Hour, Burst: 5})
	s, k := newTable(t, Options{MaxBuckets: 8}), key.Key{Hi: 1 << 40, Lo: 1 << 50}
	if ok, _ := take(t, s, noon, bucket.Take{Key: k, Shape: fast, Cost: 5}); !ok {
		t.Fatal("a new bucket denies its burst")
	}
	evictAll(t, s, noon)
	changed := noon + int64(time.Second)
	s.Learn(changed, slow.Settled(changed, nil))
	now := noon + int64(time.Minute)
	s.Stats(now)
	late := bucket.Take{Key: k, Shape: slow, Since: changed, Before: &rate.Past{Shape: fast}, Cost: 2}
	if ok, out := take(t, s, now, late); ok {
		t.Errorf("allowed 2 of 5 tokens, of which 1 drained before the limit became slower: %+v", out)
	}
}

// TestTakesSayHowLongTheirChangeMatters to a table that was told of none, or of another.
func TestTakesSayHowLongTheirChangeMatters(t *testing.T) {
	fast := compiled(t, rate.Limit{Tokens: 1, Per: time.Second, Burst: 5})
	slow := compiled(t, rate.Limit{Tokens: 1, Per: time.Hour, Burst: 5})
	s := newTable(t, Options{MaxBuckets: 8})
	s.Learn(noon, noon+int64(time.Minute))
	k, before := key.Key{Hi: 1 << 40, Lo: 1 << 50}, &rate.Past{Shape: fast}
	of := bucket.Take{Key: k, Shape: slow, Since: noon, Before: before, Cost: 1}
	take(t, s, noon, of)
	if got, want := s.settled.Load(), slow.Settled(noon, of.Before); got != want {
		t.Errorf("a change matters until %d, want %d, as the take says", got, want)
	}
	of.Since, of.Key.Lo = noon-int64(10*24*time.Hour), 2<<50
	take(t, s, noon, of)
	if got, want := s.first.Load(), noon; got != want {
		t.Errorf("the first change is of %d, want %d: nothing is owed any more that was owed ten days before", got,
			want)
	}
}
