package telemetry

import (
	"container/list"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/pace/telemetry"
)

// Quota is one that clients report about.
type Quota struct {
	Name     string
	Capacity float64 // requests a second; 0: measured
	Burst    int64   // 0: unknown
}

// Options configures an Aggregator. Quotas and Secrets are required.
type Options struct {
	Quotas  []Quota
	Secrets [][]byte // the current one first; reports by any of them are taken

	// Window is how far back the answers look. Default 30 s, at least a second.
	Window time.Duration

	// MaxClients is how many clients of each quota are known at once; another one takes the place of
	// the one that was silent longest. Default 10,000, at about 700 bytes each.
	MaxClients int
}

// Fault says why a report was not taken.
type Fault uint8

const (
	none      Fault = iota
	Flood           // its source sends more than it may
	Malformed       // no report of this version
	UnknownQuota
	Forged   // the HMAC is not by the client's key
	Stale    // it is dated more than 30 s from now
	Replayed // its number is not above that of the report before
	faults   // how many there are
)

// String returns a metric's label.
func (f Fault) String() string {
	return [faults]string{"none", "flood", "malformed", "unknown_quota", "forged", "stale", "replayed"}[f]
}

// skew is how far the clocks of clients may be off: a report that was recorded is of no use for longer.
const skew = 30 * time.Second

// fastest is the most requests a second that are believed of one client.
const fastest = 10_000

// An aggregate of many clients is made anew at most this often.
const (
	fewClients = 64
	freshness  = 100 * time.Millisecond
)

// Aggregator keeps what clients report. It is safe for concurrent use.
type Aggregator struct {
	window time.Duration
	start  time.Time

	most    atomic.Int64 // clients of a quota
	quotas  atomic.Pointer[map[string]*quota]
	secrets atomic.Pointer[[][]byte]

	taken   atomic.Uint64
	evicted atomic.Uint64
	refused [faults]atomic.Uint64
}

// MinSecret is the length of a secret in bytes, at least.
const MinSecret = 32

// filled is o with its defaults, or everything that is wrong with it.
func (o Options) filled() (Options, error) {
	if o.Window == 0 {
		o.Window = 30 * time.Second
	}
	if o.MaxClients == 0 {
		o.MaxClients = 10_000
	}
	var wrong []error
	if o.Window < time.Second || o.Window > time.Hour {
		wrong = append(wrong, fmt.Errorf("window is %v, want 1s to 1h", o.Window))
	}
	if o.MaxClients < 1 || o.MaxClients > 1_000_000 {
		wrong = append(wrong, fmt.Errorf("max clients is %d, want 1 to 1000000", o.MaxClients))
	}
	if len(o.Quotas) == 0 {
		wrong = append(wrong, errors.New("there is no quota, want one at least"))
	}
	seen := map[string]bool{}
	for _, q := range o.Quotas {
		if err := telemetry.CheckQuota(q.Name); err != nil {
			wrong = append(wrong, err)
		}
		if seen[q.Name] {
			wrong = append(wrong, fmt.Errorf("quota %q is given twice", q.Name))
		}
		seen[q.Name] = true
	}
	if len(o.Secrets) == 0 {
		wrong = append(wrong, errors.New("there is no secret, want one at least"))
	}
	for i, s := range o.Secrets {
		if len(s) < MinSecret {
			wrong = append(wrong, fmt.Errorf("secret %d is %d bytes long, want %d or more", i+1, len(s), MinSecret))
		}
	}
	return o, errors.Join(wrong...)
}

// New returns an empty Aggregator that begins at now, or everything that is wrong with o.
func New(o Options, now time.Time) (*Aggregator, error) {
	o, err := o.filled()
	if err != nil {
		return nil, err
	}
	a := &Aggregator{window: o.Window, start: now}
	a.quotas.Store(&map[string]*quota{})
	return a, a.Change(o, now)
}

// Change puts other options in force at now, all but Window: or, with everything that is wrong
// with them, none. What clients said of a quota that stays is kept.
func (a *Aggregator) Change(o Options, now time.Time) error {
	o, err := o.filled()
	if err != nil {
		return err
	}
	before, quotas := *a.quotas.Load(), make(map[string]*quota, len(o.Quotas))
	for _, to := range o.Quotas {
		q := before[to.Name]
		if q == nil {
			q = &quota{
				of:            a,
				since:         max(0, now.Sub(a.start)),
				clients:       map[uint64]*list.Element{},
				silent:        list.New(),
				lastRefusal:   -1,
				congestedFrom: -1,
			}
		}
		q.change(to)
		quotas[to.Name] = q
	}
	a.most.Store(int64(o.MaxClients))
	a.secrets.Store(&o.Secrets)
	a.quotas.Store(&quotas)
	return nil
}

// Answer takes a report and appends the answer to it to reply. It appends nothing if there is a fault.
func (a *Aggregator) Answer(now time.Time, message, reply []byte) ([]byte, Fault) {
	reply, fault := a.answer(now, message, reply)
	if fault == none {
		a.taken.Add(1)
	} else {
		a.Count(fault)
	}
	return reply, fault
}

// Count counts a report that was not even looked at.
func (a *Aggregator) Count(f Fault) { a.refused[f].Add(1) }

func (a *Aggregator) answer(now time.Time, message, reply []byte) ([]byte, Fault) {
	r, err := telemetry.ReadReport(message)
	if err != nil {
		return reply, Malformed
	}
	q := (*a.quotas.Load())[r.Quota]
	if q == nil {
		return reply, UnknownQuota
	}
	key := a.keyOf(message, r)
	if key == nil {
		return reply, Forged
	}
	if off := now.Sub(r.Time); off > skew || off < -skew {
		return reply, Stale
	}
	sum, fault := q.take(now, r)
	if fault != none {
		return reply, fault
	}
	return sum.Append(reply, key), none
}

// keyOf is the key by which a report is signed, nil if there is none.
func (a *Aggregator) keyOf(message []byte, r telemetry.Report) []byte {
	for _, secret := range *a.secrets.Load() {
		if key := telemetry.ClientKey(secret, r.Quota, r.Client); telemetry.Verify(message, key) {
			return key
		}
	}
	return nil
}

// quota is the table of one quota's clients.
type quota struct {
	of    *Aggregator
	since time.Duration // when it began, since the start of the Aggregator

	mu            sync.Mutex
	Quota                                  // guarded by mu, as all below
	clients       map[uint64]*list.Element // of *client
	silent        *list.List               // the longest silent first
	lastRefusal   time.Duration            // since the start of the Aggregator; -1: none
	congestedFrom time.Duration            // when this congestion began; -1: there is none
	measured      float64                  // capacity, while it was congested
	made          time.Duration            // when sum was
	fresh         bool                     // sum is, but for what came since made
	sum           telemetry.Aggregate
}

// client is what one client said.
type client struct {
	id       uint64
	number   uint64 // of its last report
	last     time.Duration
	seen     [3]uint32 // its counters: sent, accepted, refused
	queue    int
	refused  time.Duration // when it was last refused; -1: never
	requests window
}

// change has the quota be another of the same name.
func (q *quota) change(to Quota) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.Quota, q.fresh = to, false
}

// take notes a report, and returns what there is to say of the quota.
func (q *quota) take(now time.Time, r telemetry.Report) (telemetry.Aggregate, Fault) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := max(0, now.Sub(q.of.start)) // by the monotonic clock, if now has one
	c, known := q.client(r.Client, at)
	if known && r.Number <= c.number {
		return telemetry.Aggregate{}, Replayed
	}
	since := at - c.last
	if !known {
		since = q.of.window
	}
	counters := [3]uint32{r.Sent, r.Accepted, r.Refused}
	var more counts
	if known || r.First { // else its counters began before we knew of it
		more = believed(counters, c.seen, since)
	}
	c.number, c.last, c.seen, c.queue = r.Number, at, counters, r.Queue
	c.requests.add(partOf(at, q.of.window), more)
	if r.Congested || more.refused > 0 {
		c.refused, q.lastRefusal = at, at
	}
	sum := q.summed(at)
	sum.Client, sum.Number, sum.Time = r.Client, r.Number, now
	return sum, none
}

// client finds one, or makes room for it. It is now the one that spoke last.
func (q *quota) client(id uint64, at time.Duration) (*client, bool) {
	if e := q.clients[id]; e != nil {
		q.silent.MoveToBack(e)
		return e.Value.(*client), true
	}
	for len(q.clients) >= int(q.of.most.Load()) {
		q.forget(q.silent.Front())
		q.of.evicted.Add(1)
	}
	c := &client{id: id, refused: -1, last: at}
	q.clients[id] = q.silent.PushBack(c)
	return c, false
}

func (q *quota) forget(e *list.Element) {
	delete(q.clients, e.Value.(*client).id)
	q.silent.Remove(e)
	q.fresh = false
}

// believed is how far counters went on since the report before, at most as far as one client can bring them in the
// time. A counter that went back began anew, unless it has passed 2^32.
func believed(now, before [3]uint32, since time.Duration) counts {
	most := int64(fastest * max(1, since.Seconds()))
	var more [3]int64
	for i := range more {
		grown := int64(now[i]) - int64(before[i])
		if now[i] < before[i] {
			if grown = int64(now[i] - before[i]); grown > most { // not 2^32 either
				grown = int64(now[i])
			}
		}
		more[i] = min(grown, most)
	}
	return counts{sent: more[0], accepted: more[1], refused: more[2]}
}

// summed is what all clients said together. The caller holds mu.
func (q *quota) summed(at time.Duration) telemetry.Aggregate {
	if q.fresh && len(q.clients) > fewClients && at-q.made < freshness {
		return q.sum
	}
	for e := q.silent.Front(); e != nil && at-e.Value.(*client).last > 2*q.of.window; e = q.silent.Front() {
		q.forget(e)
	}
	s := telemetry.Aggregate{Quota: q.Name, Warm: at-q.since >= q.of.window, Window: q.of.window, SinceRefusal: -1}
	part := partOf(at, q.of.window)
	var sent, accepted, refused, queues []int64
	for e := q.silent.Back(); e != nil; e = e.Prev() { // those that spoke last come first
		c := e.Value.(*client)
		if at-c.last > q.of.window {
			break
		}
		c.requests.advance(part)
		s.Active++
		if c.refused >= 0 && at-c.refused <= q.of.window {
			s.Refusing++
		}
		sent, accepted = append(sent, c.requests.total.sent), append(accepted, c.requests.total.accepted)
		refused, queues = append(refused, c.requests.total.refused), append(queues, int64(c.queue))
	}
	s.Sent, s.Accepted, s.Refused, s.Queue = trimmed(sent), trimmed(accepted), trimmed(refused), trimmed(queues)
	if q.lastRefusal >= 0 {
		s.SinceRefusal = at - q.lastRefusal
	}
	q.measure(at, s)
	if s.Capacity = q.measured; q.Capacity > 0 {
		s.Capacity, s.Configured = q.Capacity, true
	}
	q.sum, q.made, q.fresh = s, at, true
	return s
}

// measure takes for the capacity what is accepted while clients are refused and others wait, once that has lasted for
// a window: what was saved up is spent by then.
func (q *quota) measure(at time.Duration, s telemetry.Aggregate) {
	if s.Queue == 0 || s.SinceRefusal < 0 || s.SinceRefusal > q.of.window {
		q.congestedFrom = -1
		return
	}
	if q.congestedFrom < 0 {
		q.congestedFrom = at
	}
	if at-q.congestedFrom >= q.of.window && s.Accepted > 0 {
		q.measured = float64(s.Accepted) / q.of.window.Seconds()
	}
}

// trimmed adds numbers up. Of more than ten, the largest twentieth counts as the next one below: a client that lies
// is worth no more than one that does not.
func trimmed(numbers []int64) int {
	if n := len(numbers); n > 10 {
		slices.Sort(numbers)
		cut := max(1, n/20)
		for i := n - cut; i < n; i++ {
			numbers[i] = numbers[n-cut-1]
		}
	}
	var sum int64
	for _, n := range numbers {
		sum += n
	}
	return int(sum)
}

// QuotaStatus is the state of one quota.
type QuotaStatus struct {
	Name    string
	Clients int // that are kept
	telemetry.Aggregate
}

// Status is the state of an Aggregator.
type Status struct {
	Quotas  []QuotaStatus // by name
	Taken   uint64
	Evicted uint64
	Refused map[string]uint64 // by Fault
}

// Status reports the state at now.
func (a *Aggregator) Status(now time.Time) Status {
	s := Status{Taken: a.taken.Load(), Evicted: a.evicted.Load(), Refused: map[string]uint64{}}
	for f := none + 1; f < faults; f++ {
		s.Refused[f.String()] = a.refused[f].Load()
	}
	for _, q := range *a.quotas.Load() {
		q.mu.Lock()
		q.fresh = false
		sum := q.summed(max(0, now.Sub(a.start)))
		s.Quotas = append(s.Quotas, QuotaStatus{Name: q.Name, Clients: len(q.clients), Aggregate: sum})
		q.mu.Unlock()
	}
	slices.SortFunc(s.Quotas, func(x, y QuotaStatus) int { return strings.Compare(x.Name, y.Name) })
	return s
}
