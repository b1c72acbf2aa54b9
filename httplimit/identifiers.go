package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/internal/problem"
)

// Login is one endpoint whose requests name in their body what they try to be.
// Endpoint and Field.Name are required; every other zero value is a safe
// default.
type Login struct {
	// Endpoint is a template that the table has, "POST /v1/login".
	Endpoint string

	// Field says where the identifier stands.
	Field body.Field

	// ReadTimeout is how long a body may take to arrive, at most as long as
	// http.Server.ReadTimeout. A later one is answered with 408 and reaches
	// nobody. It needs a ResponseWriter that http.ResponseController can set a
	// deadline on; without, only the server's own bounds the wait. Default 10 s.
	ReadTimeout time.Duration

	// Reject answers requests whose identifier cannot be read with 400, in the
	// place of limiting them (see headgate.Request.Unparsable). Then no account
	// can be tried beyond its own budget.
	Reject bool

	// CountFailures makes the endpoint's rules count only requests that failed,
	// or may have: a request under way counts, and is forgiven when its answer is
	// complete and says success. See headgate.Answer.Forgiven.
	CountFailures bool

	// FailureStatuses are the statuses that say failure, 200 to 499. A status of
	// 500 and above always does, as does an answer that never came or was cut
	// off, since what was tried may have been tried. Default: all but 200 to
	// 299.
	FailureStatuses []int
}

// IdentifierOptions configures Identifiers. Endpoints and Logins are required.
type IdentifierOptions struct {
	Endpoints *endpoint.Table // that of the Limiter
	Logins    []Login

	// Timeout and Failed are those of Reserve, for endpoints that count failures
	// where Options.Reserve is nil.
	Timeout time.Duration
	Failed  func(error)
}

// Identifiers finds identifiers in bodies, and counts those it did not find. It
// is safe for concurrent use. A nil one reads nothing.
type Identifiers struct {
	current atomic.Pointer[logins]
	faults  [body.Faults]atomic.Uint64
}

// logins are the endpoints where identifiers are read.
type logins struct {
	sites[*login]
	reserve Reserve
}

type login struct {
	Login
	reading
	reserve *Reserve // for one of which only failures count
	finder  *body.Finder
	faults  *[body.Faults]atomic.Uint64
}

// NewIdentifiers returns Identifiers, or an error that names every field at
// fault.
func NewIdentifiers(o IdentifierOptions) (*Identifiers, error) {
	s := &Identifiers{}
	use, err := s.Prepare(o)
	if err != nil {
		return nil, err
	}
	use()
	return s, nil
}

// Prepare checks other options, and returns what has them in force for requests to come. The error names every field
// at fault.
func (s *Identifiers) Prepare(o IdentifierOptions) (use func(), err error) {
	if o.Endpoints == nil {
		return nil, errors.New("identifiers: Endpoints is nil, want the Limiter's")
	}
	all := &logins{
		sites:   sites[*login]{table: o.Endpoints},
		reserve: Reserve{Timeout: o.Timeout, Failed: o.Failed},
	}
	var errs []error
	for i, l := range o.Logins {
		made, err := s.compile(l)
		made.reserve = &all.reserve
		if err = errors.Join(all.add(l.Endpoint, made), err); err != nil {
			errs = append(errs, fmt.Errorf("identifiers[%d] (%s): %w", i, l.Endpoint, err))
		}
	}
	return func() { s.current.Store(all) }, errors.Join(errs...)
}

func (s *Identifiers) compile(l Login) (*login, error) {
	var errs []error
	finder, err := body.New(l.Field)
	errs = append(errs, err)
	l.ReadTimeout, err = readTimeout(l.ReadTimeout)
	errs = append(errs, err)
	for _, status := range l.FailureStatuses {
		if status < 200 || status > 499 {
			errs = append(errs, fmt.Errorf("FailureStatuses has %d, want 200 to 499; 500 and above count always",
				status))
		}
	}
	if len(l.FailureStatuses) > 0 && !l.CountFailures {
		errs = append(errs, errors.New("FailureStatuses is set, want CountFailures set too"))
	}
	made := &login{Login: l, finder: finder, faults: &s.faults}
	if finder != nil {
		made.reading = reading{most: finder.MaxBytes(), timeout: l.ReadTimeout}
	}
	return made, errors.Join(errs...)
}

// Endpoints returns where identifiers are read, for
// policy.CompileOptions.Identified.
func (s *Identifiers) Endpoints() []endpoint.ID {
	var ids []endpoint.ID
	for id := range s.current.Load().at {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Typed is for headgate.Options.Typed. At no endpoint, which is all of them
// together, there is an identifier if all that are read would agree on it.
func (s *Identifiers) Typed(at endpoint.ID, typed string) (identifier string, ok, reads bool) {
	if s == nil {
		return typed, typed != "", false
	}
	if at == endpoint.Unknown {
		for i, id := range s.Endpoints() {
			found, good, _ := s.Typed(id, typed)
			if !good || i > 0 && found != identifier {
				return "", false, true
			}
			identifier = found
		}
		return identifier, identifier != "", identifier != ""
	}
	l := s.current.Load().at[at]
	if l == nil {
		return typed, typed != "", false
	}
	found, fault := l.finder.Normalise(nil, []byte(typed))
	return string(found), fault == body.None, true
}

// Faults returns how many requests had no identifier because of a fault; those
// that had one are under body.None.
func (s *Identifiers) Faults(f body.Fault) uint64 {
	if s == nil || int(f) >= len(s.faults) {
		return 0
	}
	return s.faults[f].Load()
}

// countFailures reports whether there are logins that only failures count at.
func (s *Identifiers) countFailures() bool {
	if s != nil {
		for _, l := range s.current.Load().at {
			if l.CountFailures {
				return true
			}
		}
	}
	return false
}

// at returns the login that a request is, or nil.
func (s *Identifiers) at(r *headgate.Request) *login {
	if s == nil {
		return nil
	}
	return s.current.Load().of(r)
}

// identify finds the identifier of r, and leaves the body to be read as if
// nobody had. It reports false when r is answered already.
func (l *login) identify(w http.ResponseWriter, r *http.Request, request *headgate.Request, room *room) bool {
	request.Identifier, request.Unparsable = "", true
	format, fault := l.finder.Wants(r.Header)
	if fault == body.None {
		var text []byte
		text, fault = l.buffer(w, r, room.of(request.Peer))
		if tooLate(w, r) {
			l.faults[body.Unread].Add(1)
			return false
		}
		if fault == body.None {
			var space [body.DefaultLength]byte
			var found []byte
			if found, fault = l.finder.Find(space[:0], format, query(request.Target), text); fault == body.None {
				request.Identifier, request.Unparsable = string(found), false
			}
		}
	}
	l.faults[fault].Add(1)
	if fault == body.Crowded {
		crowded(w, r)
		return false
	}
	if fault != body.None && l.Reject {
		problem.Write(w, r, problem.Details{Status: http.StatusBadRequest, Title: "Unreadable request body",
			Detail: "The body of the request does not name what it has to in the form that is read here."})
		return false
	}
	return true
}

// query is what stands behind the first "?" of a target.
func query(target string) string {
	for i := range len(target) {
		if target[i] == '?' {
			return target[i+1:]
		}
	}
	return ""
}

// forgives reports whether an answer that is complete says that the request
// does not count.
func (l *login) forgives(status int) bool {
	if l == nil || !l.CountFailures {
		return false
	}
	if len(l.FailureStatuses) == 0 {
		return 200 <= status && status < 300
	}
	return 200 <= status && status < 500 && !slices.Contains(l.FailureStatuses, status)
}
