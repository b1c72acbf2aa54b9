package redis_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/server/redis"
)

// What is changed on a server after the start is noticed, and so is that it can be replaced without noticing.
func TestTheStateOfServersInUse(t *testing.T) {
	t.Parallel()
	primary := redistest.StartOnPort(t, "--maxmemory", "100mb")
	replica := redistest.StartOnPort(t, "--replicaof", "127.0.0.1 "+strconv.Itoa(primary.Port))
	replica.Await("INFO replication", func(answer any, _ error) bool {
		text, _ := answer.(string)
		return strings.Contains(text, "master_link_status:up")
	})
	port := redistest.Sentinel(t, primary)
	var client *redis.Client
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if client, err = redis.Dial(redis.Options{Addresses: []string{fmt.Sprintf("127.0.0.1:%d", port)},
			Sentinel: "headgate"}); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	want := func(faults, risks int) redis.State {
		t.Helper()
		state, err := client.State(t.Context())
		if err != nil || len(state.Faults) != faults || len(state.Risks) != risks {
			t.Fatalf("%+v, %v, want %d faults and %d risks", state, err, faults, risks)
		}
		if state.Trip <= 0 || state.Offset.Abs() > state.Within+time.Millisecond {
			t.Errorf("%+v, want a time to answer, and the clock of this machine", state)
		}
		return state
	}
	want(0, 1)
	primary.Do("CONFIG", "SET", "min-replicas-to-write", "1")
	primary.Do("CONFIG", "SET", "min-replicas-max-lag", "2")
	want(0, 0)
	primary.Do("CONFIG", "SET", "min-replicas-max-lag", "10") // the default
	if risks := want(0, 1).Risks; !strings.Contains(risks[0], "min-replicas-max-lag is 10: ") {
		t.Errorf("%q, want the setting and its value", risks[0])
	}
	primary.Do("ACL", "SETUSER", "default", "-config")
	want(0, 0) // it does not tell
	want(0, 0)
	if refused := primary.Do("ACL", "LOG").([]any); len(refused) != 1 ||
		!strings.Contains(fmt.Sprint(refused[0]), "count 1 ") {
		t.Errorf("the server noted %v, want one refusal", refused)
	}
	primary.Do("ACL", "SETUSER", "default", "+config")
	primary.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	want(1, 0)
	primary.Do("CONFIG", "SET", "maxmemory-policy", "noeviction")
	want(0, 0)
}

// A link tells of each look, the first one at once.
func TestALinkIsWatched(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "noeviction")
	link, err := redis.NewLink(redis.Options{Addresses: []string{server.Socket}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	if _, err := link.State(t.Context()); err == nil {
		t.Error("a link that never connected tells how its servers are")
	}
	if err := link.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.Do("CONFIG", "SET", "maxmemory-policy", "volatile-ttl")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	saw := make(chan redis.State, 1)
	go link.Watch(ctx, func(s redis.State, _ error) { saw <- s; cancel() })
	if s := <-saw; len(s.Faults) != 1 || !strings.Contains(s.Faults[0], "volatile-ttl") || len(s.Risks) != 0 {
		t.Errorf("%+v, want that it evicts, and no risk of one server alone", s)
	}
}
