package charge

import (
	"context"
	"encoding/binary"
	"slices"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/charge/internal/subject"
	"github.com/headgate-io/headgate/policy"
)

// A rule whose budget several classes share (policy.PriorityTerms.Shares) has one bucket, which all of them charge, so
// what they take together is what the rule says. Each class leaves a part of the burst for others, the lower the more:
//
//	burst 100, high:30,low:10    high may take while 40 are left, low while 70 are
//
// While the bucket is short it stands at what the highest class leaves that asks for more than it gets; all that
// drains is then that class's. What is left at the end, 40, is nobody's by this. It is what classes are guaranteed:
// a second bucket of its own, of 30 % and of 10 % of the limit, from which a request is taken as well that found too
// little in the first way; it may then use up the rule's bucket to the last token. These second buckets hold and drain
// no more than 40 % together, so whoever asks for no more than its class is guaranteed is never denied, whatever others
// ask for; and what it does not ask for is not kept for it by the rate, only by the burst.

// classify says of which class the request is, and what its takes leave for others.
func (p *Plan) classify() {
	p.findClass()
	for place := range p.Takes {
		if _, terms := p.sharesAt(place); terms != nil {
			p.Takes[place].Kept = uint8(terms.Kept(p.Class))
			p.Guaranteed = p.Guaranteed || terms.Guaranteed(p.Class).Percent > 0
		}
	}
}

// sharesAt is the charge whose budget one of Takes is from, and how classes share that; nil if they do not. A bucket
// that only has to have room as well is nobody's in particular.
func (p *Plan) sharesAt(place int) (of int, terms *policy.PriorityTerms) {
	for i := range p.Charges {
		if c := &p.Charges[i]; c.Place == place && !c.Kind.Guards() {
			if terms = p.Set.PriorityOf(c.Rule); terms != nil && terms.Shares == nil {
				terms = nil
			}
			return i, terms
		}
	}
	return -1, nil
}

// Told is how many of Takes there are verdicts about: all but those by which the class has what it is guaranteed.
func (p *Plan) Told() int {
	n := len(p.Takes)
	for i := len(p.Charges) - 1; i >= 0 && p.Charges[i].Kind == Guaranteed; i-- {
		n--
	}
	return n
}

// Retry is for a Plan with something Guaranteed, of which the buckets have answered allowed: it asks again about what
// was denied because the buckets are to leave something for others, as a charge to what the request's class is
// guaranteed. It takes by that, or looks only, as where the request is denied for other reasons too. If
// nothing comes of it, p is as before, and Outs say when either way will be open. A store that fails at
// this has nevertheless denied the request.
func (p *Plan) Retry(ctx context.Context, buckets bucket.Store, allowed, take bool) bool {
	if allowed {
		p.retryShadows(ctx, buckets, len(p.Takes), take)
		return true
	}
	takes, charges, others := len(p.Takes), len(p.Charges), false
	p.firsts = append(p.firsts[:0], p.Outs...)
	for place := range takes {
		if p.Takes[place].Shadow || p.Outs[place].Allowed {
			continue
		}
		others = !p.addGuaranteed(place) || others
	}
	if len(p.Charges) == charges {
		return false
	}
	p.Outs = slices.Grow(p.Outs[:0], len(p.Takes))[:len(p.Takes)]
	seconds := p.Charges[charges:]
	for i := range seconds {
		p.Takes[p.Charges[seconds[i].Of].Place].Kept = 0
	}
	allowed, err := p.ask(ctx, buckets, p.Takes, p.Outs, take && !others)
	allowed = allowed && err == nil && !others // others may have had room since
	for i := range seconds {
		place := p.Charges[seconds[i].Of].Place
		own, second, first := &p.Outs[place], &p.Outs[seconds[i].Place], &p.firsts[place]
		if allowed {
			own.Remaining = min(own.Remaining, second.Remaining)
			continue
		}
		wait := max(own.RetryAfter, second.RetryAfter)
		if err == nil && own.Allowed && second.Allowed { // others deny it
			*first = *own
			first.Remaining = min(own.Remaining, second.Remaining)
		} else if err == nil && !own.Never && !second.Never && (first.Never || wait < first.RetryAfter) {
			first.Never, first.RetryAfter = false, wait
		}
		_, terms := p.sharesAt(place)
		p.Takes[place].Kept = uint8(terms.Kept(p.Class))
	}
	if allowed {
		p.retryShadows(ctx, buckets, takes, take)
		return true
	}
	for place := range p.firsts { // another bucket may have run out since the first way was asked about
		if own := &p.Outs[place]; err == nil && p.firsts[place].Allowed && !own.Allowed && !p.Takes[place].Shadow {
			p.firsts[place] = *own
		}
	}
	p.Charges, p.Takes = p.Charges[:charges], p.Takes[:takes]
	p.Outs = append(p.Outs[:0], p.firsts...)
	return false
}

// ask makes attempts on buckets, or looks what would come of them.
func (p *Plan) ask(ctx context.Context, buckets bucket.Store, takes []bucket.Take, outs []bucket.Outcome,
	take bool) (bool, error) {
	if take {
		return buckets.TryConsume(ctx, p.Now, takes, outs)
	}
	return buckets.Peek(ctx, p.Now, takes, outs)
}

// retryShadows has rules in shadow, of the first so many takes, say of an admitted request what they would say
// enforced, and count it as they would.
func (p *Plan) retryShadows(ctx context.Context, buckets bucket.Store, takes int, take bool) {
	for place := range takes {
		t, out := &p.Takes[place], &p.Outs[place]
		if !t.Shadow || out.Allowed || out.Unknown || !p.addGuaranteed(place) {
			continue
		}
		last := len(p.Takes) - 1
		both := [2]bucket.Take{p.Takes[place], p.Takes[last]}
		both[0].Kept, both[0].Shadow, both[1].Shadow = 0, false, false
		var outs [2]bucket.Outcome
		allowed, err := p.ask(ctx, buckets, both[:], outs[:], take)
		if !allowed || err != nil {
			p.Charges, p.Takes = p.Charges[:len(p.Charges)-1], p.Takes[:last]
			continue
		}
		outs[0].Remaining = min(outs[0].Remaining, outs[1].Remaining)
		p.Outs = append(p.Outs, outs[1])
		p.Outs[place] = outs[0] // in what append returned
	}
}

// addGuaranteed adds a take of what the request's class is guaranteed in the budget that one of Takes is from, if that
// is anything.
func (p *Plan) addGuaranteed(place int) bool {
	of, terms := p.sharesAt(place)
	if terms == nil {
		return false
	}
	c, own := p.Charges[of], &p.Takes[place]
	guaranteed := terms.Guaranteed(p.Class)
	shape, ok := own.Shape.Share(guaranteed.Percent)
	if !ok {
		return false
	}
	// Another limit, or another share, is another bucket: it could only let the class use more of what the rule's own
	// bucket has, once.
	p.bytes = appendGuaranteed(p.bytes[:0], own, guaranteed)
	take := bucket.Take{Shape: shape, Cost: own.Cost, Shadow: own.Shadow, Reach: own.Reach, Tag: own.Tag}
	if c.Concurrent { // of fewer places that are in force, each class has its part
		take.Lowered = own.Lowered
	}
	if own.Reach.Scope().Named() {
		take.Key = p.planner.names.Name(c.id, "", p.bytes)
	} else {
		take.Key = p.planner.keys.Key(c.id, everyEndpoint, p.bytes)
	}
	p.Charges = append(p.Charges, Charge{
		Applied: c.Applied, Kind: Guaranteed, Principal: c.Principal, Concurrent: c.Concurrent, Place: len(p.Takes),
		Of: of, id: c.id, most: c.most,
	})
	p.Takes = append(p.Takes, take)
	return true
}

// appendGuaranteed appends what names the bucket of what a class is guaranteed in that of a take.
func appendGuaranteed(dst []byte, own *bucket.Take, guaranteed policy.Share) []byte {
	dst = append(dst, subject.Guaranteed, byte(guaranteed.Class), byte(guaranteed.Percent))
	dst = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, own.Key.Hi), own.Key.Lo)
	for _, n := range [...]int64{own.Shape.Drain, own.Shape.Unit, own.Shape.Capacity, own.Shape.Tick} {
		dst = binary.BigEndian.AppendUint64(dst, uint64(n))
	}
	return dst
}
