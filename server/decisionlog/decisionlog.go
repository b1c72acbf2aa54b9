// Package decisionlog writes decisions down, a line of JSON each: which rule decided, why, for whom, and for how long
// to wait.
//
//	decision ──▶ drawn? ──▶ a place in this second? ──▶ queue ──▶ one goroutine ──▶ file
//	                              └─ counted, and the number written down a second later
//
// An attack cannot make it costly: of all decisions at most Options.PerSecond lines a second are made, denied ones
// first come, and a decision beyond that costs one atomic addition. Callers are named by a keyed hash; paths, queries
// and credentials are never written.
package decisionlog

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/anomaly"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/reservation"
)

// Options configures a Log. Write and Caller are required.
type Options struct {
	Write io.Writer

	// Torn says that what was written before ends amid a line.
	Torn bool

	// Caller names a principal by a hash that says nothing of who it is.
	Caller func(*identity.Principal) string

	// PerSecond is how many lines a second are written at most, 1 to 100,000. Default 100.
	PerSecond int

	// Admitted is the part of the admitted requests that is written down, 0 to 1. Denied ones all
	// are, as far as there is room. Default 0.
	Admitted float64

	// Failed is told when a line could not be written, once for each run of failures. Nil means nobody.
	Failed func(error)

	// Recovered is told when a line could be written again, and how many were lost since Failed was told. Nil means
	// nobody.
	Recovered func(lost uint64)

	Now func() time.Time // default time.Now
}

// Entry is a line. Numbers are absent where they say nothing.
type Entry struct {
	Time     time.Time `json:"time"`     // by the wall clock
	At       int64     `json:"at"`       // headgate.Decision.At
	Decision string    `json:"decision"` // allowed or denied
	Reason   string    `json:"reason"`   // as in metrics: over_limit, blocked …
	Rule     string    `json:"rule,omitempty"`
	Endpoint string    `json:"endpoint,omitempty"` // a template, or UNKNOWN
	Caller   string    `json:"caller,omitempty"`   // a hash
	Kind     string    `json:"kind,omitempty"`     // of the caller: address, api_key, token …
	Address  string    `json:"address,omitempty"`  // a hash of where a caller with a credential came from
	Project  string    `json:"project,omitempty"`
	Cost     int64     `json:"cost,omitempty"`
	Left     *int64    `json:"remaining,omitempty"` // tokens, of the rule
	Wait     float64   `json:"retry_after_seconds,omitempty"`

	// Requests is how many it was, where that is not one: of a batch, whose Cost is that of all; and 0 where more was
	// taken for a request that is served already.
	Requests *int64 `json:"requests,omitempty"`

	// Reservation is by what the line is found that settles it, which says what it cost in the end. Waiting is
	// the same of one that waits for its turn, which is settled if its caller leaves before.
	Reservation string  `json:"reservation,omitempty"`
	Waiting     string  `json:"waiting,omitempty"`
	Turn        float64 `json:"wait_seconds,omitempty"` // until its turn

	// Settled is the Reservation, or Waiting, of one whose caller has left, in its second line.
	Settled string `json:"settled,omitempty"`

	// Class is how urgent it was, where rules tell classes apart, and CallerClass what the tiers and claims of its
	// callers said of that.
	Class       policy.Class `json:"class,omitempty"`
	CallerClass policy.Class `json:"caller_class,omitempty"`

	// Score is that of the caller, where callers are scored and it has one above 0, and Points what it is the sum of.
	Score  int            `json:"score,omitempty"`
	Points map[string]int `json:"points,omitempty"`

	// Multiplier is the least part of a rule's rate that was in force, where one was lowered, and AtOnce that of how
	// many requests may be under way.
	Multiplier float64 `json:"multiplier,omitempty"`
	AtOnce     float64 `json:"at_once,omitempty"`

	// Shadow are the rules in shadow that would have denied it.
	Shadow []string `json:"shadow_denied,omitempty"`

	// Sampled is how many requests a line stands for: of those admitted only some are written down.
	Sampled float64 `json:"sampled,omitempty"`
}

// Settled is the line of a request that was decided before, which says what it cost in the end.
type Settled struct {
	Time    time.Time `json:"time"`
	At      int64     `json:"at"`      // as in Entry
	Settled string    `json:"settled"` // Entry.Reservation
	Actual  int64     `json:"actual"`  // tokens
	Status  int       `json:"status,omitempty"`
	Outcome string    `json:"outcome,omitempty"` // forgiven, or none
}

// Changed is the line of an endpoint whose rates are lowered to another part from then on, or to none any more.
type Changed struct {
	Time    time.Time `json:"time"`
	At      int64     `json:"at"`      // as in Entry, of the decisions that go by it
	Lowered string    `json:"lowered"` // the template

	// Since is since when what drains does so at that part; 0 says that all is as if it had never been lowered. Of
	// Multiplier and Agreed, which is the one of buckets that gateways share, those are there that change.
	Since      int64   `json:"since,omitempty"`
	Multiplier float64 `json:"multiplier,omitempty"`
	Agreed     float64 `json:"agreed,omitempty"`
	AtOnce     float64 `json:"at_once,omitempty"` // the same, of limits on how many requests are under way
}

// Skipped is the line that follows a second in which there was no room for all.
type Skipped struct {
	Time    time.Time `json:"time"`
	Skipped uint64    `json:"skipped"` // decisions that were to be written down
}

// Log writes decisions down. It is safe for concurrent use.
type Log struct {
	o       Options
	drawn   uint64       // a random number below it draws an admitted request
	taken   atomic.Int64 // places in this second, which Run ends
	skipped atomic.Uint64
	lines   atomic.Uint64
	lost    atomic.Uint64
	queue   chan any // of lines
	failed  uint64   // lines in a row that could not be written; of Run alone
	torn    bool     // the last line was cut off; of Run alone
}

// New returns a Log. Nothing is written before Run.
func New(o Options) (*Log, error) {
	if o.PerSecond == 0 {
		o.PerSecond = 100
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	var errs []error
	if o.PerSecond < 1 || o.PerSecond > 100_000 {
		errs = append(errs, fmt.Errorf("PerSecond is %d, want 1 to 100000", o.PerSecond))
	}
	if !(o.Admitted >= 0 && o.Admitted <= 1) {
		errs = append(errs, fmt.Errorf("Admitted is %v, want 0 to 1", o.Admitted))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &Log{o: o, drawn: uint64(math.Ldexp(o.Admitted, 63)), queue: make(chan any, 2*o.PerSecond), torn: o.Torn},
		nil
}

// Observe notes a decision. It fits headgate.Options.Observe. One that took more for a request that is served already
// is noted as Settled has it.
func (l *Log) Observe(r *headgate.Request, d *headgate.Decision) {
	if r.UnderWay && l.o.Admitted < 1 {
		return
	}
	if d.Allowed && !shadowed(d) && rand.Uint64()>>1 >= l.drawn {
		return
	}
	if l.place() {
		l.line(l.entry(l.o.Now(), r, d))
	}
}

// Settled notes what a request cost in the end, if all decisions are written down: of some alone nobody could make use.
// It fits headgate.Options.Settled.
func (l *Log) Settled(id reservation.ID, at int64, a headgate.Answer) {
	if l.o.Admitted < 1 || !l.place() {
		return
	}
	s := Settled{Time: l.o.Now().UTC(), At: at, Settled: named(id), Actual: a.Actual, Status: a.Status}
	if a.Forgiven {
		s.Outcome = "forgiven"
	}
	l.line(s)
}

// Abandoned notes that the caller of an admitted request has left before its turn. It fits headgate.Options.Abandoned.
func (l *Log) Abandoned(r *headgate.Request, d *headgate.Decision, at int64) {
	if !l.place() {
		return
	}
	e := l.entry(l.o.Now(), r, d)
	e.At, e.Left, e.Shadow = at, nil, nil // what is left now is not known
	e.Settled, e.Reservation, e.Waiting = cmp.Or(e.Reservation, e.Waiting), "", ""
	l.line(e)
}

// Changed notes to what part the rates of an endpoint are lowered. It fits adaptive.Table.Changed.
func (l *Log) Changed(c adaptive.Change) {
	if !l.place() {
		return
	}
	line := Changed{
		Time: l.o.Now().UTC(), At: c.At, Lowered: c.Endpoint, Since: c.Since,
		Multiplier: float64(c.Own) / rate.Whole, Agreed: float64(c.Shared) / rate.Whole,
		AtOnce: float64(c.AtOnce) / rate.Whole,
	}
	if c.Over {
		line.Since, line.Multiplier = 0, 1
	}
	l.line(line)
}

// named is a reservation as it may be written down: who knows its ID can settle it.
func named(id reservation.ID) string {
	sum := sha256.Sum256(id[:])
	return hex.EncodeToString(sum[:8])
}

// place takes one of the places of this second, and reports false if there is none.
func (l *Log) place() bool {
	if l.taken.Add(1) <= int64(l.o.PerSecond) {
		return true
	}
	l.skipped.Add(1)
	return false
}

func (l *Log) line(line any) {
	select {
	case l.queue <- line:
	default:
		l.skipped.Add(1) // the disk is slower
	}
}

// shadowed reports whether a rule in shadow would have denied a request: such are written down as if it had.
func shadowed(d *headgate.Decision) bool {
	for _, v := range d.Verdicts() {
		if v.Shadow && !v.Outcome.Allowed {
			return true
		}
	}
	return false
}

func (l *Log) entry(now time.Time, r *headgate.Request, d *headgate.Decision) Entry {
	e := Entry{
		Time:     now.UTC(),
		At:       cmp.Or(d.At, now.UnixNano()), // a request that no rule was asked about has none
		Decision: "denied",
		Reason:   d.Reason.String(),
		Cost:     d.Cost,
		Wait:     d.RetryAfter.Seconds(),
		Turn:     d.Wait.Seconds(),

		Class: d.Class, CallerClass: d.CallerClass,
	}
	switch {
	case l.o.Admitted < 1: // nobody could make use of it
	case d.Reservation != (reservation.ID{}):
		e.Reservation = named(d.Reservation)
	case d.Waiting != 0:
		e.Waiting = fmt.Sprintf("%016x", d.Waiting)
	}
	switch {
	case r.UnderWay:
		e.Requests = new(int64)
	case r.Parts > 1:
		parts := r.Parts // r is used again
		e.Requests = &parts
	}
	switch {
	case d.Allowed && !shadowed(d):
		e.Decision, e.Sampled = "allowed", 1/l.o.Admitted
	case d.Allowed:
		e.Decision = "allowed"
	}
	who := &d.Principal
	if v, ok := d.Binding(); ok {
		e.Rule = d.Policies().Rule(v.Rule).Title()
		left := v.Outcome.Remaining
		e.Left = &left
		if v.Principal > 0 {
			who = &d.Others[v.Principal-1]
		}
	} else if r, ok := d.Access(); ok {
		e.Rule = r.Title()
	}
	if who == &d.Principal && d.Score.Total > 0 {
		e.Score, e.Points = int(d.Score.Total), map[string]int{}
		for part, points := range d.Score.Parts {
			if points > 0 {
				e.Points[anomaly.Part(part).String()] = int(points)
			}
		}
	}
	for _, v := range d.Verdicts() {
		if part := float64(v.Lowered) / rate.Whole; part > 0 {
			least := &e.Multiplier
			if d.Policies().Rule(v.Rule).Algorithm == policy.Concurrency {
				least = &e.AtOnce
			}
			if *least == 0 || part < *least {
				*least = part
			}
		}
		if v.Shadow && !v.Outcome.Allowed {
			e.Shadow = append(e.Shadow, d.Policies().Rule(v.Rule).Title())
		}
	}
	switch d.Endpoint.Status {
	case endpoint.Known:
		e.Endpoint = d.Template().String()
	case endpoint.UnknownPath, endpoint.UnknownMethod:
		e.Endpoint = "UNKNOWN"
	}
	if who.Prefix.IsValid() || who.ID != "" {
		e.Caller, e.Kind, e.Project = l.o.Caller(who), who.Kind.String(), who.Project
		if who.Kind != identity.Address && who.Prefix.IsValid() {
			e.Address = l.o.Caller(&identity.Principal{Kind: identity.Address, Prefix: who.Prefix})
		}
	}
	return e
}

// Stats is what became of the decisions that were to be written down.
type Stats struct {
	Lines   uint64
	Skipped uint64 // there was no room in their second
	Lost    uint64 // they could not be written
}

// Stats reports what was written since New.
func (l *Log) Stats() Stats {
	return Stats{Lines: l.lines.Load(), Skipped: l.skipped.Load(), Lost: l.lost.Load()}
}

// Run writes until ctx ends, and then what is queued.
func (l *Log) Run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	told := uint64(0)
	tell := func() {
		if now := l.skipped.Load(); now > told {
			l.write(Skipped{Time: l.o.Now().UTC(), Skipped: now - told})
			told = now
		}
	}
	for {
		select {
		case e := <-l.queue:
			l.write(e)
		case <-tick.C:
			tell()
			l.taken.Store(0)
		case <-ctx.Done():
			for {
				select {
				case e := <-l.queue:
					l.write(e)
				default:
					tell()
					return
				}
			}
		}
	}
}

func (l *Log) write(line any) {
	text, err := json.Marshal(line)
	if err == nil {
		if text = append(text, '\n'); l.torn { // a full disk took a part of one, which must not cost the next
			text = append([]byte{'\n'}, text...)
		}
		var n int
		n, err = l.o.Write.Write(text)
		switch {
		case err == nil:
			l.lines.Add(1)
			if l.failed > 0 && l.o.Recovered != nil {
				l.o.Recovered(l.failed)
			}
			l.failed, l.torn = 0, false
			return
		case n > 0:
			l.torn = true
		}
	}
	l.lost.Add(1)
	if l.failed++; l.failed == 1 && l.o.Failed != nil {
		l.o.Failed(err)
	}
}
