package peer

import (
	"context"
	"time"

	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
)

var ulule = Peer{
	Name:   "ulule/limiter",
	Module: "github.com/ulule/limiter/v3",
	How:    "fixed window from the key's first request; prefixed key text and a pointer",
	Exact:  true,
	Bound:  "none; keys go when their window has passed",
	Open: func(int) (Limiter, error) {
		l := limiter.New(memory.NewStore(), limiter.Rate{Period: 24 * time.Hour, Limit: burst})
		ctx := context.Background()
		return shared(func(key string) bool {
			got, err := l.Get(ctx, key)
			return !got.Reached && err == nil
		}), nil
	},
}
