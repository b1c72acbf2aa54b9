package report_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
	"github.com/headgate-io/headgate/bucket/report"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// authority keeps ledgers, takes a millisecond, and fails when it is told to.
type authority struct {
	mu       sync.Mutex
	ledgers  map[key.Key]*report.Ledger
	messages []int // how many reports each had
	limits   []rate.Past
	fail     bool
	lose     bool // charges, and its answer gets lost
}

var errLost = errors.New("lost")

func (a *authority) ReportAll(_ context.Context, replica uint64, told []report.Told) {
	time.Sleep(time.Millisecond)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.messages = append(a.messages, len(told))
	for i := range told {
		one := &told[i]
		a.limits = append(a.limits, rate.Past{Shape: one.Of.Shape, Since: one.Of.Since, Before: one.Of.Before})
		if a.fail {
			one.Err = errLost
			continue
		}
		one.Answer = a.ledger(one.Of.Key).Charge(time.Now().UnixNano(), one.Of.Shape, replica, one.Report)
		if a.lose {
			one.Err = errLost
		}
	}
}

func (a *authority) ledger(k key.Key) *report.Ledger {
	if a.ledgers == nil {
		a.ledgers = map[key.Key]*report.Ledger{}
	}
	if a.ledgers[k] == nil {
		a.ledgers[k] = new(report.Ledger)
	}
	return a.ledgers[k]
}

func (a *authority) owed(k key.Key, sh rate.Shape) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ledger(k).State.Owed(&sh, time.Now().UnixNano())
}

func (a *authority) set(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

func open(t testing.TB, o report.Options) *report.Store {
	t.Helper()
	s, err := report.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func of(n uint64, sh rate.Shape, cost int64) bucket.Take {
	return bucket.Take{Key: buckettest.Key(n), Shape: sh, Cost: cost}
}

// try takes a token from a bucket that two share.
func try(s *report.Store, take bucket.Take) report.Verdict {
	return s.Take(s.Now(), &take, 2, new(bucket.Outcome))
}

func TestNewNamesEveryFault(t *testing.T) {
	_, err := report.New(report.Options{Interval: time.Microsecond, Deadline: time.Hour, Gather: time.Second,
		MaxAccounts: 1})
	want := "report options: Authority is nil, want one\nInterval is 1µs, want 1ms to 10s\nDeadline is 1h0m0s, " +
		"want more than 0 and at most 1m\n" +
		"Gather is 1s, want 0 or more and at most Interval, which is 1µs\nMaxAccounts is 1, want 64 or more"
	if err == nil || err.Error() != want {
		t.Errorf("New: %v, want %s", err, want)
	}
}

// What is admitted is told after an interval, many buckets at once; or at once when half of the headroom is used up.
func TestReportsGoTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := new(authority)
		s := open(t, report.Options{Authority: a})
		sh := shape(t, 1000, 1000) // a headroom of 100
		for n := range 200 {
			if v := try(s, of(uint64(n), sh, 1)); v != report.Admit {
				t.Fatalf("bucket %d: %v, want it admitted", n, v)
			}
		}
		time.Sleep(50 * time.Millisecond)
		if st := s.Status(); st.Messages != 0 || st.Pending != 200 || st.Accounts != 200 {
			t.Errorf("in half of the interval: %+v, want nothing sent", st)
		}
		for range 49 { // what is told at the last of them is all
			try(s, of(7, sh, 1))
		}
		time.Sleep(2 * time.Millisecond)
		if st := s.Status(); st.Messages != 1 || st.Reports != 1 || st.Charged != 50 {
			t.Errorf("after half of a headroom: %+v, want that told", st)
		}
		time.Sleep(time.Second)
		if st := s.Status(); st.Pending != 0 || st.Charged != 249 || st.Messages != 3 || st.Reports != 200 {
			t.Errorf("after the interval: %+v, want all told by two messages more", st)
		}
	})
}

// A report that was lost is sent again, and charged once; what was not answered is not above the headroom.
func TestLostReportsAreSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &authority{lose: true}
		s := open(t, report.Options{Authority: a})
		sh := shape(t, 10, 1000)
		ended := 0
		s.OnAnswer(func(*bucket.Take, error) { ended++ })
		take := of(1, sh, 1)
		if v := try(s, take); v != report.Admit {
			t.Fatalf("the first: %v", v)
		}
		if v := try(s, take); v != report.Ask {
			t.Fatalf("beyond a headroom of one: %v, want the store asked", v)
		}
		time.Sleep(time.Second)
		if v := try(s, take); v != report.Ask {
			t.Errorf("without an answer: %v, want the store asked", v)
		}
		a.set(func() { a.lose, a.fail = false, true })
		time.Sleep(time.Second)
		a.set(func() { a.fail = false })
		time.Sleep(200 * time.Millisecond)
		if st := s.Status(); st.Pending != 0 || st.Charged != 1 || st.Failed < 10 || uint64(ended) != st.Messages {
			t.Errorf("%+v and %d messages heard of, want one token charged after many that failed", st, ended)
		}
		if v := try(s, take); v != report.Admit {
			t.Errorf("after an answer: %v, want it admitted", v)
		}
		s.Flush(t.Context())
		time.Sleep(time.Second)
		if got := a.owed(take.Key, sh); got > 1 {
			t.Errorf("%d owed of two, a second after the last", got)
		}
	})
}

// A process that ends tells all that it has admitted, also what came while a report was under way,
// and what has to be told again.
func TestFlushTellsAll(t *testing.T) {
	for name, lost := range map[string]bool{"behind a report under way": false, "after one that got lost": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &authority{fail: lost}
				s := open(t, report.Options{Authority: a})
				take := of(1, shape(t, 100, 100), 1)
				try(s, take)
				time.Sleep(100*time.Millisecond + 500*time.Microsecond)
				if v := try(s, take); v != report.Admit {
					t.Fatalf("while a report is under way: %v, want it admitted", v)
				}
				time.AfterFunc(10*time.Millisecond, func() { a.set(func() { a.fail = false }) })
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // before the next Interval is over
				defer cancel()
				s.Flush(ctx)
				if st := s.Status(); st.Pending != 0 || st.Charged != 2 || ctx.Err() != nil {
					t.Errorf("%+v, %v, want both tokens charged in time", st, ctx.Err())
				}
				time.Sleep(time.Second) // for what waits for its Interval
			})
		})
	}
}

// Who admits nothing hears once a second of tokens that were given back elsewhere.
func TestDenialsLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := new(authority)
		s := open(t, report.Options{Authority: a})
		sh := shape(t, 1, 100)
		take := of(1, sh, 1)
		a.ledger(take.Key).Charge(time.Now().UnixNano(), sh, 99, report.Report{Seq: 1, Tokens: 150})
		try(s, take)
		time.Sleep(300 * time.Millisecond)
		for range 50 {
			if v := try(s, take); v != report.Deny {
				t.Fatalf("of a bucket that owes 150 of 100: %v", v)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if st := s.Status(); st.Messages < 4 || st.Messages > 6 {
			t.Errorf("%d messages in five seconds, want one a second", st.Messages)
		}
		a.set(func() { a.ledgers = nil })
		s.Refresh(&take)
		time.Sleep(10 * time.Millisecond)
		if v := try(s, take); v != report.Admit {
			t.Errorf("of a bucket that was filled: %v", v)
		}
		time.Sleep(time.Second)
	})
}

// A table that is full of what must not be forgotten leaves others to the store.
func TestFullTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &authority{fail: true}
		s := open(t, report.Options{Authority: a, MaxAccounts: 64})
		sh := shape(t, 10, 1000)
		admitted := 0
		for n := range 4000 {
			if try(s, of(uint64(n), sh, 1)) == report.Admit {
				admitted++
			}
		}
		if st := s.Status(); admitted > 64 || st.Accounts > 64 || st.Pending != int64(admitted) {
			t.Errorf("%d admitted, %+v, want 64 at most", admitted, st)
		}
		a.set(func() { a.fail = false })
		time.Sleep(time.Second)
		if v := try(s, of(5000, sh, 1)); v != report.Admit {
			t.Errorf("when all is told: %v, want it admitted in place of another", v)
		}
		if st := s.Status(); st.Accounts > 64 {
			t.Errorf("%+v, want 64 accounts at most", st)
		}
		time.Sleep(time.Second)
	})
}

// A report that waits while its limit changes tells of the new limit, and of the one before it: who
// is told finds the bucket as the old one left it.
func TestReportsTellOfTheLimitBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := new(authority)
		s := open(t, report.Options{Authority: a})
		old, since := shape(t, 1000, 1000), time.Now().UnixNano()
		try(s, of(1, old, 1))
		changed := of(1, shape(t, 2000, 1000), 1)
		changed.Since, changed.Before = since, &rate.Past{Shape: old}
		try(s, changed)
		time.Sleep(time.Second)
		var told []rate.Past
		a.set(func() { told = a.limits })
		if len(told) != 1 {
			t.Fatalf("%d reports, want one", len(told))
		}
		if got := told[0]; got.Shape != changed.Shape || got.Since != since || got.Before != changed.Before {
			t.Errorf("told of %+v, want %+v", got, rate.Past{Shape: changed.Shape, Since: since,
				Before: changed.Before})
		}
	})
}

// What another rule denied comes back, unless it was told already.
func TestReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := new(authority)
		s := open(t, report.Options{Authority: a})
		sh := shape(t, 1000, 1000)
		take, now := of(1, sh, 5), s.Now()
		try(s, take)
		s.Return(&take, now)
		if got := s.Pending(&take); got != 0 {
			t.Errorf("%d pending, want none", got)
		}
		now = s.Now()
		try(s, take)
		time.Sleep(time.Second)
		s.Return(&take, now)
		if st := s.Status(); st.Returned != 5 || st.Charged != 5 {
			t.Errorf("%+v, want 5 returned, and 5 charged", st)
		}
	})
}
