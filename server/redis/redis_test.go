package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/buckettest"
	shared "github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/server/redis"
)

func dial(t testing.TB, o redis.Options) *redis.Client {
	t.Helper()
	client, err := redis.Dial(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func store(t testing.TB, client *redis.Client) *shared.Store {
	t.Helper()
	s, err := client.Buckets("")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var ten = bucket.Take{
	Key:   buckettest.Key(1),
	Shape: rate.Shape{Drain: 1, Unit: 3_600_000_000_000, Capacity: 36_000_000_000_000, Tick: 1},
	Cost:  1,
}

func try(s *shared.Store, within time.Duration, takes ...bucket.Take) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return s.TryConsume(ctx, 0, takes, make([]bucket.Outcome, len(takes)))
}

// The contract, with every bucket of another tag, so that decisions over several go to several servers.
func TestContractAcrossACluster(t *testing.T) {
	t.Parallel()
	servers := redistest.Cluster(t)
	client := dial(t, redis.Options{Addresses: []string{servers[0].Address()}, Cluster: true})
	if err := client.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	var opened atomic.Int64
	buckettest.RunAtOnce(t, func(t testing.TB) bucket.Store {
		s, err := shared.New(shared.Options{
			Server:       client,
			Cluster:      true,
			CallersClock: true,
			Prefix:       fmt.Sprint("of", opened.Add(1)),
		})
		if err != nil {
			t.Fatal(err)
		}
		return scattered{s}
	}, rate.TokenBucket, rate.LeakyBucket)
	t.Cleanup(func() { // after all cases
		for _, s := range servers {
			if calls := s.Do("INFO", "commandstats").(string); !strings.Contains(calls, "cmdstat_evalsha:") {
				t.Errorf("%s was never asked", s.Address())
			}
		}
	})
}

// scattered gives each bucket a tag of its own.
type scattered struct{ *shared.Store }

func (s scattered) TryConsume(ctx context.Context, now int64, takes []bucket.Take,
	outs []bucket.Outcome) (bool, error) {
	return s.Store.TryConsume(ctx, now, scatter(takes), outs)
}

func (s scattered) Peek(ctx context.Context, now int64, takes []bucket.Take, outs []bucket.Outcome) (bool, error) {
	return s.Store.Peek(ctx, now, scatter(takes), outs)
}

func (s scattered) Correct(ctx context.Context, now int64, changes []bucket.Change, moved []int64) error {
	for i := range changes {
		changes[i].Tag = uint16(changes[i].Key.Lo)
	}
	return s.Store.Correct(ctx, now, changes, moved)
}

func scatter(takes []bucket.Take) []bucket.Take {
	scattered := make([]bucket.Take, len(takes))
	for i, t := range takes {
		scattered[i] = t
		scattered[i].Tag = uint16(t.Key.Lo)
	}
	return scattered
}

// A frozen server costs each request its deadline and no more, however many wait; and it serves again when it goes on.
func TestAFrozenServerCostsTheDeadline(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := store(t, dial(t, redis.Options{Addresses: []string{server.Socket}}))
	if allowed, err := try(s, time.Minute, ten); !allowed || err != nil {
		t.Fatal(allowed, err)
	}
	server.Freeze()
	const requests = 3000 // more than one connection holds
	errs := make([]error, requests)
	var wg sync.WaitGroup
	for i := range requests {
		wg.Go(func() {
			allowed, err := try(s, 50*time.Millisecond, ten)
			if allowed {
				err = errors.New("admitted")
			}
			errs[i] = err
		})
	}
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("requests wait for a frozen server long after their deadline")
	}
	for i, err := range errs {
		var why *shared.Error
		if !errors.As(err, &why) || why.Cause != shared.TimedOut && why.Cause != shared.Unreachable {
			t.Fatalf("request %d: %v, want that it timed out", i, err)
		}
	}
	server.Thaw()
	answers(t, s)
}

// Who has little time does not wait for another one's attempt to connect.
func TestConnectingAnewCostsTheDeadline(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := store(t, dial(t, redis.Options{Addresses: []string{server.Socket}, ConnectTimeout: time.Minute}))
	answers(t, s)
	server.Kill()
	if _, err := try(s, 20*time.Millisecond, ten); err == nil {
		t.Fatal("a killed server answers")
	}
	server.Start()
	server.Freeze() // it takes connections, and says nothing
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { // somebody with much time
		for ctx.Err() == nil {
			_, _ = s.TryConsume(ctx, 0, []bucket.Take{ten}, make([]bucket.Outcome, 1))
		}
	}()
	ended := make(chan error, 1)
	go func() {
		for i := range 200 {
			var why *shared.Error
			if allowed, err := try(s, 20*time.Millisecond, ten); allowed || !errors.As(err, &why) {
				ended <- fmt.Errorf("request %d: %t, %w", i, allowed, err)
				return
			}
		}
		ended <- nil
	}()
	select {
	case err := <-ended:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("requests wait for another one's attempt to connect long after their deadline")
	}
	server.Thaw()
	answers(t, s)
}

// answers waits until the store makes decisions again.
func answers(t *testing.T, s *shared.Store) {
	t.Helper()
	other := ten
	other.Key, other.Cost = buckettest.Key(99), 0
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if _, err = try(s, time.Second, other); err == nil {
			return
		}
	}
	t.Fatalf("no answer within a minute: %v", err)
}

func TestARestartedServerIsFoundAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := store(t, dial(t, redis.Options{Addresses: []string{server.Socket}}))
	all := ten
	all.Cost = 10
	for range 3 {
		answers(t, s)
		if allowed, err := try(s, time.Minute, all); !allowed || err != nil {
			t.Fatalf("an empty server: %t, %v", allowed, err)
		}
		server.Kill()
		var why *shared.Error
		if allowed, err := try(s, time.Second, all); allowed || !errors.As(err, &why) {
			t.Fatalf("a killed server: %t, %v", allowed, err)
		}
		server.Start()
	}
}

// Sentinels promote a replica when the primary is gone, and the buckets go on with what the replica knows.
func TestSentinelsLeadToTheNewPrimary(t *testing.T) {
	t.Parallel()
	primary := redistest.StartOnPort(t)
	replica := redistest.StartOnPort(t, "--replicaof", "127.0.0.1 "+strconv.Itoa(primary.Port))
	replica.Await("INFO replication", func(answer any, _ error) bool {
		text, _ := answer.(string)
		return strings.Contains(text, "master_link_status:up")
	})
	port := redistest.Sentinel(t, primary)
	o := redis.Options{Addresses: []string{fmt.Sprintf("127.0.0.1:%d", port)}, Sentinel: "headgate"}
	var client *redis.Client
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if client, err = redis.Dial(o); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	if err := client.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := store(t, client)
	all := ten
	all.Cost = 10
	if allowed, err := try(s, time.Minute, all); !allowed || err != nil {
		t.Fatal(allowed, err)
	}
	replica.Await("DBSIZE", func(size any, _ error) bool { return size == int64(1) })
	primary.Kill()
	replica.Await("ROLE", func(answer any, _ error) bool {
		role, ok := answer.([]any)
		return ok && role[0] == "master"
	})
	answers(t, s)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		allowed, err := try(s, time.Second, ten)
		if err == nil && !allowed {
			return
		}
		if allowed || time.Now().After(deadline) {
			t.Fatalf("on the new primary: %t, %v, want a denial: it was all taken", allowed, err)
		}
	}
}
