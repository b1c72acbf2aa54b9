package httplimit

import (
	"bufio"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/internal/values"
)

// CostField is the response field by which handlers say what a request cost, in
// tokens.
const CostField = "X-Headgate-Cost"

// Reserve makes requests pay by what they turned out to cost: an estimate is
// taken before the request is served, and settled when it was. At least one of
// Field and BytesPerToken is needed; where a response has the field, it counts.
type Reserve struct {
	// Field is the response field that says the cost, a whole number of
	// tokens, such as CostField. It may be set until the handler returns: a
	// stream knows its cost at the end, and a proxied API sends it as a
	// trailer. It never reaches the client. A value that is no number is
	// ignored, and the estimate stands. Empty means none.
	Field string

	// BytesPerToken makes the cost that of the response's body, a token for
	// each BytesPerToken bytes or part of them, one at least, but for requests that
	// say themselves what they cost (Priced). 0 means that bytes do not count.
	BytesPerToken int64

	// Timeout is how long a request may take. Beyond it, its estimate stands.
	// Default reservation.DefaultTimeout.
	Timeout time.Duration

	// Failed, if set, is told of settlements that failed; their estimates
	// stand.
	Failed func(error)
}

// serveReserved is ServeHTTP for requests that pay afterwards, or are forgiven
// by what they are answered.
func (h *handler) serveReserved(w http.ResponseWriter, r *http.Request, target string, request headgate.Request,
	then afterwards) {
	o, ask := then.reserve, h.lim.WaitAnswer
	if then.always {
		ask = h.lim.ReserveWait
	}
	// An error says that the client left while it waited; d is denied then.
	timeout := o.Timeout
	if h.lim.LimitsConcurrency() || then.exchange != nil {
		timeout = headgate.UntilSettled // it goes on for as long as it does, and is settled below
	}
	made, d, _ := ask(r.Context(), request, timeout)
	if !d.Allowed || !then.always && made.Expires.IsZero() {
		if h.answer(w, r, request.Target, &d) {
			h.serve(w, r, Charged{target, h.lim.Exchange(&d)}, &d)
		}
		return
	}
	m := &meter{ResponseWriter: w, field: http.CanonicalHeaderKey(o.Field), cost: -1}
	if then.exchange != nil {
		m.tab = h.open(r, request, &then, made.Cost)
		m.refuse = func(d *headgate.Decision) { h.answer(w, r, request.Target, d) }
		if m.tab.cuts && m.tab.bytes != nil {
			m.before = maps.Clone(w.Header())
		}
	}
	served := false
	defer func() {
		m.takeField() // what was set after the header was sent
		h.score(&d, m, served && m.whole() && !m.refused)
		settle := func() {
			// Not the request's context: a client that has gone pays too.
			h.settle(context.WithoutCancel(r.Context()), &then, made, m, served)
		}
		if m.tab == nil || !m.tab.waits(settle) {
			settle()
		}
		if m.refused { // whole, whatever became of the answer in whose place it stands
			if p := recover(); p != nil && p != http.ErrAbortHandler {
				panic(p)
			}
		}
	}()
	h.answer(w, r, request.Target, &d) // after the defer, as whoever is told of decisions may panic
	m.watch(r)
	h.pass(m, r, Charged{target, h.lim.Exchange(&d)})
	served = true
}

// open begins a tab with what was taken before.
func (h *handler) open(r *http.Request, request headgate.Request, then *afterwards, taken int64) *tab {
	request.MaxWait = -1
	t := &tab{Exchange: then.exchange, lim: h.lim, ctx: context.WithoutCancel(r.Context()), request: request,
		reserve: then.reserve, cuts: then.metered.Cut, ended: then.metered.ended, taken: taken}
	if t.bytes, _ = then.exchange.(*transfer); t.bytes != nil {
		// The body of a request is read by others than its handler, who may change the header.
		t.request.Header = maps.Clone(r.Header)
	}
	return t
}

// settle tells the limiter what a request cost, and what it was answered.
func (h *handler) settle(ctx context.Context, then *afterwards, made headgate.Reservation, m *meter, served bool) {
	o, actual := then.reserve, made.Cost
	whole := served && m.whole()
	switch {
	case m.cost >= 0:
		actual = m.cost
	case m.tab != nil && (m.wrote || m.tab.bytes != nil):
		actual = m.tab.cost(whole)
	case o.BytesPerToken > 0 && !m.hijacked && !then.priced:
		actual = max(1, m.bytes/o.BytesPerToken+min(1, m.bytes%o.BytesPerToken))
	}
	if m.tab == nil && (!served || m.brokeOff() && m.cost < 0) {
		// Aborted, by the client perhaps: that must not be the way to pay
		// less.
		actual = max(actual, made.Cost)
	}
	status := 0
	if whole && !then.many {
		status = m.answered()
	}
	a := headgate.Answer{Actual: actual, Status: status, Forgiven: then.forgives(status)}
	var errMore error
	if m.tab != nil {
		a.Actual, errMore = m.tab.pays(ctx, actual, made.Cost, a)
	}
	_, err := h.lim.SettleAnswer(ctx, made.ID, a)
	if err = errors.Join(err, errMore); err != nil && o.Failed != nil {
		o.Failed(err)
	}
}

// meter counts the bytes of a body and keeps the cost field from the client. Its
// Unwrap gives http.ResponseController the rest; what would get past the meter
// it has itself.
type meter struct {
	http.ResponseWriter
	field    string // canonical; empty if none
	cost     int64  // -1 until the field says
	bytes    int64
	hijacked bool
	wrote    bool // the header is sent
	status   int  // that was sent with it; 0 is 200 by default

	tab *tab // of an endpoint that is metered

	broken atomic.Bool // the request's body could not be read to its end
	cutOff bool        // it was so before the header was sent

	instead bool // somebody else answered than the API; see Unanswered

	// of an answer that may be refused once it begins
	refuse  func(*headgate.Decision)
	before  http.Header // as it was before
	refused bool
}

// watch notes whether the body of r breaks off, in the middle of a chunk for one. Who answers then
// may do so in the place of somebody who has acted on what came before, as a proxy does.
func (m *meter) watch(r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	r.Body = &watched{r.Body, &m.broken}
	if m.tab != nil && m.tab.bytes != nil {
		r.Body = &upload{ReadCloser: r.Body, tab: m.tab}
	}
}

type watched struct {
	io.ReadCloser
	broken *atomic.Bool
}

func (b *watched) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		b.broken.Store(true)
	}
	return n, err
}

// begin is called where the header is sent.
func (m *meter) begin(status int) {
	if !m.wrote {
		m.wrote, m.status, m.cutOff = true, status, m.broken.Load()
		if m.tab != nil {
			if d := m.tab.begin(status, m.Header()); d != nil {
				m.refuseInstead(d)
			}
		}
	}
}

// brokeOff reports whether the request was answered without its whole body, which did not come.
func (m *meter) brokeOff() bool { return m.cutOff || !m.wrote && m.broken.Load() }

// whole reports whether there was an answer of the API, to all of the request.
func (m *meter) whole() bool { return !m.hijacked && !m.instead && !m.brokeOff() }

// answered is the status that was sent.
func (m *meter) answered() int {
	if m.status == 0 {
		return http.StatusOK
	}
	return m.status
}

// Unwrap is for http.ResponseController.
func (m *meter) Unwrap() http.ResponseWriter { return m.ResponseWriter }

// Values is the room that the server brings, for those who pass answers on.
func (m *meter) Values() *values.Room { return values.Of(m.ResponseWriter) }

func (m *meter) WriteHeader(status int) {
	m.takeField()
	if status >= 200 || status == http.StatusSwitchingProtocols {
		m.begin(status)
	}
	if !m.refused {
		m.ResponseWriter.WriteHeader(status)
	}
}

func (m *meter) Write(body []byte) (int, error) {
	m.beforeBody()
	if m.refused {
		return 0, errSpent
	}
	if m.tab != nil {
		if err := m.tab.write(body); err != nil {
			return 0, err
		}
	}
	n, err := m.ResponseWriter.Write(body)
	m.bytes += int64(n)
	if m.tab != nil {
		m.tab.unwritten(len(body) - n)
	}
	return n, err
}

// FlushError sends what there is, the header first.
func (m *meter) FlushError() error {
	m.beforeBody()
	return http.NewResponseController(m.ResponseWriter).Flush()
}

// Flush is FlushError for handlers that know no http.ResponseController.
func (m *meter) Flush() { _ = m.FlushError() }

// Hijack gives the connection away. Unless bytes count, nobody sees what is sent on it, so the estimate stands
// if the field does not say otherwise.
func (m *meter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(m.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	m.hijacked = true
	if m.tab != nil && m.tab.bytes != nil {
		conn, rw = carry(conn, rw, m.tab)
	}
	return conn, rw, nil
}

// beforeBody does what WriteHeader does, if the handler has not called it.
func (m *meter) beforeBody() {
	if !m.wrote {
		m.takeField()
		m.begin(http.StatusOK)
	}
}

// takeField reads the cost field, and removes it: as a field, as a trailer of
// either kind, and from the announcement of trailers.
func (m *meter) takeField() {
	if m.field == "" {
		return
	}
	header := m.Header()
	for _, name := range [...]string{m.field, http.TrailerPrefix + m.field} {
		if values, ok := header[name]; ok {
			delete(header, name)
			m.read(values)
		}
	}
	if announced, ok := header["Trailer"]; ok {
		m.unannounce(header, announced)
	}
}

// read takes the cost from the lines of the field; the last one counts.
func (m *meter) read(values []string) {
	for _, value := range values {
		if cost, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64); err == nil && cost >= 0 {
			m.cost = cost
		}
	}
}

func (m *meter) unannounce(header http.Header, announced []string) {
	var kept []string
	found := false
	for _, line := range announced {
		names := strings.Split(line, ",")
		others := slices.DeleteFunc(names,
			func(name string) bool { return http.CanonicalHeaderKey(strings.TrimSpace(name)) == m.field })
		if len(others) == len(names) {
			kept = append(kept, line)
			continue
		}
		found = true
		if len(others) > 0 {
			kept = append(kept, strings.TrimSpace(strings.Join(others, ",")))
		}
	}
	switch {
	case !found:
	case len(kept) == 0:
		delete(header, "Trailer")
	default:
		header["Trailer"] = kept
	}
}
