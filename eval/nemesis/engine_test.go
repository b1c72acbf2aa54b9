//go:build unix

package nemesis_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/lease"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/bucket/report"
	"github.com/headgate-io/headgate/eval/nemesis"
	"github.com/headgate-io/headgate/internal/race"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
)

// both runs every script on a real Redis and on an Engine, at the same time of day, and compares what they answer.
type both struct {
	t      *testing.T
	redis  *redistest.Conn
	engine *nemesis.Engine
	now    int64 // Unix microseconds
	count  int
}

// Eval has the source of a script run, whose clock is a number then: no two clocks show the same time.
func (b *both) Eval(ctx context.Context, command, script string, keys, args []string) (any, error) {
	if command == "EVALSHA" {
		return nil, fmt.Errorf("NOSCRIPT send the source")
	}
	b.count++
	got, err := b.engine.Eval(command, script, keys, args)
	if err != nil {
		b.t.Fatalf("on the engine: %v", err)
	}
	dated := strings.ReplaceAll(script, "call('TIME')", fmt.Sprintf("{'%d', '%d'}", b.now/1_000_000, b.now%1_000_000))
	want, err := b.redis.Eval(ctx, command, dated, keys, args)
	if err != nil {
		b.t.Fatalf("on Redis: %v", err)
	}
	if !reflect.DeepEqual(got, want) {
		b.t.Fatalf("of %q %q the engine answers %q, want what Redis does, %q; the script begins %.80q", keys, args,
			got, want, script)
	}
	return got, nil
}

// The engine answers what a real Redis answers, for all scripts: at random limits that change, with
// takes of several buckets, corrections, leases, reports and members that come and go. What expires
// is not compared here: on Redis it expires by a clock that no test can set.
func TestEngineIsRedis(t *testing.T) {
	server := redistest.Start(t)
	r := rand.New(rand.NewPCG(1, 2))
	b := &both{t: t, redis: redistest.Dial(server.Socket), now: time.Now().UnixMicro()}
	defer b.redis.Close()
	b.engine = nemesis.NewEngine(func() int64 { return b.now })
	defer b.engine.Close()
	store, err := redis.New(redis.Options{Server: b})
	if err != nil {
		t.Fatal(err)
	}
	authority, err1 := redis.NewAuthority(store, redis.AuthorityOptions{TTL: time.Minute})
	ledger, err2 := redis.NewLedger(store, redis.LedgerOptions{Keep: time.Hour})
	member, err3 := redis.NewMembers(store, redis.MembersOptions{TTL: time.Hour, Replica: 1})
	other, err4 := redis.NewMembers(store, redis.MembersOptions{TTL: time.Hour, Replica: 2})
	for _, err := range []error{err1, err2, err3, err4} {
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	shapes := make([]rate.Shape, 8)
	for i := range shapes {
		// Slow ones alone: no bucket may expire while the test runs.
		l := rate.Limit{Tokens: 1 + r.Int64N(9), Per: time.Duration(1+r.IntN(3)) * time.Hour, Burst: 20 + r.Int64N(30)}
		if shapes[i], err = rate.Compile(l); err != nil {
			t.Fatal(err)
		}
	}
	since, past, current := int64(0), (*rate.Past)(nil), shapes[0]
	for seq := range uint64(race.Fewer(1600)) {
		b.now += r.Int64N(1_000_000)
		if r.IntN(50) == 0 {
			past, since = &rate.Past{Shape: current, Since: since}, b.now*1000
			current = shapes[r.IntN(len(shapes))]
		}
		take := func(n uint64) bucket.Take {
			return bucket.Take{
				Key:    key.Key{Hi: n, Lo: n},
				Shape:  current,
				Since:  since,
				Before: past,
				Cost:   r.Int64N(3),
				Shadow: r.IntN(8) == 0,
			}
		}
		place := func() (t bucket.Take) {
			t = take(7 + uint64(r.IntN(2)))
			t.Shape = rate.Shape{Drain: 9, Unit: 1, Capacity: 9, Tick: int64(time.Minute), Algorithm: rate.SlidingLog}
			t.Place = 1 + uint32(r.IntN(20))
			return t
		}
		switch r.IntN(7) {
		case 6:
			switch r.IntN(3) {
			case 0:
				takes := []bucket.Take{take(1), place()}
				_, err = store.TryConsume(ctx, b.now*1000, takes, make([]bucket.Outcome, len(takes)))
			default:
				changes := make([]bucket.Change, 1+r.IntN(2))
				for i := range changes {
					of := place()
					changes[i] = bucket.Change{Key: of.Key, Shape: of.Shape, Units: -1, Place: of.Place,
						Renew: r.IntN(2) == 0}
					if r.IntN(20) == 0 {
						changes[i].Place, changes[i].Renew = 0, false
					}
				}
				err = store.Correct(ctx, b.now*1000, changes, make([]int64, len(changes)))
			}
		case 0, 1:
			takes := []bucket.Take{take(1), take(2), take(3)}[:1+r.IntN(3)]
			_, err = store.TryConsume(ctx, b.now*1000, takes, make([]bucket.Outcome, len(takes)))
		case 2:
			of := take(uint64(r.IntN(3)))
			change := bucket.Change{
				Key:    of.Key,
				Shape:  of.Shape,
				Since:  since,
				Before: past,
				Units:  (r.Int64N(7) - 3) * of.Shape.Unit,
			}
			if r.IntN(2) == 0 {
				change.Charged = b.now*1000 - r.Int64N(int64(time.Hour))
			}
			err = store.Correct(ctx, b.now*1000, []bucket.Change{change}, make([]int64, 1))
		case 3:
			_, err = authority.Ask(ctx, 7, take(4), lease.Question{Seq: seq + uint64(r.IntN(2)), Want: 1 + r.Int64N(9),
				Need: r.Int64N(4)})
		case 4:
			told := []report.Told{{Of: take(5), Report: report.Report{Seq: seq, Tokens: r.Int64N(9)}},
				{Of: take(6), Report: report.Report{Seq: seq, Tokens: r.Int64N(9)}}}
			ledger.ReportAll(ctx, 7, told[:1+r.IntN(2)])
			err = told[0].Err
		case 5:
			switch r.IntN(6) {
			case 0:
				err = other.Leave(ctx)
			case 1, 2:
				err = other.Beat(ctx)
			default:
				err = member.Beat(ctx)
			}
		}
		if err != nil {
			t.Fatalf("step %d: %v", seq, err)
		}
	}
	if least := race.Fewer(1300); b.count < least {
		t.Errorf("%d scripts were compared, want %d or more", b.count, least)
	}
}

// What expires does so to the millisecond, on the engine's clock.
func TestEngineExpires(t *testing.T) {
	now := int64(1_000_000)
	e := nemesis.NewEngine(func() int64 { return now })
	defer e.Close()
	run := func(script string, args ...string) any {
		t.Helper()
		got, err := e.Eval("EVAL", script, []string{"k"}, args)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	run("redis.call('SET', KEYS[1], ARGV[1], 'PX', 5)", "v")
	for _, c := range []struct {
		at   int64
		want any
	}{{1_004_999, "v"}, {1_005_000, nil}} {
		if now = c.at; run("return redis.call('GET', KEYS[1])") != c.want {
			t.Errorf("at %d us: not %v", c.at, c.want)
		}
	}
	if _, err := e.Eval("EVALSHA", "0000", nil, nil); err == nil || !redis.Unlearnt(err) {
		t.Errorf("a script that nobody sent: %v, want NOSCRIPT", err)
	}
	run("return redis.call('SET', KEYS[1], 'v')")
	held := e.Snapshot()
	if e.Become(nil); run("return redis.call('GET', KEYS[1])") != nil {
		t.Error("an engine that became empty has a key")
	}
	if e.Become(held); run("return redis.call('GET', KEYS[1])") != "v" {
		t.Error("an engine that became what it was has no key")
	}
}
