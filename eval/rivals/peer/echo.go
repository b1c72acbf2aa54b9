package peer

import (
	"github.com/labstack/echo/v4/middleware"
	"golang.org/x/time/rate"
)

var echo = Peer{
	Name:   "echo",
	Module: "github.com/labstack/echo/v4",
	How:    "token bucket in floating point; key text and two pointers",
	Exact:  true,
	Bound:  "none; unused keys go after 3 minutes, whatever they owe",
	Open: func(int) (Limiter, error) {
		store := middleware.NewRateLimiterMemoryStoreWithConfig(
			middleware.RateLimiterMemoryStoreConfig{Rate: rate.Every(perToken), Burst: burst})
		return shared(func(key string) bool {
			ok, err := store.Allow(key)
			return ok && err == nil
		}), nil
	},
}
