// Package replay has rules decide the requests of a log, at the times that the log has them: who would have been
// denied.
//
//	log ──▶ Entry ──▶ in the order of time ──▶ a Limiter for each set of rules ──▶ Report
//	                  on a clock that the log moves
package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/adaptive"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/reservation"
)

// Rules are what requests are decided by: a Limiter, made on a clock of the replay's.
type Rules struct {
	Name    string // "in force"
	Limiter *headgate.Limiter
}

// Replay goes through logs. It is used by one goroutine.
type Replay struct {
	format *Format // nil while it is to be found out

	// Fields are for logs in JSON; see ParseFormat.
	Fields map[string]string

	// Progress, if set, is told now and then how many lines were read, and how many bytes of the files.
	Progress func(lines, bytes int64)

	// Survey, if set, counts the requests.
	Survey *Survey

	// Arrivals, if set, keeps when they came.
	Arrivals *Arrivals

	now     atomic.Int64 // Limiters with places of requests under way look at it by themselves
	rules   []Rules
	lowered adaptive.Table  // as a decision log has it
	said    map[string]said // what lines say of endpoints in it
	every   int64           // Report.Missing when a line last spoke of all endpoints; -1 for never
	report  *Report

	// reserved are what a decision log's requests hold that were not settled yet, by the log's name of it; maxReserved
	// at most. What is over is looked for when there are as many as purge, not before the time looked.
	reserved map[string]holding
	purge    int
	looked   int64

	// Names of callers that were met, of maxCallers at most.
	users     map[string]string
	addresses map[netip.Addr]string
	networks  map[string]struct{} // that addresses are of
}

// Clock is for the Options.Now of the Limiters.
func (r *Replay) Clock() time.Time { return time.Unix(0, r.now.Load()) }

// Lowered is for the Options.Adaptive of the Limiters: rates are lowered as they were when a decision log was written.
func (r *Replay) Lowered() *adaptive.Table { return &r.lowered }

// New returns a Replay that finds the format out if it is "", or an error that says what is wrong with the options.
func New(format string, fields map[string]string) (*Replay, error) {
	r := &Replay{
		Fields: fields, report: &Report{spans: map[int64]span{}, width: int64(time.Second)},
		reserved: map[string]holding{}, purge: minPurge, said: map[string]said{}, every: -1,
		users: map[string]string{}, addresses: map[netip.Addr]string{}, networks: map[string]struct{}{},
	}
	if format == "" && len(fields) > 0 {
		format = "json"
	}
	if format != "" {
		f, err := ParseFormat(format, fields)
		if err != nil {
			return nil, err
		}
		r.format = &f
	}
	return r, nil
}

// Use has the entries decided by some rules; the first are compared with the others.
func (r *Replay) Use(rules ...Rules) {
	r.rules = rules
	for _, one := range rules {
		r.report.Sides = append(r.report.Sides, newSide(one.Name))
	}
}

const (
	maxFaults  = 5       // that are told; all are counted
	maxSecond  = 1 << 16 // entries of one second that are spread over it
	maxCallers = 100_000 // that are counted one by one

	maxReserved = reservation.DefaultOutstanding
)

// Read goes through one log, packed by gzip or not. What cannot be read of it is counted, and the first lines are told
// with their reasons. A log of which no line can be read is an error.
func (r *Replay) Read(ctx context.Context, name string, log io.Reader) error {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	ahead, err := chunks(reading, log, name, r.formatOf)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	read, unread := 0, int64(0)
	var second, held []Entry
	flush := func() {
		for i := range second {
			at := second[i].At
			if r.format.Seconds {
				at += int64(i) * int64(time.Second) / int64(len(second))
			}
			r.decide(ctx, at, &second[i])
		}
		second = second[:0]
	}
	for c := range ahead {
		<-c.parsed
		read, unread = read+len(c.entries), unread+c.unread
		r.report.Lines += c.lines
		r.report.faulty(c.unread, c.faults)
		entries := c.entries
		if r.format != nil && r.format.Mixed { // an empty log may be of any
			entries, held = ordered(held, entries, c.err != nil)
		}
		for i := range entries {
			e := &entries[i]
			if len(second) > 0 && (second[0].At != e.At || len(second) == maxSecond) {
				flush()
			}
			second = append(second, *e)
		}
		if err = c.err; ctx.Err() != nil {
			break
		}
		if r.Progress != nil {
			r.Progress(r.report.Lines, c.read)
		}
	}
	flush()
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case errors.Is(err, io.EOF) && unread > 0 && read == 0:
		return fmt.Errorf("no line of %s could be read as %s: %w", name, r.format.Name, errors.Join(r.report.Faults...))
	case errors.Is(err, io.EOF):
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}

// formatOf is the format that was named, or that of the first line of all.
func (r *Replay) formatOf(firstLine string) (*Format, error) {
	if r.format == nil {
		f, err := ParseFormat(Detect(firstLine), r.Fields)
		if err != nil || firstLine == "" {
			return &f, err
		}
		r.format = &f
	}
	return r.format, nil
}

// decide has every set of rules decide an entry. Time does not go back: servers write a request down when it ends.
func (r *Replay) decide(ctx context.Context, at int64, e *Entry) {
	if e.Decided != nil {
		switch r.report.Missing += e.Decided.Missing; {
		case e.Decided.Change != nil:
			r.follow(*e.Decided.Change)
			return
		case e.Decided.Settles != "":
			r.now.Store(max(at, r.now.Load()))
			r.settle(ctx, e.Decided)
			return
		case e.Method == "":
			r.report.settled(e.Decided)
			return
		case e.Decided.Charged:
			r.now.Store(max(at, r.now.Load()))
			r.report.settled(e.Decided)
			r.charge(ctx, r.request(e))
			return
		}
	}
	if r.report.Requests == 0 {
		r.report.From = time.Unix(0, at).UTC()
	}
	if now := r.now.Load(); at < now {
		at = now
		r.report.Late++
	}
	r.now.Store(at)
	r.report.Until = time.Unix(0, at).UTC()
	r.report.Requests++
	caller := r.callerOf(e)
	if r.Survey != nil {
		r.Survey.count(at, e, caller)
	}
	if r.Arrivals != nil {
		r.Arrivals.count(at, caller)
	}
	request := r.request(e)
	var first bool
	for i := range r.rules {
		d := r.ask(ctx, i, request, e.Decided)
		r.report.Sides[i].count(&d, caller)
		if e.Decided != nil {
			r.report.Sides[i].compare(&d, e.Decided)
		}
		if i == 0 {
			first = d.Allowed
		} else if first && !d.Allowed {
			r.report.Sides[i].Newly++
		} else if !first && d.Allowed {
			r.report.Sides[i].NoLonger++
		}
		if i == len(r.rules)-1 {
			r.report.at(at, &d)
		}
	}
}

// request is what an entry asks for now. What its decision met is lowered to what it was then.
func (r *Replay) request(e *Entry) headgate.Request {
	request := headgate.Request{Method: e.Method, Target: e.Target, Peer: e.Client}
	if e.User != "" {
		request.User = &identity.User{ID: e.User}
	}
	d := e.Decided
	if d == nil {
		return request
	}
	request.Cost, request.Parts = d.each()
	request.Message, request.UnderWay = endpoint.OfMessages(e.Method), d.UnderWay
	request.Class = d.CallerClass
	if d.Lowered > 0 || d.AtOnce > 0 {
		r.report.Lowered++
		r.catchUp(d, r.now.Load())
	}
	if request.User != nil {
		request.User.Project = d.Project
	}
	return request
}

// charge has every side charge a request that was refused for its credential, after the buckets had let it in.
func (r *Replay) charge(ctx context.Context, request headgate.Request) {
	for i := range r.rules {
		lim := r.rules[i].Limiter
		made, _ := lim.Reserve(ctx, request, reservation.MaxTimeout)
		_, _ = lim.Settle(ctx, made.ID, made.Cost) // it is under way no more
	}
}

// said is how many lines were missing (Report.Missing) when one last said to what rates are lowered, and how many
// requests may be under way; -1 for never.
type said struct{ rates, atOnce int64 }

// saidOf is what was said of an endpoint.
func (r *Replay) saidOf(endpoint string) said {
	if s, known := r.said[endpoint]; known {
		return s
	}
	return said{r.every, r.every}
}

// catchUp has the rates of an endpoint, and how many requests may be under way, lowered to what a decision says, where
// the line is missing that says so: the log may begin later, and in some seconds there is no room for all lines. Where
// none is missing, a decision that was made at the same moment as a change may have gone by what was before.
func (r *Replay) catchUp(d *Decided, at int64) {
	var now rate.Lowerings
	if known := r.lowered.Named(d.Endpoint); known != nil {
		now = known.Lowered(at)
	}
	c, last := adaptive.Change{Endpoint: d.Endpoint, At: at, Since: at}, r.saidOf(d.Endpoint)
	if part := d.Lowered; last.rates != r.report.Missing && now.Own.Part() != part && now.Shared.Part() != part {
		c.Own, c.Shared = part, part
	}
	if last.atOnce != r.report.Missing && now.AtOnce.Part() != d.AtOnce {
		c.AtOnce = d.AtOnce
	}
	if c.Own > 0 || c.AtOnce > 0 {
		c.Endpoint = strings.Clone(d.Endpoint)
		r.follow(c)
	}
}

func (r *Replay) follow(c adaptive.Change) {
	r.lowered.Follow(c)
	if c.Endpoint == adaptive.Every {
		clear(r.said)
		r.every = r.report.Missing
	}
	if r.lowered.Named(c.Endpoint) == nil {
		return
	}
	s := r.saidOf(c.Endpoint)
	if c.Own > 0 || c.Shared > 0 || c.Over {
		s.rates = r.report.Missing
	}
	if c.AtOnce > 0 || c.Over {
		s.atOnce = r.report.Missing
	}
	r.said[c.Endpoint] = s
}

// ask has the rules of one side decide a request; one for which something was reserved reserves it again.
func (r *Replay) ask(ctx context.Context, side int, request headgate.Request, then *Decided) headgate.Decision {
	lim := r.rules[side].Limiter
	if then == nil || then.Reserved == "" || r.full() {
		return lim.Check(ctx, request)
	}
	timeout, until := time.Duration(reservation.MaxTimeout), int64(reservation.Never)
	if then.Waits > 0 {
		timeout, until = then.Waits, r.now.Load()+int64(then.Waits)
	}
	made, d := lim.Reserve(ctx, request, timeout)
	if made.ID != (reservation.ID{}) {
		h, known := r.reserved[then.Reserved]
		if !known {
			h = holding{make([]reservation.ID, len(r.rules)), until}
			r.reserved[strings.Clone(then.Reserved)] = h
		}
		h.of[side] = made.ID
	}
	return d
}

// holding is what a request holds, for each of rules, and until when it can be settled.
type holding struct {
	of    []reservation.ID
	until int64
}

// minPurge is how many requests may hold something before those are looked for that do no longer.
const minPurge = 1024

// full reports whether no other request can hold anything.
func (r *Replay) full() bool {
	if now := r.now.Load(); len(r.reserved) >= r.purge && now >= r.looked {
		maps.DeleteFunc(r.reserved, func(_ string, h holding) bool { return h.until < now })
		// Each is looked at a few times only; and where all there is room for stay, once in a second of the log.
		r.purge = min(max(minPurge, 2*len(r.reserved)), maxReserved)
		r.looked = now + int64(time.Second)
	}
	return len(r.reserved) >= maxReserved
}

// settle has every side settle what a request holds there.
func (r *Replay) settle(ctx context.Context, d *Decided) {
	for i, id := range r.reserved[d.Settles].of {
		// What is not there was denied on this side, or is long over.
		_, _ = r.rules[i].Limiter.SettleAnswer(ctx, id, d.Answer)
	}
	delete(r.reserved, d.Settles)
}

// callerOf names who sent a request: a user, or the network of its address. The name may be kept.
func (r *Replay) callerOf(e *Entry) string {
	if e.User != "" {
		name, known := r.users[e.User]
		if !known {
			name = strings.Clone(e.User)
			if r.met() {
				r.users[name] = name
			}
		}
		return name
	}
	name, known := r.addresses[e.Client]
	if !known {
		name = prefixed(e.Client)
		if len(r.addresses) < maxCallers {
			r.addresses[e.Client] = name
		}
		if _, known := r.networks[name]; !known && r.met() {
			r.networks[name] = struct{}{}
		}
	}
	return name
}

// met counts a caller that is new, and reports false if there are too many to tell them apart.
func (r *Replay) met() bool {
	if r.report.Callers == maxCallers {
		return false
	}
	r.report.Callers++
	return true
}

// prefixed is the network that an address is taken for: a /64 of IPv6.
func prefixed(a netip.Addr) string {
	if a = a.Unmap(); a.Is4() {
		return a.String()
	}
	if p, err := a.Prefix(64); err == nil {
		return p.String()
	}
	return a.String()
}

// Report returns what came of it.
func (r *Replay) Report() *Report {
	out := r.report
	if r.format != nil {
		out.Format = r.format.Name
	}
	for _, s := range out.Sides {
		s.Rules = s.Rules[:0]
		for _, rule := range s.rules {
			if rule.Allowed+rule.Denied+rule.Shadow == 0 {
				continue
			}
			rule.Callers, rule.Worst = len(rule.denied), nil
			for who, n := range rule.denied {
				rule.Worst = append(rule.Worst, Caller{who, n})
			}
			slices.SortFunc(rule.Worst, func(a, b Caller) int {
				return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.Who, b.Who))
			})
			rule.Worst = rule.Worst[:min(len(rule.Worst), maxWorst)]
			s.Rules = append(s.Rules, *rule)
		}
		slices.SortFunc(s.Rules, func(a, b RuleCount) int {
			return cmp.Or(cmp.Compare(b.Denied+b.Shadow, a.Denied+a.Shadow), cmp.Compare(b.Allowed, a.Allowed),
				cmp.Compare(a.Rule, b.Rule))
		})
	}
	return out
}
