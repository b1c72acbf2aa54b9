//go:build unix

package redis_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/lease"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/rate"
)

func authority(t testing.TB, s *redis.Store, o redis.AuthorityOptions) *redis.Authority {
	t.Helper()
	a, err := redis.NewAuthority(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func ask(t testing.TB, a *redis.Authority, replica uint64, of bucket.Take, q lease.Question) lease.Answer {
	t.Helper()
	got, err := a.Ask(context.Background(), replica, of, q)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestAuthorityNamesEveryFault(t *testing.T) {
	_, err := redis.NewAuthority(open(t, redis.Options{Server: redistest.Dial("/nowhere"), CallersClock: true}),
		redis.AuthorityOptions{TTL: 2 * time.Minute})
	want := "redis lease authority: TTL is 2m0s, want 1ms to 1m\nNow is nil, want a clock: the store has CallersClock"
	if err == nil || err.Error() != want {
		t.Errorf("NewAuthority: %v, want %s", err, want)
	}
}

// twin is what the authority should do: lease.Ledger, and bucket.Held for limits that change.
type twin struct {
	ledger lease.Ledger
	held   bucket.Held
}

func (w *twin) grant(now int64, t bucket.Take, replica uint64, q lease.Question) lease.Answer {
	held := w.held
	held.State = w.ledger.State
	held.Follow(now, &t)
	before := w.ledger.State
	w.ledger.State = held.State
	got := w.ledger.Grant(now, t.Shape, replica, q)
	if w.ledger.State == held.State {
		w.ledger.State = before // the server converts a bucket when it charges it
	} else {
		w.held.Shape = t.Shape
	}
	got.Wait, got.Reset = ceil(got.Wait), ceil(got.Reset)
	return got
}

func ceil(d time.Duration) time.Duration {
	return (d + time.Microsecond - 1) / time.Microsecond * time.Microsecond
}

// The script answers as lease.Ledger does, whatever is asked: by several replicas, again, out of
// order, and while the limit changes.
func TestAuthorityAnswersAsALedgerDoes(t *testing.T) {
	server := redistest.Start(t)
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).UnixNano()
	store := open(t, redis.Options{Server: connect(t, server), CallersClock: true})
	a := authority(t, store, redis.AuthorityOptions{Now: func() int64 { return now }})
	limits := []rate.Limit{
		{Tokens: 7, Per: time.Second, Burst: 9},
		{Tokens: 1000, Per: time.Second, Burst: 1000},
		{Tokens: 1_000_003, Per: 24 * time.Hour, Burst: 1_000_003_000}, // in ticks of more than a microsecond
		{Tokens: 3, Per: time.Minute, Burst: 5, Algorithm: rate.LeakyBucket},
	}
	seed := uint64(7)
	rng := rand.New(rand.NewPCG(seed, 1))
	const buckets, replicas = 8, 3
	var twins [buckets]twin
	var takes [buckets]bucket.Take
	var asked [buckets][replicas][]lease.Question
	for i := range takes {
		takes[i] = take(t, uint64(i), limits[i%len(limits)], 0)
		var err error
		if takes[i].Shape, err = redis.Coarsen(takes[i].Shape); err != nil {
			t.Fatal(err)
		}
		twins[i].held.Shape = takes[i].Shape
	}
	granted, repeated := 0, 0
	for n := range race.Fewer(24_000) {
		now += rng.Int64N(50_000)*1000 - 2_000_000 // now and then the clock is set back
		i, r := rng.IntN(buckets), rng.IntN(replicas)
		tk := &takes[i]
		if rng.IntN(200) == 0 {
			change(t, rng, tk, now, limits[i%len(limits)])
		}
		most := tk.Shape.Burst()
		q := lease.Question{
			Seq:  uint64(1+len(asked[i][r])) << rng.IntN(2) << 31,
			Want: rng.Int64N(most/2+2) + 1,
			Need: rng.Int64N(min(most, 4) + 2),
		}
		if last := len(asked[i][r]); last > 0 {
			q.Seq = max(q.Seq, asked[i][r][last-1].Seq+1)
		}
		switch kind := rng.IntN(10); {
		case kind == 0:
			q.Seq, q.Want = 0, 0
		case kind < 4 && len(asked[i][r]) > 0: // again, most often the last one
			back := min(len(asked[i][r]), 1+rng.IntN(2)*rng.IntN(3))
			q = asked[i][r][len(asked[i][r])-back]
			repeated++
		default:
			asked[i][r] = append(asked[i][r], q)
		}
		got, want := ask(t, a, uint64(r+1), *tk, q), twins[i].grant(now, *tk, uint64(r+1), q)
		if got != want {
			t.Fatalf("seed %d, question %d: replica %d at %d asks for bucket %d, %+v, %+v: %+v, want %+v", seed, n, r+1,
				now, i, tk.Shape, q, got, want)
		}
		if got.Tokens > 0 {
			granted++
		}
	}
	if want := race.Fewer(4000); granted < want || repeated < want {
		t.Errorf("%d questions got tokens and %d were asked again, want %d of each", granted, repeated, want)
	}
}

// change makes the limit of a take another one from now on.
func change(t *testing.T, rng *rand.Rand, tk *bucket.Take, now int64, original rate.Limit) {
	t.Helper()
	next := original
	next.Tokens, next.Burst = max(1, original.Tokens*(1+rng.Int64N(3))/2), max(1, original.Burst*(1+rng.Int64N(3))/2)
	shape, err := redis.Coarsen(take(t, 0, next, 0).Shape)
	if err != nil || shape == tk.Shape {
		return
	}
	tk.Before = &rate.Past{Shape: tk.Shape, Since: tk.Since, Before: tk.Before}
	tk.Since, tk.Shape = now, shape
	for p, kept := tk.Before, 1; p != nil; p, kept = p.Before, kept+1 {
		if kept == rate.MaxPast-1 {
			*p = rate.Past{Since: p.Since} // as rate.Shape.Recall does
		}
	}
}

// A lease and a decision of the store take from one bucket.
func TestALeaseAndADecisionShareTheBucket(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, redis.Options{Server: connect(t, server)})
	a := authority(t, store, redis.AuthorityOptions{})
	ten := take(t, 1, rate.Limit{Tokens: 1, Per: time.Hour, Burst: 10}, 4)
	if allowed, _ := try(t, store, 0, ten); !allowed {
		t.Fatal("a new bucket is full")
	}
	if got := ask(t, a, 1, ten, lease.Question{Seq: 1, Want: 5, Need: 1}); got.Tokens != 5 || got.Left != 1 {
		t.Fatalf("of 6 that are left: %+v, want 5, and 1 left", got)
	}
	if allowed, outs := try(t, store, 0, ten); allowed || outs[0].Remaining != 1 {
		t.Errorf("4 of 1: %t, %+v", allowed, outs[0])
	}
	if got := ask(t, a, 1, ten, lease.Question{Seq: 2, Want: 5, Need: 2}); got.Tokens != 0 || got.Left != 1 ||
		got.Wait < 50*time.Minute || got.Wait > time.Hour {
		t.Errorf("2 of 1: %+v, want none for nearly an hour", got)
	}
}

// What a server forgets on its own is what nobody asks again, and it learns the script anew.
func TestAnswersAreForgotten(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, redis.Options{Server: connect(t, server)})
	a := authority(t, store, redis.AuthorityOptions{TTL: time.Second})
	thousand := take(t, 1, rate.Limit{Tokens: 1, Per: time.Hour, Burst: 1000}, 1)
	q := lease.Question{Seq: 1 << 62, Want: 10, Need: 1}
	first := ask(t, a, 1<<63+5, thousand, q)
	server.Do("SCRIPT", "FLUSH")
	if again := ask(t, a, 1<<63+5, thousand, q); again != first {
		t.Errorf("asked again: %+v, want %+v", again, first)
	}
	names, _ := server.Do("KEYS", "*").([]any)
	if len(names) != 2 {
		t.Fatalf("there are %q, want the bucket and the answer", names)
	}
	for _, name := range names {
		ttl := server.Do("PTTL", name.(string)).(int64)
		isAnswer := strings.HasSuffix(name.(string), "\x80\x00\x00\x00\x00\x00\x00\x05")
		if isAnswer && (ttl < 1 || ttl > 4000) || !isAnswer && ttl < 9*3600_000 {
			t.Errorf("%q is forgotten in %d ms", name, ttl)
		}
		if bytes := server.Do("MEMORY", "USAGE", name.(string)).(int64); bytes > 160 || !isAnswer && bytes > 150 {
			t.Errorf("%q takes %d bytes, want at most 160 for an answer and 150 for a bucket", name, bytes)
		}
	}
	// A look leaves nothing.
	server.Do("FLUSHALL")
	if got := ask(t, a, 1, thousand, lease.Question{Want: 7, Need: 3}); got.Tokens != 0 || got.Left != 1000 {
		t.Errorf("a look: %+v, want 1000 left", got)
	}
	if size := server.Do("DBSIZE"); size != int64(0) {
		t.Errorf("a look leaves %v keys", size)
	}
}

// What is kept in place of an answer and is none is replaced by the next: a question may be
// charged twice for it, which grants nothing.
func TestForeignAnswers(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, redis.Options{Server: connect(t, server)})
	a := authority(t, store, redis.AuthorityOptions{TTL: time.Minute})
	one := take(t, 1, rate.Limit{Tokens: 1, Per: time.Hour, Burst: 10}, 1)
	ask(t, a, 5, one, lease.Question{Seq: 1, Want: 1, Need: 1})
	var name string
	for _, key := range server.Do("KEYS", "*").([]any) {
		if len(key.(string)) > len(name) {
			name = key.(string)
		}
	}
	for what, command := range map[string][]string{
		"a list": {"LPUSH", name, "x"}, "a short text": {"SET", name, "x"},
		"a long text": {"SET", name, strings.Repeat("text ", 20)},
	} {
		server.Do("DEL", name)
		server.Do(command...)
		left := ask(t, a, 5, one, lease.Question{}).Left
		for range 2 { // whoever asks again is known again
			if got := ask(t, a, 5, one, lease.Question{Seq: 2, Want: 1, Need: 1}); got.Tokens != 1 ||
				got.Left != left-1 {
				t.Errorf("%s in place of an answer: %+v, want a token of %d", what, got, left)
			}
		}
	}
}
