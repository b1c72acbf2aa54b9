package pace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/headgate-io/headgate/pace/telemetry"
)

// Options configures a Transport. Every zero value is a safe default.
type Options struct {
	// Base sends the requests. Default [http.DefaultTransport].
	Base http.RoundTripper

	// Algorithm paces each quota. Default [Auto].
	Algorithm Algorithm

	// Quota names the quota that a request counts against. Requests of one quota
	// share a queue and its pauses; others are unaffected. Default [ByHost]. Where
	// credentials have quotas of their own, name the credential too, but not by the
	// secret itself: the name is reported by Quotas.
	Quota func(*http.Request) string

	// Priority orders the requests that wait for one quota: higher goes first, equal
	// in the order of arrival. Default: all equal.
	Priority func(*http.Request) int

	// MaxQueue is how many requests may wait for one quota; more fail at once.
	// Default 1000.
	MaxQueue int

	// MaxQuotas is how many quotas are remembered at once. One that is idle gives way
	// to a new one; while none is, requests of a new one fail. Default 1024.
	MaxQuotas int

	// MaxWait is how long a request may spend in the queue in all. A request that
	// cannot be sent by then, or by the deadline of its context, fails as soon as that
	// is known. Default 2 minutes. [http.Client.Timeout] includes the wait.
	MaxWait time.Duration

	// MaxRetryAfter is the longest wait that a server can ask for. A request that is
	// told to wait longer is given its refusal, and its queue pauses for this long at
	// most. Default 2 minutes.
	MaxRetryAfter time.Duration

	// MaxAttempts is how often one request is sent before its refusal is given to the
	// caller: a server may refuse one request for ever while it serves others. Default
	// 8.
	MaxAttempts int

	// MaxReplay is the largest body, in bytes, that is kept in memory to be sent
	// again. Larger ones can be sent again if the request has GetBody. Default 64 KiB.
	MaxReplay int64

	// Telemetry, if set, says where to share a quota with other processes, and false for
	// one that is not shared. An algorithm that shares ([Auto], [XATB], [AATB]) reports
	// there. Close the Transport when it is no longer used.
	Telemetry func(quota string) (telemetry.Options, bool)

	// OmitPending leaves out the field Headgate-Pending, which tells servers that say
	// that they reserve how many requests wait.
	OmitPending bool

	// OnAttempt, if set, is told of every attempt when it is answered. It must not
	// block, and may be called from several goroutines at once.
	OnAttempt func(Attempt)

	// Random returns numbers in [0, 1), for jitter. It may be called from several
	// goroutines at once. Default [rand.Float64] of math/rand/v2.
	Random func() float64

	// Clock tells the time, and wakes those who wait. Deadlines of contexts are read by it too. Default the
	// clock of package time.
	Clock Clock
}

// Clock is what a [Transport] has for a clock: a program that simulates can bring its own. Its
// methods may be called from several goroutines at once, and must not block.
type Clock interface {
	Now() time.Time

	// AfterFunc calls f once, in a goroutine of its own, when d has passed; at once if d is 0 or
	// less. stop prevents that, unless it is too late.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

type realClock struct{}

// Now implements [Clock].
func (realClock) Now() time.Time { return time.Now() }

// AfterFunc implements [Clock].
func (realClock) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

// FieldPending is the field that tells a server how many more requests of the quota wait,
// as an Integer. A server that reserves has a time for the next one in its answer.
const FieldPending = "Headgate-Pending"

// Attempt is one request on the network.
type Attempt struct {
	Quota     string
	Number    int           // the first of a request is 1
	Waited    time.Duration // in the queue, since the attempt before or the call
	RoundTrip time.Duration
	Status    int  // 0 if there was no answer
	Refused   bool // because of a limit
	Hint      Hint
	Err       error // if there was no answer
}

// Throttled is the error of a request that was not sent, because it could not have
// been in time.
type Throttled struct {
	Quota string
	// RetryAfter is when a request of the quota can be sent as far as is known,
	// counted from the moment of the error; 0 if that is unknown.
	RetryAfter time.Duration
	// Reason is QueueFull, TooLate or TooManyQuotas.
	Reason Reason
}

// Reason says why a request was not sent.
type Reason string

// The reasons.
const (
	QueueFull     Reason = "the queue is full"
	TooLate       Reason = "its turn comes too late"
	TooManyQuotas Reason = "too many quotas are in use"
)

func (e *Throttled) Error() string {
	text := fmt.Sprintf("not sent, quota %q: %s", e.Quota, e.Reason)
	if e.RetryAfter > 0 {
		text += fmt.Sprintf(", retry after %v", e.RetryAfter.Round(time.Millisecond))
	}
	return text
}

// ByHost names the quota of a request by the scheme and host it goes to.
func ByHost(r *http.Request) string { return r.URL.Scheme + "://" + r.URL.Host }

// Transport is an [http.RoundTripper] that paces requests. Make it with [New].
type Transport struct {
	options Options
	start   time.Time

	mu     sync.Mutex
	lines  map[string]*line // guarded by mu
	closed bool
}

var _ http.RoundTripper = (*Transport)(nil)

// New returns a Transport. It panics if a bound is negative, which is a mistake in
// the program.
func New(o Options) *Transport {
	if o.MaxQueue < 0 || o.MaxQuotas < 0 || o.MaxWait < 0 || o.MaxRetryAfter < 0 || o.MaxAttempts < 0 ||
		o.MaxReplay < 0 {
		panic("pace: a bound of Options is negative, want 0 for the default or more")
	}
	setDefault(&o.Base, http.DefaultTransport)
	setDefault(&o.Algorithm, Algorithm(Auto{}))
	setDefault(&o.MaxQueue, 1000)
	setDefault(&o.MaxQuotas, 1024)
	setDefault(&o.MaxWait, 2*time.Minute)
	setDefault(&o.MaxRetryAfter, 2*time.Minute)
	setDefault(&o.MaxAttempts, 8)
	setDefault(&o.MaxReplay, 64<<10)
	if o.Quota == nil {
		o.Quota = ByHost
	}
	if o.Priority == nil {
		o.Priority = func(*http.Request) int { return 0 }
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	if o.Clock == nil {
		o.Clock = realClock{}
	}
	return &Transport{options: o, start: o.Clock.Now(), lines: make(map[string]*line)}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// now reads the clock: the monotonic one, unless Options.Clock has none.
func (t *Transport) now() time.Duration { return t.options.Clock.Now().Sub(t.start) }

// RoundTrip implements [http.RoundTripper]. It sends the request when its quota
// allows, again after a refusal, and returns the last answer: a refusal, if the
// request may not be sent again or not in time. A request that was never sent fails
// with a [*Throttled], or the error of its context.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	quota := t.options.Quota(r)
	l := t.line(quota)
	if l == nil {
		closeBody(r)
		return nil, &Throttled{Quota: quota, Reason: TooManyQuotas}
	}
	body, err := newReplay(r, t.options.MaxReplay)
	if err != nil {
		l.leave()
		return nil, err
	}
	defer l.leave()
	defer body.close()
	w := &waiter{priority: t.options.Priority(r), turn: make(chan error, 1), latest: t.latest(r.Context())}
	var refusal *http.Response
	for n := 1; ; n++ {
		began := t.now()
		if err := l.wait(r.Context(), w); err != nil {
			if _, ours := AsThrottled(err); ours && refusal != nil {
				return refusal, nil // the server's own words say more
			}
			return nil, err
		}
		a := Attempt{Quota: quota, Number: n, Waited: t.now() - began}
		response, err := t.attempt(r, body, l, &a)
		switch {
		case err != nil:
			return nil, err
		case !a.Refused || n == t.options.MaxAttempts || a.Hint.Wait > t.options.MaxRetryAfter:
			return response, nil
		case !mayRepeat(r, response.StatusCode) || !body.repeatable():
			return response, nil
		}
		refusal = t.keep(response)
	}
}

// attempt sends a request once, and reports the answer to its line.
func (t *Transport) attempt(r *http.Request, body *replay, l *line, a *Attempt) (*http.Response, error) {
	ended := false
	defer func() {
		if !ended {
			l.unanswer() // also where Base, GetBody or a hook panics, and somebody recovers
		}
	}()
	out, err := body.request(r)
	if err != nil {
		return nil, err
	}
	if n, reserves := l.pending(); reserves && !t.options.OmitPending {
		if out == r {
			out = r.Clone(r.Context())
		}
		out.Header.Set(FieldPending, strconv.Itoa(n))
	}
	sent := t.now()
	response, err := t.options.Base.RoundTrip(out)
	a.RoundTrip = t.now() - sent
	if err != nil {
		a.Err, ended = err, true
		l.unanswer()
	} else {
		a.Status = response.StatusCode
		a.Hint = ReadHint(response.Header, t.options.Clock.Now())
		a.Hint.RoundTrip = a.RoundTrip
		a.Refused = IsRefusal(response.StatusCode, response.Header)
		ended = true
		l.answer(a, t.options.MaxRetryAfter)
	}
	if t.options.OnAttempt != nil {
		t.options.OnAttempt(*a)
	}
	return response, err
}

// latest is when a request has to be sent at the latest.
func (t *Transport) latest(ctx context.Context) time.Duration {
	latest := t.now() + t.options.MaxWait
	if deadline, ok := ctx.Deadline(); ok {
		latest = min(latest, deadline.Sub(t.start))
	}
	return latest
}

// line returns the line of a quota, with the caller counted as a user of it; nil if
// there is no room for another.
func (t *Transport) line(quota string) *line {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[quota]
	if l == nil {
		if len(t.lines) >= t.options.MaxQuotas && !t.forgetLocked() {
			return nil
		}
		l = newLine(t, quota)
		t.lines[quota] = l
	}
	l.enter()
	return l
}

// forgetLocked drops an idle line, preferably one that is not paused: forgetting a
// pause sends a request that may be refused.
func (t *Transport) forgetLocked() bool {
	var idle *line
	for _, l := range t.lines {
		unused, paused := l.idle()
		if !unused {
			continue
		}
		idle = l
		if !paused {
			break
		}
	}
	if idle == nil {
		return false
	}
	delete(t.lines, idle.quota)
	go idle.close() // waits for the network
	return true
}

// QuotaState is what a Transport knows of one quota.
type QuotaState struct {
	Quota      string
	Waiting    int           // requests in the queue
	Unanswered int           // attempts on the network
	Attempts   uint64        // in all
	Refused    uint64        // of them
	Waited     time.Duration // in the queue, all attempts together
	Pause      time.Duration // until the next attempt may be sent, 0 if at once
	Rate       float64       // that is kept to, in requests a second, 0 for none
	Mode       string        // what is relied on, see [Pacer]
}

// Quotas returns the state of every quota that is remembered, in no order.
func (t *Transport) Quotas() []QuotaState {
	t.mu.Lock()
	defer t.mu.Unlock()
	states := make([]QuotaState, 0, len(t.lines))
	for _, l := range t.lines {
		states = append(states, l.state())
	}
	return states
}

// Close ends what a Transport shares by telemetry: others are told that its queues are
// empty. Requests that are under way go on, and later ones are paced without telemetry.
func (t *Transport) Close() {
	t.mu.Lock()
	t.closed = true
	lines := slices.Collect(maps.Values(t.lines))
	t.mu.Unlock()
	for _, l := range lines {
		l.close()
	}
}

// CloseIdleConnections lets [http.Client.CloseIdleConnections] reach the transport
// below.
func (t *Transport) CloseIdleConnections() {
	if closer, ok := t.options.Base.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

// AsThrottled returns the Throttled in an error of [http.Client.Do], if there is one.
func AsThrottled(err error) (*Throttled, bool) {
	var throttled *Throttled
	ok := errors.As(err, &throttled)
	return throttled, ok
}
