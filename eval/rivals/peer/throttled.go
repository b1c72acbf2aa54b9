package peer

import (
	"context"

	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
)

// The first runs with a map, the second with the bound that the library offers.
var throttledPeer = Peer{
	Name:   "throttled",
	Module: "github.com/throttled/throttled/v2",
	How:    "GCRA in integers; key text and a pointer to an int64",
	Exact:  true,
	Bound:  "none, or an LRU cache",
	Open:   func(int) (Limiter, error) { return openThrottled(0) },
}

var throttledLRU = Peer{
	Name:   "throttled, LRU",
	Module: "github.com/throttled/throttled/v2",
	How:    "GCRA in integers; key text, list element and a pointer to an int64",
	Exact:  true,
	Bound:  "LRU cache; evicted debt is forgotten",
	Open:   openThrottled,
}

func openThrottled(most int) (Limiter, error) {
	store, err := memstore.NewCtx(most)
	if err != nil {
		return nil, err
	}
	gcra, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerDuration(1, perToken),
		MaxBurst: burst - 1})
	if err != nil {
		return nil, err
	}
	gcra.SetMaxCASAttemptsLimit(1 << 30) // the default of 10 fails now and then when two goroutines ask for one key
	ctx := context.Background()
	return shared(func(key string) bool {
		limited, _, err := gcra.RateLimitCtx(ctx, key, 1)
		return !limited && err == nil
	}), nil
}
