// Package buckettest is the contract of a bucket.Store, as tests: whoever keeps buckets runs it
// against every way of keeping them.
package buckettest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// Run checks the contract. Open is called once for each case and returns an empty store with room
// for some thousand buckets. Times are told apart to a microsecond; they lie between 2026 and 2226.
// Only names the algorithms that the store knows, if that is not all of them.
func Run(t *testing.T, open func(t testing.TB) bucket.Store, only ...rate.Algorithm) {
	run(t, func(*testing.T) {}, open, only)
}

// RunAtOnce is Run for a store that is far away: all cases wait for its answers at the same time.
// What open returns to one, no other may see.
func RunAtOnce(t *testing.T, open func(t testing.TB) bucket.Store, only ...rate.Algorithm) {
	run(t, (*testing.T).Parallel, open, only)
}

func run(t *testing.T, begin func(*testing.T), open func(t testing.TB) bucket.Store, only []rate.Algorithm) {
	if len(only) == 0 {
		only = algorithms
	}
	for _, c := range cases {
		t.Run(c.sentence, func(t *testing.T) {
			begin(t)
			c.check(&suite{T: t, store: open(t), algorithms: only})
		})
	}
}

var cases = []struct {
	sentence string
	check    func(*suite)
}{
	{"a new bucket holds its burst and no more", newBucket},
	{"tokens come back at the rate of the limit", refill},
	{"waiting for RetryAfter is enough, and a microsecond less is not", retry},
	{"in every interval at most the burst and what drains is admitted", envelope},
	{"a denied take changes no later answer", denied},
	{"a cost above the burst is never admitted", never},
	{"a cost of nothing changes nothing", nothing},
	{"a store keeps every bucket for itself", separate},
	{"all takes are charged or none", allOrNothing},
	{"each take is told about its own bucket", outcomes},
	{"takes of one bucket are added up", duplicates},
	{"a shadow never stands in the way", shadowDenied},
	{"a shadow is charged with the others and not without them", shadowCharged},
	{"shadows alone are allowed, and charged if they fit", shadowAlone},
	{"shadows of a bucket come after the others", shadowDuplicate},
	{"no takes at all are allowed", empty},
	{"fewer outcomes than takes are an error that changes nothing", short},
	{"one bucket with two shapes is an error that changes nothing", twoShapes},
	{"more takes than any request has are decided like few", many},
	{"Peek answers like TryConsume and changes nothing", peek},
	{"a clock set back grants nothing", clockBack},
	{"a bucket forgets nothing and overflows nothing in two centuries", longIdle},
	{"a changed limit keeps what is owed", changedLimit},
	{"a changed limit counts from the time at which it took effect", changedSince},
	{"a changed limit never admits more than the larger burst", changedEnvelope},
	{"a limit that changed twice drains at each rate in its time", changedTwice},
	{"a client that was never seen before has its burst after a change to a slow limit", changedForNewcomers},
	{"a limit that changed and is again what it was drains at each rate in its time", changedBack},
	{"a limit that nobody remembers drains nothing", changedUnknown},
	{"a limit that changes often admits at most a burst, its rises and what drains at each rate", changedOften},
	{"a leaky bucket is a queue: full at its burst, one after the other at its rate", leakyQueue},
	{"a wait longer than accepted is denied, not charged, and told when it will be shorter", leakyMaxWait},
	{"turns come in the order of admission and as far apart as the rate says", leakyInOrder},
	{"several leaky buckets are all joined or none", leakyWithOthers},
	{"a limit that becomes a queue, or stops being one, keeps what is owed", leakyAndBack},
	{"a take leaves what it is to keep, and is told how the bucket stands without", keeping},
	{"a queue is as much shorter for whom it keeps places from", keepingQueue},
	{"several takes leave what each is to keep, or charge nothing", keepingTogether},
	{"whatever the algorithm, who keeps a part for others is denied first", each(everyKeeping)},
	{"whatever the algorithm, a bucket holds its limit and no more", each(everyLimit)},
	{"whatever the algorithm, waiting for RetryAfter is enough, and a microsecond less is not", each(everyRetry)},
	{"whatever the algorithm, no interval admits more than is documented", each(everyEnvelope)},
	{"whatever the algorithm, a denied take changes no later answer", each(everyDenied)},
	{"whatever the algorithm, a clock set back grants nothing", each(everyClockBack)},
	{"whatever the algorithms, all takes are charged or none, and shadows are watched", each(everyAllOrNothing)},
	{"a changed algorithm keeps what is owed", changedAlgorithm},
	{"a changed algorithm never admits more than the larger surplus", changedAlgorithmEnvelope},
	{"a limit that changes many times admits the first surplus, its rises and the rates", changedManyTimesEnvelope},
	{"whatever the algorithm, a correction adds, takes off and fills", each(everyCorrection)},
	{"whatever the algorithm, a settlement grants nothing", each(everySettlement)},
	{"a correction keeps what was owed under another algorithm", correctedAlgorithm},
	{"concurrent takes of one bucket share one burst", concurrentOne},
	{"whatever the algorithm, concurrent takes of one bucket share one limit", concurrentEvery},
	{"concurrent takes of overlapping buckets leave no partial charge", concurrentMany},
}

// start is the beginning of every case.
var start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).UnixNano()

// suite is a store under test, at a time, with short words for what cases do.
type suite struct {
	*testing.T
	store      bucket.Store
	algorithms []rate.Algorithm
	now        int64 // since start
}

func (s *suite) at(d time.Duration) { s.now = int64(d) }

// Key is a random-looking key of a number, as stores may expect.
func Key(n uint64) key.Key {
	rng := rand.NewPCG(n, 0x9e3779b97f4a7c15)
	return key.Key{Hi: rng.Uint64(), Lo: rng.Uint64()}
}

// Outcomes is room for n of them, in which stands what earlier requests came to: callers use theirs again.
func Outcomes(n int) []bucket.Outcome {
	outs := make([]bucket.Outcome, n)
	for i := range outs {
		outs[i] = bucket.Outcome{
			Allowed: i%2 == 0, Never: true, Unknown: true, Remaining: -1,
			RetryAfter: -2, ResetAfter: -3, Wait: -4, Later: -5,
		}
	}
	return outs
}

func (s *suite) shape(tokens int64, per time.Duration, burst int64) rate.Shape {
	s.Helper()
	return s.compile(rate.Limit{Tokens: tokens, Per: per, Burst: burst})
}

func (s *suite) compile(l rate.Limit) rate.Shape {
	s.Helper()
	shape, err := rate.Compile(l)
	if err != nil {
		s.Fatal(err)
	}
	return shape
}

// take is a take of bucket n that holds ten tokens and gets one a second.
func (s *suite) take(n uint64, cost int64) bucket.Take {
	return bucket.Take{Key: Key(n), Shape: s.shape(1, time.Second, 10), Cost: cost}
}

func (s *suite) shadow(n uint64, cost int64) bucket.Take {
	t := s.take(n, cost)
	t.Shadow = true
	return t
}

func (s *suite) try(takes ...bucket.Take) (bool, []bucket.Outcome) {
	s.Helper()
	return s.ask(s.store.TryConsume, takes)
}

func (s *suite) peek(takes ...bucket.Take) (bool, []bucket.Outcome) {
	s.Helper()
	return s.ask(s.store.Peek, takes)
}

func (s *suite) ask(how func(context.Context, int64, []bucket.Take, []bucket.Outcome) (bool, error),
	takes []bucket.Take) (bool, []bucket.Outcome) {
	s.Helper()
	outs := Outcomes(len(takes))
	allowed, err := how(context.Background(), start+s.now, takes, outs)
	if err != nil {
		s.Fatalf("at %v: %v", time.Duration(s.now), err)
	}
	return allowed, outs
}

// want makes an attempt and compares the answer.
func (s *suite) want(allowed bool, takes ...bucket.Take) []bucket.Outcome {
	s.Helper()
	got, outs := s.try(takes...)
	if got != allowed {
		s.Fatalf("at %v: TryConsume = %t, %+v, want %t", time.Duration(s.now), got, outs, allowed)
	}
	return outs
}

// left compares the tokens in bucket n.
func (s *suite) left(n uint64, want int64) {
	s.Helper()
	if _, outs := s.peek(s.take(n, 0)); outs[0].Remaining != want {
		s.Fatalf("at %v: bucket %d holds %d tokens, want %d", time.Duration(s.now), n, outs[0].Remaining, want)
	}
}

func (s *suite) equal(got, want bucket.Outcome) {
	s.Helper()
	if got != want {
		s.Fatalf("at %v: outcome is %+v, want %+v", time.Duration(s.now), got, want)
	}
}

func newBucket(s *suite) {
	for range 10 {
		s.want(true, s.take(1, 1))
	}
	s.equal(s.want(false, s.take(1, 1))[0], bucket.Outcome{RetryAfter: time.Second, ResetAfter: 10 * time.Second})
	s.want(true, s.take(2, 10))
	s.want(false, s.take(2, 1))
	s.want(false, s.take(3, 11))
}

func refill(s *suite) {
	s.want(true, s.take(1, 10))
	s.at(3500 * time.Millisecond)
	s.equal(s.want(true, s.take(1, 1))[0], bucket.Outcome{Allowed: true, Remaining: 2,
		ResetAfter: 7500 * time.Millisecond})
	s.at(time.Hour)
	s.equal(s.want(true, s.take(1, 10))[0], bucket.Outcome{Allowed: true, ResetAfter: 10 * time.Second})
}

func retry(s *suite) {
	third := bucket.Take{Key: Key(1), Shape: s.shape(3, time.Second, 3), Cost: 2}
	for range 50 {
		allowed, outs := s.try(third)
		if allowed {
			continue
		}
		s.now += int64(outs[0].RetryAfter) - 1000
		s.want(false, third)
		s.now += 1000
		s.want(true, third)
	}
}

func envelope(s *suite) {
	rng := rand.New(rand.NewPCG(1, 2))
	take := bucket.Take{Key: Key(1), Shape: s.shape(70, time.Second, 30)}
	queue, last := int64(0), s.now // Lindley's recursion: never above the burst, whatever interval is looked at
	for range race.Fewer(3000) {
		s.now += rng.Int64N(30) * 1_000_000
		take.Cost = 1 + rng.Int64N(5)
		if allowed, _ := s.try(take); allowed {
			queue = max(0, queue-(s.now-last)*take.Shape.Drain) + take.Cost*take.Shape.Unit
			last = s.now
		}
		if queue > take.Shape.Capacity {
			s.Fatalf("at %v: %d units more than burst and rate were admitted", time.Duration(s.now),
				queue-take.Shape.Capacity)
		}
	}
}

func denied(s *suite) {
	s.want(true, s.take(1, 10))
	for range 1000 {
		s.now += int64(time.Millisecond) - 1000
		s.want(false, s.take(1, 1))
	}
	s.at(time.Second)
	s.equal(s.want(true, s.take(1, 1))[0], bucket.Outcome{Allowed: true, ResetAfter: 10 * time.Second})
}

func never(s *suite) {
	for _, cost := range []int64{11, math.MaxInt64, -1, math.MinInt64} {
		s.equal(s.want(false, s.take(1, cost))[0], bucket.Outcome{Never: true, Remaining: 10})
	}
	s.left(1, 10)
}

func nothing(s *suite) {
	full := bucket.Outcome{Allowed: true, Remaining: 10}
	s.equal(s.want(true, s.take(1, 0))[0], full)
	s.want(true, s.take(1, 10))
	drained := bucket.Outcome{Allowed: true, ResetAfter: 10 * time.Second}
	s.equal(s.want(true, s.take(1, 0))[0], drained)
	s.equal(s.want(true, s.take(1, 0))[0], drained)
}

func separate(s *suite) {
	for n := range uint64(1000) {
		s.want(true, s.take(n, int64(n%10)+1))
	}
	for n := range uint64(1000) {
		s.left(n, 9-int64(n%10))
	}
}

func allOrNothing(s *suite) {
	s.want(true, s.take(1, 4), s.take(2, 10), s.take(3, 1))
	s.want(false, s.take(1, 4), s.take(2, 1), s.take(3, 1))
	s.want(false, s.take(2, 1), s.take(3, 1), s.take(1, 4), s.take(4, 1))
	s.left(1, 6)
	s.left(2, 0)
	s.left(3, 9)
	s.left(4, 10)
	s.at(time.Second)
	s.want(true, s.take(1, 4), s.take(2, 1), s.take(3, 1))
	s.left(1, 3)
	s.left(2, 0)
}

func outcomes(s *suite) {
	outs := s.want(true, s.take(1, 10), s.take(2, 4))
	s.equal(outs[0], bucket.Outcome{Allowed: true, ResetAfter: 10 * time.Second})
	s.equal(outs[1], bucket.Outcome{Allowed: true, Remaining: 6, ResetAfter: 4 * time.Second})
	outs = s.want(false, s.take(2, 1), s.take(1, 2), s.take(3, 11))
	s.equal(outs[0], bucket.Outcome{Allowed: true, Remaining: 6, ResetAfter: 4 * time.Second})
	s.equal(outs[1], bucket.Outcome{RetryAfter: 2 * time.Second, ResetAfter: 10 * time.Second})
	s.equal(outs[2], bucket.Outcome{Never: true, Remaining: 10})
}

func duplicates(s *suite) {
	for _, out := range s.want(true, s.take(1, 4), s.take(2, 1), s.take(1, 4)) {
		if !out.Allowed || out.Remaining > 9 {
			s.Fatalf("outcome is %+v", out)
		}
	}
	s.left(1, 2)
	outs := s.want(false, s.take(1, 2), s.take(2, 1), s.take(1, 1))
	s.equal(outs[0], bucket.Outcome{Remaining: 2, RetryAfter: time.Second, ResetAfter: 8 * time.Second})
	s.equal(outs[2], outs[0])
	s.left(1, 2)
	s.left(2, 9)
	outs = s.want(false, s.take(3, 6), s.take(3, 5))
	s.equal(outs[0], bucket.Outcome{Never: true, Remaining: 10})
	s.want(false, s.take(3, 1), s.take(3, math.MaxInt64))
	s.left(3, 10)
}

func shadowDenied(s *suite) {
	s.want(true, s.take(2, 10))
	outs := s.want(true, s.take(1, 1), s.shadow(2, 3), s.shadow(3, 11))
	s.equal(outs[1], bucket.Outcome{RetryAfter: 3 * time.Second, ResetAfter: 10 * time.Second})
	s.equal(outs[2], bucket.Outcome{Never: true, Remaining: 10})
	s.left(1, 9)
	s.left(2, 0)
}

func shadowCharged(s *suite) {
	outs := s.want(true, s.shadow(2, 3), s.take(1, 10))
	s.equal(outs[0], bucket.Outcome{Allowed: true, Remaining: 7, ResetAfter: 3 * time.Second})
	outs = s.want(false, s.shadow(2, 3), s.take(1, 1))
	s.equal(outs[0], bucket.Outcome{Allowed: true, Remaining: 7, ResetAfter: 3 * time.Second})
	s.left(2, 7)
}

func shadowAlone(s *suite) {
	s.want(true, s.shadow(1, 10))
	s.left(1, 0)
	s.equal(s.want(true, s.shadow(1, 1))[0], bucket.Outcome{RetryAfter: time.Second, ResetAfter: 10 * time.Second})
	s.want(true, s.shadow(1, 1), s.shadow(2, 4), s.shadow(3, 11))
	s.left(1, 0)
	s.left(2, 6)
	s.left(3, 10)
}

func shadowDuplicate(s *suite) {
	s.want(true, s.shadow(1, 3), s.take(1, 6))
	s.left(1, 1)
	outs := s.want(true, s.shadow(2, 3), s.take(2, 6), s.shadow(2, 2))
	if outs[0].Allowed || !outs[1].Allowed || outs[2].Allowed {
		s.Fatalf("outcomes are %+v, want only the one that is no shadow allowed", outs)
	}
	s.left(2, 4)
}

func empty(s *suite) {
	s.want(true)
}

func short(s *suite) {
	ok, err := s.store.TryConsume(context.Background(), start, []bucket.Take{s.take(1, 1), s.take(2, 1)},
		make([]bucket.Outcome, 1))
	if ok || err == nil {
		s.Fatalf("TryConsume = %t, %v, want an error", ok, err)
	}
	s.left(1, 10)
}

func twoShapes(s *suite) {
	other := s.take(1, 1)
	other.Shape = s.shape(5, time.Second, 5)
	ok, err := s.store.TryConsume(context.Background(), start, []bucket.Take{s.take(2, 1), s.take(1, 1), other},
		make([]bucket.Outcome, 3))
	if ok || err == nil {
		s.Fatalf("TryConsume = %t, %v, want an error", ok, err)
	}
	s.left(1, 10)
	s.left(2, 10)
}

func many(s *suite) {
	for _, count := range []uint64{2, 4, 5, 14, 15, 40} {
		var takes []bucket.Take
		for n := range count {
			takes = append(takes, s.take(100*count+n, 5))
		}
		s.want(true, takes...)
		takes[count-1].Cost = 6
		outs := s.want(false, takes...)
		s.equal(outs[0], bucket.Outcome{Allowed: true, Remaining: 5, ResetAfter: 5 * time.Second})
		s.equal(outs[count-1], bucket.Outcome{Remaining: 5, RetryAfter: time.Second, ResetAfter: 5 * time.Second})
		takes[count-1].Cost = 5
		s.want(true, takes...)
		for n := range count {
			s.left(100*count+n, 0)
		}
	}
}

func btoi(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func peek(s *suite) {
	rng := rand.New(rand.NewPCG(5, 8))
	for range race.Fewer(2000) {
		s.now += rng.Int64N(200) * 1_000_000
		var takes []bucket.Take
		for range 1 + rng.IntN(4) {
			take := s.take(rng.Uint64N(20), rng.Int64N(5))
			take.Shadow = rng.IntN(4) == 0
			takes = append(takes, take)
		}
		want, wantOuts := s.peek(takes...)
		again, againOuts := s.peek(takes...)
		got, outs := s.try(takes...)
		for i := range outs {
			if outs[i].Unknown { // it was not asked, as it would have changed nothing
				outs[i] = wantOuts[i]
			}
		}
		if got != want || again != want || fmt.Sprint(outs) != fmt.Sprint(wantOuts) ||
			fmt.Sprint(againOuts) != fmt.Sprint(wantOuts) {
			s.Fatalf("at %v: %+v: Peek = %t, %+v, again %t, %+v, then TryConsume = %t, %+v", time.Duration(s.now),
				takes, want, wantOuts, again, againOuts, got, outs)
		}
	}
}

func clockBack(s *suite) {
	s.at(time.Hour)
	s.want(true, s.take(1, 10))
	for _, at := range []time.Duration{time.Hour - time.Second, 0, time.Minute, time.Hour} {
		s.at(at)
		s.equal(s.want(false, s.take(1, 1))[0], bucket.Outcome{
			RetryAfter: time.Hour + time.Second - at,
			ResetAfter: time.Hour + 10*time.Second - at,
		})
	}
	s.at(time.Hour + time.Second)
	s.want(true, s.take(1, 1))
	s.want(false, s.take(1, 1))
}

func longIdle(s *suite) {
	const century = 100 * 365 * 24 * time.Hour
	fast := bucket.Take{Key: Key(2), Shape: s.shape(1_000_000_007, time.Second, 1_000_000_007), Cost: 1_000_000_007}
	slow := bucket.Take{Key: Key(3), Shape: s.shape(1, century, 1), Cost: 1}
	s.want(true, s.take(1, 10), fast, slow)
	s.at(century - time.Second)
	s.want(true, s.take(1, 10), fast)
	s.want(false, slow)
	s.at(century)
	s.want(true, slow)
	s.want(true, s.take(1, 1))
	s.left(1, 0)
}
