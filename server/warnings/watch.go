// Package warnings tells people what they should know before callers complain: that a caller has nearly used up a
// limit, and that a large part of all requests is denied, for longer than a moment.
//
//	decision ──▶ Watch: begins? ──▶ line of the log, metric, event ──▶ queue ──▶ Hook: POST, signed
//
// A warning begins once and is over once. It does not flap: what began at one mark is over at a
// lower one, and a caller is told of again no sooner than Again later. What an attacker can do is
// bounded: only callers with a verified credential are told of, of a number that Options says, in a
// table of fixed size.
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
)

// Kinds are all kinds.
func Kinds() []string { return []string{NearLimit, Denied} }

// Options says what is watched. Caller is required; with zero percentages nothing is.
type Options struct {
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

	Percent  int   `json:"percent"`            // in use, or denied
	Requests int64 `json:"requests,omitempty"` // of Denied, in the last minute
}

// Stats is what a Watch has told of.
type Stats struct {
	Begun  map[string]uint64 // by kind
	Active map[string]int    // now
	Lost   uint64            // warnings of callers that there was no room for
}

// Watch looks at decisions. It is safe for concurrent use.
type Watch struct {
	o     Options
	clock *steady.Clock

	requests, denied atomic.Int64 // since the last look

	byRule perrule.Values[watched]

	mu      sync.Mutex
	callers map[who]*standing // guarded by mu
	none    atomic.Bool       // there are none of them
	begun   map[string]uint64 // guarded by mu
	lost    uint64            // guarded by mu

	// Of the looks, which one goroutine takes:
	parts         [cells]struct{ requests, denied int64 }
	looks         int
	since         int64 // when the part went beyond the mark, or below the lower one; 0 for neither
	deniedTooMuch atomic.Bool

	active active
}

// watched is what a decision needs of a rule.
type watched struct {
	burst int64 // 0: it is not watched
	title string
	limit string
}

// who is a caller at a rule.
type who struct{ caller, rule string }

// standing is how a caller was told of.
type standing struct {
	event  Event
	begun  int64
	fullAt int64 // when its bucket is full if it asks no more
	over   bool
}

// New returns a Watch.
func New(o Options) *Watch {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Send == nil {
		o.Send = func(Event) {}
	}
	w := &Watch{o: o, clock: steady.New(o.Now), callers: map[who]*standing{}, begun: map[string]uint64{}}
	w.none.Store(true)
	return w
}

// Follow has w go on where another Watch, to which no decision is told any more, has ended: what
// has begun there is over here, and counts.
func (w *Watch) Follow(before *Watch) {
	before.mu.Lock()
	defer before.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, s := range before.callers {
		if _, known := w.callers[k]; !known {
			followed := *s
			w.callers[k] = &followed
		}
	}
	w.none.Store(len(w.callers) == 0)
	for kind, n := range before.begun {
		w.begun[kind] += n
	}
	w.lost += before.lost
	w.deniedTooMuch.Store(before.deniedTooMuch.Load())
	w.active.follow(&before.active)
}

// End says of all that has begun that it is over, as nobody looks any more.
func (w *Watch) End() {
	w.mu.Lock()
	var told []*Event
	for _, s := range w.callers {
		if !s.over {
			told = append(told, w.endLocked(s, 0))
		}
	}
	w.mu.Unlock()
	if w.deniedTooMuch.Swap(false) {
		told = append(told, &Event{Kind: Denied, State: "over"})
	}
	for _, e := range told {
		w.tell(e)
	}
}

// Observe looks at one decision. It fits headgate.Options.Observe.
func (w *Watch) Observe(_ *headgate.Request, d *headgate.Decision) {
	w.requests.Add(1)
	if d.ByLimit() {
		w.denied.Add(1)
	}
	if w.o.CallerPercent == 0 || d.Policies() == nil {
		return
	}
	verdicts := d.Verdicts()
	for i := range verdicts {
		v := &verdicts[i]
		if v.Shadow || v.Earlier || v.Unparsable || v.Outcome.Unknown {
			continue
		}
		rule := w.byRule.Get(d.Policies(), v.Rule, w.watched)
		if rule.burst == 0 {
			continue
		}
		used := int((rule.burst - min(v.Outcome.Remaining, rule.burst)) * 100 / rule.burst)
		caller := &d.Principal
		if v.Principal > 0 {
			caller = &d.Others[v.Principal-1]
		}
		if caller.Kind == identity.Address || used < w.o.CallerPercent && w.none.Load() {
			continue
		}
		w.uses(caller, rule, d, used, v.Outcome.ResetAfter)
	}
}

// watched says what there is to watch of a rule.
func (w *Watch) watched(r policy.Rule) *watched {
	fill := time.Duration(float64(max(r.Per, time.Second)) * float64(r.Burst) / float64(r.Limit))
	if fill < w.o.CallerFill || r.Burst > 1<<56 {
		return &watched{}
	}
	return &watched{burst: r.Burst, title: r.Title(), limit: r.Rate()}
}

// uses notes how much of a rule a caller has in use.
func (w *Watch) uses(caller *identity.Principal, rule *watched, d *headgate.Decision, used int, full time.Duration) {
	k := who{w.o.Caller(caller), rule.title}
	now := w.clock.Now()
	w.mu.Lock()
	s, known := w.callers[k]
	var told *Event
	switch {
	case known && !s.over:
		s.fullAt = now + int64(full)
		if used < w.o.CallerPercent*3/4 {
			told = w.endLocked(s, used)
		}
	case used < w.o.CallerPercent:
	case known && now-s.begun < int64(Again):
	case !known && len(w.callers) >= MaxCallers:
		w.lost++
	default:
		s = &standing{begun: now, fullAt: now + int64(full), event: Event{
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
	if e.Kind == NearLimit {
		about = append(about, "rule", e.Rule, "caller", e.Caller, "project", e.Project)
	} else {
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
// denied. Only one goroutine may.
func (w *Watch) Look() {
	now := w.clock.Now()
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
	for _, e := range told {
		w.tell(e)
	}
	w.lookAtDenials(now)
}

func (w *Watch) lookAtDenials(now int64) {
	at := &w.parts[w.looks%cells]
	at.requests, at.denied = w.requests.Swap(0), w.denied.Swap(0)
	w.looks++
	if w.o.DeniedPercent == 0 {
		if w.deniedTooMuch.Swap(false) { // which another Watch has told of
			w.tell(&Event{Kind: Denied, State: "over"})
		}
		return
	}
	var requests, denied int64
	for i := range w.parts {
		requests, denied = requests+w.parts[i].requests, denied+w.parts[i].denied
	}
	active, mark := w.deniedTooMuch.Load(), int64(w.o.DeniedPercent)
	beyond := requests >= fewRequests && denied*100 > requests*mark
	if active {
		beyond = requests < fewRequests || denied*200 < requests*mark // it is better
	}
	switch {
	case !beyond:
		w.since = 0
		return
	case w.since == 0:
		w.since = now
	}
	if now-w.since < int64(w.o.DeniedFor) {
		return
	}
	w.since = 0
	w.deniedTooMuch.Store(!active)
	e := Event{Kind: Denied, State: "over", Percent: int(denied * 100 / max(1, requests)), Requests: requests}
	if !active {
		w.mu.Lock()
		e = *w.beginLocked(e)
		w.mu.Unlock()
	}
	w.tell(&e)
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
	if w.deniedTooMuch.Load() {
		s.Active[Denied] = 1
	}
	return s
}
