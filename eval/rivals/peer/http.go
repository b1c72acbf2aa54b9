package peer

import (
	"net"
	"net/http"
	"time"

	"github.com/didip/tollbooth/v8"
	tollbooths "github.com/didip/tollbooth/v8/limiter"
	"github.com/go-chi/httprate"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"github.com/ulule/limiter/v3/drivers/store/memory"

	headgates "github.com/headgate-io/headgate"
)

// Middleware is a limiter in front of a handler of net/http, by the address of whoever asks, as its README sets it up.
type Middleware struct {
	Name, Module string
	Fields       string // what it tells clients of their limit in each answer
	Floor        bool   // it limits nothing
	Wrap         func(next http.Handler) (http.Handler, error)
}

// perSecond is more than one client asks for.
const perSecond = 1_000_000

// Middlewares are those that are measured: the first is a handler alone.
func Middlewares() []Middleware {
	return []Middleware{
		{Name: "no limiter", Floor: true,
			Wrap: func(next http.Handler) (http.Handler, error) { return next, nil }},
		{Name: "no limiter, two constant fields", Floor: true, Fields: "two, of the same length as Headgate's",
			Wrap: func(next http.Handler) (http.Handler, error) { return constant(next), nil }},
		{Name: "headgate", Fields: "RateLimit, RateLimit-Policy",
			Wrap: func(next http.Handler) (http.Handler, error) { return headgateOf(next, httplimit.Options{}) }},
		{Name: "headgate, no fields", Fields: "none",
			Wrap: func(next http.Handler) (http.Handler, error) {
				return headgateOf(next, httplimit.Options{OmitFields: true})
			}},
		{Name: "httprate", Module: "github.com/go-chi/httprate", Fields: "X-RateLimit-Limit, -Remaining, -Reset",
			Wrap: func(next http.Handler) (http.Handler, error) {
				byAddress := func(r *http.Request) (string, error) {
					host, _, err := net.SplitHostPort(r.RemoteAddr)
					return host, err
				}
				return httprate.LimitBy(perSecond, time.Second, byAddress)(next), nil
			}},
		{Name: "tollbooth", Module: "github.com/didip/tollbooth/v8", Fields: "X-Rate-Limit-Limit and three more",
			Wrap: func(next http.Handler) (http.Handler, error) {
				l := tollbooth.NewLimiter(perSecond, nil)
				l.SetIPLookup(tollbooths.IPLookup{Name: "RemoteAddr"})
				return tollbooth.HTTPMiddleware(l)(next), nil
			}},
		{Name: "ulule/limiter", Module: "github.com/ulule/limiter/v3", Fields: "X-RateLimit-Limit, -Remaining, -Reset",
			Wrap: func(next http.Handler) (http.Handler, error) {
				l := limiter.New(memory.NewStore(), limiter.Rate{Period: time.Second, Limit: perSecond})
				return stdlib.NewMiddleware(l).Handler(next), nil
			}},
	}
}

func headgateOf(next http.Handler, o httplimit.Options) (http.Handler, error) {
	lim, err := headgates.New(headgates.Options{Rules: []string{"GET /v1/items/{id} 1000000/s", "default 20/s"}})
	if err != nil {
		return nil, err
	}
	return httplimit.Handler(lim, next, o), nil
}

// constant sets two fields that were written before: what fields cost whoever formats none.
func constant(next http.Handler) http.Handler {
	quota := []string{`"GET /v1/items/{id} 1000000/s";r=999999;t=1`}
	policy := []string{`"GET /v1/items/{id} 1000000/s";q=1000000;w=1`}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h["Ratelimit"], h["Ratelimit-Policy"] = quota, policy
		next.ServeHTTP(w, r)
	})
}
