//go:build unix

package redis_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/rate"
)

func connect(t testing.TB, server *redistest.Server) *redistest.Conn {
	t.Helper()
	conn := redistest.Dial(server.Socket)
	t.Cleanup(conn.Close)
	return conn
}

func take(t testing.TB, n uint64, l rate.Limit, cost int64) bucket.Take {
	t.Helper()
	shape, err := rate.Compile(l)
	if err != nil {
		t.Fatal(err)
	}
	return bucket.Take{Key: buckettest.Key(n), Shape: shape, Cost: cost}
}

func try(t testing.TB, s *redis.Store, now int64, takes ...bucket.Take) (bool, []bucket.Outcome) {
	t.Helper()
	outs := make([]bucket.Outcome, len(takes))
	allowed, err := s.TryConsume(context.Background(), now, takes, outs)
	if err != nil {
		t.Fatal(err)
	}
	return allowed, outs
}

func TestNewNamesEveryFault(t *testing.T) {
	_, err := redis.New(redis.Options{Prefix: "a{b}"})
	want := "redis bucket options: Server is nil, want one\nPrefix is \"a{b}\", want up to 16 letters, digits or " +
		"any of -_.:"
	if err == nil || err.Error() != want {
		t.Errorf("New: %v, want %s", err, want)
	}
}

// Most decisions name one bucket and go through one.lua. Asked together with a bucket that nobody
// takes from, the same go through take.lua.
func TestOneBucketIsDecidedAsAmongSeveral(t *testing.T) {
	server := redistest.Start(t)
	alone := open(t, redis.Options{Server: connect(t, server), CallersClock: true, Prefix: "alone"})
	among := open(t, redis.Options{Server: connect(t, server), CallersClock: true, Prefix: "among"})
	rng := rand.New(rand.NewPCG(3, 4))
	limits := []rate.Limit{
		{Tokens: 7, Per: time.Second, Burst: 9},
		// in ticks of more than a microsecond, so not through one.lua
		{Tokens: 1_000_003, Per: 24 * time.Hour, Burst: 1_000_003_000},
		{Tokens: 3, Per: time.Minute, Burst: 5, Algorithm: rate.LeakyBucket},
	}
	now, changes := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).UnixNano(), [3]bucket.Take{}
	for i := range changes {
		changes[i] = take(t, uint64(i), limits[i], 0)
	}
	for range 4000 {
		now += rng.Int64N(200_000_000) - 10_000_000
		i := rng.IntN(len(limits))
		if rng.IntN(100) == 0 {
			c := &changes[i]
			c.Before = &rate.Past{Shape: c.Shape, Since: c.Since, Before: c.Before}
			c.Since, c.Shape = now, c.Shape.Grow(rng.Int64N(3)-1)
			if c.Shape == c.Before.Shape {
				c.Shape = take(t, 0, limits[i], 0).Shape
			}
			for p, kept := c.Before, 1; p != nil; p, kept = p.Before, kept+1 {
				if kept == rate.MaxPast-1 {
					p.Before = nil
				}
			}
		}
		if rng.IntN(30) == 0 {
			changes[i].Before, changes[i].Since = nil, 0 // it is long ago
		}
		one := changes[i]
		if one.Cost = rng.Int64N(4); i == 1 {
			one.Cost *= 200_000_000
		}
		nobodys := take(t, 99, limits[0], 0)
		allowed, outs := try(t, alone, now, one)
		allowedAmong, outsAmong := try(t, among, now, one, nobodys)
		if allowed != allowedAmong || outs[0] != outsAmong[0] {
			t.Fatalf("at %d: %+v: alone %t, %+v, among several %t, %+v", now, one, allowed, outs[0],
				allowedAmong, outsAmong[0])
		}
	}
}

// The caller's clock is nobody's: whatever it says, it makes no difference.
func TestTheServersClockDecides(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, redis.Options{Server: connect(t, server)})
	two := take(t, 1, rate.Limit{Tokens: 1, Per: time.Hour, Burst: 2}, 1)
	year := int64(365 * 24 * time.Hour)
	for i, now := range []int64{0, 100 * year, 30 * year, 200 * year, time.Now().UnixNano()} {
		allowed, outs := try(t, store, now, two)
		if allowed != (i < 2) {
			t.Fatalf("attempt %d at %d: %t, %+v", i, now, allowed, outs[0])
		}
		if wait := outs[0].RetryAfter; !allowed && (wait > time.Hour || wait < time.Hour-time.Minute ||
			wait%time.Microsecond != 0) {
			t.Errorf("RetryAfter = %v, want nearly an hour", wait)
		}
	}
}

// A bucket is gone when it is full, and not before.
func TestBucketsExpireWhenFull(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, redis.Options{Server: connect(t, server)})
	for n, c := range []struct {
		limit rate.Limit
		cost  int64
		full  time.Duration
	}{
		{rate.Limit{Tokens: 10, Per: time.Second, Burst: 1000}, 1000, 100 * time.Second},
		{rate.Limit{Tokens: 10, Per: time.Second, Burst: 1000}, 100, 10 * time.Second},
		{rate.Limit{Tokens: 1_000_003, Per: 24 * time.Hour, Burst: 1_000_003}, 1_000_003, 24 * time.Hour},
	} {
		server.Do("FLUSHALL")
		try(t, store, 0, take(t, uint64(n), c.limit, c.cost))
		name := server.Do("RANDOMKEY").(string)
		ttl := time.Duration(server.Do("PTTL", name).(int64)) * time.Millisecond
		if ttl > c.full+3*time.Millisecond || ttl < c.full-5*time.Second {
			t.Errorf("%d of %+v: the bucket expires in %v, want %v", c.cost, c.limit, ttl, c.full)
		}
	}
	// One that is full again is taken from as if it had never been.
	server.Do("FLUSHALL")
	fast := take(t, 1, rate.Limit{Tokens: 1000, Per: time.Second, Burst: 20}, 20)
	try(t, store, 0, fast)
	server.Await("DBSIZE", func(size any, _ error) bool { return size == int64(0) })
	if allowed, outs := try(t, store, 0, fast); !allowed {
		t.Errorf("the bucket expired, and is not full: %+v", outs[0])
	}
}

// What a bucket takes of the server's memory, its part of the server's tables included, which are just full.
func TestBucketsAreSmall(t *testing.T) {
	const buckets = 1 << 13
	server := redistest.Start(t)
	store := open(t, redis.Options{Server: connect(t, server)})
	used := func() int { // but for what the server keeps for those who are connected
		of := map[string]int{}
		for line := range strings.Lines(server.Do("INFO", "memory").(string)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			of[name], _ = strconv.Atoi(value)
		}
		return of["used_memory"] - of["mem_clients_normal"]
	}
	try(t, store, 0, take(t, 1<<20, rate.Limit{Tokens: 1, Per: time.Hour, Burst: 1}, 1)) // it knows the scripts now
	before := used()
	for n := range uint64(buckets - 1) {
		shared := take(t, n, rate.Limit{Tokens: 1_000_003, Per: 24 * time.Hour, Burst: 1_000_003}, 1_000_003)
		shared.Tag = uint16(n)
		try(t, store, 0, shared)
	}
	if size := server.Do("DBSIZE"); size != int64(buckets) {
		t.Fatalf("there are %v buckets, want %d", size, buckets)
	}
	if each := float64(used()-before) / buckets; each < 50 || each > 150 {
		t.Errorf("a bucket takes %.1f bytes, want 150 at most", each)
	}
}

// While replicas disagree about a limit, the larger burst and the faster rate bound what they admit together.
func TestReplicasThatDisagreeGrantNothing(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, redis.Options{Server: connect(t, server), CallersClock: true})
	rng := rand.New(rand.NewPCG(9, 9))
	for n := range uint64(20) {
		start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).UnixNano()
		var views [2]bucket.Take
		var burst, perSecond int64
		for i := range views {
			l := rate.Limit{Tokens: 1 + rng.Int64N(9), Per: time.Second, Burst: 1 + rng.Int64N(20)*rng.Int64N(10)}
			views[i] = take(t, n, l, 1)
			views[i].Since = start - rng.Int64N(int64(time.Second))
			burst, perSecond = max(burst, l.Burst), max(perSecond, l.Tokens)
		}
		now, last, queue := start, start, int64(0) // Lindley's recursion in billionths of a token
		for range 400 {
			now += rng.Int64N(int64(100 * time.Millisecond))
			if allowed, _ := try(t, store, now, views[rng.IntN(2)]); allowed {
				queue, last = max(0, queue-(now-last)*perSecond)+1_000_000_000, now
			}
			if queue > burst*1_000_000_000 {
				t.Fatalf("%+v: %d billionths above the rate, want at most the burst of %d", views, queue, burst)
			}
		}
	}
}

func TestWindowsAreRefused(t *testing.T) {
	store := open(t, redis.Options{Server: redistest.Dial("/nowhere")})
	window := take(t, 1, rate.Limit{Tokens: 1, Per: time.Hour, Burst: 1, Algorithm: rate.SlidingLog}, 1)
	_, err := store.TryConsume(context.Background(), 0, []bucket.Take{window}, make([]bucket.Outcome, 1))
	if err == nil || !strings.Contains(err.Error(),
		"take 0: the limit counts in windows, which a shared store does not") {
		t.Errorf("TryConsume of a sliding log: %v", err)
	}
}
