//go:build unix

package redis_test

import (
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/lease"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/bucket/report"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/rate"
)

// spenders are the ways to spend a token of a bucket.
func spenders() map[string]func(t *testing.T, s *redis.Store, of bucket.Take) bool {
	return map[string]func(t *testing.T, s *redis.Store, of bucket.Take) bool{
		"a take": func(t *testing.T, s *redis.Store, of bucket.Take) bool {
			allowed, _ := try(t, s, 0, of)
			return allowed
		},
		"a take from two": func(t *testing.T, s *redis.Store, of bucket.Take) bool {
			allowed, _ := try(t, s, 0, of, take(t, 1000, rate.Limit{Tokens: 1, Per: time.Second, Burst: 1000}, 1))
			return allowed
		},
		"a lease": func(t *testing.T, s *redis.Store, of bucket.Take) bool {
			seq.Add(1)
			return ask(t, authority(t, s, redis.AuthorityOptions{}), 7, of,
				lease.Question{Seq: seq.Load(), Want: 1}).Tokens == 1
		},
		"a report": func(t *testing.T, s *redis.Store, of bucket.Take) bool {
			seq.Add(1)
			told := []report.Told{{Of: of, Report: report.Report{Seq: seq.Load()}}}
			ledger(t, s, redis.LedgerOptions{}).ReportAll(t.Context(), 7, told)
			if told[0].Err != nil {
				t.Fatal(told[0].Err)
			}
			if told[0].Answer.Debt > of.Shape.Capacity-of.Shape.Unit {
				return false
			}
			allowed, _ := try(t, s, 0, of)
			return allowed
		},
	}
}

// A limit of 100 per second becomes another one. Whoever was never seen before, or owed nothing any more, is not made
// to wait for what others may have owed; whoever owed and asks goes on owing; and whoever did not ask until its debt
// would have drained at the old rate has one new burst.
func TestMissingBucketsAfterAChange(t *testing.T) {
	server := redistest.Start(t)
	const ms, second, hour = time.Millisecond, time.Second, time.Hour
	fast := rate.Limit{Tokens: 100, Per: second, Burst: 200}
	daily := rate.Limit{Tokens: 5, Per: 24 * hour, Burst: 5}
	slower := rate.Limit{Tokens: 10, Per: second, Burst: 20}
	for name, c := range map[string]struct {
		to       rate.Limit
		spent    int64           // under the old limit, just before it changes
		asks     []time.Duration // after the change
		admitted []int64         // of twice the burst
	}{
		"never seen before":                       {daily, 0, []time.Duration{0, second, 2 * hour}, []int64{5, 0, 0}},
		"never seen before, and comes hours late": {daily, 0, []time.Duration{2 * hour, 3 * hour}, []int64{5, 0}},
		"was in debt, and asks": {daily, 200,
			[]time.Duration{1900 * ms, 2100 * ms, 4 * hour, 5 * hour}, []int64{0, 0, 0, 1}},
		"was in debt, and does not ask": {daily, 200, []time.Duration{2100 * ms, 4 * hour, 5 * hour},
			[]int64{5, 0, 1}},
		"owed three, and asks at once":         {daily, 3, []time.Duration{0, second}, []int64{2, 0}},
		"never seen before, and it fills soon": {slower, 0, []time.Duration{second, 2 * second}, []int64{10, 10}},
		"was in debt, and it fills soon":       {slower, 20, []time.Duration{500 * ms, 2 * second}, []int64{5, 15}},
	} {
		for what, spend := range spenders() {
			t.Run(what+", "+name, func(t *testing.T) {
				server.Do("FLUSHALL")
				now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC).UnixNano()
				clock := func() int64 { return now }
				ahead := func() int64 { return now + int64(hour) }
				s := open(t, redis.Options{Server: &redistest.Clock{To: connect(t, server), Now: ahead}, Now: clock})
				before := take(t, 1, fast, c.spent)
				if allowed, _ := try(t, s, 0, before); !allowed {
					t.Fatal("a new bucket is not full")
				}
				changed := now
				after := take(t, 1, c.to, 1)
				after.Since, after.Before = changed, &rate.Past{Shape: before.Shape}
				for i, at := range c.asks {
					now = changed + int64(at)
					admitted := int64(0)
					for range 2 * c.to.Burst {
						if spend(t, s, after) {
							admitted++
						}
					}
					if admitted != c.admitted[i] {
						t.Errorf("%v after the change %d are admitted, want %d", at, admitted, c.admitted[i])
					}
				}
				if got := s.Mended(); got != 0 {
					t.Errorf("%d buckets were mended, want none: nothing is wrong with them", got)
				}
			})
		}
	}
}

// To look at a bucket that was left under another limit changes nothing.
func TestALookPutsNothingInItsPlace(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, redis.Options{Server: connect(t, server)})
	before := take(t, 1, rate.Limit{Tokens: 1, Per: time.Hour, Burst: 2}, 2)
	try(t, s, 0, before)
	name := server.Do("RANDOMKEY").(string)
	held := server.Do("GET", name)
	after := take(t, 1, rate.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 3}, 1)
	after.Since, after.Before = time.Now().UnixNano(), &rate.Past{Shape: before.Shape}
	outs := make([]bucket.Outcome, 1)
	if _, err := s.Peek(t.Context(), 0, []bucket.Take{after}, outs); err != nil || !outs[0].Allowed {
		t.Fatalf("Peek = %+v, %v", outs[0], err)
	}
	ask(t, authority(t, s, redis.AuthorityOptions{}), 7, after, lease.Question{})
	if now := server.Do("GET", name); now != held {
		t.Errorf("the bucket was %q, and is %q after a look", held, now)
	}
}

// A limit becomes faster, and a replica that has not heard of it yet spends all of the old one. Once all have heard,
// the bucket drains at the new rate, though every request is denied and so charges nothing.
func TestABucketLeftUnderASlowerLimitDrainsAtTheNewRate(t *testing.T) {
	server := redistest.Start(t)
	for what, spend := range spenders() {
		t.Run(what, func(t *testing.T) {
			server.Do("FLUSHALL")
			began := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC).UnixNano()
			now := began
			clock := func() int64 { return now }
			s := open(t, redis.Options{Server: &redistest.Clock{To: connect(t, server), Now: clock}, Now: clock})
			before := take(t, 1, rate.Limit{Tokens: 1, Per: time.Second, Burst: 359}, 359)
			after := take(t, 1, rate.Limit{Tokens: 98, Per: time.Second, Burst: 108}, 1)
			after.Since, after.Before = began, &rate.Past{Shape: before.Shape}
			now += int64(100 * time.Millisecond)
			try(t, s, 0, before)
			const most = 2500 * time.Millisecond // in which twice the new burst drains
			for ; !spend(t, s, after); now += int64(100 * time.Millisecond) {
				if waited := time.Duration(now - began); waited > most {
					t.Fatalf("denied %v after the change, want it admitted after %v: twice the new burst", waited, most)
				}
			}
		})
	}
}
