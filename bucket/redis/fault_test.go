//go:build unix

package redis_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/lease"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/rate"
)

// Each fault is an error of its kind, and admits nobody; and when it is over, so is the error.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		fault string
		make  func(s *redistest.Server)
		want  redis.Cause
		mend  func(s *redistest.Server)
	}{
		{"no memory left", func(s *redistest.Server) { s.Do("CONFIG", "SET", "maxmemory", "1") }, redis.OutOfMemory,
			func(s *redistest.Server) { s.Do("CONFIG", "SET", "maxmemory", "0") }},
		{"a replica", func(s *redistest.Server) { s.Do("REPLICAOF", "127.0.0.1", "1") }, redis.ReadOnly,
			func(s *redistest.Server) { s.Do("REPLICAOF", "NO", "ONE") }},
		{"frozen", func(s *redistest.Server) { s.Freeze() }, redis.TimedOut, func(s *redistest.Server) { s.Thaw() }},
		{"killed", func(s *redistest.Server) { s.Kill() }, redis.Unreachable, func(s *redistest.Server) { s.Start() }},
		{"may not run scripts", func(s *redistest.Server) { s.Do("ACL", "SETUSER", "default", "-@scripting") },
			redis.Forbidden, func(s *redistest.Server) { s.Do("ACL", "SETUSER", "default", "+@all") }},
		{"too few replicas to write", func(s *redistest.Server) { s.Do("CONFIG", "SET", "min-replicas-to-write", "1") },
			redis.ReadOnly, func(s *redistest.Server) { s.Do("CONFIG", "SET", "min-replicas-to-write", "0") }},
		{"busy with another's script", func(s *redistest.Server) {
			s.Do("CONFIG", "SET", "busy-reply-threshold", "1")
			go func() { _, _ = s.Try("EVAL", "while true do end", "0") }()
			s.Await("PING", func(_ any, err error) bool { return err != nil && strings.HasPrefix(err.Error(), "BUSY") })
		}, redis.Busy, func(s *redistest.Server) {
			s.Do("SCRIPT", "KILL")
			s.Await("PING", func(_ any, err error) bool { return err == nil })
		}},
	} {
		t.Run(c.fault, func(t *testing.T) {
			server := redistest.Start(t)
			store := open(t, redis.Options{Server: connect(t, server)})
			// One bucket, so one.lua; and two, so take.lua, of which one is well.
			hurt, well := take(t, 1, rate.Limit{Tokens: 1, Per: time.Hour, Burst: 10}, 1),
				take(t, 2, rate.Limit{Tokens: 1, Per: time.Hour, Burst: 10}, 1)
			try(t, store, 0, hurt)
			try(t, store, 0, well)
			c.make(server)
			for _, takes := range [][]bucket.Take{{hurt}, {well, hurt}} {
				within := time.Minute
				if c.want == redis.TimedOut {
					within = 100 * time.Millisecond // nothing comes of waiting longer
				}
				ctx, cancel := context.WithTimeout(context.Background(), within)
				allowed, err := store.TryConsume(ctx, 0, takes, make([]bucket.Outcome, len(takes)))
				cancel()
				var why *redis.Error
				if allowed || !errors.As(err, &why) || why.Cause != c.want ||
					!strings.HasPrefix(err.Error(), "the bucket store cannot answer: ") {
					t.Errorf("TryConsume of %d = %t, %v, want an error that it is %v", len(takes), allowed, err, c.want)
				}
			}
			c.mend(server)
			if allowed, _ := try(t, store, 0, hurt); !allowed {
				t.Error("the bucket is not to be had when the fault is mended")
			}
			if c.fault == "frozen" || c.fault == "killed" {
				return // what was asked meanwhile may have been charged; or all is forgotten
			}
			if _, outs := try(t, store, 0, withCost(well, 0)); outs[0].Remaining != 9 {
				t.Errorf("a decision that failed left %d of 10 beside, want 9", outs[0].Remaining)
			}
		})
	}
}

// What cannot be read under the name of a bucket is taken for one that owes its whole burst, is
// replaced, and fills from then on: nobody is admitted by it, and nobody denied for ever.
func TestWhatIsNoBucketIsReplaced(t *testing.T) {
	server := redistest.Start(t)
	limit := rate.Limit{Tokens: 100, Per: time.Second, Burst: 10}
	for what, spoil := range map[string]func(name string) []string{
		"a list": func(name string) []string { return []string{"LPUSH", name, "x"} },
		"a text": func(name string) []string {
			return []string{"SET", name, "what others keep in a text of theirs"}
		},
		"a short text": func(name string) []string { return []string{"SET", name, "!"} },
		"a number":     func(name string) []string { return []string{"SET", name, "1"} },
		"nothing":      func(name string) []string { return []string{"SET", name, ""} },
	} {
		for n := range 5 {
			server.Do("FLUSHALL")
			s := open(t, redis.Options{Server: connect(t, server)})
			one, other := take(t, 1, limit, 1), take(t, 2, limit, 1)
			name := string(redis.AppendBucket(nil, "hg", &one))
			server.Do(spoil(name)...)
			of := []bucket.Take{one}
			moved := make([]int64, 1)
			for at := time.Now(); ; {
				var err error
				allowed := false
				switch outs := make([]bucket.Outcome, 2); n {
				case 0: // one.lua
					allowed, err = s.TryConsume(t.Context(), 0, of, outs)
				case 1: // take.lua
					allowed, err = s.TryConsume(t.Context(), 0, []bucket.Take{one, other}, outs)
				case 2:
					allowed, err = s.Peek(t.Context(), 0, of, outs)
				case 3:
					got := ask(t, authority(t, s, redis.AuthorityOptions{}), 1, one, lease.Question{Seq: 1, Want: 1})
					allowed = got.Tokens > 0
				case 4:
					err = s.Correct(t.Context(), 0,
						[]bucket.Change{{Key: one.Key, Shape: one.Shape, Units: -one.Shape.Unit}}, moved)
					allowed = moved[0] < 0 // which is given to what owes
				}
				if err != nil {
					t.Fatalf("%s under the name of a bucket, way %d: %v", what, n, err)
				}
				if allowed && n != 4 && time.Since(at) < 9*time.Millisecond {
					t.Fatalf("%s under the name of a bucket, way %d: admitted after %v", what, n, time.Since(at))
				}
				if allowed {
					break
				}
				if time.Since(at) > time.Minute {
					t.Fatalf("%s under the name of a bucket, way %d: denied for a minute", what, n)
				}
			}
			if s.Mended() != 1 {
				t.Errorf("%s under the name of a bucket, way %d: %d were replaced, want 1", what, n, s.Mended())
			}
		}
	}
}

func withCost(t bucket.Take, cost int64) bucket.Take {
	t.Cost = cost
	return t
}

// A server forgets scripts when it is told to or restarted. Nobody notices.
func TestForgottenScripts(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, redis.Options{Server: connect(t, server)})
	ten := take(t, 1, rate.Limit{Tokens: 1, Per: time.Hour, Burst: 10}, 1)
	for i := range int64(5) {
		server.Do("SCRIPT", "FLUSH")
		if _, outs := try(t, store, 0, ten); outs[0].Remaining != 9-i {
			t.Fatalf("%d remain after %d", outs[0].Remaining, i+1)
		}
	}
	server.Do("SCRIPT", "FLUSH")
	moved := make([]int64, 1)
	if err := store.Correct(context.Background(), 0,
		[]bucket.Change{{Key: ten.Key, Shape: ten.Shape, Units: bucket.Fill}}, moved); err != nil || moved[0] >= 0 {
		t.Fatalf("Correct moved %d, %v", moved[0], err)
	}
}

// strange answers everything with one value, as no server does that runs our scripts.
type strange struct{ answer any }

func (s strange) Eval(context.Context, string, string, []string, []string) (any, error) {
	return s.answer, nil
}

// Whatever comes back, it is no admission unless it is one.
func TestStrangeAnswersAdmitNobody(t *testing.T) {
	good := []any{int64(1_700_000_000_000_000), int64(1), int64(3), int64(0), int64(0)}
	answers := []any{nil, "OK", int64(1), []any{}, []any{int64(1)}, []any{"1", "1", "1", "1", "1"}, good[:4],
		append(good[:4:4], nil),
		append([]any{int64(-5)}, good[1:]...), append(good[:4:4], int64(1)<<60), append(good[:5:5], int64(1)),
		[]any{int64(5), int64(-1), int64(7), ""}, []any{int64(5), int64(-1), int64(0), ""},
		[]any{int64(5), int64(-1), int64(1)}, []any{int64(5), int64(-1), "1", "x"}}
	for _, answer := range answers {
		store := open(t, redis.Options{Server: strange{answer}})
		// A wait that is bounded goes through take.lua, which this answer is of.
		one := take(t, 1, rate.Limit{Tokens: 1, Per: time.Hour, Burst: 10, Algorithm: rate.LeakyBucket}, 1)
		one.MaxWait = time.Minute
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		allowed, err := store.TryConsume(ctx, 0, []bucket.Take{one}, make([]bucket.Outcome, 1))
		cancel()
		var why *redis.Error
		if allowed || !errors.As(err, &why) {
			t.Errorf("an answer of %v: %t, %v, want an *Error", answer, allowed, err)
		}
		if list, _ := answer.([]any); len(list) == 4 && list[3] == int64(0) {
			continue // as corrections are answered
		}
		if err := store.Correct(context.Background(), 0, []bucket.Change{{Key: one.Key, Shape: one.Shape, Units: 1}},
			make([]int64, 1)); err == nil {
			t.Errorf("an answer of %v to a correction is no error", answer)
		}
	}
}

func TestCausesHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for c := redis.Unreachable; c <= redis.Refused; c++ {
		if text := c.String(); text == "" || seen[text] || strings.ContainsAny(text, " "+strconv.Itoa(int(c))) {
			t.Errorf("cause %d is called %q", c, text)
		}
		seen[c.String()] = true
	}
}
