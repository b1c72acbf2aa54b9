package config

import "time"

// Bounds of max_wait and max_waiters. Who waits holds a connection, so neither
// may be as large as a number can be.
const (
	maxWait    = time.Hour
	maxWaiters = 1 << 20

	defaultMaxWait    = 10 * time.Second
	defaultMaxWaiters = 1024
)

// waiting checks how long, and how many, requests may wait for their turn.
func (c *checker) waiting(conf *Config) {
	c.duration("max_wait", conf.MaxWait, 0, maxWait)
	c.between("max_waiters", int64(conf.MaxWaiters), 1, maxWaiters)
}
