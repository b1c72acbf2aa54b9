package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/internal/problem"
)

// Metered is one endpoint whose requests cost what their bodies and their answers say, as those to a language model do.
// Endpoint and one of Ask and Bytes are required; every other zero value is a safe default.
type Metered struct {
	// Endpoint is a template that the table has, "POST /v1/chat/completions".
	Endpoint string

	// Bytes has them cost what their bodies have, in place of Ask. Then MaxBytes and ReadTimeout mean nothing: no body
	// is held.
	Bytes *Bytes

	// Ask tells what a request may cost, in tokens, and what is to be told of its answer; nil if it costs that
	// whatever the answer says. Of the request's body the first bytes are here; whole says whether these are all. Other
	// bodies than whole ones were chosen to be long: cost them by their length. Compressed ones are refused with 415.
	Ask func(r *http.Request, body []byte, whole bool) (Exchange, int64)

	// MaxBytes is how much of a body is held and shown to Ask, 1 to 64 MiB. A longer one whose length is not announced
	// is refused with 411. Default 1 MiB.
	MaxBytes int

	// ReadTimeout is how long that may take to arrive, as Login.ReadTimeout. Default 10 s.
	ReadTimeout time.Duration

	// Cut ends an answer that comes to cost more than was taken for it, when its caller has no more: more is taken
	// before more is passed on, and no budget is exceeded. Under Bytes it ends the body of a request so, which is
	// refused then, and refuses an answer to a GET that says a length for which there is no room.
	// Default false: it is passed on, and what it costs more is owed.
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
	ended   atomic.Uint64
}

// Ended is how many bodies were cut off or refused under Metered.Cut so far, as their callers had no more.
func (m *Meters) Ended() uint64 { return m.ended.Load() }

type metered struct {
	Metered
	reading
	ended *atomic.Uint64
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
		made.ended = &m.ended
		if err = errors.Join(all.add(one.Endpoint, made), err); err != nil {
			errs = append(errs, fmt.Errorf("metered[%d] (%s): %w", i, one.Endpoint, err))
		}
	}
	return func() { m.current.Store(all) }, errors.Join(errs...)
}

func compileMetered(m Metered) (*metered, error) {
	timeout, err := readTimeout(m.ReadTimeout)
	errs := []error{err}
	if (m.Ask == nil) == (m.Bytes == nil) {
		errs = append(errs, errors.New("Ask and Bytes are both set or both nil, want one"))
	}
	if m.Bytes != nil {
		var err error
		m.Bytes, err = m.Bytes.compile()
		errs = append(errs, err)
	}
	if m.MaxBytes == 0 {
		m.MaxBytes = defaultMetered
	}
	if m.MaxBytes < 1 || m.MaxBytes > mostMetered {
		errs = append(errs, fmt.Errorf("MaxBytes is %d, want 1 to %d", m.MaxBytes, mostMetered))
	}
	return &metered{Metered: m, reading: reading{m.MaxBytes, timeout}}, errors.Join(errs...)
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
	if m.Bytes != nil {
		x, cost := m.Bytes.begin(r)
		request.Cost = cost
		return x, true
	}
	if body.Compressed(r.Header) && !bodiless(r) {
		compressed(w, r)
		return nil, false
	}
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
	lim     *headgate.Limiter
	ctx     context.Context
	request headgate.Request
	reserve *Reserve
	cuts    bool
	ended   *atomic.Uint64

	mu sync.Mutex // of what follows: bodies may go both ways at once
	Exchange
	bytes   *transfer // that it is, or nil
	taken   int64
	sunk    int64 // of that, which is settled for good
	more    []headgate.Reservation
	ceiling int64              // that is taken in one step; 0 for what the last one was
	later   int64              // what it has to cost before more is tried, where there was none
	denied  *headgate.Decision // why there was none; nil if there was

	// of a connection that was taken over
	open   *carried
	settle func() // once that is closed, if the handler returned before
	over   bool
}

// mostMore is how many reservations one request has outstanding beside its first. Beyond that the oldest is settled for
// what it is, whatever comes of the request: the table of them is everybody's.
const mostMore = 16

// mostMoreBytes is the same where bytes count and none are announced that have not passed: what has is not given back.
const mostMoreBytes = 1

// errSpent ends a body whose caller has no more.
var errSpent = errors.New("the caller's budget ended before the body did")

// begin is told how the answer begins. A decision says that it is to be refused.
func (t *tab) begin(status int, header http.Header) *headgate.Decision {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.denied != nil && t.cuts { // the request's body was cut off, so whoever answers saw a part of it
		return t.denied
	}
	t.Begin(status, header)
	if t.bytes == nil || t.pay() {
		return nil
	}
	refused := t.denied
	t.bytes.announce = 0 // and is passed on as far as there is more, if it is
	t.denied, t.later = nil, 0
	if !t.cuts || !t.bytes.whole {
		return nil
	}
	t.end()
	return refused
}

// write is told of a piece of the answer, and takes more if that is to be passed on.
func (t *tab) write(p []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return net.ErrClosed
	}
	t.Write(p)
	if t.cuts || t.bytes != nil {
		if !t.pay() && t.cuts {
			t.unpass(len(p))
			t.end()
			return errSpent
		}
	}
	return nil
}

// end notes that something ends before it would, once.
func (t *tab) end() {
	if t.ended != nil {
		t.ended.Add(1)
		t.ended = nil
	}
}

// unwritten is told that the end of a piece did not pass.
func (t *tab) unwritten(n int) {
	if n > 0 {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.unpass(n)
	}
}

func (t *tab) unpass(n int) {
	if t.bytes != nil {
		t.bytes.unwritten(n)
	}
}

// read is told of a piece of the request, and reports whether it may be passed on.
func (t *tab) read(n int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return false
	}
	t.bytes.read(n)
	if !t.pay() && t.cuts {
		t.bytes.read(-n)
		t.end()
		return false
	}
	return true
}

// pay takes what is needed for what is seen, and reports false if there is not so much.
func (t *tab) pay() bool {
	so := t.SoFar()
	if so <= t.taken {
		return true
	}
	if so < t.later {
		return false
	}
	need := so - t.taken
	// A quarter more each time: an answer takes more a few times, and not with each word. At the end of the budget
	// there may be room for what is needed alone.
	step := t.taken / 4
	if t.ceiling > 0 {
		step = min(step, t.ceiling)
	}
	for step = max(need, step); !t.take(step); step = max(need, t.ceiling) {
		why := t.denied.Reason
		if step == need || why != headgate.OverLimit && why != headgate.CostAboveBurst { // nor is there room for less
			t.later = 0
			if !t.cuts {
				t.later = so + so/4 // it passes all the same, and is owed at the end
			}
			return false
		}
		t.ceiling = max(1, step/2)
	}
	if t.ceiling > 0 {
		t.ceiling = min(2*step, 1<<61)
	}
	return true
}

func (t *tab) take(cost int64) bool {
	r := t.request
	r.Cost, r.Parts, r.UnderWay = cost, 1, true
	made, d := t.lim.Reserve(t.ctx, r, headgate.UntilSettled)
	if !d.Allowed {
		t.denied = &d
		return false
	}
	t.denied, t.taken = nil, t.taken+cost
	if made.Expires.IsZero() {
		return true // nothing counts it now
	}
	most := mostMore
	if t.bytes != nil && t.bytes.announce <= t.bytes.out {
		most = mostMoreBytes
	}
	for len(t.more) >= most {
		oldest := t.more[0]
		if _, err := t.lim.Settle(t.ctx, oldest.ID, oldest.Cost); err != nil && t.reserve.Failed != nil {
			t.reserve.Failed(err)
		}
		t.more = append(t.more[:0], t.more[1:]...)
		t.sunk += oldest.Cost
	}
	t.more = append(t.more, made)
	return true
}

// cost is what it has cost in the end.
func (t *tab) cost(whole bool) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.Cost(whole)
}

// pays settles what more was taken, and returns what is left of the cost for the first reservation. Nothing is taken
// after it.
func (t *tab) pays(ctx context.Context, actual, first int64, a headgate.Answer) (left int64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	left = max(0, actual-t.sunk)
	rest := max(0, left-first)
	var errs []error
	for _, made := range t.more {
		a.Actual = min(rest, made.Cost)
		rest, left = rest-a.Actual, left-a.Actual
		_, err := t.lim.SettleAnswer(ctx, made.ID, a)
		errs = append(errs, err)
	}
	return left, errors.Join(errs...)
}

// waits has settle called once the connection is closed that was taken over, and reports whether there is one.
func (t *tab) waits(settle func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open != nil {
		t.settle = settle
	}
	return t.open != nil
}

// left is told that a connection is closed.
func (t *tab) left(c *carried) {
	t.mu.Lock()
	settle := t.settle
	t.open = nil
	t.mu.Unlock()
	if settle != nil {
		settle()
	}
}
