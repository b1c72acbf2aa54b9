package charge

import (
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/slot"
)

// HoldBack refuses a request without asking the buckets, if what one of them holds is
// reserved for others. Outs say so, and the offer is of a slot that the caller is given; with looks it is given none.
func (p *Plan) HoldBack(slots *slot.Table, h identity.Headers, looks bool) (offer slot.Offer, held bool) {
	if slots.Empty() {
		return slot.Offer{}, false
	}
	for i := range p.Takes {
		if _, possible := rate.Units(&p.Takes[i].Shape, p.Takes[i].Cost); !possible && !p.Takes[i].Shadow {
			return slot.Offer{}, false // no time helps, as the bucket is about to say
		}
	}
	_, understood := slot.ReadPending(h)
	for i := range p.Takes {
		take := &p.Takes[i]
		if take.Shadow || take.Cost == 0 || p.untimed(i) {
			continue
		}
		p.Outs[i] = bucket.Outcome{}
		b, caller, _ := p.slotted(i)
		var s slot.Slot
		if looks || p.Further { // a request that is under way comes never again, so it gets no time
			v, _ := slots.Look(p.Now, p.Now, b, take.Cost, slots.Caller(caller), understood)
			s, held = v.Slot, v.HeldBack
		} else {
			s, b, held = slots.HoldsBack(p.Now, b, take.Cost, slots.Caller(caller), understood)
		}
		if !held {
			continue
		}
		for j := range p.Outs {
			p.Outs[j] = bucket.Outcome{Allowed: true, Unknown: true}
		}
		offer = s.In(p.Now)
		offer.Wait = max(1, offer.Wait)
		p.Outs[i] = bucket.Outcome{RetryAfter: offer.Wait, ResetAfter: max(offer.Wait, time.Duration(b.FullAt-p.Now))}
		if p.Further {
			offer = slot.Offer{}
		}
		return offer, true
	}
	return slot.Offer{}, false
}

// Space gives the caller of a request that the buckets refused a time of its own, and one
// that has more requests a time for the next. It comes after the buckets, and changes Outs
// to what the caller is to be told. Binding is the place of the bucket that the answer
// speaks of, and allowed whether the request passes. The offer is the latest of them.
func (p *Plan) Space(slots *slot.Table, h identity.Headers, binding int, allowed bool) (offer slot.Offer) {
	more, understood := slot.ReadPending(h)
	for i := range p.Takes {
		take, out := &p.Takes[i], &p.Outs[i]
		if take.Shadow || take.Cost == 0 || p.untimed(i) || out.Unknown || out.Never || out.Allowed && !allowed {
			continue
		}
		b, caller, alone := p.slotted(i)
		if alone && !understood {
			continue
		}
		who := slots.Caller(caller)
		if !out.Allowed {
			s := slots.Refused(p.Now, p.Now+int64(out.RetryAfter), b, take.Cost, who, understood).In(p.Now)
			out.RetryAfter, offer = s.Wait, s.Later(offer)
			continue
		}
		out.Remaining = max(0, out.Remaining-slots.Ahead(p.Now, b.Key, who))
		if s, given := slots.Taken(p.Now, b, take.Cost, who, understood && more > 0 && i == binding); given {
			out.Remaining, offer = 0, s.In(p.Now).Later(offer)
		}
	}
	return offer
}

// Time is when the caller of a request may come that a bucket has no room for, and why then.
type Time struct {
	slot.View
	Refused bool // there is a time: the bucket refuses the request, or what it holds is reserved
	Alone   bool // its bucket is one caller's, who is told the truth
}

// Foresee is what HoldBack and Space would come to, of each of Takes, for which Outs say what
// the buckets would, and gives nobody a time. It changes Outs to what the caller would be told.
// Allowed is whether the buckets would let the request pass.
func (p *Plan) Foresee(slots *slot.Table, h identity.Headers, allowed bool) (times []Time, offer slot.Offer) {
	_, understood := slot.ReadPending(h)
	times = make([]Time, len(p.Takes))
	for i := range p.Takes {
		take, out := &p.Takes[i], &p.Outs[i]
		if take.Shadow || take.Cost == 0 || p.untimed(i) || out.Unknown || out.Never || out.Allowed && !allowed {
			continue
		}
		b, caller, alone := p.slotted(i)
		if out.Allowed {
			b.FullAt -= take.Cost * b.Gap // the outcome counts them as taken
		}
		v, refused := slots.Look(p.Now, p.Now+int64(out.RetryAfter), b, take.Cost, slots.Caller(caller), understood)
		if alone && !understood && !v.HeldBack {
			times[i] = Time{Refused: !out.Allowed, Alone: true}
			continue
		}
		if !refused {
			continue
		}
		times[i] = Time{View: v, Refused: true}
		s := v.In(p.Now)
		s.Wait = max(1, s.Wait)
		out.Allowed, out.RetryAfter, offer = false, s.Wait, s.Later(offer)
	}
	return times, offer
}

// untimed reports whether one of the takes is of requests under way, or of a budget that classes share: for those there
// are no times, which would be kept for one class from a higher one.
func (p *Plan) untimed(place int) bool {
	if !p.Concurrent && p.Class == policy.Unclassed {
		return false
	}
	for i := range p.Charges {
		if c := &p.Charges[i]; c.Place == place {
			if terms := p.Set.PriorityOf(c.Rule); c.Concurrent || terms != nil && terms.Shares != nil {
				return true
			}
		}
	}
	return false
}

// slotted is what slots need of one of the takes; alone says that its bucket is one caller's,
// who has nobody to come at the same time with. It spends p.bytes.
func (p *Plan) slotted(place int) (b slot.Bucket, caller []byte, alone bool) {
	take := &p.Takes[place]
	shape := &take.Shape
	b = slot.Bucket{
		Key: take.Key, Burst: shape.Burst(), Gap: int64(take.Lowered.Stretch(shape.TimeToFull(shape.Unit))),
		FullAt: p.Now + int64(p.Outs[place].ResetAfter),
	}
	if take.Lowered.Part() < rate.Whole {
		b.FullGap = int64(shape.TimeToFull(shape.Unit))
	}
	if !shape.Algorithm.Drains() {
		b.Gap = int64(shape.Window()) / max(1, shape.Capacity)
	}
	for i := range p.Charges {
		c := &p.Charges[i]
		if c.Place != place || c.Joined {
			continue
		}
		who := p.Of(int(c.Principal))
		caller = who.AppendSubject(p.bytes[:0])
		switch subject := p.Set.Terms(c.Rule).Subject; subject {
		case policy.SubjectProject, policy.SubjectRegion, policy.SubjectEndpoint, policy.SubjectSite:
		default:
			alone = subject == policy.SubjectIP || subject == policy.SubjectPrincipalIP || who.Kind == identity.Address
			// Nobody else has the bucket: its owner's processes are told apart, and lose
			// nothing to each other by a lie.
			if who.Client.IsValid() {
				caller = append(caller, who.Client.AsSlice()...)
			}
		}
		p.bytes = caller
		break
	}
	return b, caller, alone
}
