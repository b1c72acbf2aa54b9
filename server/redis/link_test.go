package redis_test

import (
	"context"
	"errors"
	"testing"
	"time"

	shared "github.com/headgate-io/headgate/bucket/redis"
	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/server/redis"
)

// A link fails without its server, and works once the server is there and in order.
func TestALinkWaitsForItsServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	server.Kill()
	link, err := redis.NewLink(redis.Options{Addresses: []string{server.Socket}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	s, err := shared.New(shared.Options{Server: link})
	if err != nil {
		t.Fatal(err)
	}
	if err := link.Connect(t.Context()); err == nil || !redis.Away(err) {
		t.Fatalf("without a server: %v, want that it is away", err)
	}
	var why *shared.Error
	if allowed, err := try(s, time.Second, ten); allowed || !errors.As(err, &why) || why.Cause != shared.Unreachable {
		t.Fatalf("without a server: %t, %v", allowed, err)
	}
	server.Start()
	if err := link.Connect(t.Context()); err == nil || redis.Away(err) {
		t.Fatalf("a server that evicts: %v, want a fault that no waiting mends", err)
	}
	server.Do("CONFIG", "SET", "maxmemory-policy", "noeviction")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	link.Run(ctx, func(err error) {
		if err != nil {
			t.Errorf("connecting: %v", err)
		}
	})
	if allowed, err := try(s, time.Minute, ten); !allowed || err != nil {
		t.Errorf("with a server: %t, %v", allowed, err)
	}
}

func TestAway(t *testing.T) {
	t.Parallel()
	frozen := redistest.StartOnPort(t)
	frozen.Freeze()
	for name, c := range map[string]struct {
		options redis.Options
		want    bool
	}{
		"nobody listens": {redis.Options{Addresses: []string{"127.0.0.1:1"}}, true},
		"no such host":   {redis.Options{Addresses: []string{"redis.invalid:6379"}}, true},
		"no socket":      {redis.Options{Addresses: []string{"/nowhere/redis.sock"}}, true},
		"frozen": {redis.Options{Addresses: []string{frozen.Address()},
			ConnectTimeout: 100 * time.Millisecond}, true},
		"of a cluster": {redis.Options{Addresses: []string{"127.0.0.1:1"}, Cluster: true}, true},
		"by sentinels": {redis.Options{Addresses: []string{"127.0.0.1:1"}, Sentinel: "main"}, true},
		"wrong password": {redis.Options{
			Addresses: []string{redistest.Start(t, "--requirepass", "open sesame").Socket},
			Password:  "x",
		}, false},
		"a replica": {redis.Options{Addresses: []string{redistest.Start(t, "--replicaof", "127.0.0.1 1").Socket}},
			false},
		"without scripts": {redis.Options{Addresses: []string{redistest.Start(t, "--rename-command", "EVALSHA",
			"").Socket}}, false},
		"no cluster": {redis.Options{Addresses: []string{redistest.StartOnPort(t).Address()}, Cluster: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := start(c.options); err == nil || redis.Away(err) != c.want {
				t.Errorf("Away(%v) = %t, want %t", err, !c.want, c.want)
			}
		})
	}
}
