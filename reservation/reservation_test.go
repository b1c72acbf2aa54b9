package reservation_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/inspect"
	"github.com/headgate-io/headgate/internal/trial"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/reservation"
)

func TestSettle(t *testing.T) {
	for name, c := range map[string]struct {
		estimate, actual int64
		after            time.Duration
		left             int64 // after the settlement
		uncharged        int64
	}{
		"as estimated":                         {estimate: 400, actual: 400, left: 600},
		"less, at once":                        {estimate: 400, actual: 150, left: 850},
		"nothing, at once":                     {estimate: 400, actual: 0, left: 1000},
		"less, while as much is left":          {estimate: 400, actual: 150, after: time.Second, left: 950},
		"less, when time gave most of it back": {estimate: 400, actual: 150, after: 3 * time.Second, left: 1000},
		"less, when time gave all of it back":  {estimate: 400, actual: 150, after: 5 * time.Second, left: 1000},
		"more":                                 {estimate: 400, actual: 700, left: 300},
		"more, later":                          {estimate: 400, actual: 700, after: time.Second, left: 400},
		"more than the bucket holds":           {estimate: 400, actual: 1500, left: 0},
		"more than the bucket may owe":         {estimate: 400, actual: 2500, left: 0, uncharged: 500},
		"more than anybody has": {estimate: 400, actual: math.MaxInt64, left: 0,
			uncharged: math.MaxInt64 - 2000},
		"an estimate of nothing is one of a token": {estimate: 0, actual: 1, left: 999},
	} {
		t.Run(name, func(t *testing.T) {
			b := trial.New(t, []string{"GET /a"}, trial.Tokens)
			made := b.MustReserve(t, c.estimate)
			if want := max(1, c.estimate); made.Cost != want || !made.Expires.Equal(trial.Epoch.Add(time.Minute)) {
				t.Errorf("Reserve = %+v, want a cost of %d until a minute from now", made, want)
			}
			b.Now = b.Now.Add(c.after)
			want := reservation.Settlement{Reserved: max(1, c.estimate), Actual: c.actual, Uncharged: c.uncharged}
			if got := b.MustSettle(t, made.ID, c.actual); got != want {
				t.Errorf("Settle(%d) = %+v, want %+v", c.actual, got, want)
			}
			if got := b.TokensLeft(); got != c.left {
				t.Errorf("%d tokens are left, want %d", got, c.left)
			}
			want.Status, want.Uncharged = reservation.AlreadySettled, c.uncharged
			if again := b.MustSettle(t, made.ID, 1); again != want {
				t.Errorf("second Settle = %+v, want %+v", again, want)
			}
			if got := b.TokensLeft(); got != c.left {
				t.Errorf("%d tokens are left after the second Settle, want %d", got, c.left)
			}
		})
	}
}

// What was spent beyond the burst is paid by those who come later, and the wait
// they are told is exact.
func TestSettledDebtDelaysWhoComesLater(t *testing.T) {
	b := trial.New(t, []string{"GET /a"}, trial.Tokens)
	made := b.MustReserve(t, 1000)
	b.MustSettle(t, made.ID, 1600)
	d := b.Get("/a")
	if d.Allowed || d.Reason != headgate.OverLimit || d.RetryAfter != 6010*time.Millisecond {
		t.Fatalf("Check = %v, %v, wait %v, want over_limit for 6.01s", d.Allowed, d.Reason, d.RetryAfter)
	}
	b.Now = b.Now.Add(d.RetryAfter - 1)
	if b.Get("/a").Allowed {
		t.Error("allowed a nanosecond before the wait")
	}
	b.Now = b.Now.Add(1)
	if !b.Get("/a").Allowed {
		t.Error("denied after the wait")
	}
}

// A refund never grants: after 3 of 4 seconds the estimate has drained but for a
// quarter, others have taken what came back, and no more is given.
func TestRefundNeverGrants(t *testing.T) {
	b := trial.New(t, []string{"GET /a"}, trial.Tokens)
	made := b.MustReserve(t, 400)
	b.MustReserve(t, 600)
	b.Now = b.Now.Add(3 * time.Second)
	b.MustReserve(t, 300) // empty again
	b.MustSettle(t, made.ID, 0)
	if got := b.TokensLeft(); got != 100 {
		t.Errorf("%d tokens are left, want 100: time gave back 300 of the 400", got)
	}
}

func TestReservationsEndAtTheirTimeout(t *testing.T) {
	b := trial.New(t, []string{"GET /a"}, trial.Tokens)
	kept, d := b.TryReserve(500, time.Second)
	if !d.Allowed {
		t.Fatal(d.Reason)
	}
	b.Now = b.Now.Add(time.Second - 1)
	if s := b.Reservations(); s.Outstanding != 1 || s.Expired != 0 {
		t.Errorf("a nanosecond before the timeout: %+v", s)
	}
	b.Now = b.Now.Add(1)
	if got := b.MustSettle(t, kept.ID, 0); got.Status != reservation.Expired || got.Reserved != 500 {
		t.Errorf("Settle at the timeout = %+v, want reservation_expired", got)
	}
	if got := b.TokensLeft(); got != 600 {
		t.Errorf("%d tokens are left, want 600: the estimate stays charged", got)
	}
	if s := b.Reservations(); s.Outstanding != 0 || s.Expired != 1 || s.Made != 1 {
		t.Errorf("after the timeout: %+v", s)
	}
	if got := b.MustSettle(t, kept.ID, 0); got.Status != reservation.None {
		t.Errorf("Settle of one that was forgotten = %+v, want no_reservation", got)
	}
	for timeout, want := range map[time.Duration]time.Duration{
		0: reservation.DefaultTimeout, -1: reservation.DefaultTimeout,
		5 * time.Hour: 5 * time.Hour, math.MaxInt64: reservation.MaxTimeout,
	} {
		if made, _ := b.TryReserve(1, timeout); !made.Expires.Equal(b.Now.Add(want)) {
			t.Errorf("timeout %v ends at %v, want after %v", timeout, made.Expires, want)
		}
	}
}

func TestReservationsAreBounded(t *testing.T) {
	b := trial.New(t, []string{"GET /a"}, trial.Tokens, func(o *headgate.Options) { o.MaxReservations = 3 })
	first := b.MustReserve(t, 10)
	second := b.MustReserve(t, 10)
	if _, d := b.TryReserve(5000, time.Minute); d.Allowed || d.Reason != headgate.CostAboveBurst {
		t.Errorf("Reserve above the burst = %v, want cost_above_burst", d.Reason)
	}
	b.MustReserve(t, 10)
	made, d := b.TryReserve(10, time.Minute)
	if d.Allowed || d.Reason != headgate.ReservationsFull || made.ID != (reservation.ID{}) || d.RetryAfter != 0 {
		t.Fatalf("Reserve in a full table = %+v, %v, want reservations_full", made, d.Reason)
	}
	if got := b.TokensLeft(); got != 970 {
		t.Errorf("%d tokens are left, want 970: the refused one took nothing", got)
	}
	// Settling makes room, and what was settled is remembered while nobody
	// needs the room.
	b.MustSettle(t, first.ID, 10)
	if got := b.MustSettle(t, first.ID, 10); got.Status != reservation.AlreadySettled {
		t.Errorf("second Settle = %+v", got)
	}
	b.MustReserve(t, 10)
	if got := b.MustSettle(t, first.ID, 10); got.Status != reservation.None {
		t.Errorf("Settle of one that had to go = %+v, want no_reservation", got)
	}
	b.MustSettle(t, second.ID, 0)
	if s := b.Reservations(); s.Outstanding != 2 || s.Remembered != 1 || s.Capacity != 3 || s.Made != 4 ||
		s.Settled != 2 || s.Refused != 1 {
		t.Errorf("Reservations = %+v", s)
	}
	// Time makes room too.
	b.Now = b.Now.Add(time.Minute)
	for range 3 {
		b.MustReserve(t, 10)
	}
	if s := b.Reservations(); s.Outstanding != 3 || s.Remembered != 0 || s.Expired != 2 {
		t.Errorf("Reservations = %+v", s)
	}
}

func TestWhatReserveDoesNotHold(t *testing.T) {
	b := trial.New(t, []string{"GET /a", "GET /free"}, []policy.Rule{{Endpoint: "GET /a", Limit: 1, Burst: 5}})
	b.MustReserve(t, 5)
	for name, c := range map[string]struct {
		target  string
		cost    int64
		allowed bool
		reason  headgate.Reason
	}{
		"over the limit":   {"/a", 1, false, headgate.OverLimit},
		"above the burst":  {"/a", 6, false, headgate.CostAboveBurst},
		"below zero":       {"/a", -1, false, headgate.InvalidCost},
		"no such endpoint": {"/b", 1, false, headgate.UnknownEndpoint},
		"no rule":          {"/free", 1, true, headgate.NoRule},
	} {
		made, d := b.Reserve(context.Background(), headgate.Request{Method: "GET", Target: c.target, Peer: trial.Client,
			Cost: c.cost}, 0)
		if d.Allowed != c.allowed || d.Reason != c.reason || made != (headgate.Reservation{}) {
			t.Errorf("%s: Reserve = %+v, %v, %v, want nothing, %v, %v", name, made, d.Allowed, d.Reason,
				c.allowed, c.reason)
		}
	}
	if got := b.MustSettle(t, reservation.ID{}, 7); got.Status != reservation.NothingReserved {
		t.Errorf("Settle of nothing = %+v", got)
	}
	if got := b.MustSettle(t, reservation.ID{1}, 7); got.Status != reservation.None {
		t.Errorf("Settle of an unknown one = %+v", got)
	}
	if _, err := b.Settle(context.Background(), reservation.ID{1}, -7); err == nil ||
		err.Error() != "actual is -7, want 0 or more" {
		t.Errorf("Settle of a negative cost = %v", err)
	}
	if s := b.Reservations(); s.Outstanding != 1 || s.Made != 1 {
		t.Errorf("Reservations = %+v, want the first alone", s)
	}
}

// All buckets are corrected, those of shadow rules too if they were charged.
func TestSettleCorrectsEveryBucket(t *testing.T) {
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{
		{Endpoint: "GET /a", Limit: 1, Burst: 100},
		{Endpoint: policy.All, Limit: 1, Burst: 50, Subject: policy.SubjectIP},
		{Endpoint: "GET /a", Limit: 1, Burst: 80, Subject: policy.SubjectEndpoint, Mode: policy.Shadow},
		{Endpoint: policy.All, Limit: 1, Burst: 20, Subject: policy.SubjectRegion, Mode: policy.Shadow},
	})
	remaining := func() (left []int64) {
		x := b.Explain(context.Background(), headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client})
		for _, account := range x.Buckets {
			left = append(left, account.Remaining+x.Cost)
		}
		slices.Sort(left)
		return left
	}
	made := b.MustReserve(t, 30)
	if got, want := remaining(), []int64{20, 20, 50, 70}; !slices.Equal(got, want) {
		t.Fatalf("after Reserve %v remain, want %v: one shadow had no room and was not charged", got, want)
	}
	b.MustSettle(t, made.ID, 10)
	if got, want := remaining(), []int64{20, 40, 70, 90}; !slices.Equal(got, want) {
		t.Errorf("after Settle %v remain, want %v", got, want)
	}
}

func TestSettleAcrossAChangeOfRules(t *testing.T) {
	of := func(limit, burst int64) policy.Rule {
		return policy.Rule{Endpoint: "GET /a", Limit: limit, Burst: burst}
	}
	for name, c := range map[string]struct {
		after   policy.Rule
		between int64 // taken after the change, before Settle
		actual  int64
		left    int64
	}{
		"a larger burst, less":            {after: of(100, 2000), actual: 100, left: 1900},
		"a larger burst, more":            {after: of(100, 2000), actual: 900, left: 1100},
		"a larger burst, after a request": {after: of(100, 2000), between: 50, actual: 100, left: 1850},
		"another unit":                    {after: of(77, 1000), actual: 100, left: 899}, // rounded to the safe side
		"another unit, more":              {after: of(77, 1000), actual: 900, left: 100},
		// gives back 400−300, less a unit
		"a smaller burst keeps difference": {after: of(100, 700), between: 50, actual: 100, left: 249},
		"a smaller burst that forgave all": {after: of(100, 300), actual: 100, left: 0},
		"a rule that applies no more, less": {after: policy.Rule{Endpoint: policy.Default, Limit: 10, Burst: 10},
			actual: 100, left: 10},
		"a rule that applies no more, more": {after: policy.Rule{Endpoint: policy.Default, Limit: 10, Burst: 10},
			actual: 900, left: 10},
	} {
		t.Run(name, func(t *testing.T) {
			rules := &trial.Switching{}
			b := trial.New(t, []string{"GET /a"}, trial.Tokens, func(o *headgate.Options) { o.Policies = rules })
			rules.Become(t, b, trial.Tokens...)
			made := b.MustReserve(t, 500)
			rules.Become(t, b, c.after)
			if c.between > 0 {
				b.Check(context.Background(), headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client,
					Cost: c.between})
			}
			if got := b.MustSettle(t, made.ID, c.actual); got.Status != reservation.Settled {
				t.Errorf("Settle = %+v", got)
			}
			if got := b.TokensLeft(); got != c.left {
				t.Errorf("%d tokens are left, want %d", got, c.left)
			}
		})
	}
}

// stubborn is a store that fails to correct as often as it is told to.
type stubborn struct {
	buckettest.Twin
	fail int
}

func (s *stubborn) Correct(ctx context.Context, now int64, changes []bucket.Change, moved []int64) error {
	if s.fail > 0 {
		s.fail--
		return trial.ErrGone
	}
	return s.Twin.Correct(ctx, now, changes, moved)
}

func TestAFailedSettlementMayBeRepeated(t *testing.T) {
	store := &stubborn{fail: 2}
	b := trial.New(t, []string{"GET /a"}, trial.Tokens, func(o *headgate.Options) { o.Buckets = store })
	made := b.MustReserve(t, 500)
	for range 2 {
		if _, err := b.Settle(context.Background(), made.ID, 100); !errors.Is(err, trial.ErrGone) {
			t.Fatalf("Settle = %v, want %v", err, trial.ErrGone)
		}
	}
	if got := b.MustSettle(t, made.ID, 100); got.Status != reservation.Settled || b.TokensLeft() != 900 {
		t.Errorf("Settle = %+v and %d are left, want settled and 900", got, b.TokensLeft())
	}
}

// deaf is a shared store that corrects, and whose answers get lost.
type deaf struct {
	buckettest.Twin
	lost  int // how many of the next answers
	after int // how many come before
}

func (s *deaf) Correct(ctx context.Context, now int64, changes []bucket.Change, moved []int64) error {
	err := s.Twin.Correct(ctx, now, changes, moved)
	if s.after--; err == nil && s.after < 0 && s.lost > 0 {
		s.lost--
		clear(moved)
		return trial.ErrGone
	}
	return err
}

// What a settlement gives back in a shared store it gives back once, however often it is repeated
// because an answer got lost.
func TestAFailedSettlementGivesNothingBackTwice(t *testing.T) {
	names, err := key.NewNamer([]byte("0123456789abcdef0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		after, lost int
		actual      int64
		left        int64
	}{
		"the answers about both buckets":       {after: 0, lost: 2, actual: 400, left: 600},
		"that about the first":                 {after: 0, lost: 1, actual: 400, left: 600},
		"that about the second":                {after: 1, lost: 1, actual: 400, left: 600},
		"that about more, which counts double": {after: 0, lost: 1, actual: 600, left: 300},
	} {
		t.Run(name, func(t *testing.T) {
			store := &deaf{after: c.after, lost: c.lost}
			rules := []policy.Rule{
				{Endpoint: "GET /a", Limit: 100, Burst: 1000, Scope: policy.Strict},
				{Endpoint: "*", Limit: 100, Burst: 10_000, Scope: policy.Strict},
			}
			b := trial.New(t, []string{"GET /a"}, rules,
				func(o *headgate.Options) { o.Buckets, o.Names = store, names })
			made := b.MustReserve(t, 500)
			if _, err := b.Settle(context.Background(), made.ID, c.actual); !errors.Is(err, trial.ErrGone) {
				t.Fatalf("Settle = %v, want %v", err, trial.ErrGone)
			}
			if got := b.MustSettle(t, made.ID, c.actual); got.Status != reservation.Settled ||
				b.TokensLeft() != c.left {
				t.Errorf("Settle = %+v and %d are left, want settled and %d", got, b.TokensLeft(), c.left)
			}
		})
	}
}

func TestReservationIDs(t *testing.T) {
	b := trial.New(t, []string{"GET /a"}, trial.Tokens)
	one, two := b.MustReserve(t, 1), b.MustReserve(t, 1)
	if one.ID == two.ID {
		t.Errorf("two reservations have the ID %v", one.ID)
	}
	text, err := json.Marshal(one.ID)
	if err != nil || len(text) != 34 {
		t.Fatalf("Marshal = %s, %v, want 32 digits", text, err)
	}
	var back reservation.ID
	if err := json.Unmarshal(text, &back); err != nil || back != one.ID {
		t.Errorf("Unmarshal(%s) = %v, %v", text, back, err)
	}
	for _, wrong := range []string{"", "00", one.ID.String() + "00", strings.Repeat("z", 32), one.ID.String()[:31]} {
		if err := back.UnmarshalText([]byte(wrong)); err == nil || wrong != "" && strings.Contains(err.Error(), wrong) {
			t.Errorf("UnmarshalText(%q) = %v, want a refusal that does not repeat it", wrong, err)
		}
	}
}

func TestRequestCost(t *testing.T) {
	b := trial.New(t, []string{"GET /a", "GET /quota"}, []policy.Rule{{Endpoint: policy.All, Limit: 1, Burst: 10}},
		func(o *headgate.Options) {
			quota, _ := endpoint.ParseTemplate("GET /quota")
			id, _ := o.Endpoints.Lookup(quota)
			o.Costs = map[endpoint.ID]int64{id: 0}
		})
	for i, step := range []struct {
		target  string
		cost    int64
		allowed bool
		reason  headgate.Reason
		left    int64
	}{
		{"/quota", 0, true, headgate.WithinLimits, 10},
		{"/a", 7, true, headgate.WithinLimits, 3},
		{"/a", 4, false, headgate.OverLimit, 3},
		{"/a", 11, false, headgate.CostAboveBurst, 3},
		{"/a", math.MaxInt64, false, headgate.CostAboveBurst, 3},
		{"/a", 0, true, headgate.WithinLimits, 2},
		{"/a", 2, true, headgate.WithinLimits, 0},
		{"/quota", 0, true, headgate.WithinLimits, 0},
		{"/quota", 1, false, headgate.OverLimit, 0},
		{"/a", -1, false, headgate.InvalidCost, 0},
		{"/a", math.MinInt64, false, headgate.InvalidCost, 0},
	} {
		d := b.Check(context.Background(), headgate.Request{Method: "GET", Target: step.target, Peer: trial.Client,
			Cost: step.cost})
		if d.Allowed != step.allowed || d.Reason != step.reason || d.Reason != headgate.OverLimit && d.RetryAfter != 0 {
			t.Errorf("step %d: %s at %d = %v, %v, wait %v, want %v, %v", i, step.target, step.cost, d.Allowed, d.Reason,
				d.RetryAfter, step.allowed, step.reason)
		}
		if v, ok := d.Binding(); ok && v.Outcome.Remaining != step.left {
			t.Errorf("step %d: %d are left, want %d", i, v.Outcome.Remaining, step.left)
		}
	}
}

func BenchmarkReserveAndSettle(b *testing.B) {
	lim := trial.New(b, []string{"GET /a"}, []policy.Rule{{Endpoint: "GET /a", Limit: 1 << 40}})
	ctx := context.Background()
	r := headgate.Request{Method: "GET", Target: "/a", Peer: trial.Client, Cost: 100}
	b.ReportAllocs()
	for b.Loop() {
		made, _ := lim.Reserve(ctx, r, time.Minute)
		if _, err := lim.Settle(ctx, made.ID, 40); err != nil {
			b.Fatal(err)
		}
	}
}

// A rule that counts in windows settles where it counted the estimate, and gives
// nothing back once that counts no longer, or counts under another limit.
func TestSettleInWindows(t *testing.T) {
	for _, a := range []policy.Algorithm{policy.FixedWindow, policy.SlidingWindow, policy.SlidingLog} {
		t.Run(a.String(), func(t *testing.T) {
			rules := []policy.Rule{{Endpoint: "GET /a", Limit: 1000, Per: 100 * time.Second, Algorithm: a}}
			b := trial.New(t, []string{"GET /a"}, rules)
			left := func(what string, want int64) {
				t.Helper()
				if got := b.TokensLeft(); got != want {
					t.Errorf("%s: %d tokens are left, want %d", what, got, want)
				}
			}
			first, second, third := b.MustReserve(t, 400), b.MustReserve(t, 300), b.MustReserve(t, 100)
			b.MustSettle(t, first.ID, 150)
			left("less", 450)
			b.MustSettle(t, first.ID, 0)
			left("once", 450)
			if s := b.MustSettle(t, second.ID, 500); s.Uncharged != 0 {
				t.Errorf("more: %+v", s)
			}
			left("more", 250)
			if s := b.MustSettle(t, third.ID, 1000); s.Uncharged != 650 {
				t.Errorf("Settle above the limit = %+v, want 650 uncharged: the window counts no more than its limit",
					s)
			}
			left("more than there is", 0)
			if state, given, err := b.Grant(context.Background(), trial.Mine, 300, time.Time{}, nil); err != nil ||
				given != 300 || state.Remaining != 300 {
				t.Errorf("Grant = %d, %+v, %v, want 300", given, state, err)
			}
			var wrong *inspect.QueryError
			asked := false
			_, _, err := b.Grant(context.Background(), trial.Mine, 300, b.Now.Add(time.Hour),
				func(inspect.Bucket) error {
					asked = true
					return nil
				})
			if !errors.As(err, &wrong) || !strings.Contains(wrong.Error(), `rule "GET /a" counts in windows`) || asked {
				t.Errorf("Grant for a time = %v, approval asked: %t, want it refused at once", err, asked)
			}
			if state, err := b.Reset(context.Background(), trial.Mine, nil); err != nil || state.Remaining != 1000 ||
				state.ResetAfter != 0 {
				t.Errorf("Reset = %+v, %v, want it full", state, err)
			}
			late, _ := b.TryReserve(600, time.Hour)
			b.Now = b.Now.Add(250 * time.Second)
			b.MustReserve(t, 700)
			b.MustSettle(t, late.ID, 0)
			left("when the estimate counts no longer", 300)
		})
	}
}

// Under leaky_bucket a reservation is a place in the queue.
func TestReserveInAQueue(t *testing.T) {
	b := trial.New(t, []string{"GET /a"}, []policy.Rule{{Endpoint: "GET /a", Limit: 10, Burst: 100,
		Algorithm: policy.LeakyBucket}})
	first := b.MustReserve(t, 50)
	made, d := b.TryReserve(20, time.Second)
	if !d.Allowed || d.Wait != 5*time.Second || !made.Expires.Equal(b.Now.Add(6*time.Second)) {
		t.Errorf("Reserve = %+v, wait %v, want one that waits 5s and expires a second later", made, d.Wait)
	}
	b.MustSettle(t, first.ID, 10)
	if _, d = b.TryReserve(1, time.Second); d.Wait != 3*time.Second {
		t.Errorf("the next waits %v, want 3s: 40 of 70 were given back", d.Wait)
	}
}
