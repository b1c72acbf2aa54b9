// Package echo5limit is the door for programs made with echo, version 5
// (github.com/labstack/echo/v5): middleware that asks a Limiter about every
// request, by the routes that the router has. Package echolimit is that of version 4.
//
//	limits := echo5limit.New(echo5limit.Options{User: who})
//	e := echo.New()
//	e.Use(logIn, limits.Handle)
//	e.GET("/items/:id", item)
//	limiter, err := limits.Open(e, headgate.Options{Rules: []string{"default 20/s"}})
//
// What middleware of Echo.Pre answers is not limited, and a path that it rewrites
// is refused with 400 unless Options.HTTP says Rewritten.
package echo5limit

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/labstack/echo/v5"

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
	User func(*echo.Context) *identity.User

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
		o.User = func(*echo.Context) *identity.User { return nil }
	}
	return &Middleware{options: o}
}

// Handle is the echo.MiddlewareFunc. It belongs behind the one that logs in, and
// before all others.
func (m *Middleware) Handle(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
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
// templates cannot tell from another, and a setting by which echo reads targets in another way.
func Endpoints(e *echo.Echo) (*endpoint.Table, error) {
	var routes []pattern.Route
	for _, r := range e.Router().Routes() {
		routes = append(routes, pattern.Route{Method: r.Method, Pattern: r.Path})
	}
	var fault error
	if matchesDecoded(e) {
		fault = errors.New(
			"UseEscapedPathForMatching is true, want false: echo then compares decoded paths, in which %2F is a slash")
	}
	table, err := pattern.Echo.Table(routes...)
	if err := errors.Join(fault, err); err != nil {
		return nil, err
	}
	return table, nil
}

// matchesDecoded reports whether the router looks at the decoded path. That is a setting of it which nobody can read,
// so it is asked for the first route, by a request whose two paths differ.
func matchesDecoded(e *echo.Echo) bool {
	routes := e.Router().Routes()
	i := slices.IndexFunc(routes, func(r echo.RouteInfo) bool { return r.Method != echo.RouteNotFound })
	if i < 0 {
		return false
	}
	var decoded, raw []string
	for part := range strings.SplitSeq(routes[i].Path, "/") {
		if strings.HasPrefix(part, ":") || strings.HasPrefix(part, "*") {
			decoded, raw = append(decoded, "decoded"), append(raw, "raw")
		} else {
			decoded, raw = append(decoded, part), append(raw, part)
		}
	}
	if len(routes[i].Parameters) == 0 {
		raw = append(raw, "another") // which no parameter tells of, but the route found
	}
	request := &http.Request{
		Method: routes[i].Method,
		URL:    &url.URL{Path: strings.Join(decoded, "/"), RawPath: strings.Join(raw, "/")},
	}
	c := e.NewContext(request, nil)
	e.Router().Route(c)
	if slices.ContainsFunc(c.PathValues(), func(v echo.PathValue) bool { return v.Value == "decoded" }) {
		return true
	}
	return len(routes[i].Parameters) == 0 && c.RouteInfo().Path == routes[i].Path
}
