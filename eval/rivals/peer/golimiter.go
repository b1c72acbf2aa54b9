package peer

import (
	"context"
	"time"

	"github.com/sethvargo/go-limiter/memorystore"
)

var goLimiter = Peer{
	Name:   "go-limiter",
	Module: "github.com/sethvargo/go-limiter",
	How:    "fixed window from the key's first request; key text and a pointer",
	Exact:  true,
	Bound:  "none; unused keys go after 12 hours",
	Open: func(int) (Limiter, error) {
		store, err := memorystore.New(&memorystore.Config{Tokens: burst, Interval: 24 * time.Hour})
		if err != nil {
			return nil, err
		}
		ctx := context.Background()
		return shared(func(key string) bool {
			_, _, _, ok, err := store.Take(ctx, key)
			return ok && err == nil
		}), nil
	},
}
