package httplimit

import (
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/problem"
	"github.com/headgate-io/headgate/internal/refusal"
)

// Gate is Handler for frameworks whose middleware calls the rest of its chain
// itself, and is put before routes that are registered later. The zero value
// refuses every request with 503 until it is open. It may be used concurrently.
type Gate struct{ door atomic.Pointer[handler] }

// Open has lim asked from now on. Options that have to see the response do not
// go with a Gate: Reserve, Meters, CountWhen, and Identifiers that count failures.
func (g *Gate) Open(lim *headgate.Limiter, o Options) error {
	switch {
	case o.Reserve != nil:
		return errors.New("Reserve is set, want nil: a Gate does not see what a request turned out to cost")
	case len(o.CountWhen) > 0:
		return errors.New("CountWhen is set, want none: a Gate does not see answers")
	case o.Meters != nil:
		return errors.New("Meters is set, want nil: a Gate does not see what a request turned out to cost")
	case o.Identifiers.countFailures():
		return errors.New(
			"Identifiers has a login with CountFailures, want none: a Gate does not see which logins fail")
	}
	g.door.Store(newHandler(lim, nil, o))
	return nil
}

// Limit makes a Limiter of l, with the endpoints of a framework's routes if l has
// none, and opens the gate with it.
func (g *Gate) Limit(routes func() (*endpoint.Table, error), l headgate.Options, o Options) (*headgate.Limiter, error) {
	if l.Endpoints == nil {
		table, err := routes()
		if err != nil {
			return nil, err
		}
		l.Endpoints = table
	}
	lim, err := headgate.New(l)
	if err != nil {
		return nil, err
	}
	if o.Methods == nil {
		o.Methods = l.Endpoints.Allowed
	}
	return lim, g.Open(lim, o)
}

// Request returns what an open gate asks about r, for doors that ask again about
// parts of it, such as the messages of a stream.
func (g *Gate) Request(r *http.Request) headgate.Request {
	request := g.door.Load().request(r)
	request.Proven = proven(r)
	return request
}

// Admit reports whether a request may be served, and sets the RateLimit fields. One
// that may not is answered already. The user is who handlers before have logged
// in; if it is nil Options.User says.
func (g *Gate) Admit(w http.ResponseWriter, r *http.Request, user *identity.User) bool {
	h := g.door.Load()
	if h == nil {
		w.Header().Set(fieldRetryAfter, retryAfter(refusal.Unavailable))
		problem.Write(w, r, refusal.Of(&headgate.Decision{Reason: headgate.NoPolicies}).Details)
		return false
	}
	request := h.request(r)
	request.Proven = proven(r)
	if user != nil {
		request.User = user
	}
	_, ok := h.look(w, r, &request)
	release(r.Body) // who serves r holds it from here on
	if !ok {
		return false
	}
	_, ok = h.admit(w, r, request)
	return ok
}

// Answer does for a decision about r that was made elsewhere what Admit does for
// its own: it sets the fields, answers r if it was refused, and reports whether it
// was not.
func (g *Gate) Answer(w http.ResponseWriter, r *http.Request, d *headgate.Decision) bool {
	h := g.door.Load()
	return h.answer(w, r, target(r, h.options.Rewritten), d)
}
