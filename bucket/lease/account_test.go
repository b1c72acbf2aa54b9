package lease_test

import (
	"math"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket/lease"
)

var terms = lease.Terms{}.Complete() // 100 ms, 25 ms

const ms = int64(time.Millisecond)

// A day in the life of an account: each step is one call, at a literal time.
func TestAccount(t *testing.T) {
	a := lease.NewAccount(0)
	take := func(at, cost int64, want lease.Verdict) {
		t.Helper()
		if got := a.Take(at, terms, cost); got != want {
			t.Fatalf("at %d ms: Take(%d) = %v, want %v", at/ms, cost, got, want)
		}
	}
	retake := func(at, cost int64, want lease.Verdict) {
		t.Helper()
		if got := a.Retake(at, cost); got != want {
			t.Fatalf("at %d ms: Retake(%d) = %v, want %v", at/ms, cost, got, want)
		}
	}
	asks := func(at int64, want lease.Question) {
		t.Helper()
		if got, _ := a.Question(at, terms); got != want {
			t.Fatalf("at %d ms: Question = %+v, want %+v", at/ms, got, want)
		}
	}
	answer := func(at int64, got lease.Answer, counts bool) {
		t.Helper()
		if a.Answer(at, terms, got, 0) != counts {
			t.Fatalf("at %d ms: Answer(%+v) = %v, want %v", at/ms, got, !counts, counts)
		}
	}

	// A cold account asks for what it needs, and no more.
	take(0, 1, lease.Ask)
	asks(0, lease.Question{Seq: 1, Want: 1, Need: 1})
	take(1*ms, 2, lease.Ask)     // comes while the question is under way
	asks(1*ms, lease.Question{}) // one at a time
	answer(2*ms, lease.Answer{Seq: 7, Tokens: 9}, false)
	answer(2*ms, lease.Answer{Seq: 1, Tokens: 1, Left: 99}, true)
	answer(2*ms, lease.Answer{Seq: 1, Tokens: 1, Left: 99}, false) // twice over the network
	retake(2*ms, 1, lease.Admit)
	retake(2*ms, 2, lease.Ask)
	asks(2*ms, lease.Question{Seq: 2, Want: 3, Need: 2}) // and as much as came before, as there is plenty
	answer(3*ms, lease.Answer{Seq: 2, Tokens: 2, Left: 97}, true)
	retake(3*ms, 2, lease.Admit)

	// A warm one asks ahead: for half of what a TTL brings, before it runs out.
	for i := range int64(6) {
		at := (4 + i) * ms
		admitted := a.Take(at, terms, 1) == lease.Admit
		if q, ok := a.Question(at, terms); ok {
			answer(at, lease.Answer{Seq: q.Seq, Tokens: q.Want, Left: 90}, true)
		}
		if !admitted && a.Retake(at, 1) != lease.Admit {
			t.Fatalf("at %d ms: want a token", at/ms)
		}
	}
	if a.Remaining(10*ms) < 90 {
		t.Errorf("Remaining = %d, want the 90 of the bucket and what is held", a.Remaining(10*ms))
	}
}

// A question that is sent for somebody asks for as much again as came within a TTL before, where
// the bucket had eight times that and was half full; and else for a third of it, where three came.
func TestAccountAsksAlong(t *testing.T) {
	for _, c := range []struct {
		name  string
		takes []int64 // before, in ms; of 2 tokens each
		last  lease.Answer
		want  int64
	}{
		{"nothing came before", nil, lease.Answer{Tokens: 1, Left: 99, Burst: 100}, 2},
		{"one came before", []int64{150}, lease.Answer{Tokens: 1, Left: 99, Burst: 100}, 4},
		{"three came before", []int64{150, 160, 170}, lease.Answer{Tokens: 1, Left: 99, Burst: 100}, 8},
		{"so many that it would be more than four times what is needed", []int64{130, 140, 150, 160, 170},
			lease.Answer{Tokens: 1, Left: 99, Burst: 100}, 10},
		{"the bucket had eight times that", []int64{150}, lease.Answer{Tokens: 1, Left: 16, Burst: 32}, 4},
		{"it had less", []int64{150}, lease.Answer{Tokens: 1, Left: 15, Burst: 30}, 2},
		{"it was not half full", []int64{150}, lease.Answer{Tokens: 1, Left: 16, Burst: 34}, 2},
		{"it had three times as much for three", []int64{60, 70, 80}, lease.Answer{Tokens: 1, Left: 18, Burst: 30}, 4},
		{"it had nothing left for three", []int64{60, 70, 80}, lease.Answer{Tokens: 1, Burst: 100}, 4},
		{"nor for two", []int64{60, 70}, lease.Answer{Tokens: 1, Burst: 100}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := lease.NewAccount(0)
			a.Take(-900*ms, terms, 1)
			q, _ := a.Question(-900*ms, terms)
			c.last.Seq = q.Seq
			a.Answer(-900*ms, terms, c.last, 0)
			for _, at := range c.takes {
				a.Take(at*ms, terms, 2)
				q, _ := a.Question(at*ms, terms)
				a.Answer(at*ms, terms, lease.Answer{Seq: q.Seq, Tokens: 2, Left: c.last.Left, Burst: c.last.Burst}, 0)
				if a.Retake(at*ms, 2) != lease.Admit {
					t.Fatalf("at %d ms: want 2 tokens", at)
				}
				if held := a.Held(at * ms); held != 0 {
					t.Fatalf("at %d ms: %d tokens are held, want none", at, held)
				}
			}
			if a.Take(200*ms, terms, 2) != lease.Ask {
				t.Fatal("Take of what is not held: want Ask")
			}
			if q, _ := a.Question(200*ms, terms); q.Want != c.want || q.Need != 2 {
				t.Errorf("Question = %+v, want %d tokens of which 2 are needed", q, c.want)
			}
		})
	}
}

func TestAccountLosesOldTokens(t *testing.T) {
	a := lease.NewAccount(0)
	a.Take(0, terms, 5)
	q, _ := a.Question(0, terms)
	a.Answer(90*ms, terms, lease.Answer{Seq: q.Seq, Tokens: 5}, 0)
	if got := a.Until(99 * ms); got != 100*ms {
		t.Errorf("Until = %d ms, want 100: the TTL begins when it was asked, not when it was answered", got/ms)
	}
	if a.Retake(100*ms, 5) == lease.Admit {
		t.Error("a batch is used at the end of its TTL, want it lost")
	}

	late := lease.NewAccount(0)
	late.Take(0, terms, 5)
	q, _ = late.Question(0, terms)
	late.Answer(100*ms, terms, lease.Answer{Seq: q.Seq, Tokens: 5}, 0)
	if late.Retake(100*ms, 5) == lease.Admit {
		t.Error("a batch is used that was old when it came, want it lost")
	}
}

// What the authority grants under one limit is not used under the next, however late it comes.
func TestAccountAsksAnewAfterAChange(t *testing.T) {
	for name, lost := range map[string]bool{"under way": false, "taken for lost": true} {
		a := lease.NewAccount(0)
		a.Take(0, terms, 5)
		old, _ := a.Question(0, terms)
		if lost {
			a.Failed(old.Seq)
		}
		a.Drop()
		if a.Answer(1*ms, terms, lease.Answer{Seq: old.Seq, Tokens: 5, Left: 95}, 0) || a.Held(1*ms) != 0 {
			t.Errorf("%s: the answer to a question of the old limit counts, %d tokens are held", name, a.Held(1*ms))
		}
		a.Take(2*ms, terms, 1)
		if q, ok := a.Question(2*ms, terms); !ok || q.Seq == old.Seq {
			t.Errorf("%s: the next question is %+v, want another than %+v", name, q, old)
		}
	}
}

func TestAccountAsksAgainUnderTheSameNumber(t *testing.T) {
	a := lease.NewAccount(0)
	a.Take(0, terms, 5)
	first, _ := a.Question(0, terms)
	if a.Failed(first.Seq+1) || !a.Failed(first.Seq) || a.Failed(first.Seq) {
		t.Fatal("Failed: want true for the question under way, once")
	}
	a.Take(5*ms, terms, 2)
	second, ok := a.Question(5*ms, terms)
	if !ok || second != first {
		t.Fatalf("Question = %+v, want %+v again: it may have been charged", second, first)
	}
	a.Failed(second.Seq)
	// The answer comes when nobody expects it any more. It counts, and for as long as it is good
	// since the question was first sent.
	if !a.Answer(50*ms, terms, lease.Answer{Seq: first.Seq, Tokens: 5}, 0) || a.Until(50*ms) != 100*ms {
		t.Errorf("a late answer is good until %d ms, want 100", a.Until(50*ms)/ms)
	}

	b := lease.NewAccount(0)
	b.Take(0, terms, 5)
	first, _ = b.Question(0, terms)
	b.Failed(first.Seq)
	b.Take(100*ms, terms, 2)
	if q, _ := b.Question(100*ms, terms); q.Seq != first.Seq+1 || q.Want != 2 {
		t.Errorf("Question after a TTL = %+v, want a new one: whatever the old one brought would be lost", q)
	}
}

func TestAccountOfAnEmptyBucket(t *testing.T) {
	a := lease.NewAccount(0)
	a.Take(0, terms, 10)
	q, _ := a.Question(0, terms)
	a.Answer(1*ms, terms, lease.Answer{Seq: q.Seq, Tokens: 0, Left: 3, Wait: 70 * time.Millisecond, Reset: time.Second},
		5*time.Millisecond)
	for _, c := range []struct {
		at, cost int64
		want     lease.Verdict
		retry    time.Duration
	}{
		{at: 1 * ms, cost: 10, want: lease.Deny, retry: 70 * time.Millisecond},
		{at: 1 * ms, cost: 4, want: lease.Deny, retry: 70 * time.Millisecond},
		{at: 31 * ms, cost: 10, want: lease.Deny, retry: 40 * time.Millisecond},
		{at: 31 * ms, cost: 3, want: lease.Ask}, // so many were left
		{at: 71 * ms, cost: 10, want: lease.Ask},
	} {
		b := a
		if got := b.Take(c.at, terms, c.cost); got != c.want || got == lease.Deny && b.RetryAfter(c.at) != c.retry {
			t.Errorf("at %d ms: Take(%d) = %v, retry after %v, want %v, %v", c.at/ms, c.cost, got, b.RetryAfter(c.at),
				c.want, c.retry)
		}
	}
	if got := a.ResetAfter(501 * ms); got != 500*time.Millisecond {
		t.Errorf("ResetAfter = %v, want 500ms", got)
	}

	// A bucket that will have a token at once is not asked again at once.
	b := lease.NewAccount(0)
	b.Take(0, terms, 1)
	q, _ = b.Question(0, terms)
	b.Answer(1*ms, terms, lease.Answer{Seq: q.Seq, Wait: time.Millisecond}, 5*time.Millisecond)
	if b.Take(29*ms, terms, 1) != lease.Deny || b.RetryAfter(29*ms) != 2*time.Millisecond ||
		b.Take(31*ms, terms, 1) != lease.Ask {
		t.Error("want the next question no sooner than a poll, and what it was told to vary by, after the answer")
	}
}

// However long a bucket has nothing, it is asked again after a second: somebody may have given tokens back.
func TestAccountOfABucketThatIsEmptyForLong(t *testing.T) {
	for _, wait := range []time.Duration{2 * time.Second, 24 * time.Hour, math.MaxInt64} {
		a := lease.NewAccount(0)
		a.Take(0, terms, 1)
		q, _ := a.Question(0, terms)
		a.Answer(1*ms, terms, lease.Answer{Seq: q.Seq, Wait: wait, Reset: math.MaxInt64}, 0)
		doubted := a
		if got := a.Take(1000*ms, terms, 1); got != lease.Deny || a.RetryAfter(1000*ms) < wait-time.Second {
			t.Errorf("empty for %v, 999 ms later: %v, retry after %v, want a denial for the rest", wait, got,
				a.RetryAfter(1000*ms))
		}
		if got := a.Take(1001*ms, terms, 1); got != lease.Ask {
			t.Errorf("empty for %v, a second later: %v, want the authority asked", wait, got)
		}
		doubted.Recheck()
		if got := doubted.Take(2*ms, terms, 1); got != lease.Ask {
			t.Errorf("empty for %v, changed since: %v, want the authority asked", wait, got)
		}
	}
}

func TestAccountReturn(t *testing.T) {
	a := lease.NewAccount(0)
	a.Take(0, terms, 5)
	q, _ := a.Question(0, terms)
	a.Answer(1*ms, terms, lease.Answer{Seq: q.Seq, Tokens: 5}, 0)
	until := a.Until(2 * ms)
	if a.Take(2*ms, terms, 5) != lease.Admit {
		t.Fatal("Take = no, want 5 tokens")
	}
	a.Return(2*ms, 5, until)
	if a.Retake(99*ms, 5) != lease.Admit {
		t.Error("tokens that were returned are gone")
	}
	a.Return(100*ms, 5, until)
	if a.Retake(100*ms, 1) == lease.Admit {
		t.Error("tokens that were returned too late are used")
	}
}

// FuzzAccount does anything in any order. What is admitted is never more than what was granted and
// is not yet old, token by token: the twin keeps every batch on its own.
func FuzzAccount(f *testing.F) {
	f.Add([]byte{0x01, 0x40, 0x85, 0xc1, 0x10})
	f.Add([]byte{1, 0x81, 0xff, 2, 3, 4, 0x41, 0x91, 0x41, 0x41, 0xc3, 9, 8, 7})
	f.Fuzz(func(t *testing.T, steps []byte) {
		a := lease.NewAccount(0)
		type batch struct{ tokens, until int64 }
		var good []batch
		var now, sent int64
		var asked, sentFor lease.Question
		spend := func(tokens int64) {
			for i := range good {
				used := min(tokens, good[i].tokens)
				if good[i].until > now {
					good[i].tokens -= used
					tokens -= used
				}
			}
			if tokens > 0 {
				t.Fatalf("at %d: %d tokens are admitted that nobody granted, or that were old", now, tokens)
			}
		}
		for _, step := range steps {
			n := int64(step & 0x3f)
			switch step >> 6 {
			case 0:
				if a.Take(now, terms, 1+n%20) == lease.Admit {
					spend(1 + n%20)
				}
			case 1:
				now += n * n * ms / 20
				if q, ok := a.Question(now, terms); ok {
					if q.Seq != sentFor.Seq {
						sent = now
					}
					if q.Want < 1 || q.Need > q.Want || q.Need < 0 {
						t.Fatalf("Question = %+v, want at least 1 and what is needed", q)
					}
					asked, sentFor = q, q
				}
			case 2:
				got := lease.Answer{
					Seq:    asked.Seq,
					Tokens: min(n, asked.Want),
					Left:   n % 3,
					Wait:   time.Duration(n) * time.Millisecond,
				}
				if got.Tokens < asked.Need {
					got.Tokens = 0
				}
				if a.Answer(now, terms, got, 0) {
					good = append(good, batch{got.Tokens, sent + int64(terms.TTL)})
				}
			case 3:
				if n%2 == 0 {
					a.Failed(asked.Seq)
				} else if a.Retake(now, 1+n%5) == lease.Admit {
					spend(1 + n%5)
				}
			}
		}
	})
}
