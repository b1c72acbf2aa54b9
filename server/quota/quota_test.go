package quota_test

import (
	stdcontext "context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/server/descriptor"
	"github.com/headgate-io/headgate/server/quota"
	"github.com/headgate-io/headgate/simulate"
)

const limits = `
domain: d
descriptors:
- {key: a, rate_limit: {unit: second, requests_per_unit: 10}}
- {key: slow, rate_limit: {unit: hour, requests_per_unit: 36}}
- {key: free, rate_limit: {unlimited: true}}
- {key: none, rate_limit: {unit: day, requests_per_unit: 0}}
- {key: tried, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
- key: b
  value: x
  descriptors:
  - {key: a, rate_limit: {unit: hour, requests_per_unit: 4}}
`

// at is a service at a time, and what it answers.
type at struct {
	*service
	t        *testing.T
	borrower *quota.Borrower
	numbers  map[uint32]string // #1, #2 …, in the order in which they came
}

func begin(t *testing.T, change ...func(*quota.Options)) *at {
	t.Helper()
	a := &at{service: newService(t, simulate.New(1), limits, change...), t: t, numbers: map[uint32]string{}}
	a.borrower = a.open()
	return a
}

func (a *at) open() *quota.Borrower {
	a.t.Helper()
	b, err := a.book.Open("d")
	if err != nil {
		a.t.Fatal(err)
	}
	return b
}

func bucketOf(text string) (entries []descriptor.Entry) {
	for pair := range strings.SplitSeq(text, " ") {
		name, value, _ := strings.Cut(pair, "=")
		entries = append(entries, descriptor.Entry{Key: name, Value: value})
	}
	return entries
}

// report is what a report of a bucket is answered, such as "5 #1" or "deny".
func (a *at) report(b *quota.Borrower, name string, allowed, denied uint64) string {
	got := b.Report(context, quota.Usage{Bucket: bucketOf(name), Allowed: allowed, Denied: denied})
	if got.Kind != quota.Nothing && got.Kind != quota.Abandon && got.TTL != 5*time.Second {
		a.t.Errorf("the TTL is %v, want 5s", got.TTL)
	}
	switch got.Kind {
	case quota.Tokens:
		if a.numbers[got.Number] == "" {
			a.numbers[got.Number] = fmt.Sprintf("#%d", len(a.numbers)+1)
		}
		return fmt.Sprintf("%d %s", got.Tokens, a.numbers[got.Number])
	case quota.AllowAll:
		return "allow"
	case quota.DenyAll:
		return "deny"
	case quota.Abandon:
		return "abandon"
	}
	return "-"
}

// left is what is in the counter of a bucket.
func (a *at) left(name string) int64 {
	a.t.Helper()
	limit, ordered := a.limits.FindAnyOrder("d", bucketOf(name))
	take := bucket.Take{
		Key:   hasher.Key(0, 0, append([]byte("d\x00"), limit.Subject(nil, ordered)...)),
		Shape: limit.Shape,
	}
	outs := make([]bucket.Outcome, 1)
	if _, err := a.store.Peek(context, a.now(), []bucket.Take{take}, outs); err != nil {
		a.t.Fatal(err)
	}
	return outs[0].Remaining
}

func TestAssignments(t *testing.T) {
	type step struct {
		at              time.Duration // in all
		bucket          string
		allowed, denied uint64
		want            string
		left            int64 // in its counter; -1 if it has none
	}
	for name, steps := range map[string][]step{
		"lent, used, and lent anew": {
			{0, "slow=u", 0, 1, "18 #1", 18}, {time.Second, "slow=u", 10, 0, "16 #2", 2},
			{2 * time.Second, "slow=u", 1, 0, "-", 2}, {3 * time.Second, "slow=u", 0, 0, "-", 2},
			{4 * time.Second, "slow=u", 0, 0, "16 #2", 2},
		},
		"prolonged before it ends": {
			{0, "slow=u", 0, 1, "18 #1", 18}, {time.Second, "slow=u", 1, 0, "-", 18},
			{2 * time.Second, "slow=u", 0, 0, "-", 18}, {3 * time.Second, "slow=u", 0, 0, "18 #1", 18},
		},
		"never under its number once it may have ended": {{0, "slow=u", 0, 1, "18 #1", 18},
			{4 * time.Second, "slow=u", 1, 0, "9 #2", 9}},
		"what nobody used comes back": {{0, "slow=u", 0, 1, "18 #1", 18},
			{10 * time.Second, "slow=u", 0, 0, "18 #2", 18}},
		"less what has drained": {{0, "a=u", 0, 1, "5 #1", 5}, {10 * time.Second, "a=u", 0, 0, "5 #2", 5}},
		"admitted without any":  {{0, "slow=u", 3, 0, "16 #1", 17}},
		"more than there is":    {{0, "slow=u", 100, 0, "deny", 0}, {time.Second, "slow=u", 0, 0, "-", 0}},
		"unlimited": {{0, "free=u", 1, 0, "allow", -1}, {time.Second, "free=u", 1, 0, "-", -1},
			{3 * time.Second, "free=u", 1, 0, "allow", -1}},
		"no limit":       {{0, "other=u", 1, 0, "allow", -1}, {0, "a=u b=y", 1, 0, "allow", -1}},
		"nothing at all": {{0, "none=u", 0, 1, "deny", -1}},
		"shadow":         {{0, "tried=u", 1, 0, "allow", 0}},
		"in any order":   {{0, "a=u b=x", 0, 1, "2 #1", 2}},
		"idle": {
			{0, "slow=u", 0, 1, "18 #1", 18}, {quota.Idle - 2*time.Second, "slow=u", 0, 0, "18 #2", 18},
			{quota.Idle, "slow=u", 0, 0, "deny", 18},
			{quota.Idle + time.Second, "slow=u", 0, 0, "-", 18}, {quota.Idle + 5*time.Second, "slow=u", 0, 0, "abandon",
				36}, {quota.Idle + 6*time.Second, "slow=u", 0, 1, "18 #3", 18},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := begin(t)
			for i, step := range steps {
				a.world.Run(step.at)
				got := a.report(a.borrower, step.bucket, step.allowed, step.denied)
				if got != step.want {
					t.Errorf("%d, at %v: %s, want %s", i, step.at, got, step.want)
				}
				if step.left >= 0 {
					if left := a.left(step.bucket); left != step.left {
						t.Errorf("%d, at %v: %d left, want %d", i, step.at, left, step.left)
					}
				}
			}
		})
	}
}

// Where another Book lends of the same buckets, a prolonged token is owed for by both: this one cannot know
// what the other has lent.
func TestOtherReplicas(t *testing.T) {
	for replicas, left := range map[int]int64{1: 18, 2: 19} {
		a := begin(t, func(o *quota.Options) { o.Replicas = func() int { return replicas } })
		for i, step := range []struct {
			at              time.Duration
			allowed, denied uint64
		}{{0, 0, 1}, {time.Second, 1, 0}, {2 * time.Second, 0, 0}, {3 * time.Second, 0, 0}} {
			a.world.Run(step.at)
			if got := a.report(a.borrower, "slow=u", step.allowed, step.denied); (i == 0 ||
				i == 3) != strings.HasSuffix(got, " #1") {
				t.Errorf("of %d, at %v: %s", replicas, step.at, got)
			}
		}
		if got := a.left("slow=u"); got != left {
			t.Errorf("of %d: %d left, want %d", replicas, got, left)
		}
	}
}

// What a borrower uses of what it was lent over a stream that broke is not charged again; and what
// it was lent is out of the bucket for as long as it may be used.
func TestAStreamThatBreaks(t *testing.T) {
	a := begin(t)
	if got := a.report(a.borrower, "slow=u", 0, 1); got != "18 #1" {
		t.Fatal(got)
	}
	a.borrower.Close()
	again := a.open()
	if got := a.report(again, "slow=u", 4, 0); got != "9 #2" {
		t.Error(got)
	}
	if left, late := a.left("slow=u"), a.book.Status().Late; left != 9 || late != 0 {
		t.Errorf("%d left, %d charged late, want 9 and none", left, late)
	}
	again.Close()
	if s := a.book.Status(); s.Borrowers != 0 || s.Buckets != 0 {
		t.Errorf("%+v, want no borrower and no bucket", s)
	}
}

// A limit that became lower acts with the next report, whatever is left of what was lent before.
func TestAChangeOfLimits(t *testing.T) {
	a := begin(t)
	if got := a.report(a.borrower, "slow=u", 0, 1); got != "18 #1" {
		t.Fatal(got)
	}
	before := a.limits
	a.limits = read(t, strings.Replace(limits, "requests_per_unit: 36", "requests_per_unit: 20", 1))
	a.limits.Follow(before, a.now())
	a.world.Run(time.Second)
	if got := a.report(a.borrower, "slow=u", 0, 0); got != "1 #2" {
		t.Errorf("%s, want half of the 2 that 20 have left", got)
	}
	a.limits = read(t, strings.Replace(limits, "{key: slow, rate_limit: {unit: hour, requests_per_unit: 36}}",
		"{key: gone, rate_limit: {unlimited: true}}", 1))
	if got := a.report(a.borrower, "slow=u", 0, 0); got != "allow" {
		t.Errorf("%s, want no limit", got)
	}
}

// While the store is away nothing is lent or prolonged, and what was admitted is charged once it is back.
func TestStoreAway(t *testing.T) {
	a := begin(t)
	store := &fallible{Store: a.store}
	var told []error
	a.store = store
	a.begin(t, func(o *quota.Options) { o.Failed = func(err error) { told = append(told, err) } })
	b := a.open()
	if got := a.report(b, "slow=u", 0, 1); got != "18 #1" {
		t.Fatal(got)
	}
	store.away = true
	a.world.Run(time.Second)
	if got := a.report(b, "slow=u", 20, 0); got != "-" || len(told) == 0 || !errors.Is(told[0], bucket.ErrLost) {
		t.Errorf("%s, told of %v, want no answer, and the error", got, told)
	}
	store.away = false
	a.world.Run(2 * time.Second)
	a.report(b, "slow=u", 0, 0)
	if late := a.book.Status().Late; late != 2 {
		t.Errorf("%d charged late, want the 2 beyond what was lent", late)
	}
}

// Between two reports a bucket is lent what it has used up by then, as it seems, and what it has is
// prolonged; one that is not reported any more gets nothing, and what it has ends.
func TestTurns(t *testing.T) {
	a := begin(t)
	turns := func(after time.Duration) (all string) {
		a.world.Run(after)
		a.borrower.Turns(context, func(entries []descriptor.Entry, got quota.Assignment) {
			all += fmt.Sprintf("%s %d %v, ", entries[0].Key, got.Tokens, got.TTL)
		})
		return all
	}
	if got := a.report(a.borrower, "a=u", 0, 50); got != "10 #1" {
		t.Fatal(got)
	}
	for _, step := range []struct {
		at   time.Duration
		want string
	}{{time.Second, "a 10 5s, "}, {2 * time.Second, "a 10 5s, "}, {11 * time.Second, "a 10 5s, "},
		{12 * time.Second, ""}, {20 * time.Second, ""}} {
		if got := turns(step.at); got != step.want {
			t.Errorf("at %v: %q, want %q", step.at, got, step.want)
		}
	}
	if got := a.report(a.borrower, "slow=u", 0, 1); got != "18 #2" {
		t.Fatal(got)
	}
	for _, step := range []struct {
		at   time.Duration
		want string
	}{{21 * time.Second, ""}, {22 * time.Second, ""}, {23 * time.Second, "slow 18 5s, "}, {24 * time.Second, ""},
		{26 * time.Second, "slow 18 5s, "}} {
		if got := turns(step.at); got != step.want {
			t.Errorf("at %v: %q, want %q", step.at, got, step.want)
		}
	}
	if turns(11 * time.Minute); a.book.Status().Buckets != 0 {
		t.Errorf("%+v, want buckets forgotten that nobody reports", a.book.Status())
	}
}

// What was lent and not used comes back no more than it is missed: what has drained since it was
// taken would be there twice.
func TestWhatHasDrainedStays(t *testing.T) {
	a := begin(t)
	if got := a.report(a.borrower, "a=u", 0, 1); got != "5 #1" {
		t.Fatal(got)
	}
	a.world.Run(7 * time.Second)
	if got := a.report(a.open(), "a=u", 10, 0); got != "deny" { // without any, so that the bucket owes all it can
		t.Fatal(got)
	}
	a.report(a.borrower, "a=u", 0, 0)
	if left, back := a.left("a=u"), a.book.Status().Returned; left != 0 || back != 0 {
		t.Errorf("%d left and %d returned, want none", left, back)
	}
}

// hasty is a store of which others take whenever it was looked at.
type hasty struct {
	bucket.Store
	cost int64
}

func (s hasty) Peek(ctx stdcontext.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	ok, err := s.Store.Peek(ctx, now, takes, outs)
	takes[0].Cost = s.cost
	_, _ = s.TryConsume(ctx, now, takes, make([]bucket.Outcome, 1))
	return ok, err
}

// What another process has taken meanwhile is not lent.
func TestOthersAreQuicker(t *testing.T) {
	a := begin(t)
	plain := a.store
	a.store = hasty{plain, 30}
	a.begin(t)
	if got := a.report(a.open(), "slow=u", 0, 1); got != "6 #1" {
		t.Errorf("%s, want the 6 of 36 that are left", got)
	}
	a.store = plain
	if left := a.left("slow=u"); left != 0 {
		t.Errorf("%d left, want none", left)
	}
}

// Several processes lend of one store, each to several at once: no more than there is.
func TestAtOnce(t *testing.T) {
	a := begin(t)
	var lent atomic.Uint64
	var all sync.WaitGroup
	for range 4 {
		a.begin(t)
		book := a.book
		for range 4 {
			all.Go(func() {
				b, err := book.Open("d")
				if err != nil {
					t.Error(err)
					return
				}
				defer b.Close()
				for range 50 {
					if got := b.Report(context, quota.Usage{Bucket: bucketOf("slow=u"),
						Denied: 3}); got.Kind == quota.Tokens {
						lent.Add(uint64(got.Tokens))
					}
					book.Status()
				}
			})
		}
	}
	all.Wait()
	if n := lent.Load(); n > 36 { // those that were prolonged are none: no time passes
		t.Errorf("%d tokens of 36 were lent", n)
	}
}

// One that holds what it does not need gives it up for one that does.
func TestGivenUp(t *testing.T) {
	a := begin(t)
	first, second := a.borrower, a.open()
	if got := a.report(first, "b=x a=u", 0, 9); got != "4 #1" { // all that there is
		t.Fatal(got)
	}
	a.report(first, "b=x a=u", 0, 0)
	a.report(first, "b=x a=u", 0, 0)
	if got := a.report(second, "b=x a=u", 0, 2); got != "deny" {
		t.Fatal(got)
	}
	a.world.Run(3 * time.Second)
	a.report(second, "b=x a=u", 0, 2)
	if got := a.report(first, "b=x a=u", 0, 0); got != "deny" {
		t.Errorf("the one that does not use it is told %s, want deny", got)
	}
	a.world.Run(6 * time.Second)
	a.report(first, "b=x a=u", 0, 0)
	if got := a.report(second, "b=x a=u", 0, 2); got != "2 #2" {
		t.Errorf("the other one gets %s, want 2", got)
	}
}

func TestBounds(t *testing.T) {
	a := begin(t, func(o *quota.Options) { o.MaxBorrowers, o.MaxBuckets, o.MaxTotal = 2, 3, 4 })
	for i, want := range []string{"5 #1", "5 #2", "5 #3", "deny", "deny"} {
		if got := a.report(a.borrower, fmt.Sprintf("a=%d", i), 0, 1); got != want {
			t.Errorf("bucket %d: %s, want %s", i, got, want)
		}
	}
	if got := a.report(a.borrower, "a=3", 0, 0); got != "abandon" {
		t.Errorf("a bucket beyond the bound that nobody asks for: %s, want abandon", got)
	}
	other := a.open()
	if got := a.report(other, "a=8", 0, 1) + ", " + a.report(other, "a=9", 0, 1); got != "5 #4, deny" {
		t.Errorf("in all: %s", got)
	}
	if _, err := a.book.Open("d"); !errors.Is(err, quota.ErrFull) {
		t.Errorf("a third borrower: %v", err)
	}
	a.world.Run(6 * time.Second) // what has no requests gives way
	if got := a.report(a.borrower, "a=7", 0, 1); got != "5 #5" {
		t.Errorf("once others are idle: %s", got)
	}
	for _, name := range []string{"a=" + strings.Repeat("x", quota.MaxBytes),
		strings.Repeat("a=u ", quota.MaxPairs) + "a=u"} {
		if got := a.report(other, name, 0, 1); got != "deny" {
			t.Errorf("%.20s…: %s, want deny", name, got)
		}
	}
	if s := a.book.Status(); s.Refused != 6 || s.Buckets > 4 {
		t.Errorf("%+v, want 6 refused and 4 buckets at most", s)
	}
}

func TestOptions(t *testing.T) {
	_, err := quota.New(quota.Options{TTL: 1500 * time.Millisecond, MaxTotal: -1})
	if err == nil || !strings.Contains(err.Error(), "one of Limits, Buckets, Name and Now is nil") ||
		!strings.Contains(err.Error(), "TTL is 1.5s, want whole seconds") ||
		!strings.Contains(err.Error(), "MaxTotal is -1") {
		t.Errorf("%v, want all faults", err)
	}
}
