//go:build unix

package redis_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket/buckettest"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/internal/redistest"
)

func TestReplaysNameEveryFault(t *testing.T) {
	_, err := redis.NewReplays(open(t, redis.Options{Server: redistest.Dial("/nowhere"), CallersClock: true}),
		redis.ReplaysOptions{Kind: "Proofs", Names: 9, Keep: time.Millisecond})
	want := "redis replays: Kind is \"Proofs\", want 1 to 16 lower-case letters\nNames is 9, want 512 to 16777216\n" +
		"Keep is 1ms, want 1s to 168h\nNow is nil, want a clock: the store has CallersClock"
	if err == nil || err.Error() != want {
		t.Errorf("NewReplays: %v, want %s", err, want)
	}
}

// newReplays are two processes that remember together.
func newReplays(t *testing.T, server *redistest.Server, o redis.Options, r redis.ReplaysOptions) [2]*redis.Replays {
	t.Helper()
	r.Kind, r.Names, r.Keep = "proofs", 512, time.Hour
	var both [2]*redis.Replays
	for i := range both {
		o.Server = connect(t, server)
		var err error
		if both[i], err = redis.NewReplays(open(t, o), r); err != nil {
			t.Fatal(err)
		}
	}
	return both
}

// TestNothingIsReplayedElsewhere floods a memory that is far too small, with names of all ages and a clock that goes
// to and fro, and compares it with one that forgets nothing. What it takes on the server is bounded.
func TestNothingIsReplayedElsewhere(t *testing.T) {
	const seed = 7
	random := rand.New(rand.NewPCG(seed, 0))
	server := redistest.Start(t)
	begin := time.Date(2026, 11, 26, 7, 0, 0, 0, time.UTC)
	now := begin
	both := newReplays(t, server, redis.Options{CallersClock: true},
		redis.ReplaysOptions{Now: func() int64 { return now.UnixNano() }})
	used, made := map[uint64]bool{}, map[uint64]time.Time{}
	fresh := 0
	for i := range 20_000 {
		n := uint64(i)
		now = begin.Add(time.Duration(i/100+random.IntN(40)-10) * time.Second)
		if i > 0 && random.IntN(3) == 0 {
			n = random.Uint64N(n)
		}
		if made[n].IsZero() {
			made[n] = begin.Add(time.Duration(i/100-random.IntN(60)) * time.Second)
		}
		ok, err := both[i%2].Use(t.Context(), buckettest.Key(n%16), buckettest.Key(1000+n), made[n])
		if err != nil {
			t.Fatal(err)
		}
		if ok && used[n] {
			t.Fatalf("seed %d: %d was used twice", seed, n)
		}
		if ok {
			used[n] = true
			fresh++
		}
	}
	if fresh < 1500 {
		t.Errorf("%d of %d names were used, want most of those that were made just then", fresh, len(made))
	}
	if keys := server.Do("DBSIZE").(int64); keys > 64 {
		t.Errorf("%d keys are on the server, want 64 at most", keys)
	}
}

// TestReplaysByTheServersClock: names of two holders are two, a name ahead of the clock leaves room for those of now,
// and sets are forgotten some time after they were written.
func TestReplaysByTheServersClock(t *testing.T) {
	server := redistest.Start(t)
	both := newReplays(t, server, redis.Options{}, redis.ReplaysOptions{})
	now := time.Now()
	use := func(who, holder, name int, made time.Time) bool {
		t.Helper()
		ok, err := both[who].Use(t.Context(), buckettest.Key(uint64(holder)), buckettest.Key(uint64(name)), made)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	if !use(0, 1, 1, now) || use(1, 1, 1, now) || use(0, 1, 1, now) {
		t.Error("a name is not used once")
	}
	if server.Do("SCRIPT", "FLUSH"); use(1, 1, 1, now) {
		t.Error("a server that forgot its scripts has a name used twice")
	}
	for i := range 10_000 {
		use(0, 2, 10+i, now.Add(time.Minute))
	}
	for i := range 8 {
		if !use(1, 2, 20_000+i, now) {
			t.Error("a flood ahead of the clock keeps out what is made now")
		}
	}
	keys := server.Do("KEYS", "*").([]any)
	for _, one := range keys {
		if left := server.Do("PTTL", one.(string)).(int64); left < 3_500_000 || left > 3_600_000 {
			t.Errorf("%v is kept for %d ms, want an hour", one, left)
		}
		if !strings.HasPrefix(one.(string), "hg{proofs:") {
			t.Errorf("the server has a key %v", one)
		}
	}
	var fresh atomic.Int32
	var all sync.WaitGroup
	for i := range both {
		all.Go(func() {
			for n := range 50 {
				if ok, err := both[i].Use(t.Context(), buckettest.Key(3), buckettest.Key(uint64(50_000+n%10)),
					now); err == nil && ok {
					fresh.Add(1)
				}
			}
		})
	}
	if all.Wait(); fresh.Load() != 10 {
		t.Errorf("%d of 10 names were used, want each once", fresh.Load())
	}
}

// TestReplaysAmidOthersKeys: what is somebody else's is dropped, and a user who may not write hears of it.
func TestReplaysAmidOthersKeys(t *testing.T) {
	server := redistest.Start(t)
	both := newReplays(t, server, redis.Options{}, redis.ReplaysOptions{})
	use := func() (bool, error) {
		return both[0].Use(t.Context(), buckettest.Key(1), buckettest.Key(1), time.Now())
	}
	if ok, err := use(); err != nil || !ok {
		t.Fatal(ok, err)
	}
	at := fmt.Sprint(server.Do("KEYS", "*").([]any)[0])
	for what, command := range map[string][]string{
		"a list": {"RPUSH", at, "a"}, "a text": {"SET", at, "garbage"},
		"too long": {"SET", at, strings.Repeat("x", 184)},
	} {
		server.Do("DEL", at)
		server.Do(command...)
		if ok, err := use(); err != nil || !ok {
			t.Errorf("%s: %v, %v, want it dropped", what, ok, err)
		}
		if ok, err := use(); err != nil || ok {
			t.Errorf("after %s: %v, %v, want it used", what, ok, err)
		}
	}
	server.Do("DEL", at)
	server.Do("ACL", "SETUSER", "default", "-set")
	_, err := use()
	server.Do("ACL", "SETUSER", "default", "+set")
	if cause := (*redis.Error)(nil); !errors.As(err, &cause) || cause.Cause != redis.Forbidden {
		t.Errorf("who may not write hears %v", err)
	}
}
