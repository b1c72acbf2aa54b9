package peer

import (
	"sync"

	"golang.org/x/time/rate"
)

var xtime = Peer{
	Name:   "x/time/rate + sync.Map",
	Module: "golang.org/x/time",
	How:    "token bucket in floating point; key text and a pointer",
	Exact:  true,
	Open: func(int) (Limiter, error) {
		var limiters sync.Map // of *rate.Limiter by string
		return shared(func(key string) bool {
			l, ok := limiters.Load(key)
			if !ok {
				l, _ = limiters.LoadOrStore(key, rate.NewLimiter(rate.Every(perToken), burst))
			}
			return l.(*rate.Limiter).Allow()
		}), nil
	},
}
