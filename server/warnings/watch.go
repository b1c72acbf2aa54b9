// Package warnings tells people what limits do before somebody complains: that a caller has used up
// most of what a rule gives, that a large part of all requests is denied, and that the API answers an
// endpoint more slowly since more is admitted of it, for longer than a moment.
//
//	decision ──▶ Watch: begins? ──▶ line of the log, metric, event ──▶ queue ──▶ Hook: POST, signed
//	answer   ──┘
//
// A warning begins once and is over once. It does not flap: what began at one mark is over at a
// lower one, and a caller is told of again no sooner than Again later. What an attacker can do is
// bounded: only callers with a verified credential are told of, of a number that Options says, in a
// table of fixed size, and only endpoints that the configuration names.
package warnings

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/perrule"
	"github.com/headgate-io/headgate/internal/steady"
	"github.com/headgate-io/headgate/policy"
)

// The kinds of warnings.
const (
	NearLimit = "caller_near_limit" // a caller has used up so much of what a rule gives at once
	Denied    = "requests_denied"   // so many of all requests are denied, for so long
	Slower    = "endpoint_slower"   // the API answers an endpoint more slowly since more is admitted of it
)

// Kinds are all kinds.
func Kinds() []string { return []string{NearLimit, Denied, Slower} }

// Marks say what is watched, and from when on somebody is told. The zero value watches nothing.
type Marks struct {
	// CallerPercent is the part of a rule's burst, in percent, that a caller has to have in use. It is over at three
	// quarters of that.
	CallerPercent int

	// CallerFill is how long an empty bucket of a rule takes to fill, at least, to be watched: of quicker ones every
	// page that loads ten things would be told.
	CallerFill time.Duration

	// DeniedPercent is the part of all requests, in percent, that has to be denied by limits for DeniedFor without a
	// break. It is over when it was below half of that for as long.
	DeniedPercent int
	DeniedFor     time.Duration

	// SlowerPercent is by how much the 99th percentile of an endpoint's times has to be above its usual one, in
	// percent, for SlowerFor without a break, while a fifth more requests of it are admitted than usual. It is over
	// when it was above by less than half of that, or less than a tenth more were admitted, for as long.
	SlowerPercent int
	SlowerFor     time.Duration
}

// any reports whether anything is watched.
func (m *Marks) any() bool { return m.CallerPercent > 0 || m.DeniedPercent > 0 || m.SlowerPercent > 0 }

// Options configures a Watch. Caller is required.
type Options struct {
	// Gateway names this process. Caller names a caller by a hash that says nothing of who it is.
	Gateway string
	Caller  func(*identity.Principal) string

	// Send is given each event; it must not block. Nil means nobody.
	Send func(Event)

	Log *slog.Logger     // default slog.Default
	Now func() time.Time // default time.Now
}

// Again is the least time between two warnings of one caller at one rule.
const Again = time.Hour

// MaxCallers is how many callers that are told of are remembered. Beyond it nobody is told of until one is forgotten.
const MaxCallers = 4096

const (
	every       = 10 * time.Second // between two looks
	cells       = 6                // looks that a part is of: a minute
	fewRequests = 30               // in them, of which a part says nothing
)

// Event is one warning, as it begins or when it is over.
type Event struct {
	ID      string    `json:"id"`   // of this event, the same at each attempt to deliver it
	Time    time.Time `json:"time"` // by the wall clock
	Kind    string    `json:"kind"`
	State   string    `json:"state"` // begun or over
	Gateway string    `json:"gateway,omitempty"`

	// Of NearLimit:
	Caller     string `json:"caller,omitempty"`      // a hash, as in the decision log
	CallerKind string `json:"caller_kind,omitempty"` // api_key, token …
	Project    string `json:"project,omitempty"`
	Rule       string `json:"rule,omitempty"`  // as clients see it
	Limit      string `json:"limit,omitempty"` // "10000 per 720h, burst 10000"
	Endpoint   string `json:"endpoint,omitempty"`

	Percent  int   `json:"percent"`            // in use, or denied, or of Slower: above the usual time
	Requests int64 `json:"requests,omitempty"` // of Denied and Slower, in the last minute

	// Of Slower, beside Endpoint:
	P99           float64 `json:"p99_seconds,omitempty"`       // in the last minute
	UsualP99      float64 `json:"usual_p99_seconds,omitempty"` // before
	UsualRequests int64   `json:"usual_requests,omitempty"`    // in a minute, before
}

// Stats is what a Watch has told of.
type Stats struct {
	Begun  map[string]uint64 // by kind
	Active map[string]int    // now
	Lost   uint64            // warnings of callers that there was no room for
}

// Watch looks at decisions, and at what the API's answers took. It is safe for concurrent use.
type Watch struct {
	o     Options
	clock *steady.Clock
	marks atomic.Pointer[inForce]

	requests, denied atomic.Int64 // since the last look

	mu      sync.Mutex
	callers map[who]*standing // guarded by mu
	none    atomic.Bool       // there are none of them
	begun   map[string]uint64 // guarded by mu
	lost    uint64            // guarded by mu
	tooMany episode           // guarded by mu: of Denied

	// Of the looks, which one goroutine takes:
	parts [cells]struct{ requests, denied int64 }
	looks int

	slower slower
	active active
}

// inForce are marks, with what follows from them for each rule.
type inForce struct {
	Marks
	byRule perrule.Values[watched]
}

// watched is what a decision needs of a rule.
type watched struct {
	burst  int64 // 0: it is not watched
	title  string
	limit  string
	one    bool // bucket for all endpoints
	drains bool // evenly; else all at once
}

// who is a caller at a rule, and at an endpoint if each has a bucket of its own.
type who struct{ caller, rule, endpoint string }

// standing is how a caller was told of.
type standing struct {
	event Event
	begun int64
	over  bool

	// If it asks no more its bucket is full at fullAt, and has drained to the lower mark at lowAt. A
	// caller may have several, one for each of its addresses: it is the last one's.
	fullAt, lowAt int64
}

// episode is the way of one warning in and out: it begins, or is over, when what speaks for that has held for so long
// without a break. The zero value has not begun.
type episode struct {
	on    bool
	since int64 // when it began to hold; 0 while it does not
}

// look reports whether the episode changes.
func (e *episode) look(now int64, holds bool, long time.Duration) bool {
	switch {
	case !holds:
		e.since = 0
		return false
	case e.since == 0:
		e.since = now
	}
	if now-e.since < int64(long) {
		return false
	}
	*e = episode{on: !e.on}
	return true
}

// New returns a Watch that watches nothing, until Use says what.
func New(o Options) *Watch {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Send == nil {
		o.Send = func(Event) {}
	}
	w := &Watch{o: o, clock: steady.New(o.Now), callers: map[who]*standing{}, begun: map[string]uint64{}}
	w.marks.Store(&inForce{})
	w.none.Store(true)
	return w
}

// On reports whether anything is watched.
func (w *Watch) On() bool { return w.marks.Load().any() }

// Use has other marks count from now on. What has begun goes on, unless nobody looks at its kind any
// more: then it is said to be over.
func (w *Watch) Use(m Marks) {
	w.mu.Lock()
	w.marks.Store(&inForce{Marks: m})
	var told []*Event
	if m.CallerPercent == 0 {
		for k, s := range w.callers {
			if !s.over {
				told = append(told, w.endLocked(s, 0))
			}
			delete(w.callers, k)
		}
		w.none.Store(true)
	}
	if m.DeniedPercent == 0 {
		if w.tooMany.on {
			told = append(told, &Event{Kind: Denied, State: "over"})
		}
		w.tooMany = episode{}
	}
	w.mu.Unlock()
	if m.SlowerPercent == 0 {
		told = append(told, w.slower.end()...)
	}
	for _, e := range told {
		w.tell(e)
	}
}

// Observe looks at one decision. It fits headgate.Options.Observe.
func (w *Watch) Observe(_ *headgate.Request, d *headgate.Decision) {
	m := w.marks.Load()
	if !m.any() {
		return
	}
	w.requests.Add(1)
	if d.ByLimit() {
		w.denied.Add(1)
	}
	if m.CallerPercent == 0 || d.Policies() == nil {
		return
	}
	verdicts := d.Verdicts()
	for i := range verdicts {
		v := &verdicts[i]
		if v.Shadow || v.Earlier || v.Unparsable || v.Outcome.Unknown {
			continue
		}
		rule := m.byRule.Get(d.Policies(), v.Rule, m.watched)
		if rule.burst == 0 {
			continue
		}
		burst := d.Policies().Holds(v.Rule, d.Class, v.Lowered)
		used := int((burst - min(v.Outcome.Remaining, burst)) * 100 / burst)
		caller := &d.Principal
		if v.Principal > 0 {
			caller = &d.Others[v.Principal-1]
		}
		if caller.Kind == identity.Address || used < m.CallerPercent && w.none.Load() {
			continue
		}
		w.uses(m, caller, rule, d, used, v.Outcome.ResetAfter)
	}
}

// watched says what there is to watch of a rule.
func (m *inForce) watched(r policy.Rule) *watched {
	fill := time.Duration(float64(max(r.Per, time.Second)) * float64(r.Burst) / float64(r.Limit))
	if fill < m.CallerFill || r.Burst > 1<<56 {
		return &watched{}
	}
	return &watched{
		burst:  r.Burst,
		title:  r.Title(),
		limit:  r.Rate(),
		one:    r.Endpoint == policy.All || r.Endpoint == policy.UnknownEndpoint,
		drains: r.Algorithm == policy.TokenBucket || r.Algorithm == policy.LeakyBucket,
	}
}

// low is the part of a burst at which a warning of a caller is over.
func (m *Marks) low() int { return m.CallerPercent * 3 / 4 }

// uses notes how much of a rule a caller has in use, and when its bucket is full again.
func (w *Watch) uses(m *inForce, caller *identity.Principal, rule *watched, d *headgate.Decision, used int,
	full time.Duration) {
	k := who{caller: w.o.Caller(caller), rule: rule.title}
	if !rule.one {
		k.endpoint = d.Template().String()
	}
	low := full // until it is below the lower mark
	if rule.drains {
		low = time.Duration(float64(full) * float64(max(0, used-m.low())) / float64(max(1, used)))
	}
	now := w.clock.Now()
	w.mu.Lock()
	s, known := w.callers[k]
	var told *Event
	switch {
	case w.marks.Load().CallerPercent == 0: // since a moment ago
	case known && !s.over:
		if used < m.low() && now >= s.lowAt { // else it is another of its buckets
			told = w.endLocked(s, used)
		}
		s.fullAt, s.lowAt = max(s.fullAt, now+int64(full)), max(s.lowAt, now+int64(low))
	case used < m.CallerPercent:
	case known && now-s.begun < int64(Again):
	case !known && len(w.callers) >= MaxCallers:
		w.lost++
	default:
		s = &standing{begun: now, fullAt: now + int64(full), lowAt: now + int64(low), event: Event{
			Kind: NearLimit, Caller: k.caller, CallerKind: caller.Kind.String(), Project: caller.Project,
			Rule: rule.title, Limit: rule.limit, Endpoint: d.Template().String(), Percent: used,
		}}
		w.callers[k] = s
		told = w.beginLocked(s.event)
	}
	w.none.Store(len(w.callers) == 0)
	w.mu.Unlock()
	w.tell(told)
}

func (w *Watch) endLocked(s *standing, used int) *Event {
	s.over = true
	e := s.event
	e.State, e.Percent = "over", used
	return &e
}

func (w *Watch) beginLocked(e Event) *Event {
	w.begun[e.Kind]++
	e.State = "begun"
	return &e
}

// tell says an event to the log, and sends it.
func (w *Watch) tell(e *Event) {
	if e == nil {
		return
	}
	e.ID, e.Time, e.Gateway = newID(), time.Unix(0, w.clock.Wall(w.clock.Now())).UTC(), w.o.Gateway
	level, about := slog.LevelWarn, []any{"kind", e.Kind, "state", e.State, "percent", e.Percent}
	if e.State == "over" {
		level = slog.LevelInfo
	}
	switch e.Kind {
	case NearLimit:
		about = append(about, "rule", e.Rule, "caller", e.Caller, "project", e.Project)
	case Slower:
		about = append(about, "endpoint", e.Endpoint, "p99_seconds", e.P99, "usual_p99_seconds", e.UsualP99,
			"requests", e.Requests, "usual_requests", e.UsualRequests)
	default:
		about = append(about, "requests", e.Requests)
	}
	w.o.Log.Log(context.Background(), level, "warning", about...)
	w.active.note(e)
	w.o.Send(*e)
}

// Run looks every ten seconds until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.Look()
		}
	}
}

// Look ends the warnings of callers who ask no more, and looks at the part of requests that is
// denied and at what answers took. Only one goroutine may.
func (w *Watch) Look() {
	now, m := w.clock.Now(), w.marks.Load()
	w.mu.Lock()
	var told []*Event
	for k, s := range w.callers {
		if !s.over && now >= s.fullAt {
			told = append(told, w.endLocked(s, 0))
		}
		if s.over && now-s.begun >= int64(Again) {
			delete(w.callers, k)
		}
	}
	w.none.Store(len(w.callers) == 0)
	w.mu.Unlock()
	told = append(told, w.lookAtDenials(now))
	if w.looks%cells == 0 {
		told = append(told, w.lookAtTimes(now, m)...)
	}
	for _, e := range told {
		w.tell(e)
	}
}

func (w *Watch) lookAtDenials(now int64) (told *Event) {
	at := &w.parts[w.looks%cells]
	at.requests, at.denied = w.requests.Swap(0), w.denied.Swap(0)
	w.looks++
	var requests, denied int64
	for i := range w.parts {
		requests, denied = requests+w.parts[i].requests, denied+w.parts[i].denied
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.marks.Load()
	if m.DeniedPercent == 0 {
		return nil
	}
	mark := int64(m.DeniedPercent)
	holds := requests >= fewRequests && denied*100 > requests*mark
	if w.tooMany.on {
		holds = requests < fewRequests || denied*200 < requests*mark // it is better
	}
	if !w.tooMany.look(now, holds, m.DeniedFor) {
		return nil
	}
	e := Event{Kind: Denied, State: "over", Percent: int(denied * 100 / max(1, requests)), Requests: requests}
	if w.tooMany.on {
		return w.beginLocked(e)
	}
	return &e
}

// lookAtTimes looks at what answers took in the minute that is over.
func (w *Watch) lookAtTimes(now int64, m *inForce) (told []*Event) {
	if m.SlowerPercent == 0 {
		return nil
	}
	for _, e := range w.slower.look(now, &m.Marks) {
		if e.State == "begun" {
			w.mu.Lock()
			e = w.beginLocked(*e)
			w.mu.Unlock()
		}
		told = append(told, e)
	}
	return told
}

// Stats reports what was told of.
func (w *Watch) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := Stats{Begun: map[string]uint64{}, Active: map[string]int{}, Lost: w.lost}
	for _, kind := range Kinds() {
		s.Begun[kind], s.Active[kind] = w.begun[kind], 0
	}
	for _, c := range w.callers {
		if !c.over {
			s.Active[NearLimit]++
		}
	}
	if w.tooMany.on {
		s.Active[Denied] = 1
	}
	s.Active[Slower] = w.slower.begun()
	return s
}
