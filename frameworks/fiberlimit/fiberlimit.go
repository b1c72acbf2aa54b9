// Package fiberlimit is the door for programs made with fiber
// (github.com/gofiber/fiber/v3): middleware that asks a Limiter about every
// request, by the routes that the app has.
//
//	limits := fiberlimit.New(fiberlimit.Options{User: who})
//	app := fiber.New()
//	app.Use(logIn, limits.Handle)
//	app.Get("/items/:id", item)
//	limiter, err := limits.Open(app, headgate.Options{Rules: []string{"default 20/s"}})
//
// fasthttp reads requests by rules of its own, so the target that is charged is made of what
// fiber routes by, and not of the request line. Targets that may be read in two ways are refused with 400.
//
// What middleware before this one answers, or reroutes by RestartRouting, is not limited.
package fiberlimit

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"

	"github.com/gofiber/fiber/v3"

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
	User func(fiber.Ctx) *identity.User

	// HTTP are the options that every door over HTTP has, but Reserve and Rewritten: what counts is
	// what fiber routes by.
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
		o.User = func(fiber.Ctx) *identity.User { return nil }
	}
	return &Middleware{options: o}
}

// Handle is the fiber.Handler. It belongs behind the one that logs in, and before all others.
func (m *Middleware) Handle(c fiber.Ctx) error {
	w := response{header: http.Header{}}
	admitted := m.gate.Admit(&w, request(c), m.options.User(c))
	for name, lines := range w.header {
		for _, line := range lines {
			c.Response().Header.Add(name, line)
		}
	}
	if admitted {
		return c.Next()
	}
	if w.header.Get("Connection") == "close" {
		c.Response().SetConnectionClose()
	}
	return c.Status(w.status).Send(w.body.Bytes())
}

// Open makes a Limiter of o, with the endpoints of app's routes if o has none, and
// has it asked from now on. Routes that are registered later are unknown to it: call it before app listens.
func (m *Middleware) Open(app *fiber.App, o headgate.Options) (*headgate.Limiter, error) {
	return m.gate.Limit(func() (*endpoint.Table, error) { return Endpoints(app) }, o, m.options.HTTP)
}

// Endpoints returns the table of app's routes, but those of Use, which are middleware. The error names every
// route that templates cannot tell from another, or that stands behind a less specific one, and settings by
// which fiber reads targets in another way.
func Endpoints(app *fiber.App) (*endpoint.Table, error) {
	var faults []error
	if app.Config().UnescapePath {
		faults = append(faults,
			errors.New("UnescapePath is true, want false: fiber then compares decoded paths, in which %2F is a slash"))
	}
	var routes []pattern.Route
	for _, r := range app.GetRoutes(true) {
		routes = append(routes, pattern.Route{Method: r.Method, Pattern: r.Path})
	}
	table, err := pattern.Fiber.Table(routes...)
	if err := errors.Join(append(faults, err)...); err != nil {
		return nil, err
	}
	return table, nil
}

// request is what is asked about, with a target of the path that fiber routes by. Its texts are copies:
// fasthttp uses its memory again, and a limiter may remember them.
func request(c fiber.Ctx) *http.Request {
	fast := c.RequestCtx()
	target := string([]byte(c.Path()))
	if query := fast.URI().QueryString(); len(query) > 0 {
		target += "?" + string(query)
	}
	r := &http.Request{
		Method: string([]byte(c.Method())), RequestURI: target, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{},
		Host:   string(fast.Host()), RemoteAddr: fast.RemoteAddr().String(), TLS: fast.TLSConnectionState(),
		Body: http.NoBody,
	}
	for name, line := range fast.Request.Header.All() {
		r.Header.Add(string(name), string(line))
	}
	if n := fast.Request.Header.ContentLength(); n > 0 || n == chunked {
		r.ContentLength = int64(n)
		r.Body = io.NopCloser(&body{c: c})
	}
	// A target that is none here is refused, as it does not agree with the request line.
	if r.URL, _ = url.ParseRequestURI(target); r.URL == nil {
		r.URL = &url.URL{}
	}
	return r.WithContext(c.Context())
}

// chunked is a length that fasthttp does not know yet.
const chunked = -1

// body is that of a request, once somebody asks for it, as for a login whose account stands there.
type body struct {
	c    fiber.Ctx
	read *bytes.Reader
}

func (b *body) Read(p []byte) (int, error) {
	if b.read == nil {
		b.read = bytes.NewReader(bytes.Clone(b.c.BodyRaw()))
	}
	return b.read.Read(p)
}

// response collects what a refusal is answered.
type response struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *response) Header() http.Header { return w.header }

func (w *response) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *response) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}
