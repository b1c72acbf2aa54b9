package policy

import "github.com/headgate-io/headgate/internal/steady"

// NewCacheBy is NewCache with a clock in the test's hands.
func NewCacheBy(clock *steady.Clock, o CacheOptions) (*Cache, error) {
	o.clock = clock
	return NewCache(o)
}
