package adaptive

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/rate"
)

// Endpoint is the multiplier of one endpoint, and what is seen of it. It is safe for concurrent use.
type Endpoint struct {
	name   string
	notify func(Event)  // nil for nobody
	keeps  bool         // as Table.KeepShared
	told   func(Change) // nil for nobody; guarded by mu

	next    atomic.Int64                   // when the window ends at the earliest
	lowered atomic.Pointer[rate.Lowerings] // nil while the rates are what the rules say, and were for a minute
	refused atomic.Int64                   // in this window
	full    atomic.Int64                   // the same, for want of a place

	mu     sync.Mutex
	s      Settings // guarded by mu, as all that follows
	m      int
	atOnce int  // as m, of limits on how many requests are under way
	begun  bool // m is in the log as below 1
	gone   bool // the endpoint is none of the table any more: nobody goes by m

	heard  []int // what others say that m is, in order
	asof   int64 // when they were heard
	agreed int   // what all agree on for the buckets that they share
	voice  bool  // the last window had enough answers, so others hear of m

	from       int64 // when the window began
	latest     int64 // when anything was last seen in it
	sent, done int64
	callers    callers

	silent  int64 // since when there are too few answers; 0 if there are enough
	frozen  int   // m then
	held    int   // and atOnce
	changed int64 // when m was last changed
	judged  Voices
	last    Outcome
	windows [Outcomes]uint64
}

// quiet is how long m has to be 1 for the rates to be as if nothing had been, in nanoseconds.
const quiet = int64(time.Minute)

// Event says that the rates of an endpoint begin to be lowered, or are what the rules say again.
type Event struct {
	Endpoint string
	Begun    bool
	Status   Status
}

// Status is how an endpoint stands.
type Status struct {
	Endpoint   string
	Settings   Settings
	Multiplier int // in 1024ths
	AtOnce     int // the same, of limits on how many requests are under way; Whole unless Settings.AtOnce

	// Agreed is what those agree on who share buckets, and Others how many of them are heard besides this one. It is
	// Multiplier where there is nobody.
	Agreed, Others int
	KeepsShared    bool // as Table.KeepShared

	// Last is what the last window came to, and Voices what was seen in it, or in the last one before that had enough
	// answers.
	Last   Outcome
	Voices Voices

	Windows [Outcomes]uint64 // so far, by outcome
}

// Words say in a line why the multiplier is what it is.
func (s *Status) Words() string {
	v := s.Voices
	slower := func(than time.Duration, callers int) string {
		return fmt.Sprintf("95 of 100 answers take longer than %v for %d of %d callers", than, callers, v.Callers)
	}
	switch s.Last {
	case TooFew:
		if s.Multiplier == Whole {
			return "too few answers to judge the API by"
		}
		return "too few answers to judge the API by: it stays for a moment, and returns to 1"
	case Cut:
		return slower(s.Settings.SLO, v.Late)
	case Lowered:
		if 2*v.Slow <= v.Callers {
			return fmt.Sprintf("more than %d %% of the answers are failures for %d of %d callers", failedPercent,
				v.Failed, v.Callers)
		}
		return slower(s.Settings.slow(), v.Slow)
	}
	if usual := s.Settings.usual(); s.AtOnce < Whole && v.Usual > usual {
		return fmt.Sprintf("an answer takes %v for the median caller, above the %v from which on fewer may be under "+
			"way", v.Usual.Round(time.Millisecond), usual)
	}
	switch s.Last {
	case Raised:
		return "the API is well, and callers are refused"
	}
	return "the API is well"
}

func newEndpoint(name string, s Settings, now int64, in *Table) *Endpoint {
	e := &Endpoint{
		name: name, notify: in.Notify, keeps: in.KeepShared, told: in.Changed,
		s: s, m: Whole, atOnce: Whole, agreed: Whole,
	}
	e.beginLocked(now)
	return e
}

// use takes other settings over. What is known stays. The way back to 1 begins anew: it was one from below the floor,
// perhaps, and by windows of another length.
func (e *Endpoint) use(s Settings, now int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.s, e.silent = s, 0
	e.setLocked(now, now, max(e.m, s.Floor), max(e.atOnce, s.leastAtOnce()))
	e.beginLocked(now)
}

// Sent counts a request that goes to the API now. Caller is a number that is another one for another caller.
func (e *Endpoint) Sent(now int64, caller uint64) {
	e.tell(e.locked(now, func() {
		e.sent++
		if c := e.callers.of(caller); c != nil {
			if c.sent++; c.sent == 1 {
				c.first = now
			}
		}
	}))
}

// Left counts a request whose client left now, so long after it was sent: as an answer, if that is late already, and
// else as none that was sent.
func (e *Endpoint) Left(now int64, caller uint64, after time.Duration) {
	e.tell(e.locked(now, func() {
		c := e.callers.of(caller)
		switch {
		case after > e.s.SLO:
			e.done++
			c.answered(after, true, true, false)
		default:
			e.sent = max(0, e.sent-1)
			if c != nil && c.sent > 0 {
				c.sent--
			}
		}
	}))
}

// Answered counts the beginning of an answer now, which took so long since the request was sent; or that there was
// none. Failed is one that says that the API could not do what it should: a status of 5xx, or no answer.
func (e *Endpoint) Answered(now int64, caller uint64, took time.Duration, failed bool) {
	e.tell(e.locked(now, func() {
		e.done++
		e.callers.of(caller).answered(took, took > e.s.slow(), took > e.s.SLO, failed)
	}))
}

// Refused counts a request that a rule refused whose rate is lowered, or its number of requests under way, or two that
// do.
func (e *Endpoint) Refused(rates, atOnce bool) {
	if rates {
		e.refused.Add(1)
	}
	if atOnce {
		e.full.Add(1)
	}
}

// Lowered is by how much rates are lowered at now, and were of late. It costs two loads, but once a window.
func (e *Endpoint) Lowered(now int64) (l rate.Lowerings) {
	if now >= e.next.Load() {
		e.tell(e.locked(now, func() {}))
	}
	if at := e.lowered.Load(); at != nil {
		l = *at
	}
	if e.keeps {
		l.Shared = nil
	}
	return l
}

// Status is how the endpoint stands at now.
func (e *Endpoint) Status(now int64) (s Status) {
	e.tell(e.locked(now, func() { s = e.statusLocked() }))
	return s
}

func (e *Endpoint) statusLocked() Status {
	return Status{
		Endpoint: e.name, Settings: e.s, Multiplier: e.m, AtOnce: e.atOnce, Agreed: e.agreed, Others: len(e.heard),
		KeepsShared: e.keeps, Last: e.last, Voices: e.judged, Windows: e.windows,
	}
}

// locked does something at now, once the windows that are over were judged.
func (e *Endpoint) locked(now int64, do func()) (event Event, told bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.judgeLocked(now)
	do()
	e.latest = max(e.latest, now)
	switch {
	case e.gone:
		return event, false
	case !e.begun && (e.m < Whole || e.atOnce < Whole):
		e.begun = true
	case e.begun && e.m == Whole && e.lowered.Load() == nil:
		e.begun = false
	default:
		return event, false
	}
	return Event{e.name, e.begun, e.statusLocked()}, true
}

func (e *Endpoint) tell(event Event, told bool) {
	if told && e.notify != nil {
		e.notify(event)
	}
}

// judgeLocked judges the windows that are over at now.
func (e *Endpoint) judgeLocked(now int64) {
	if len(e.heard) > 0 && (now < e.asof || now-e.asof > fresh) {
		e.heard = nil
		e.setLocked(now, now, e.m, e.atOnce)
	}
	if now < e.from { // the clock stepped back
		e.silent = 0
		e.beginLocked(now)
		return
	}
	length := e.s.window()
	for now >= e.next.Load() {
		end := max(e.from+length, min(e.latest, e.from+patience*length))
		v, overdue := e.callers.voices(int64(e.s.SLO), min(now, e.from+patience*length))
		switch {
		case e.done+overdue >= MinAnswers:
			w := Window{
				Sent: e.sent, Done: e.done, Refused: e.refused.Load(),
				Full: e.full.Load(), Usual: v.Usual,
				Slow: 2*v.Slow > v.Callers, Late: 2*v.Late > v.Callers, Failing: 2*v.Failed > v.Callers,
			}
			m, o := Judge(e.m, e.s.Floor, w)
			e.judged, e.silent = v, 0
			p := max(JudgeAtOnce(e.atOnce, e.s.Floor, w, e.s.SLO), e.s.leastAtOnce())
			e.endLocked(now, end, m, p, o)
		case now-e.from < patience*length:
			e.next.Store(min(now+length, e.from+patience*length)) // it goes on
		default:
			end = e.from + patience*length
			if e.silent == 0 {
				e.silent, e.frozen, e.held = e.from, e.m, e.atOnce
			}
			e.endLocked(now, end, e.returned(e.frozen, end), e.returned(e.held, end), TooFew)
			if e.m == Whole && e.atOnce == Whole {
				e.beginLocked(now) // in whatever else has passed, nothing was seen
			}
		}
	}
	if e.m == Whole && e.atOnce == Whole && e.agreed == Whole && now-e.changed >= quiet && e.lowered.Load() != nil {
		e.applyLocked(Change{Endpoint: e.name, At: now, Over: true})
	}
}

// returned is what a part that was frozen is on its way back to 1, at a time since which nothing is known.
func (e *Endpoint) returned(frozen int, at int64) int {
	length := e.s.window()
	gone := min(at-e.silent, back*length) - patience*length
	return frozen + int(int64(Whole-frozen)*gone/((back-patience)*length))
}

// endLocked ends, now, the window up to a time, with m and atOnce from then on.
func (e *Endpoint) endLocked(now, at int64, m, atOnce int, o Outcome) {
	e.last = o
	e.windows[o]++
	e.voice = o != TooFew
	e.setLocked(now, at, m, atOnce)
	e.beginLocked(at)
}

// setLocked has, from now on, m and atOnce count as of a time.
func (e *Endpoint) setLocked(now, at int64, m, atOnce int) {
	agreed := m
	if len(e.heard) > 0 {
		agreed = max(e.agreeLocked(m), e.s.Floor)
	}
	if m == e.m && atOnce == e.atOnce && agreed == e.agreed {
		return
	}
	c := Change{Endpoint: e.name, At: now, Since: at}
	if m != e.m { // else its own buckets may never have been lowered
		c.Own = m
	}
	if atOnce != e.atOnce {
		c.AtOnce = atOnce
	}
	if before := e.lowered.Load(); agreed != e.agreed || m != e.m && (before == nil || before.Shared == nil) {
		c.Shared = agreed
	}
	e.applyLocked(c)
}

// beginLocked begins a window.
func (e *Endpoint) beginLocked(at int64) {
	e.from, e.latest, e.sent, e.done = at, at, 0, 0
	e.callers.n, e.callers.secret = 0, rand.Uint64()
	e.refused.Store(0)
	e.full.Store(0)
	e.next.Store(at + e.s.window())
}
