package config

import (
	"strconv"
	"time"
)

// Clients bounds what clients may hold of the gateway, and for how long; see
// docs/operations.md.
type Clients struct {
	// MaxConnections bounds connections in total. Default 0: by the descriptors of
	// the process.
	MaxConnections int `yaml:"max_connections"`

	// MaxPerAddress bounds those of one client address, MaxRequestsPerAddress its
	// requests under way. Default 0: an eighth of the total, 1024 at most.
	// Addresses of trusted_proxies and proxy_protocol.from are not bound by them.
	MaxPerAddress         int `yaml:"max_connections_per_address"`
	MaxRequestsPerAddress int `yaml:"max_requests_per_address"`

	// MaxStreams is how many requests may be under way on a connection of HTTP/2.
	// Default 100.
	MaxStreams int `yaml:"max_streams"`

	// HeadTimeout bounds the TLS handshake and the arrival of a head. Default 10s.
	HeadTimeout time.Duration `yaml:"head_timeout"`

	// IdleTimeout is how long a connection waits for its next request. Default 2m.
	IdleTimeout time.Duration `yaml:"idle_timeout"`

	// Patience is how long a client may send nothing of a body, or take nothing of
	// an answer. Default 20s. MinRate are the bytes a second by which it never
	// falls behind. Default 500.
	Patience time.Duration `yaml:"patience"`
	MinRate  int64         `yaml:"min_rate"`

	// StreamIdle is how long a WebSocket, a stream or an answer that has paused may
	// be silent in both directions. Default 10m.
	StreamIdle time.Duration `yaml:"stream_idle_timeout"`

	// MaxHeaders is how many header fields a request may have. Default 128.
	MaxHeaders int `yaml:"max_headers"`

	// MaxHeaderBytes bounds the head of a request. Default 32KiB.
	MaxHeaderBytes Bytes `yaml:"max_header_bytes"`

	// MaxTargetBytes bounds the request target. Default 8KiB.
	MaxTargetBytes Bytes `yaml:"max_target_bytes"`

	// BodyMemory is what the bodies may hold together that are read before their requests are decided, beside 8KiB for
	// each; those of one address half of it. Default 256MiB.
	BodyMemory Bytes `yaml:"body_memory"`
}

func defaultClients() Clients {
	return Clients{
		MaxStreams: 100, HeadTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		Patience: 20 * time.Second, MinRate: 500,
		StreamIdle: 10 * time.Minute, MaxHeaders: 128, MaxHeaderBytes: 32 << 10, MaxTargetBytes: 8 << 10,
		BodyMemory: 256 << 20,
	}
}

const mostConnections = 1 << 20

func (c *checker) clients(v Clients) {
	c.between("clients.max_connections", int64(v.MaxConnections), 0, mostConnections)
	c.between("clients.max_connections_per_address", int64(v.MaxPerAddress), 0, mostConnections)
	c.between("clients.max_requests_per_address", int64(v.MaxRequestsPerAddress), 0, mostConnections)
	if v.MaxConnections > 0 && v.MaxPerAddress > v.MaxConnections {
		c.wrong("clients.max_connections_per_address", strconv.Itoa(v.MaxPerAddress),
			"at most clients.max_connections, which is "+strconv.Itoa(v.MaxConnections))
	}
	c.between("clients.max_streams", int64(v.MaxStreams), 1, 1000)
	c.duration("clients.head_timeout", v.HeadTimeout, 10*time.Millisecond, 10*time.Minute)
	c.duration("clients.idle_timeout", v.IdleTimeout, 10*time.Millisecond, 24*time.Hour)
	c.duration("clients.patience", v.Patience, 100*time.Millisecond, time.Hour)
	c.between("clients.min_rate", v.MinRate, 1, 1<<30)
	c.duration("clients.stream_idle_timeout", v.StreamIdle, 100*time.Millisecond, 7*24*time.Hour)
	c.between("clients.max_headers", int64(v.MaxHeaders), 8, 10_000)
	c.size("clients.max_header_bytes", v.MaxHeaderBytes, 4<<10, 1<<20)
	c.size("clients.body_memory", v.BodyMemory, 1<<20, 1<<40)
	c.size("clients.max_target_bytes", v.MaxTargetBytes, 256, 1<<20)
	if v.MaxTargetBytes > v.MaxHeaderBytes {
		c.wrong("clients.max_target_bytes", v.MaxTargetBytes.String(), "at most clients.max_header_bytes, which is "+
			v.MaxHeaderBytes.String())
	}
}
