package redis_test

import (
	"context"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/redistest"
	"github.com/headgate-io/headgate/server/redis"
)

// start connects and checks, as a start of the gateway does.
func start(o redis.Options) error {
	client, err := redis.Dial(o)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return client.Check(ctx)
}

func TestWhatIsWrongAtStart(t *testing.T) {
	t.Parallel()
	on := func(args ...string) redis.Options {
		return redis.Options{Addresses: []string{redistest.Start(t, args...).Socket}}
	}
	with := func(o redis.Options, change func(*redis.Options)) redis.Options {
		change(&o)
		return o
	}
	for name, c := range map[string]struct {
		options redis.Options
		want    string // "" is nothing
	}{
		"nothing": {on(), ""},
		"the right password": {with(on("--requirepass", "open sesame"),
			func(o *redis.Options) { o.Password = "open sesame" }), ""},
		"a wrong password": {with(on("--requirepass", "open sesame"), func(o *redis.Options) {
			o.Password = "wrong-password-of-ours"
		}), "want the user and the password that the server has"},
		"no password": {on("--requirepass", "open sesame"),
			"the server wants a password, and none is configured"},
		"nobody listens": {redis.Options{Addresses: []string{"127.0.0.1:1"}},
			"nobody listens there: want the address of a server that runs"},
		"no socket": {redis.Options{Addresses: []string{"/nowhere/redis.sock"}},
			"there is no socket of this name"},
		"one that evicts": {on("--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"),
			"maxmemory-policy is volatile-lru: it throws away"},
		"one that would, never full": {on("--maxmemory-policy", "allkeys-lru"), ""},
		"full, and evicts nothing":   {on("--maxmemory", "100mb"), ""},
		"no scripts": {on("--rename-command", "EVAL", "", "--rename-command", "EVALSHA", ""),
			"the server needs the commands INFO, EVAL and EVALSHA"},
		"a user who may not": {on("--user", "default", "on", "nopass", "~*", "+@all", "-@scripting"),
			"the user needs the commands INFO, EVAL"},
		"a replica": {on("--replicaof", "127.0.0.1 1"),
			"it is a replica, which takes no writes: want the address of the primary"},
		"no cluster": {with(redis.Options{Addresses: []string{redistest.StartOnPort(t).Address()}},
			func(o *redis.Options) { o.Cluster = true }), "it is no member of a cluster: want store.cluster: false"},
		"no addresses": {redis.Options{}, "redis: addresses is empty, want at least one host:port"},
		"an address without a port": {redis.Options{Addresses: []string{"redis.example.org"}},
			`addresses[0] is "redis.example.org", want host:port`},
		"several that are no cluster": {redis.Options{Addresses: []string{"a:1", "b:1"}},
			"addresses has 2 servers, want one; or cluster: true"},
		"sentinels of a cluster": {redis.Options{Addresses: []string{"a:1"}, Cluster: true, Sentinel: "x",
			Database: 3}, "cluster and sentinel are both set, want one: a cluster watches itself\ndatabase is 3, " +
			"want 0 in a cluster"},
		"a database that is not there": {with(on("--databases", "2"), func(o *redis.Options) { o.Database = 5 }),
			"DB index is out of range"},
	} {
		t.Run(name, func(t *testing.T) {
			err := start(c.options)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("start: %v, want %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "wrong-password-of-ours") {
				t.Errorf("the password is in %v", err)
			}
		})
	}
}

// A gateway says once why it cannot connect, for as long as that is the same.
func TestAFaultIsSaidInTheSameWords(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.(*net.TCPConn).SetLinger(0) // closes by a reset
			_, _ = c.Read(make([]byte, 1))
			_ = c.Close()
		}
	}()
	said := map[string]bool{}
	for range 5 {
		err := start(redis.Options{Addresses: []string{l.Addr().String()}})
		if err == nil || !redis.Away(err) {
			t.Fatalf("a connection that is reset: %v, want that the server is away", err)
		}
		said[err.Error()] = true
	}
	// Whether it is seen while writing or while reading is for the network to say.
	if len(said) > 2 {
		t.Errorf("five times the same fault are told as %q", slices.Collect(maps.Keys(said)))
	}
}
