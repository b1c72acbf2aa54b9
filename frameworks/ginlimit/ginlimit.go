// Package ginlimit is the door for programs made with gin
// (github.com/gin-gonic/gin): middleware that asks a Limiter about every
// request, by the routes that the engine has.
//
//	limits := ginlimit.New(ginlimit.Options{User: who})
//	engine := gin.New()
//	engine.Use(logIn, limits.Handle)
//	engine.GET("/items/:id", item)
//	limiter, err := limits.Open(engine, headgate.Options{Rules: []string{"default 20/s"}})
//
// What gin answers before its middleware is not limited: the redirects that
// RedirectTrailingSlash and RedirectFixedPath make. httplimit.Handler around the
// engine sees those too, but not who is logged in.
package ginlimit

import (
	"errors"

	"github.com/gin-gonic/gin"

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
	User func(*gin.Context) *identity.User

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
		o.User = func(*gin.Context) *identity.User { return nil }
	}
	return &Middleware{options: o}
}

// Handle is the gin.HandlerFunc. It belongs behind the one that logs in, and
// before all others.
func (m *Middleware) Handle(c *gin.Context) {
	if !m.gate.Admit(c.Writer, c.Request, m.options.User(c)) {
		c.Writer.WriteHeaderNow() // or gin puts its own Content-Type on what has no body
		c.Abort()
		return
	}
	c.Next()
}

// Open makes a Limiter of o, with the endpoints of the engine's routes if o has
// none, and has it asked from now on. Routes that are registered later are unknown to it.
func (m *Middleware) Open(engine *gin.Engine, o headgate.Options) (*headgate.Limiter, error) {
	return m.gate.Limit(func() (*endpoint.Table, error) { return Endpoints(engine) }, o, m.options.HTTP)
}

// Endpoints returns the table of the engine's routes. The error names every route that
// templates cannot tell from another, and settings by which gin reads targets in another way.
func Endpoints(engine *gin.Engine) (*endpoint.Table, error) {
	var faults []error
	if engine.UseRawPath || engine.UseEscapedPath {
		faults = append(faults, errors.New(
			"UseRawPath or UseEscapedPath is true, want false: gin then compares escapes as clients write them"))
	}
	var routes []pattern.Route
	for _, r := range engine.Routes() {
		routes = append(routes, pattern.Route{Method: r.Method, Pattern: r.Path})
	}
	table, err := pattern.Gin.Table(routes...)
	if faults = append(faults, err); errors.Join(faults...) != nil {
		return nil, errors.Join(faults...)
	}
	return table, nil
}
