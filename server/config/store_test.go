package config_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/server/config"
)

func TestStore(t *testing.T) {
	alone := config.Store{
		Kind:         "scripts",
		Prefix:       "hg",
		Deadline:     5 * time.Millisecond,
		LeaseTTL:     100 * time.Millisecond,
		LeaseFree:    20,
		SyncInterval: 100 * time.Millisecond,
		MemberTTL:    3 * time.Second,
		Replicas:     1,
	}
	one, all := alone, alone
	one.Redis = []string{"redis.internal:6379"}
	throttled := one
	throttled.Kind, throttled.Deadline = "throttle", 200*time.Millisecond
	all = config.Store{
		Kind: "scripts", Redis: []string{"[::1]:1", "10.0.0.2:26379"}, Sentinel: "main", Database: 3, Username: "gate",
		PasswordFile: "p",
		TLS:          config.StoreTLS{Enabled: true, CAFile: "ca", CertFile: "c", KeyFile: "k", ServerName: "redis"},
		Prefix:       "edge-1", SecretFile: "s", Deadline: 10 * time.Millisecond, LeaseTTL: 200 * time.Millisecond,
		LeaseFree: 40, SyncInterval: 250 * time.Millisecond, MemberTTL: time.Second, Replicas: 8, Replays: "replica",
		ReadyFollows: true,
	}
	for text, want := range map[string]config.Store{
		"":                                      alone,
		"store: {redis: [redis.internal:6379]}": one,
		"store: {redis: [redis.internal:6379], kind: throttle, deadline: 200ms}": throttled,
		`store:
  redis: ["[::1]:1", "10.0.0.2:26379"]
  sentinel: main
  database: 3
  username: gate
  password_file: p
  tls: {enabled: true, ca_file: ca, cert_file: c, key_file: k, server_name: redis}
  prefix: edge-1
  secret_file: s
  deadline: 10ms
  lease_ttl: 200ms
  lease_free: 40
  sync_interval: 250ms
  member_ttl: 1s
  replicas: 8
  replays: replica
  ready_follows_store: true`: all,
	} {
		c, err := read(t, whole+text+"\n")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Complete(); err != nil || !reflect.DeepEqual(c.Store, want) || c.Store.On() != (text != "") {
			t.Errorf("%q: %+v with %v, want %+v", text, c.Store, err, want)
		}
	}
}

func TestStoreFaults(t *testing.T) {
	for text, want := range map[string]string{
		"{redsi: [a:1]}":                                       `store.redsi is no setting`,
		"{redis: a:1}":                                         `store.redis`,
		"{prefix: x}":                                          `store.redis is "", want the address of the server`,
		"{redis: [localhost]}":                                 `store.redis[0] is "localhost", want HOST:PORT such as 127.0.0.1:6379`,
		"{redis: ['localhost:redis']}":                         `store.redis[0] is "localhost:redis", want HOST:PORT`,
		"{redis: [':6379']}":                                   `store.redis[0] is ":6379", want HOST:PORT`,
		"{redis: [/run/redis.sock, 'a:1']}":                    `store.redis[0] is "/run/redis.sock", want HOST:PORT`,
		"{redis: ['a:1'], sync_interval: 1ms}":                 `store.sync_interval is "1ms", want 5ms to 10s`,
		"{redis: ['a:1'], lease_free: 91}":                     `store.lease_free is "91", want 0 to 90`,
		"{redis: ['a:1'], kind: dragonfly}":                    `store.kind is "dragonfly", want`,
		"{redis: ['a:1'], kind: throttle, cluster: true}":      `store.cluster is "true", want false with store.kind: throttle`,
		"{redis: ['a:1'], kind: throttle, lease_ttl: 1s}":      `store.lease_ttl is "1s", want it left out with store.kind: throttle`,
		"{redis: ['a:1'], kind: throttle, lease_free: 0}":      `store.lease_free is "0", want it left out`,
		"{redis: ['a:1'], kind: throttle, sync_interval: 1s}":  `store.sync_interval is "1s", want it left out`,
		"{redis: ['a:1', 'b:1']}":                              `store.redis is "a:1, b:1", want one server; or store.cluster: true`,
		"{redis: ['a:1'], cluster: true, sentinel: x}":         `store.sentinel is "x", want none with store.cluster`,
		"{redis: ['a:1'], cluster: true, database: 1}":         `store.database is "1", want 0 in a cluster`,
		"{redis: ['a:1'], database: -1}":                       `store.database is "-1", want 0 to`,
		"{redis: ['a:1'], username: x}":                        `store.password_file is "", want the file with the password of store.username`,
		"{redis: ['a:1'], prefix: 'a{b}'}":                     `store.prefix is "a{b}", want 1 to 16 letters`,
		"{redis: ['a:1'], prefix: ''}":                         `store.prefix is "", want 1 to 16 letters`,
		"{redis: ['a:1'], deadline: 1s}":                       `store.deadline is "1s", want 500µs to store.lease_ttl, which is 100ms`,
		"{redis: ['a:1'], deadline: 1us}":                      `store.deadline is "1µs", want 500µs`,
		"{redis: ['a:1'], lease_ttl: 1ms}":                     `store.lease_ttl is "1ms", want 10ms to 1m0s`,
		"{redis: ['a:1'], member_ttl: 1ms}":                    `store.member_ttl is "1ms", want 300ms to 1h0m0s`,
		"{redis: ['a:1'], replicas: 0}":                        `store.replicas is "0", want 1 to 65536`,
		"{redis: ['a:1'], replays: none}":                      `store.replays is "none", want`,
		"{redis: ['a:1'], kind: throttle, replays: shared}":    `store.replays is "shared", want replica, or store.kind: scripts`,
		"{replays: shared}":                                    `store.redis is "", want the address of the server`,
		"{redis: ['a:1'], tls: {ca_file: x}}":                  `store.tls.enabled is "false", want true`,
		"{redis: ['a:1'], tls: {enabled: true, cert_file: x}}": `store.tls.key_file is "", want a file`,
	} {
		c, err := read(t, whole+"store: "+text+"\n")
		if err == nil {
			err = c.Complete()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
