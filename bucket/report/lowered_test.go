package report_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/bucket/report"
	"github.com/headgate-io/headgate/rate"
)

// TestAccountWhoseRateIsLowered: however often it is asked, also in vain, it admits what the rate in force does.
func TestAccountWhoseRateIsLowered(t *testing.T) {
	sh := shape(t, 100, 50)
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 2))
		a, now := report.NewAccount(1), int64(1e18)
		var l *rate.Lowered
		owed, part, denied := 0.0, rate.Whole, 0 // tokens, by the rate in force
		for range 3000 {
			gone := random.Int64N(int64(8 * time.Millisecond))
			now += gone
			owed = max(0, owed-float64(gone)/1e9*100*float64(part)/rate.Whole)
			if random.IntN(50) == 0 {
				part = 1 + random.IntN(rate.Whole)
				l = l.From(now, part)
			}
			a.Slow(now, l)
			got := a.Take(now, &sh, 1<<40, 1)
			if owed > 50-1+0.001 && got != report.Deny || owed < 50-1-0.001 && got != report.Admit {
				t.Fatalf("seed %d: verdict %d where %.3f are owed", seed, got, owed)
			}
			if got == report.Admit {
				owed++
			} else {
				denied++
			}
		}
		if denied < 100 {
			t.Errorf("seed %d: %d denied", seed, denied)
		}
	}
}

// TestChangeOfALimitWhoseRateIsLowered: what was owed has drained at the rate in force when the limit becomes another.
func TestChangeOfALimitWhoseRateIsLowered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := func() int64 { return time.Now().UnixNano() }
		a := new(authority)
		s := open(t, report.Options{Authority: a, Now: clock})
		sh := shape(t, 100, 100)
		take := of(1, sh, 1)
		a.ledger(take.Key).Charge(clock(), sh, 99, report.Report{Seq: 1, Tokens: 200})
		try(s, take)
		time.Sleep(300 * time.Millisecond)
		a.set(func() { a.fail = true })
		take.Lowered = take.Lowered.From(clock(), 1)
		if v := try(s, take); v != report.Deny {
			t.Fatalf("of a bucket that owes 170 of 100: %v", v)
		}
		time.Sleep(10 * time.Second)
		take.Shape = shape(t, 100, 101)
		if v := try(s, take); v != report.Deny {
			t.Errorf("of a bucket that owes 169 of 101: %v", v)
		}
		a.set(func() { a.fail = false })
		time.Sleep(time.Second)
	})
}
