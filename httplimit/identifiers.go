package httplimit

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
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
	table   *endpoint.Table
	at      map[endpoint.ID]*login
	methods []string
	reserve Reserve
}

type login struct {
	Login
	reserve *Reserve // for one of which only failures count
	finder  *body.Finder
	faults  *[body.Faults]atomic.Uint64
}

const (
	defaultReadTimeout = 10 * time.Second
	mostReadTimeout    = 10 * time.Minute
)

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
		table:   o.Endpoints,
		at:      map[endpoint.ID]*login{},
		reserve: Reserve{Timeout: o.Timeout, Failed: o.Failed},
	}
	var errs []error
	for i, l := range o.Logins {
		id, made, err := s.compile(o.Endpoints, l)
		if err == nil && all.at[id] != nil {
			err = fmt.Errorf("Endpoint is %q, which stands twice, want it once", l.Endpoint)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("identifiers[%d] (%s): %w", i, l.Endpoint, err))
			continue
		}
		made.reserve = &all.reserve
		all.at[id] = made
		method := o.Endpoints.Template(id).Method()
		all.methods = append(all.methods, method)
		if method == http.MethodGet {
			all.methods = append(all.methods, http.MethodHead)
		}
	}
	return func() { s.current.Store(all) }, errors.Join(errs...)
}

func (s *Identifiers) compile(table *endpoint.Table, l Login) (endpoint.ID, *login, error) {
	var errs []error
	template, err := endpoint.ParseTemplate(l.Endpoint)
	id, known := table.Lookup(template)
	switch {
	case err != nil:
		errs = append(errs, err)
	case !known:
		near := ""
		if closest, ok := table.Closest(template); ok {
			near = fmt.Sprintf(", such as %q", closest)
		}
		errs = append(errs, fmt.Errorf("Endpoint is %q, want one that the table has%s", l.Endpoint, near))
	}
	finder, err := body.New(l.Field)
	errs = append(errs, err)
	if l.ReadTimeout == 0 {
		l.ReadTimeout = defaultReadTimeout
	}
	if l.ReadTimeout < 0 || l.ReadTimeout > mostReadTimeout {
		errs = append(errs, fmt.Errorf("ReadTimeout is %v, want up to %v", l.ReadTimeout, mostReadTimeout))
	}
	for _, status := range l.FailureStatuses {
		if status < 200 || status > 499 {
			errs = append(errs, fmt.Errorf("FailureStatuses has %d, want 200 to 499; 500 and above count always",
				status))
		}
	}
	if len(l.FailureStatuses) > 0 && !l.CountFailures {
		errs = append(errs, errors.New("FailureStatuses is set, want CountFailures set too"))
	}
	return id, &login{Login: l, finder: finder, faults: &s.faults}, errors.Join(errs...)
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

// at returns the login that a request is, or nil. Requests of other methods
// than any login has are not even matched.
func (s *Identifiers) at(r *headgate.Request) *login {
	if s == nil {
		return nil
	}
	all := s.current.Load()
	if !slices.Contains(all.methods, r.Method) {
		return nil
	}
	m := all.table.Match(r.Method, r.Target)
	if m.Status != endpoint.Known {
		return nil
	}
	return all.at[m.ID]
}

// identify finds the identifier of r, and leaves the body to be read as if
// nobody had. It reports false when r is answered already.
func (l *login) identify(w http.ResponseWriter, r *http.Request, request *headgate.Request) bool {
	request.Identifier, request.Unparsable = "", true
	format, fault := l.finder.Wants(r.Header)
	if fault == body.None {
		var text []byte
		text, fault = l.buffer(w, r)
		if errors.Is(bodyError(r), os.ErrDeadlineExceeded) {
			l.faults[body.Unread].Add(1)
			w.Header().Set("Connection", "close") // the rest may come as the next request otherwise
			problem.Write(w, r, problem.Details{
				Status: http.StatusRequestTimeout,
				Detail: "The body of the request took too long to arrive.",
			})
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
	if fault != body.None && l.Reject {
		problem.Write(w, r, problem.Details{Status: http.StatusBadRequest, Title: "Unreadable request body",
			Detail: "The body of the request does not name what it has to in the form that is read here."})
		return false
	}
	return true
}

// buffer reads the body, as far as it may be looked at, and puts r.Body back to
// its beginning. Beyond what it returns nothing is held.
func (l *login) buffer(w http.ResponseWriter, r *http.Request) ([]byte, body.Fault) {
	most := l.finder.MaxBytes()
	switch {
	case r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0:
		return nil, body.Empty
	case r.ContentLength > int64(most):
		return nil, body.Long
	}
	done := l.hurry(w, r)
	size := 512 // a body of unknown length grows to what it needs
	if r.ContentLength > 0 {
		// And its end is seen. A long one grows too: what was only announced
		// holds no memory.
		size = min(int(r.ContentLength)+1, body.DefaultBytes+1)
	}
	text := make([]byte, 0, min(size, most+1))
	var err error
	for err == nil && len(text) <= most {
		if len(text) == cap(text) {
			grown := make([]byte, len(text), min(2*cap(text), most+1))
			copy(grown, text)
			text = grown
		}
		var n int
		n, err = r.Body.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		done() // else the server would wait for the rest before it closes
	}
	r.Body = &replay{ReadCloser: r.Body, text: text, err: err}
	switch {
	case err == nil:
		return nil, body.Long
	case err != io.EOF:
		return nil, body.Unread
	case len(text) > most:
		return nil, body.Long
	}
	return text, body.None
}

// hurry sets the deadline for the body, until done is called.
func (l *login) hurry(w http.ResponseWriter, r *http.Request) (done func()) {
	later := time.Time{}
	if server, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok && server.ReadTimeout > 0 {
		if server.ReadTimeout <= l.ReadTimeout {
			return func() {} // the server's own comes first
		}
		later = time.Now().Add(server.ReadTimeout)
	}
	connection := http.NewResponseController(w)
	if connection.SetReadDeadline(time.Now().Add(l.ReadTimeout)) != nil {
		return func() {}
	}
	// It would end the connection under a handler that takes longer.
	return func() { _ = connection.SetReadDeadline(later) }
}

// replay is a body that begins with what was read of it.
type replay struct {
	io.ReadCloser
	text []byte
	err  error // that ended the reading; nil if the rest is still to come
}

func (b *replay) Read(p []byte) (int, error) {
	if len(b.text) > 0 {
		n := copy(p, b.text)
		b.text = b.text[n:]
		return n, nil
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.ReadCloser.Read(p)
}

func bodyError(r *http.Request) error {
	if b, ok := r.Body.(*replay); ok {
		return b.err
	}
	return nil
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
