package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/internal/problem"
)

// Metered is one endpoint whose requests cost what their bodies and their answers say, as those to a language model do.
// Endpoint and Ask are required; every other zero value is a safe default.
type Metered struct {
	// Endpoint is a template that the table has, "POST /v1/chat/completions".
	Endpoint string

	// Ask tells what a request may cost, in tokens, and what is to be told of its answer; nil if it costs that
	// whatever the answer says. Of the request's body the first bytes are here; whole says whether these are all. Other
	// bodies than whole ones were chosen to be long: cost them by their length.
	Ask func(r *http.Request, body []byte, whole bool) (Exchange, int64)

	// MaxBytes is how much of a body is held and shown to Ask, 1 to 64 MiB. A longer one whose length is not announced
	// is refused with 411. Default 1 MiB.
	MaxBytes int

	// ReadTimeout is how long that may take to arrive, as Login.ReadTimeout. Default 10 s.
	ReadTimeout time.Duration

	// Cut ends an answer that comes to cost more than was taken for it, when its caller has no more: more is taken
	// before more is passed on, and no budget is exceeded. Default false: it is passed on, and what it costs more is
	// owed.
	Cut bool
}

// Exchange follows the answer to a request. Its methods are called one after the other.
type Exchange interface {
	// Begin is told the status and the header of the answer, and Write each piece of its body before it is passed on.
	Begin(status int, header http.Header)
	Write(p []byte)

	// SoFar is what the request has cost as far as is seen, and Cost what it has, once the answer
	// has ended. Complete is false if it was cut off, or its client has left.
	SoFar() int64
	Cost(complete bool) int64
}

// MeterOptions configures Meters. Both are required.
type MeterOptions struct {
	Endpoints *endpoint.Table // that of the Limiter
	Metered   []Metered
}

// Meters are the endpoints that are metered. They are safe for concurrent use. Nil ones meter nothing.
type Meters struct {
	current atomic.Pointer[sites[*metered]]
}

type metered struct {
	Metered
	reading
}

const (
	defaultMetered = 1 << 20
	mostMetered    = 64 << 20
)

// NewMeters returns Meters, or an error that names every field at fault.
func NewMeters(o MeterOptions) (*Meters, error) {
	m := &Meters{}
	use, err := m.Prepare(o)
	if err != nil {
		return nil, err
	}
	use()
	return m, nil
}

// Prepare checks other options, and returns what has them in force for requests to come. The error names every field at
// fault.
func (m *Meters) Prepare(o MeterOptions) (use func(), err error) {
	if o.Endpoints == nil {
		return nil, errors.New("meters: Endpoints is nil, want the Limiter's")
	}
	all := &sites[*metered]{table: o.Endpoints}
	var errs []error
	for i, one := range o.Metered {
		made, err := compileMetered(one)
		if err = errors.Join(all.add(one.Endpoint, made), err); err != nil {
			errs = append(errs, fmt.Errorf("metered[%d] (%s): %w", i, one.Endpoint, err))
		}
	}
	return func() { m.current.Store(all) }, errors.Join(errs...)
}

func compileMetered(m Metered) (*metered, error) {
	timeout, err := readTimeout(m.ReadTimeout)
	errs := []error{err}
	if m.Ask == nil {
		errs = append(errs, errors.New("Ask is nil, want a function"))
	}
	if m.MaxBytes == 0 {
		m.MaxBytes = defaultMetered
	}
	if m.MaxBytes < 1 || m.MaxBytes > mostMetered {
		errs = append(errs, fmt.Errorf("MaxBytes is %d, want 1 to %d", m.MaxBytes, mostMetered))
	}
	return &metered{m, reading{m.MaxBytes, timeout}}, errors.Join(errs...)
}

// at returns the endpoint that a request is of, or nil.
func (m *Meters) at(r *headgate.Request) *metered {
	if m == nil {
		return nil
	}
	return m.current.Load().of(r)
}

// ask finds out what a request may cost, and leaves its body to be read as if nobody had. It reports false when r is
// answered already.
func (m *metered) ask(w http.ResponseWriter, r *http.Request, request *headgate.Request, room *room) (x Exchange,
	ok bool) {
	text, fault := m.buffer(w, r, room.of(request.Peer))
	switch {
	case tooLate(w, r):
		return nil, false
	case fault == body.Crowded:
		crowded(w, r)
		return nil, false
	case fault == body.Long && r.ContentLength < 0: // nobody knows what it may cost
		problem.Write(w, r, problem.Details{Status: http.StatusLengthRequired,
			Detail: "This endpoint takes bodies of more than " + strconv.Itoa(m.most) +
				" bytes with their length in Content-Length alone."})
		return nil, false
	}
	x, cost := m.Ask(r, text, fault == body.None || r.ContentLength == 0)
	request.Cost = max(1, cost)
	return x, true
}

// tab is what was taken for one request whose answer goes on: a reservation, and more of them where it costs more.
type tab struct {
	Exchange
	lim     *headgate.Limiter
	ctx     context.Context
	request headgate.Request
	reserve *Reserve
	cuts    bool
	taken   int64
	more    []headgate.Reservation
}

// errSpent ends an answer whose caller has no more.
var errSpent = errors.New("the caller's budget ended before the answer did")

// write is told of a piece of the answer, and takes more if that is to be passed on.
func (t *tab) write(p []byte) error {
	t.Write(p)
	if !t.cuts {
		return nil
	}
	for need := t.SoFar() - t.taken; need > 0; need = t.SoFar() - t.taken {
		// A quarter more each time: an answer takes more a few times, and not with each word. At the end of the
		// budget there may be room for what is needed alone.
		if !t.take(max(need, t.taken/4)) && !t.take(need) {
			return errSpent
		}
	}
	return nil
}

func (t *tab) take(cost int64) bool {
	r := t.request
	r.Cost, r.UnderWay = cost, true
	made, d := t.lim.Reserve(t.ctx, r, t.reserve.Timeout)
	if !d.Allowed {
		return false
	}
	t.taken, t.more = t.taken+cost, append(t.more, made)
	return true
}

// settle settles what more was taken, and returns what is left of the cost for the first reservation.
func (t *tab) settle(ctx context.Context, actual, first int64, a headgate.Answer) (left int64, err error) {
	left = actual
	rest := max(0, actual-first)
	var errs []error
	for _, made := range t.more {
		a.Actual = min(rest, made.Cost)
		rest, left = rest-a.Actual, left-a.Actual
		_, err := t.lim.SettleAnswer(ctx, made.ID, a)
		errs = append(errs, err)
	}
	return left, errors.Join(errs...)
}
