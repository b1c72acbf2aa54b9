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
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/rate"
)

// Each fault is an error of its kind, and admits nobody; and when it is over, so is the error.
func TestFaults(t *testing.T) {
	var name string // of the bucket
	for _, c := range []struct {
		fault string
		make  func(s *redistest.Server)
		want  redis.Cause
		mend  func(s *redistest.Server)
	}{
		{"a list under our name", func(s *redistest.Server) { s.Do("DEL", name); s.Do("LPUSH", name, "x") }, redis.ForeignValue, func(s *redistest.Server) { s.Do("DEL", name) }},
		{"a text under our name", func(s *redistest.Server) { s.Do("SET", name, "what others keep in a text of theirs") }, redis.ForeignValue, func(s *redistest.Server) { s.Do("DEL", name) }},
		{"a short text under our name", func(s *redistest.Server) { s.Do("SET", name, "1") }, redis.ForeignValue, func(s *redistest.Server) { s.Do("DEL", name) }},
		{"no memory left", func(s *redistest.Server) { s.Do("CONFIG", "SET", "maxmemory", "1") }, redis.OutOfMemory, func(s *redistest.Server) { s.Do("CONFIG", "SET", "maxmemory", "0") }},
		{"a replica", func(s *redistest.Server) { s.Do("REPLICAOF", "127.0.0.1", "1") }, redis.ReadOnly, func(s *redistest.Server) { s.Do("REPLICAOF", "NO", "ONE") }},
		{"frozen", func(s *redistest.Server) { s.Freeze() }, redis.TimedOut, func(s *redistest.Server) { s.Thaw() }},
		{"killed", func(s *redistest.Server) { s.Kill() }, redis.Unreachable, func(s *redistest.Server) { s.Start() }},
		{"may not run scripts", func(s *redistest.Server) { s.Do("ACL", "SETUSER", "default", "-@scripting") }, redis.Forbidden, func(s *redistest.Server) { s.Do("ACL", "SETUSER", "default", "+@all") }},
		{"too few replicas to write", func(s *redistest.Server) { s.Do("CONFIG", "SET", "min-replicas-to-write", "1") }, redis.ReadOnly, func(s *redistest.Server) { s.Do("CONFIG", "SET", "min-replicas-to-write", "0") }},
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
			hurt, well := take(t, 1, rate.Limit{Tokens: 1, Per: time.Hour, Burst: 10}, 1), take(t, 2, rate.Limit{Tokens: 1, Per: time.Hour, Burst: 10}, 1)
			try(t, store, 0, hurt)
			name = server.Do("RANDOMKEY").(string)
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
				if allowed || !errors.As(err, &why) || why.Cause != c.want || !strings.HasPrefix(err.Error(), "the bucket store cannot answer: ") {
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
	if err := store.Correct(context.Background(), 0, []bucket.Change{{Key: ten.Key, Shape: ten.Shape, Units: bucket.Fill}}, moved); err != nil || moved[0] >= 0 {
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
	answers := []any{nil, "OK", int64(1), []any{}, []any{int64(1)}, []any{"1", "1", "1", "1", "1"}, good[:4], append(good[:4:4], nil),
		append([]any{int64(-5)}, good[1:]...), append(good[:4:4], int64(1)<<60), append(good[:5:5], int64(1)),
		[]any{int64(5), int64(-1), int64(7), ""}, []any{int64(5), int64(-1), int64(0), ""}, []any{int64(5), int64(-1), int64(1)}, []any{int64(5), int64(-1), "1", "x"}}
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
		if err := store.Correct(context.Background(), 0, []bucket.Change{{Key: one.Key, Shape: one.Shape, Units: 1}}, make([]int64, 1)); err == nil {
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
