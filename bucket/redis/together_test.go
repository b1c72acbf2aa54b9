//go:build unix

package redis_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/lease"
	"github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/rate"
)

// Questions that are asked together are answered as they are one by one, bit for bit: also those
// that were asked before, and those about buckets whose limit has changed.
func TestQuestionsTogetherAreAnsweredAsApart(t *testing.T) {
	server := redistest.Start(t)
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).UnixNano()
	o := redis.AuthorityOptions{Now: func() int64 { return now }}
	conn := connect(t, server)
	together := authority(t, open(t, redis.Options{Server: conn, CallersClock: true, Prefix: "together"}), o)
	apart := authority(t, open(t, redis.Options{Server: conn, CallersClock: true, Prefix: "apart"}), o)
	rng := rand.New(rand.NewPCG(3, 4))
	limits := []rate.Limit{{Tokens: 7, Per: time.Second, Burst: 9}, {Tokens: 1000, Per: time.Second, Burst: 1000},
		{Tokens: 3, Per: time.Minute, Burst: 5}}
	seq, granted := [20]uint64{}, int64(0)
	for round := range 600 {
		now += rng.Int64N(int64(100*time.Millisecond)) / 1000 * 1000
		var asked []lease.Asked
		for n := range uint64(len(seq)) {
			if rng.IntN(3) > 0 {
				continue
			}
			l := limits[n%3]
			if round > 300 && n%2 == 0 {
				l.Tokens *= 2
			}
			if rng.IntN(5) > 0 || seq[n] == 0 {
				seq[n]++
			}
			asked = append(asked, lease.Asked{
				Of:       take(t, n, l, 0),
				Question: lease.Question{Seq: seq[n], Want: 1 + rng.Int64N(10), Need: rng.Int64N(3)},
			})
		}
		together.AskAll(context.Background(), 1, asked)
		for _, a := range asked {
			if want := ask(t, apart, 1, a.Of, a.Question); a.Err != nil || a.Answer != want {
				t.Fatalf("round %d, %+v: %+v, %v, want %+v", round, a.Question, a.Answer, a.Err, want)
			}
			granted += a.Answer.Tokens
		}
	}
	if granted < 1000 {
		t.Errorf("%d tokens were granted, want some", granted)
	}
}

// One bucket that others have written over keeps nobody from the rest.
func TestAForeignValueAmongQuestions(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, redis.Options{Server: connect(t, server)})
	a := authority(t, store, redis.AuthorityOptions{})
	asked := make([]lease.Asked, 5)
	for i := range asked {
		asked[i] = lease.Asked{
			Of:       take(t, uint64(i), rate.Limit{Tokens: 10, Per: time.Minute, Burst: 10}, 1),
			Question: lease.Question{Seq: 1, Want: 4},
		}
	}
	if _, err := store.TryConsume(context.Background(), 0, []bucket.Take{asked[2].Of},
		make([]bucket.Outcome, 1)); err != nil {
		t.Fatal(err)
	}
	name, _ := server.Do("KEYS", "*").([]any)[0].(string)
	server.Do("DEL", name)
	server.Do("LPUSH", name, "x")
	a.AskAll(context.Background(), 1, asked)
	for i, got := range asked {
		tokens, left := int64(4), int64(6)
		if i == 2 {
			tokens, left = 0, 0 // nobody knows what it owed
		}
		if got.Err != nil || got.Answer.Tokens != tokens || got.Answer.Left != left {
			t.Errorf("question %d: %+v, %v, want %d tokens charged once and %d left", i, got.Answer,
				got.Err, tokens, left)
		}
	}
}
