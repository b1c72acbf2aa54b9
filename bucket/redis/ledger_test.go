//go:build unix

package redis_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/bucket/report"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

func ledger(t testing.TB, s *redis.Store, o redis.LedgerOptions) *redis.Ledger {
	t.Helper()
	l, err := redis.NewLedger(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// tell reports of some buckets, and returns what is owed of each in tokens.
func tell(t testing.TB, l *redis.Ledger, replica uint64, told ...report.Told) []int64 {
	t.Helper()
	l.ReportAll(context.Background(), replica, told)
	owed := make([]int64, len(told))
	for i := range told {
		if told[i].Err != nil {
			t.Fatalf("report %d: %v", i, told[i].Err)
		}
		if told[i].Answer.Seq != told[i].Report.Seq {
			t.Fatalf("report %d: %+v is no answer to it", told[i].Report.Seq, told[i].Answer)
		}
		owed[i] = (told[i].Answer.Debt + told[i].Of.Shape.Unit - 1) / told[i].Of.Shape.Unit
	}
	return owed
}

func TestLedgerNamesEveryFault(t *testing.T) {
	_, err := redis.NewLedger(open(t, redis.Options{Server: redistest.Dial("/nowhere"), CallersClock: true}),
		redis.LedgerOptions{Keep: 2 * time.Hour})
	want := "redis ledger: Keep is 2h0m0s, want 1ms to 1h\nNow is nil, want a clock: the store has CallersClock"
	if err == nil || err.Error() != want {
		t.Errorf("NewLedger: %v, want %s", err, want)
	}
}

// The script charges as report.Ledger does, whatever is told: by several replicas, again, out of
// order, many buckets at once, and while the limit changes.
func TestLedgerChargesAsOneInMemoryDoes(t *testing.T) {
	server := redistest.Start(t)
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).UnixNano()
	store := open(t, redis.Options{Server: connect(t, server), CallersClock: true})
	l := ledger(t, store, redis.LedgerOptions{Now: func() int64 { return now }})
	limits := []rate.Limit{
		{Tokens: 7, Per: time.Second, Burst: 9},
		{Tokens: 1000, Per: time.Second, Burst: 1000},
		{Tokens: 1_000_003, Per: 24 * time.Hour, Burst: 1_000_003_000}, // in ticks of more than a microsecond
	}
	const buckets, replicas, seed = 9, 3, uint64(11)
	rng := rand.New(rand.NewPCG(seed, 1))
	var twins [buckets]struct {
		ledger report.Ledger
		held   bucket.Held
	}
	var takes [buckets]bucket.Take
	var last [buckets][replicas]report.Report
	numbers := map[key.Key]int{}
	for i := range takes {
		takes[i] = take(t, uint64(i), limits[i%len(limits)], 0)
		var err error
		if takes[i].Shape, err = redis.Coarsen(takes[i].Shape); err != nil {
			t.Fatal(err)
		}
		twins[i].held.Shape, numbers[takes[i].Key] = takes[i].Shape, i
		for r := range last[i] {
			last[i][r].Seq = 1 << 32 // as accounts number
		}
	}
	again, beyond, latest := 0, 0, now
	for n := range race.Fewer(8000) {
		now += rng.Int64N(50_000)*1000 - 2_000_000 // now and then the clock is set back
		latest = max(latest, now)
		r := rng.IntN(replicas)
		var told []report.Told
		for i := range takes {
			if rng.IntN(600) == 0 {
				now = max(now, latest) // what was left later than a change is another matter: see follow.go
				change(t, rng, &takes[i], now, limits[i%len(limits)])
			}
			if rng.IntN(3) > 0 {
				continue
			}
			next := report.Report{
				Seq:    last[i][r].Seq + uint64(1)<<rng.IntN(2)<<31,
				Tokens: rng.Int64N(takes[i].Shape.Burst()/2 + 2),
			}
			switch rng.IntN(8) {
			case 0: // again
				next = last[i][r]
				again++
			case 1: // late
				next.Seq = last[i][r].Seq - 1
			default:
				last[i][r] = next
			}
			told = append(told, report.Told{Of: takes[i], Report: next})
		}
		if len(told) == 0 {
			continue
		}
		l.ReportAll(context.Background(), uint64(r+1), told)
		for j := range told {
			one := &told[j]
			i := numbers[one.Of.Key]
			w := &twins[i]
			held := w.held
			held.State = w.ledger.State
			held.Follow(now, &one.Of)
			before := w.ledger.State
			w.ledger.State = held.State
			want := w.ledger.Charge(now, one.Of.Shape, uint64(r+1), one.Report)
			if w.ledger.State == held.State {
				w.ledger.State = before // the server converts a bucket when it charges it
			} else {
				w.held.Shape = one.Of.Shape
			}
			if one.Err != nil || one.Answer != want {
				t.Fatalf("seed %d, message %d: replica %d tells %+v of bucket %d: %+v, %v, want %+v", seed, n, r+1,
					one.Report, i, one.Answer, one.Err, want)
			}
			if want.Debt > one.Of.Shape.Capacity {
				beyond++
			}
		}
	}
	if want := race.Fewer(1000); again < want || beyond < want {
		t.Errorf("%d reports came again and %d left more than a burst, want %d of each", again, beyond, want)
	}
}

// A report and a decision of the store charge one bucket, beyond what it holds; and the server learns the script anew.
func TestAReportAndADecisionShareTheBucket(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, redis.Options{Server: connect(t, server)})
	l := ledger(t, store, redis.LedgerOptions{Keep: time.Minute})
	ten := take(t, 1, rate.Limit{Tokens: 1, Per: time.Hour, Burst: 10}, 4)
	if allowed, _ := try(t, store, 0, ten); !allowed {
		t.Fatal("a new bucket is full")
	}
	if got := tell(t, l, 1, report.Told{Of: ten, Report: report.Report{Seq: 1, Tokens: 5}}); got[0] != 9 {
		t.Errorf("4 and 5 are charged: %d owed, want 9", got[0])
	}
	if allowed, outs := try(t, store, 0, ten); allowed || outs[0].Remaining != 1 {
		t.Errorf("4 of 1: %t, %+v", allowed, outs[0])
	}
	server.Do("SCRIPT", "FLUSH")
	if got := tell(t, l, 1, report.Told{Of: ten, Report: report.Report{Seq: 2, Tokens: 5}}); got[0] != 14 {
		t.Errorf("5 more: %d owed, want 14", got[0])
	}
	if got := tell(t, l, 2, report.Told{Of: ten, Report: report.Report{Seq: 1, Tokens: 500}}); got[0] != 20 {
		t.Errorf("more than twice the burst: %d owed, want 20", got[0])
	}
	names, numbers := server.Do("KEYS", "*").([]any), 0
	for _, name := range names {
		if ms := server.Do("PTTL", name.(string)).(int64); ms > 0 && ms <= time.Minute.Milliseconds() {
			numbers++ // which are forgotten
		}
	}
	if len(names) != 3 || numbers != 2 {
		t.Errorf("the server holds %d names, and %d for a minute; want the bucket, and for that long a number of each "+
			"of two", len(names), numbers)
	}
}

// What is under one name keeps nobody else from being charged, once.
func TestReportsBesideAForeignValue(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, redis.Options{Server: connect(t, server)})
	l := ledger(t, store, redis.LedgerOptions{})
	hour := rate.Limit{Tokens: 1, Per: time.Hour, Burst: 10}
	first, spoiled, last := take(t, 1, hour, 1), take(t, 2, hour, 1), take(t, 3, hour, 1)
	try(t, store, 0, spoiled)
	name := server.Do("KEYS", "*").([]any)[0].(string)
	server.Do("DEL", name)
	server.Do("LPUSH", name, "x")
	told := []report.Told{{Of: first, Report: report.Report{Seq: 1, Tokens: 3}},
		{Of: spoiled, Report: report.Report{Seq: 1, Tokens: 3}}, {Of: last, Report: report.Report{Seq: 1, Tokens: 3}}}
	l.ReportAll(context.Background(), 1, told)
	if debt := told[1].Answer.Debt; told[1].Err != nil || debt > 13*first.Shape.Unit || debt < 12*first.Shape.Unit {
		t.Errorf("a list under the bucket's name: %d owed, %v, want 10 tokens and 3", debt, told[1].Err)
	}
	for _, i := range []int{0, 2} {
		if debt := told[i].Answer.Debt; told[i].Err != nil || debt > 3*first.Shape.Unit || debt < 2*first.Shape.Unit {
			t.Errorf("report %d beside it: %d owed, %v, want 3 tokens", i, debt, told[i].Err)
		}
	}
}
