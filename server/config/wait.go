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

// LongestWait is MaxWait as a headgate.Request has it, where less than 0 means that nobody waits: so it is where no
// gateway holds requests back.
func (c *Config) LongestWait() time.Duration {
	if c.MaxWait == 0 || !c.Gateway() {
		return -1
	}
	return c.MaxWait
}

// waiting checks how long, and how many, requests may wait for their turn.
func (c *checker) waiting(conf *Config) {
	c.duration("max_wait", conf.MaxWait, 0, maxWait)
	c.between("max_waiters", int64(conf.MaxWaiters), 1, maxWaiters)
}
