package envoy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcpeer "google.golang.org/grpc/peer"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/serve/decisions"
	"github.com/headgate-io/headgate/server/descriptor"
	"github.com/headgate-io/headgate/server/quota"
)

// Descriptors say how requests of Envoy's rate limit filter are answered, which
// names what it asks about by descriptors in place of a request.
type Descriptors struct {
	// Limits returns those in force.
	Limits func() *descriptor.Limits

	// Buckets keeps the counters, where Reach says.
	Buckets bucket.Store
	Reach   bucket.Reach

	// Name names the counter of a subject in a domain, and tells what the counters
	// of a domain are kept together by (bucket.Take.Tag).
	Name func(domain string, subject []byte) (key.Key, uint16)

	// Now is the time in Unix nanoseconds.
	Now func() int64

	// Observe, if set, is told of each descriptor that met a limit.
	Observe func(limit *descriptor.Limit, over bool)

	// MayOverride reports whether whoever asks from an address may set limits in a question, in place of
	// those of Limits: it can then have any limit for anything. Nil is nobody, whose limits are ignored.
	MayOverride func(netip.Addr) bool

	// Keeps reports why the counters cannot have a limit of a question. Nil has them keep all.
	Keeps func(rate.Shape) error

	// Overridden, if set, is told of each limit in a question, and whether it was obeyed.
	Overridden func(obeyed bool)

	// Fields says which fields for the client are added to each answer. Nil adds none.
	Fields func() *httplimit.Options

	// Metadata says in each answer which descriptors it is about, for Envoy's access logs and filters:
	// its values are those of requests.
	Metadata bool

	// Quotas lends to Envoys that decide by themselves. Nil has none do that.
	Quotas *quota.Book
}

// Bounds of one question.
const (
	maxDescriptors = 100
	maxEntries     = 50
)

var (
	errManyDescriptors = fmt.Errorf("descriptors has more than %d, want that many at most", maxDescriptors)
	errManyEntries     = fmt.Errorf("a descriptor has more than %d entries, want 1 to %d", maxEntries, maxEntries)
)

// rateLimiting is the service that the filter calls (envoy.service.ratelimit.v3).
type rateLimiting struct {
	Descriptors
	failed func(decisions.Fault, error)

	looked sync.Map // by descriptor.Limit.Path: limits that are looked at, because their hits are told later
}

// rateLimitService is ratelimit.RateLimitService_ServiceDesc, for calls that codec reads and writes.
var rateLimitService = grpc.ServiceDesc{
	ServiceName: ratelimit.RateLimitService_ServiceDesc.ServiceName,
	HandlerType: (*any)(nil),
	Metadata:    ratelimit.RateLimitService_ServiceDesc.Metadata,
	Methods:     []grpc.MethodDesc{{MethodName: "ShouldRateLimit", Handler: shouldRateLimit}},
}

func shouldRateLimit(service any, ctx context.Context, read func(any) error,
	_ grpc.UnaryServerInterceptor) (answer any, err error) {
	s := service.(*rateLimiting)
	defer recovered(s.failed, &err)
	c := calls.Get().(*call)
	if err := read(c); err != nil {
		return nil, err
	}
	if err := s.decide(ctx, c); err != nil {
		return nil, err
	}
	return c, nil
}

// call is a question, what it takes to decide about it, and the answer.
type call struct {
	question
	all     []asked // for each descriptor
	takes   []bucket.Take
	outs    []bucket.Outcome // of takes
	looks   []bool           // which of takes only ask whether there is something left
	late    []bool           // which are of a limit that is only looked at before
	refunds []bucket.Take

	answer           []byte
	inner, innermost []byte // messages in it, while it is written, and before that names of counters
}

// calls are those that ended.
var calls = sync.Pool{New: func() any { return new(call) }}

// end has the memory used again, unless that of a large question would be held for small ones.
func (c *call) end() {
	if cap(c.entries) > 256 || cap(c.answer) > 16<<10 {
		return
	}
	clear(c.entries) // which are parts of the message
	clear(c.all)
	clear(c.takes)
	clear(c.refunds)
	*c = call{
		question: question{descriptors: c.descriptors[:0], entries: c.entries[:0]},
		all:      c.all[:0], takes: c.takes[:0], outs: c.outs[:0], looks: c.looks[:0], late: c.late[:0],
		refunds: c.refunds[:0],
		answer:  c.answer[:0], inner: c.inner[:0], innermost: c.innermost[:0],
	}
	calls.Put(c)
}

// asked is a descriptor of a question.
type asked struct {
	limit *descriptor.Limit // nil if none counts
	take  int               // which of the takes is its; -1 if it has none
	over  bool
}

// code is what the descriptor is answered.
func (a *asked) code() ratelimit.RateLimitResponse_Code {
	if a.over && !a.limit.Shadow {
		return ratelimit.RateLimitResponse_OVER_LIMIT
	}
	return ratelimit.RateLimitResponse_OK
}

// decide answers one question: all its descriptors have room, and are charged, or none is. What is no question
// is an error of the call, and so is a store that cannot be asked.
func (s *rateLimiting) decide(ctx context.Context, c *call) error {
	err := c.check()
	if err == nil {
		err = s.plan(ctx, c)
	}
	if err != nil {
		s.failed(decisions.Incomplete, err)
		return grpcstatus.Error(codes.InvalidArgument, err.Error())
	}
	allowed, err := s.take(ctx, c)
	if err != nil {
		return grpcstatus.Error(codes.Unavailable, "the limits cannot be checked at the moment")
	}
	s.reply(c, allowed)
	return nil
}

func (q *question) check() error {
	switch {
	case q.domain == "":
		return errors.New("domain is missing")
	case q.excess != nil:
		return q.excess
	case len(q.descriptors) == 0:
		return errors.New("descriptors is empty, want one or more")
	}
	for i := range q.descriptors {
		if d := &q.descriptors[i]; d.first == d.end {
			return fmt.Errorf("a descriptor has 0 entries, want 1 to %d", maxEntries)
		}
	}
	return nil
}

// plan finds the limit of each descriptor and what is to be taken. Descriptors
// that have one counter take from it together. The error is that of a limit in the question.
func (s *rateLimiting) plan(ctx context.Context, c *call) (err error) {
	limits := s.Limits()
	for i := range c.descriptors {
		d := &c.descriptors[i]
		limit := limits.Find(c.domain, c.of(d))
		if d.limited && s.obeys(ctx) {
			if limit, err = s.override(limits, &c.question, d); err != nil {
				return err
			}
		}
		c.all = append(c.all, asked{limit: limit, take: -1})
	}
	for i := range c.all {
		if c.all[i].limit != nil && replaced(c.all, c.all[i].limit) {
			c.all[i].limit = nil
		}
	}
	for i := range c.all {
		limit, d := c.all[i].limit, &c.descriptors[i]
		if limit == nil || limit.Unlimited || limit.Nothing {
			continue
		}
		take := bucket.Take{
			Shape: limit.Shape, Since: limit.Since, Before: limit.Before,
			Cost: c.costs(d), Shadow: limit.Shadow || limit.Quota, Reach: s.Reach,
		}
		c.inner = limit.Subject(c.inner[:0], c.of(d))
		take.Key, take.Tag = s.Name(c.domain, c.inner)
		if d.back {
			back := take
			back.Cost = min(back.Cost, limit.Shape.Burst()) // there is no more to give back
			c.refunds = append(c.refunds, back)
			take.Cost = 0 // and the answer says what is there
		}
		at := slices.IndexFunc(c.takes, func(t bucket.Take) bool { return t.Key == take.Key })
		switch {
		case at < 0:
			at = len(c.takes)
			c.takes, c.outs = append(c.takes, take), append(c.outs, bucket.Outcome{})
			c.looks, c.late = append(c.looks, false), append(c.late, false)
		case c.takes[at].Shape != take.Shape:
			return errors.New("descriptors with the same entries have different limits, want one of them")
		default:
			c.takes[at].Cost = min(c.takes[at].Cost, math.MaxInt64-take.Cost) + take.Cost
		}
		c.all[i].take = at
		if take.Cost == 0 && !d.back {
			c.looks[at] = true
			s.looked.LoadOrStore(limit.Path, nil)
		} else if d.counted && !d.back {
			_, c.late[at] = s.looked.Load(limit.Path)
		}
	}
	return nil
}

// obeys reports whether whoever asks may set limits.
func (s *rateLimiting) obeys(ctx context.Context) bool {
	obeyed := false
	if p, ok := grpcpeer.FromContext(ctx); ok && s.MayOverride != nil {
		from, err := netip.ParseAddrPort(p.Addr.String())
		obeyed = err == nil && s.MayOverride(from.Addr())
	}
	if s.Overridden != nil {
		s.Overridden(obeyed)
	}
	return obeyed
}

// override is the limit that a descriptor sets itself. It is nil where the configuration does not know the domain.
func (s *rateLimiting) override(limits *descriptor.Limits, q *question, d *described) (*descriptor.Limit, error) {
	limit, err := limits.Override(q.domain, q.of(d), d.limit.requests, d.limit.unit, d.limit.units)
	if err != nil || limit == nil || limit.Nothing || s.Keeps == nil {
		return limit, err
	}
	if err := s.Keeps(limit.Shape); err != nil {
		return nil, fmt.Errorf("a limit of %d in %v cannot be kept: %w", limit.Requests, limit.Period(), err)
	}
	return limit, nil
}

// replaced reports whether another descriptor's limit stands in place of this one.
func replaced(all []asked, limit *descriptor.Limit) bool {
	return limit.Name != "" && slices.ContainsFunc(all, func(a asked) bool {
		return a.limit != nil && a.limit != limit && slices.Contains(a.limit.Replaces, limit.Name)
	})
}

// costs is what a descriptor costs: what it says itself, and then 0 only looks whether there is some left;
// or what the question says, in which 0 is 1.
func (q *question) costs(d *described) int64 {
	if d.counted {
		return int64(min(d.hits, math.MaxInt64))
	}
	return int64(max(1, q.hits))
}

// take takes what is asked for, and gives back what is given back.
func (s *rateLimiting) take(ctx context.Context, c *call) (allowed bool, err error) {
	now := s.Now()
	refused := slices.ContainsFunc(c.all, func(a asked) bool {
		return a.limit != nil && a.limit.Nothing &&
			!a.limit.Shadow
	})
	if !refused && len(c.refunds) > 0 {
		if err := s.giveBack(ctx, now, 0, c.refunds); err != nil {
			return false, err
		}
	}
	switch {
	case len(c.takes) == 0:
		return !refused, nil
	case refused: // nothing is charged for what does not pass
		_, err = s.peek(ctx, now, c)
		return false, err
	}
	if allowed, err = s.charge(ctx, now, c); err != nil || !allowed || !exhausted(c.all, c.outs) {
		return allowed, err
	}
	// The others' room was for a request that does not pass.
	charged := slices.DeleteFunc(slices.Clone(c.takes), func(t bucket.Take) bool { return t.Shadow || t.Cost == 0 })
	if err = s.giveBack(ctx, now, now, charged); err == nil {
		for i := range c.outs {
			if !c.takes[i].Shadow {
				stay(c.takes[i:i+1], c.outs[i:i+1])
			}
		}
	}
	return false, err
}

// charge charges all takes, or none, once whatever is only looked at has something left: Envoy looks where it
// tells only later what a request has cost, and a request passes only where there is some of that.
func (s *rateLimiting) charge(ctx context.Context, now int64, c *call) (allowed bool, err error) {
	looks := false
	for i := range c.takes {
		c.looks[i] = c.looks[i] && c.takes[i].Cost == 0 // and no other descriptor takes from it
		looks = looks || c.looks[i]
	}
	if !looks {
		if allowed, err = s.Buckets.TryConsume(ctx, now, c.takes, c.outs); err != nil || allowed {
			return allowed, err
		}
		return false, s.owe(ctx, now, c)
	}
	c.look(1)
	allowed, err = s.peek(ctx, now, c)
	c.look(0)
	if err != nil || !allowed || !slices.Contains(c.looks, false) {
		return allowed, err
	}
	looked := slices.Clone(c.outs)
	allowed, err = s.Buckets.TryConsume(ctx, now, c.takes, c.outs)
	for i := range c.outs {
		if c.looks[i] {
			c.outs[i] = looked[i]
		}
	}
	return allowed, err
}

// owe has limits owe hits that they refuse, of which Envoy asked before whether anything was left: the answer that they
// are of has been sent. Else its client could have one after the other, as long as something was left. As where a
// reservation costs more than its estimate, what a limit may owe is bounded (rate.Shape.MaxDebt).
func (s *rateLimiting) owe(ctx context.Context, now int64, c *call) error {
	var changes []bucket.Change
	for i, late := range c.late {
		if t := &c.takes[i]; late {
			changes = append(changes, change(t, t.Shape.UnitsSaturating(t.Cost)))
		}
	}
	if len(changes) == 0 {
		return nil
	}
	if err := s.Buckets.Correct(ctx, now, changes, make([]int64, len(changes))); err != nil {
		return err
	}
	_, err := s.Buckets.Peek(ctx, now, c.takes, c.outs)
	return err
}

// look sets how much is asked for where nothing is taken.
func (c *call) look(tokens int64) {
	for i := range c.takes {
		if c.looks[i] {
			c.takes[i].Cost = tokens
		}
	}
}

// peek finds whether all takes have room, and what there is.
func (s *rateLimiting) peek(ctx context.Context, now int64, c *call) (allowed bool, err error) {
	if allowed, err = s.Buckets.Peek(ctx, now, c.takes, c.outs); err == nil && allowed {
		stay(c.takes, c.outs)
	}
	return allowed, err
}

// giveBack returns what takes cost to their counters. It was taken at charged; 0 stands for nobody knows when.
func (s *rateLimiting) giveBack(ctx context.Context, now, charged int64, takes []bucket.Take) error {
	changes := make([]bucket.Change, len(takes))
	for i := range takes {
		units, _ := takes[i].Shape.Units(takes[i].Cost) // which is no more than its burst
		changes[i] = change(&takes[i], -units)
		changes[i].Charged = charged
	}
	return s.Buckets.Correct(ctx, now, changes, make([]int64, len(changes)))
}

// change is one of the counter that a take is from.
func change(t *bucket.Take, units int64) bucket.Change {
	return bucket.Change{
		Key: t.Key, Shape: t.Shape, Tag: t.Tag, Reach: t.Reach, Since: t.Since, Before: t.Before, Units: units,
	}
}

// stay turns what would be left into what is there.
func stay(takes []bucket.Take, outs []bucket.Outcome) {
	for i := range outs {
		if outs[i].Allowed && !outs[i].Unknown {
			outs[i].Remaining += takes[i].Cost
		}
	}
}

// exhausted reports whether there are limits that refuse only together, and all do.
func exhausted(all []asked, outs []bucket.Outcome) bool {
	quotas := 0
	for _, a := range all {
		if a.take < 0 || !a.limit.Quota || a.limit.Shadow {
			continue
		}
		if outs[a.take].Allowed {
			return false
		}
		quotas++
	}
	return quotas > 0
}

// reply writes what became of each descriptor, as a RateLimitResponse.
func (s *rateLimiting) reply(c *call, allowed bool) {
	overall := ratelimit.RateLimitResponse_OK
	if !allowed {
		overall = ratelimit.RateLimitResponse_OVER_LIMIT
	}
	c.answer = appendNumber(c.answer, 1, uint64(overall))
	var wait, together time.Duration // until all limits have room, and until one of the quotas has
	for i := range c.all {
		a := &c.all[i]
		if a.limit != nil && !a.limit.Unlimited {
			a.over = a.limit.Nothing || !c.outs[a.take].Allowed
			if a.over && !a.limit.Nothing && !a.limit.Shadow {
				switch after := c.outs[a.take].RetryAfter; {
				case !a.limit.Quota:
					wait = max(wait, after)
				case after > 0 && (together == 0 || after < together):
					together = after
				}
			}
			if s.Observe != nil {
				s.Observe(a.limit, a.over)
			}
		}
		c.appendStatus(a)
	}
	if exhausted(c.all, c.outs) {
		wait = max(wait, together)
	}
	if !allowed && wait > 0 {
		c.appendHeader("retry-after", strconv.FormatInt(rate.Seconds(wait), 10))
	}
	if s.Fields != nil {
		s.appendFields(c)
	}
	if s.Metadata {
		c.answer = appendMessage(c.answer, 6, c.metadata())
	}
}

// appendStatus appends a DescriptorStatus.
func (c *call) appendStatus(a *asked) {
	b := appendNumber(c.inner[:0], 1, uint64(a.code()))
	switch {
	case a.limit == nil:
	case a.limit.Unlimited:
		b = appendNumber(b, 3, math.MaxUint32)
	default:
		b = appendMessage(b, 2, c.currentLimit(a.limit))
		if a.take >= 0 {
			out := &c.outs[a.take]
			reset := out.ResetAfter
			if a.over {
				reset = out.RetryAfter
			}
			b = appendNumber(b, 3, uint64(min(out.Remaining, math.MaxUint32)))
			c.innermost = appendNumber(c.innermost[:0], 1, uint64(reset/time.Second))
			c.innermost = appendNumber(c.innermost, 2, uint64(reset%time.Second))
			b = appendMessage(b, 4, c.innermost)
		}
	}
	c.inner = b
	c.answer = appendMessage(c.answer, 2, b)
}

// currentLimit is a RateLimitResponse.RateLimit.
func (c *call) currentLimit(l *descriptor.Limit) []byte {
	b := appendNumber(c.innermost[:0], 1, uint64(l.Requests))
	b = appendText(appendNumber(b, 2, uint64(l.Unit)), 3, l.Name)
	if l.Units > 1 {
		var value [8]byte
		b = appendMessage(b, 4, appendNumber(value[:0], 1, uint64(l.Units)))
	}
	c.innermost = b
	return b
}

// appendHeader appends a HeaderValue, of those that the response to the client gets.
func (c *call) appendHeader(name, value string) {
	c.inner = appendText(appendText(c.inner[:0], 1, name), 2, value)
	c.answer = appendMessage(c.answer, 3, c.inner)
}

// appendFields appends what other doors tell clients of rules, of each counter that can refuse; a limit is called by
// its name, or by its keys in the file.
func (s *rateLimiting) appendFields(c *call) {
	o := s.Fields()
	var told []httplimit.Told
	cost := int64(1)
	for i := range c.all {
		a := &c.all[i]
		same := func(b asked) bool { return a.take >= 0 && a.take == b.take }
		if a.limit == nil || a.limit.Unlimited || a.limit.Shadow || slices.ContainsFunc(c.all[:i], same) {
			continue
		}
		rule := policy.Rule{
			Name:  a.limit.Name,
			Limit: int64(a.limit.Requests),
			Burst: int64(a.limit.Requests),
			Per:   a.limit.Period(),
		}
		if rule.Name == "" {
			rule.Name = strings.TrimPrefix(a.limit.Path, c.domain+"/")
		}
		out := &bucket.Outcome{Never: true} // of a limit of 0
		if a.take >= 0 {
			out, cost = &c.outs[a.take], c.takes[a.take].Cost
		}
		told = append(told, o.Tell(rule, out, "descriptor"))
	}
	header := http.Header{}
	o.SetFields(header, told, -1, cost)
	for _, name := range slices.Sorted(maps.Keys(header)) {
		c.appendHeader(strings.ToLower(name), header[name][0])
	}
}
