//go:build unix

package redis_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
	"github.com/headgate-io/headgate/bucket/memory"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/serve/resp"
)

// throttled is a Throttle on a server of this project's own, whose clock the test sets.
func throttled(t testing.TB) (*redis.Throttle, *atomic.Int64) {
	t.Helper()
	var clock atomic.Int64
	clock.Store(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).UnixNano())
	buckets, err := memory.New(memory.Options{MaxBuckets: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	namer, err := key.NewNamer(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	server, err := resp.New(resp.Options{
		Buckets: buckets, Name: func(k []byte) (key.Key, uint16) { return namer.Name(0, "counters", k), 0 },
		Now:     clock.Load,
		Trusted: netip.Addr.IsLoopback, MaxConnections: 16,
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(l) }()
	conn := redistest.Dial(l.Addr().String())
	t.Cleanup(func() { conn.Close(); _ = l.Close(); _ = server.Shutdown(context.Background()) })
	s, err := redis.NewThrottle(conn, "")
	if err != nil {
		t.Fatal(err)
	}
	return s, &clock
}

func compiled(t testing.TB, tokens int64, per time.Duration, burst int64) rate.Shape {
	t.Helper()
	s, err := rate.Compile(rate.Limit{Tokens: tokens, Per: per, Burst: burst})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What a decision is told, and what it leaves behind.
func TestThrottle(t *testing.T) {
	fast, slow := compiled(t, 10, time.Second, 10), compiled(t, 5, time.Minute, 5)
	a := func(cost int64) bucket.Take { return bucket.Take{Key: buckettest.Key(1), Shape: fast, Cost: cost} }
	b := func(cost int64) bucket.Take { return bucket.Take{Key: buckettest.Key(2), Shape: slow, Cost: cost} }
	shadow := func(t bucket.Take) bucket.Take { t.Shadow = true; return t }
	steps := []struct {
		at      time.Duration
		peek    bool
		takes   []bucket.Take
		allowed bool
		outs    []bucket.Outcome
	}{
		{takes: []bucket.Take{a(10)}, allowed: true, outs: []bucket.Outcome{{Allowed: true, ResetAfter: time.Second}}},
		// A token comes in 100 ms, though the server says 1 s.
		{
			takes: []bucket.Take{a(1)},
			outs:  []bucket.Outcome{{RetryAfter: 100 * time.Millisecond, ResetAfter: time.Second}},
		},
		{
			at:    99 * time.Millisecond,
			takes: []bucket.Take{a(1)},
			outs:  []bucket.Outcome{{RetryAfter: 100 * time.Millisecond, ResetAfter: time.Second}},
		},
		{
			at:      100 * time.Millisecond,
			takes:   []bucket.Take{a(1)},
			allowed: true,
			outs:    []bucket.Outcome{{Allowed: true, ResetAfter: time.Second}},
		},
		{
			at:      100 * time.Millisecond,
			takes:   []bucket.Take{a(0)},
			allowed: true,
			outs:    []bucket.Outcome{{Allowed: true, ResetAfter: time.Second}},
		},
		{
			at:    100 * time.Millisecond,
			takes: []bucket.Take{a(11)},
			outs:  []bucket.Outcome{{Never: true, ResetAfter: time.Second}},
		},
		// One that denies has the others pay nothing.
		{at: 100 * time.Millisecond, takes: []bucket.Take{a(1), b(1)}, outs: []bucket.Outcome{
			{RetryAfter: 100 * time.Millisecond, ResetAfter: time.Second}, {Allowed: true, Remaining: 5},
		}},
		{at: 300 * time.Millisecond, takes: []bucket.Take{a(1), b(2)}, allowed: true, outs: []bucket.Outcome{
			{Allowed: true, Remaining: 1, ResetAfter: 900 * time.Millisecond},
			{Allowed: true, Remaining: 3, ResetAfter: 24 * time.Second},
		}},
		{
			at:      300 * time.Millisecond,
			peek:    true,
			takes:   []bucket.Take{b(3)},
			allowed: true,
			outs:    []bucket.Outcome{{Allowed: true, Remaining: 3, ResetAfter: 24 * time.Second}},
		},
		// Takes of one bucket are added up, and shadows come after the others.
		{at: 300 * time.Millisecond, takes: []bucket.Take{b(2), b(2)}, outs: []bucket.Outcome{
			{Remaining: 3, RetryAfter: 12 * time.Second, ResetAfter: 24 * time.Second},
			{Remaining: 3, RetryAfter: 12 * time.Second, ResetAfter: 24 * time.Second},
		}},
		{at: 300 * time.Millisecond, takes: []bucket.Take{b(1), shadow(b(3))}, allowed: true, outs: []bucket.Outcome{
			{Allowed: true, Remaining: 2, ResetAfter: 36 * time.Second},
			{Remaining: 2, RetryAfter: 24 * time.Second, ResetAfter: 36 * time.Second},
		}},
		{at: 300 * time.Millisecond, takes: []bucket.Take{b(1), shadow(b(1))}, allowed: true, outs: []bucket.Outcome{
			{Allowed: true, ResetAfter: time.Minute}, {Allowed: true, ResetAfter: time.Minute},
		}},
		// Seconds may be rounded in either way, so one more is waited: true are 6 s.
		{
			at:    6300 * time.Millisecond,
			takes: []bucket.Take{b(1)},
			outs:  []bucket.Outcome{{RetryAfter: 7 * time.Second, ResetAfter: 55 * time.Second}},
		},
		{
			at:      6300 * time.Millisecond,
			takes:   []bucket.Take{shadow(b(1))},
			allowed: true,
			outs:    []bucket.Outcome{{RetryAfter: 12 * time.Second, ResetAfter: 55 * time.Second}},
		},
		{at: time.Hour, takes: []bucket.Take{a(-1)}, outs: []bucket.Outcome{{Never: true, Remaining: 10}}},
		{at: time.Hour, allowed: true},
	}
	s, clock := throttled(t)
	start := clock.Load()
	for i, step := range steps {
		clock.Store(start + int64(step.at))
		do := s.TryConsume
		if step.peek {
			do = s.Peek
		}
		outs := make([]bucket.Outcome, len(step.takes))
		allowed, err := do(t.Context(), 0, step.takes, outs)
		if err != nil || allowed != step.allowed ||
			fmt.Sprint(outs) != fmt.Sprint(append([]bucket.Outcome{}, step.outs...)) {
			t.Errorf("step %d at %v: %v, %+v, %v, want %v, %+v", i, step.at, allowed, outs, err,
				step.allowed, step.outs)
		}
	}
}

// A change adds what there is room for; what is given back stays taken, and nothing is granted.
func TestThrottleCorrects(t *testing.T) {
	s, _ := throttled(t)
	shape := compiled(t, 5, time.Minute, 5)
	left := func() int64 {
		var outs [1]bucket.Outcome
		if _, err := s.Peek(t.Context(), 0, []bucket.Take{{Key: buckettest.Key(3), Shape: shape}},
			outs[:]); err != nil {
			t.Fatal(err)
		}
		return outs[0].Remaining
	}
	for i, c := range []struct {
		units, charged int64
		moved, left    int64
		err            string
	}{
		{units: 2 * shape.Unit, moved: 2 * shape.Unit, left: 3},
		{units: 1, moved: 1, left: 2},
		{units: -shape.Unit, charged: 1, left: 2},
		{units: 0, left: 2},
		{units: -shape.Unit, left: 2, err: "gives no tokens back"},
		{units: bucket.Fill, left: 2, err: "gives no tokens back"},
		{units: 100 * shape.Unit, moved: 2 * shape.Unit, left: 0},
		{units: shape.Unit, left: 0},
	} {
		var moved [1]int64
		err := s.Correct(t.Context(), 0, []bucket.Change{{Key: buckettest.Key(3), Shape: shape, Units: c.units,
			Charged: c.charged}}, moved[:])
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) ||
			moved[0] != c.moved || left() != c.left {
			t.Errorf("change %d of %d units: moved %d, %d left, %v, want %d, %d, %q", i, c.units, moved[0], left(), err,
				c.moved, c.left, c.err)
		}
	}
	if err := s.Correct(t.Context(), 0, make([]bucket.Change, 1), nil); err == nil {
		t.Error("results without room are no error")
	}
}

// What is allowed of one bucket is what a bucket in this process allows at the same times, whatever the limit.
func TestThrottleIsLikeMemory(t *testing.T) {
	s, clock := throttled(t)
	start := clock.Load()
	rng := rand.New(rand.NewPCG(4, 9))
	for n := range uint64(60) {
		per := time.Duration(1+rng.IntN(90)) * time.Second
		shape := compiled(t, 1+rng.Int64N(200), per, 1+rng.Int64N(50))
		twin, err := memory.New(memory.Options{MaxBuckets: 64})
		if err != nil {
			t.Fatal(err)
		}
		now, more, fewer := start, 0, 0
		for range 40 {
			now += rng.Int64N(int64(per)/10 + 1)
			clock.Store(now)
			take := []bucket.Take{{Key: buckettest.Key(100 + n), Shape: shape, Cost: 1 + rng.Int64N(shape.Burst())}}
			var got, want [1]bucket.Outcome
			allowed, err := s.TryConsume(t.Context(), 0, take, got[:])
			if err != nil {
				t.Fatal(err)
			}
			expected, err := twin.TryConsume(t.Context(), now, take, want[:])
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case allowed && !expected:
				more++
			case expected && !allowed:
				fewer++ // the told limit is slower by less than a nanosecond a token
			case !allowed && (got[0].RetryAfter < want[0].RetryAfter ||
				got[0].RetryAfter > want[0].RetryAfter+2*time.Second):
				t.Errorf("%+v: retry after %v, want %v to two seconds more", shape, got[0].RetryAfter,
					want[0].RetryAfter)
			}
			if more+fewer > 0 {
				break // they owe something else from here on
			}
		}
		if more > 0 {
			t.Errorf("%+v: a take was allowed that a bucket in memory denies", shape)
		}
	}
	clock.Store(start)
}

// Limits and requests that it cannot count are errors that say why, before anything is sent.
func TestThrottleRefuses(t *testing.T) {
	s, err := redis.NewThrottle(answers{}, "")
	if err != nil {
		t.Fatal(err)
	}
	one := compiled(t, 1, time.Second, 1)
	leaky, window := one, one
	leaky.Algorithm, window.Algorithm = rate.LeakyBucket, rate.FixedWindow
	for want, takes := range map[string][]bucket.Take{
		"is a queue's":                       {{Shape: leaky}},
		"counts in windows":                  {{Shape: window}},
		"more than 1,000,000 tokens":         {{Shape: compiled(t, 3_000_000, time.Second, 1)}},
		"longer than 73 years":               {{Shape: compiled(t, 1, 24*time.Hour, 30_000)}},
		"is none":                            {{}},
		"name one bucket with two shapes":    {{Shape: one}, {Shape: compiled(t, 2, time.Second, 1)}},
		"answered a string that it never":    {{Shape: one}},
		"there is room for 0 outcomes, want": nil,
	} {
		room := make([]bucket.Outcome, len(takes))
		if takes == nil {
			takes = make([]bucket.Take, 1)
		}
		if allowed, err := s.TryConsume(t.Context(), 0, takes, room); allowed || err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, %v, want %q", takes, allowed, err, want)
		}
	}
	for _, shape := range []rate.Shape{leaky, window} {
		if redis.Throttles(shape) == nil {
			t.Errorf("%+v can be kept", shape)
		}
	}
	if _, err := redis.NewThrottle(nil, "{"); err == nil || !strings.Contains(err.Error(), "server is nil") ||
		!strings.Contains(err.Error(), "Prefix is") {
		t.Errorf("nothing is wrong with no server and a bad prefix: %v", err)
	}
	away, err := redis.NewThrottle(answers{err: errors.New("LOADING the dataset")}, "")
	if err != nil {
		t.Fatal(err)
	}
	var fault *redis.Error
	if _, err := away.TryConsume(t.Context(), 0, []bucket.Take{{Shape: one}, {Key: buckettest.Key(9), Shape: one}},
		make([]bucket.Outcome, 2)); !errors.As(err, &fault) || fault.Cause != redis.Busy {
		t.Errorf("a server that loads is %v", err)
	}
}

// answers is a server that says one thing.
type answers struct {
	says any
	err  error
	told *[]string
}

func (a answers) Throttle(_ context.Context, key string, args ...string) (any, error) {
	if a.told != nil {
		*a.told = append([]string{key}, args...)
	}
	if a.says == nil && a.err == nil {
		return "nonsense", nil
	}
	return a.says, a.err
}

// Whatever a server answers is an error, or an outcome that makes sense.
func FuzzThrottleAnswers(f *testing.F) {
	f.Add([]byte{}, int64(1))
	answer := make([]byte, 40)
	answer[15] = 5
	f.Add(answer, int64(2))
	f.Fuzz(func(t *testing.T, raw []byte, cost int64) {
		var list []any
		for len(raw) >= 8 && len(list) < 8 {
			list, raw = append(list, int64(binary.BigEndian.Uint64(raw))), raw[8:]
		}
		if len(raw) == 1 {
			list = append(list, string(raw))
		}
		s, err := redis.NewThrottle(answers{says: list}, "")
		if err != nil {
			t.Fatal(err)
		}
		shape := compiled(t, 5, time.Minute, 5)
		var outs [2]bucket.Outcome
		takes := []bucket.Take{{Shape: shape, Cost: cost}, {Shape: shape, Cost: cost, Shadow: true}}
		allowed, err := s.TryConsume(t.Context(), 0, takes, outs[:])
		if err != nil {
			return
		}
		for _, o := range outs {
			if o.Remaining < 0 || o.Remaining > 5 || o.RetryAfter < 0 || o.ResetAfter < 0 ||
				o.ResetAfter > time.Minute || o.RetryAfter > time.Minute ||
				!o.Allowed && !o.Never && o.RetryAfter == 0 {
				t.Errorf("%v for %d: %+v", list, cost, o)
			}
		}
		if allowed && !outs[0].Allowed {
			t.Errorf("%v for %d: allowed, %+v", list, cost, outs)
		}
	})
}

// Whatever limit is told, servers compute from it one that is no faster, and slower by less than a thousandth.
func FuzzThrottleLimits(f *testing.F) {
	for _, l := range [][3]int64{{10, 1, 10}, {3, 1, 1}, {7, 86400, 5}, {1_000_003, 86400, 1}, {999_999, 1, 1 << 40},
		{1, 1 << 33, 1}} {
		f.Add(l[0], l[1], l[2])
	}
	f.Fuzz(func(t *testing.T, tokens, per, burst int64) {
		if per < 1 || per > 1<<33 {
			return
		}
		shape, err := rate.Compile(rate.Limit{Tokens: tokens, Per: time.Duration(per) * time.Second, Burst: burst})
		if err != nil || redis.Throttles(shape) != nil {
			return
		}
		var told []string
		s, err := redis.NewThrottle(answers{told: &told}, "p")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = s.TryConsume(t.Context(), 0, []bucket.Take{{Shape: shape, Cost: 1}}, make([]bucket.Outcome, 1))
		if len(told) != 5 || !strings.HasPrefix(told[0], "p=") || told[4] != "1" {
			t.Fatalf("told %q", told)
		}
		var n [3]int64
		for i := range n {
			if n[i], err = strconv.ParseInt(told[1+i], 10, 64); err != nil {
				t.Fatal(err)
			}
		}
		maxBurst, count, period := n[0], n[1], n[2]
		nanos := new(big.Int).Mul(big.NewInt(period), big.NewInt(1e9))
		if maxBurst != shape.Burst()-1 || count < 1 || !nanos.IsInt64() {
			t.Fatalf("told %q of %+v", told, shape)
		}
		interval := int64(float64(nanos.Int64()) / float64(count)) // as redis-cell does
		exact := new(big.Rat).Mul(big.NewRat(shape.Unit, shape.Drain), big.NewRat(shape.Tick, 1))
		least := new(big.Rat).Mul(exact, big.NewRat(1001, 1000))
		if got := new(big.Rat).SetInt64(interval); got.Cmp(exact) < 0 || got.Cmp(least) > 0 {
			t.Errorf("%+v is told as %q: a token in %d ns, want %s to a thousandth more", shape, told, interval,
				exact.FloatString(3))
		}
		if interval > (1<<62)/shape.Burst() {
			t.Errorf("%+v is told as %q, which overflows", shape, told)
		}
	})
}
