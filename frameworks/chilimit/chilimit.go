// Package chilimit is the door for programs made with chi
// (github.com/go-chi/chi): middleware that asks a Limiter about every request,
// by the routes that the router has.
//
//	limits := chilimit.New(chilimit.Options{User: who})
//	r := chi.NewRouter()
//	r.Use(logIn, limits.Handle)
//	r.Get("/items/{id}", item)
//	limiter, err := limits.Open(r, headgate.Options{Rules: []string{"default 20/s"}})
package chilimit

import (
	"net/http"

	"github.com/go-chi/chi/v5"

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
	User func(*http.Request) *identity.User

	// HTTP are the options that every door over HTTP has, but Reserve and User.
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
		o.User = func(*http.Request) *identity.User { return nil }
	}
	return &Middleware{options: o}
}

// Handle is the middleware. It belongs behind the one that logs in, before all
// others, and on the outermost router: of one that is mounted, Open does not
// know under which path.
func (m *Middleware) Handle(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m.gate.Admit(w, r, m.options.User(r)) {
			next.ServeHTTP(w, r)
		}
	})
}

// Open makes a Limiter of o, with the endpoints of r's routes if o has none, and
// has it asked from now on. Routes that are registered later are unknown to it.
func (m *Middleware) Open(r chi.Routes, o headgate.Options) (*headgate.Limiter, error) {
	return m.gate.Limit(func() (*endpoint.Table, error) { return Endpoints(r) }, o, m.options.HTTP)
}

// Endpoints returns the table of r's routes, those of routers that are mounted on it
// included. The error names every route that templates cannot tell from another.
func Endpoints(r chi.Routes) (*endpoint.Table, error) {
	var routes []pattern.Route
	err := chi.Walk(r, func(method, path string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		routes = append(routes, pattern.Route{Method: method, Pattern: path})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return pattern.Chi.Table(routes...)
}
