package config

import (
	"errors"
	"fmt"
	"net"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Store is the server that holds the buckets which gateways share: Redis, or
// one that speaks its language. See docs/shared-store.md.
type Store struct {
	// Redis are its addresses, HOST:PORT each, or the path of one unix socket.
	// Of a cluster some members suffice; with Sentinel they are those of the
	// sentinels. Default none: every gateway counts alone.
	Redis []string `yaml:"redis"`

	// Kind says how the server is asked for buckets: by scripts, or by throttle, which is the
	// command CL.THROTTLE of redis-cell and Dragonfly. By throttle the scopes lease and sync are as
	// strict. Default scripts.
	Kind string `yaml:"kind"`

	// Cluster says that they are members of a cluster; Sentinel is the name by
	// which sentinels watch the server. Default neither: one server.
	Cluster  bool   `yaml:"cluster"`
	Sentinel string `yaml:"sentinel"`

	// Database is the number of the database. Default 0.
	Database int `yaml:"database"`

	// Username is the user of the server, whose password is the first line of
	// PasswordFile. Default the server's default user, with no password.
	Username     string `yaml:"username"`
	PasswordFile string `yaml:"password_file"`

	// TLS says how to talk to the server. Default in the clear.
	TLS StoreTLS `yaml:"tls"`

	// Prefix begins the names of everything on the server. Gateways with other
	// prefixes share nothing. Default hg.
	Prefix string `yaml:"prefix"`

	// SecretFile holds the secret under which buckets are named, the same for
	// all gateways. Default the one of SecretFile of the whole.
	SecretFile string `yaml:"secret_file"`

	// Deadline is how long a request waits for the server. Default 5ms.
	Deadline time.Duration `yaml:"deadline"`

	// LeaseTTL is how long tokens that were taken in advance may be used.
	// Default 100ms.
	LeaseTTL time.Duration `yaml:"lease_ttl"`

	// LeaseFree is how many percent of limits of scope lease the gateways have to
	// themselves, in equal parts, the same at all of them. Default 20.
	LeaseFree int `yaml:"lease_free"`

	// SyncInterval is how long requests of limits of scope sync wait to be told to
	// the server, at most, the same at all gateways. Default 100ms.
	SyncInterval time.Duration `yaml:"sync_interval"`

	// MemberTTL is after what time of silence a gateway counts as gone.
	// Default 3s.
	MemberTTL time.Duration `yaml:"member_ttl"`

	// Replicas is how many gateways there are taken to be as long as the server
	// never answered. Default 1.
	Replicas int `yaml:"replicas"`

	// Replays says who remembers what is good once, proofs of DPoP and nonces of signed agents: shared, all
	// gateways together; replica, each for itself. Default shared, and replica by throttle, which cannot share it.
	Replays string `yaml:"replays"`

	// ReadyFollows makes the gateway unready while the server is away. Default
	// false: rules say what happens then.
	ReadyFollows bool `yaml:"ready_follows_store"`
}

// StoreTLS is how to talk to the server of the store.
type StoreTLS struct {
	// Enabled encrypts what is said to the server. Default false.
	Enabled bool `yaml:"enabled"`

	// CAFile holds the certificates of those who sign the server's. Default those of the system.
	CAFile string `yaml:"ca_file"`

	// CertFile and KeyFile hold what the server is shown of this gateway, if it asks.
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`

	// ServerName is the name that the server's certificate must have. Default the host of the address.
	ServerName string `yaml:"server_name"`
}

// On reports whether gateways share a store.
func (s *Store) On() bool { return len(s.Redis) > 0 }

// The values of Store.Kind.
const (
	ByScripts  = "scripts"
	ByThrottle = "throttle"
)

// Throttles reports whether buckets are asked for by CL.THROTTLE.
func (s *Store) Throttles() bool { return s.Kind == ByThrottle }

// SharesReplays reports whether all gateways remember together what is good once.
func (s *Store) SharesReplays() bool { return s.On() && !s.Throttles() && s.Replays != "replica" }

// Free is how many percent of limits of scope lease gateways have to themselves.
func (s *Store) Free() int {
	if s.Throttles() {
		return 0
	}
	return s.LeaseFree
}

// Check reports what is wrong with s, as Config.Complete does.
func (s *Store) Check() error {
	c := checker{}
	c.store(*s)
	return errors.Join(c.errs...)
}

func defaultStore() Store {
	return Store{
		Kind:         ByScripts,
		Prefix:       "hg",
		Deadline:     5 * time.Millisecond,
		LeaseTTL:     100 * time.Millisecond,
		LeaseFree:    20,
		SyncInterval: 100 * time.Millisecond,
		MemberTTL:    3 * time.Second,
		Replicas:     1,
	}
}

// maxStorePrefix is what bucket/redis takes.
const maxStorePrefix = 16

func (c *checker) store(s Store) {
	if !s.On() {
		if empty := defaultStore(); !reflect.DeepEqual(s, empty) {
			c.wrong("store.redis", "", "the address of the server, such as 127.0.0.1:6379, or store left out: "+
				"without one every gateway counts alone")
		}
		return
	}
	c.storeAddresses(s)
	c.storeKind(s)
	if s.Replays != "" {
		c.oneOf("store.replays", s.Replays, "shared", "replica")
	}
	c.between("store.database", int64(s.Database), 0, 1<<20)
	if s.Username != "" && s.PasswordFile == "" {
		c.wrong("store.password_file", "", "the file with the password of store.username")
	}
	if s.Prefix == "" || len(s.Prefix) > maxStorePrefix ||
		strings.Trim(s.Prefix, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:") != "" {
		c.wrong("store.prefix", s.Prefix, fmt.Sprintf("1 to %d letters, digits or any of -_.:", maxStorePrefix))
	}
	c.duration("store.lease_ttl", s.LeaseTTL, 10*time.Millisecond, time.Minute)
	if s.Deadline < 500*time.Microsecond || s.Deadline > time.Minute || s.Deadline > s.LeaseTTL && !s.Throttles() {
		c.wrong("store.deadline", s.Deadline.String(),
			fmt.Sprintf("500µs to store.lease_ttl, which is %v: no request waits longer than tokens are good",
				s.LeaseTTL))
	}
	c.between("store.lease_free", int64(s.LeaseFree), 0, 90)
	c.duration("store.sync_interval", s.SyncInterval, 5*time.Millisecond, 10*time.Second)
	c.duration("store.member_ttl", s.MemberTTL, 300*time.Millisecond, time.Hour)
	c.between("store.replicas", int64(s.Replicas), 1, 1<<16)
	c.storeTLS(s.TLS)
}

// storeKind also says which settings have no effect on a server that is asked by CL.THROTTLE.
func (c *checker) storeKind(s Store) {
	c.oneOf("store.kind", s.Kind, ByScripts, ByThrottle)
	if !s.Throttles() {
		return
	}
	if s.Cluster {
		c.wrong("store.cluster", "true", "false with store.kind: throttle")
	}
	if s.Replays == "shared" {
		c.wrong("store.replays", s.Replays,
			"replica, or store.kind: scripts: by CL.THROTTLE each gateway remembers for itself")
	}
	usual := defaultStore()
	for _, unused := range []struct{ name, value, usual string }{
		{"store.lease_ttl", s.LeaseTTL.String(), usual.LeaseTTL.String()},
		{"store.lease_free", strconv.Itoa(s.LeaseFree), strconv.Itoa(usual.LeaseFree)},
		{"store.sync_interval", s.SyncInterval.String(), usual.SyncInterval.String()},
	} {
		if unused.value != unused.usual {
			c.wrong(unused.name, unused.value,
				"it left out with store.kind: throttle, by which nothing is leased or reported")
		}
	}
}

func (c *checker) storeAddresses(s Store) {
	socket := len(s.Redis) == 1 && strings.HasPrefix(s.Redis[0], "/")
	for i, a := range s.Redis {
		host, port, err := net.SplitHostPort(a)
		if _, errPort := strconv.ParseUint(port, 10, 16); (err != nil || errPort != nil || host == "") && !socket {
			c.wrong(fmt.Sprintf("store.redis[%d]", i), a,
				"HOST:PORT such as 127.0.0.1:6379, or the path of one unix socket alone")
		}
	}
	switch {
	case s.Cluster && s.Sentinel != "":
		c.wrong("store.sentinel", s.Sentinel, "none with store.cluster: a cluster watches itself")
	case !s.Cluster && s.Sentinel == "" && len(s.Redis) > 1:
		c.wrong("store.redis", strings.Join(s.Redis, ", "),
			"one server; or store.cluster: true; or store.sentinel, the name that sentinels watch the server by")
	case s.Cluster && s.Database != 0:
		c.wrong("store.database", strconv.Itoa(s.Database), "0 in a cluster, which has no others")
	}
}

func (c *checker) storeTLS(t StoreTLS) {
	if !t.Enabled {
		if t != (StoreTLS{}) {
			c.wrong("store.tls.enabled", "false",
				"true, or the rest of store.tls left out: passwords and buckets go in the clear now")
		}
		return
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		c.wrong("store.tls.key_file", t.KeyFile, "a file, and one in store.tls.cert_file: both or none")
	}
}
