// Package echolimit is the door for programs made with echo
// (github.com/labstack/echo/v4): middleware that asks a Limiter about every
// request, by the routes that the router has.
//
//	limits := echolimit.New(echolimit.Options{User: who})
//	e := echo.New()
//	e.Use(logIn, limits.Handle)
//	e.GET("/items/:id", item)
//	limiter, err := limits.Open(e, headgate.Options{Rules: []string{"default 20/s"}})
//
// What middleware of Echo.Pre answers is not limited, and a path that it rewrites
// is refused with 400 unless Options.HTTP says Rewritten.
package echolimit

import (
	"github.com/labstack/echo/v4"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/endpoint/pattern"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/identity"
)

// Options configures a Middleware. The zero value is a safe default.
type Options struct {
	// User tells who middleware before this one has logged in, nil for nobody.
	// Default nil: headgate.Options.Identities tells callers apart.
	User func(echo.Context) *identity.User

	// HTTP are the options that every door over HTTP has, but Reserve.
	HTTP httplimit.Options
}

// Middleware asks about requests. Until it is open it refuses them with 503.
type Middleware struct {
	options Options
	gate    httplimit.Gate
}

// New returns a Middleware that is to be opened once the routes are registered.
func New(o Options) *Middleware {
	if o.User == nil {
		o.User = func(echo.Context) *identity.User { return nil }
	}
	return &Middleware{options: o}
}

// Handle is the echo.MiddlewareFunc. It belongs behind the one that logs in, and
// before all others.
func (m *Middleware) Handle(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if !m.gate.Admit(c.Response(), c.Request(), m.options.User(c)) {
			return nil // it is answered
		}
		return next(c)
	}
}

// Open makes a Limiter of o, with the endpoints of e's routes if o has none, and
// has it asked from now on. Routes that are registered later are unknown to it.
func (m *Middleware) Open(e *echo.Echo, o headgate.Options) (*headgate.Limiter, error) {
	return m.gate.Limit(func() (*endpoint.Table, error) { return Endpoints(e) }, o, m.options.HTTP)
}

// Endpoints returns the table of e's routes. The error names every route that
// templates cannot tell from another.
func Endpoints(e *echo.Echo) (*endpoint.Table, error) {
	var routes []pattern.Route
	for _, r := range e.Routes() {
		routes = append(routes, pattern.Route{Method: r.Method, Pattern: r.Path})
	}
	return pattern.Echo.Table(routes...)
}
