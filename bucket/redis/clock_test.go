//go:build unix

package redis_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/lease"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/bucket/report"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/rate"
)

// A server whose clock is an hour ahead for a moment, or is set back by an hour, holds no bucket
// for longer than a second and its own debt, and each step gives a burst at most.
func TestTheServersClockIsSet(t *testing.T) {
	server := redistest.Start(t)
	limit := rate.Limit{Tokens: 10, Per: time.Second, Burst: 20}
	for what, spend := range map[string]func(t *testing.T, s *redis.Store, n uint64) bool{
		"a take": func(t *testing.T, s *redis.Store, n uint64) bool {
			allowed, _ := try(t, s, 0, take(t, n, limit, 1))
			return allowed
		},
		"a take from two": func(t *testing.T, s *redis.Store, n uint64) bool {
			allowed, _ := try(t, s, 0, take(t, n, limit, 1), take(t, n+100, limit, 1))
			return allowed
		},
		"a lease": func(t *testing.T, s *redis.Store, n uint64) bool {
			seq.Add(1)
			return ask(t, authority(t, s, redis.AuthorityOptions{}), 7, take(t, n, limit, 1),
				lease.Question{Seq: seq.Load(), Want: 1}).Tokens == 1
		},
		"a report": func(t *testing.T, s *redis.Store, n uint64) bool {
			seq.Add(1)
			of := take(t, n, limit, 0)
			told := []report.Told{{Of: of, Report: report.Report{Seq: seq.Load()}}}
			ledger(t, s, redis.LedgerOptions{}).ReportAll(t.Context(), 7, told)
			if told[0].Err != nil {
				t.Fatal(told[0].Err)
			}
			if told[0].Answer.Debt > of.Shape.Capacity-of.Shape.Unit {
				return false
			}
			allowed, _ := try(t, s, 0, take(t, n, limit, 1))
			return allowed
		},
		"a change of the limit": func(t *testing.T, s *redis.Store, n uint64) bool {
			other := limit
			other.Burst += int64(seq.Add(1) % 2)
			allowed, _ := try(t, s, 0, take(t, n, other, 1))
			return allowed
		},
	} {
		t.Run(what, func(t *testing.T) {
			server.Do("FLUSHALL")
			var at, set atomic.Int64 // true time, and how far the server's clock is ahead
			base := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC).UnixNano()
			s := open(t, redis.Options{
				Server: &redistest.Clock{To: connect(t, server),
					Now: func() int64 { return base + at.Load() + set.Load() }},
				Now: func() int64 { return base + at.Load() },
			})
			admit := func(until time.Duration) (count int64) {
				for ; at.Load() <= int64(until); at.Add(int64(20 * time.Millisecond)) {
					for spend(t, s, 1) {
						count++
					}
				}
				return count
			}
			const burst, perSecond = 20, 10
			want := func(when string, got, least, most int64) {
				t.Helper()
				if got < least || got > most {
					t.Errorf("%s: %d admitted, want %d to %d", when, got, least, most)
				}
			}
			want("before", admit(time.Second), burst+perSecond-1, burst+perSecond+2)
			set.Store(int64(time.Hour))
			want("an hour ahead for 0.3 s", admit(1300*time.Millisecond), burst, burst+5)
			set.Store(0)
			want("and back, in two seconds", admit(3300*time.Millisecond), 2*perSecond-3, 2*perSecond+2)
			set.Store(-int64(time.Hour))
			want("an hour behind, in two seconds", admit(5300*time.Millisecond), 2*perSecond-3, 2*perSecond+2)
			set.Store(-int64(time.Hour) - int64(900*time.Millisecond))
			want("0.9 s further behind, in two seconds", admit(7300*time.Millisecond), 2*perSecond-9-3, 2*perSecond+2)
		})
	}
}

var seq atomic.Uint64

// A correction takes a bucket back from a time that lies ahead, too.
func TestAGiftAfterTheServersClockWasSetBack(t *testing.T) {
	server := redistest.Start(t)
	var set atomic.Int64
	base := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC).UnixNano()
	s := open(t, redis.Options{Server: &redistest.Clock{To: connect(t, server),
		Now: func() int64 { return base + set.Load() }}})
	one := take(t, 1, rate.Limit{Tokens: 1, Per: time.Second, Burst: 10}, 10)
	set.Store(int64(time.Hour))
	try(t, s, 0, one)
	set.Store(0)
	moved := make([]int64, 1)
	if err := s.Correct(t.Context(), 0, []bucket.Change{{Key: one.Key, Shape: one.Shape, Units: -4 * one.Shape.Unit}},
		moved); err != nil || moved[0] != -4*one.Shape.Unit {
		t.Fatal(moved, err)
	}
	set.Store(int64(3 * time.Second))
	if got := left(t, s, 0, one); got != 7 {
		t.Errorf("%d are left, want the 4 given and 3 of three seconds", got)
	}
}
