package headgate

import (
	"strconv"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/slot"
)

// FieldPending is the request field by which a caller says how many more of its requests
// wait, as an Integer. It shows that the caller understands Decision.Slot.
const FieldPending = "Headgate-Pending"

// maxPending bounds FieldPending. It is worth one slot, whatever it says.
const maxPending = 1000

// Slot is a time that a caller has for its next request. See Options.Slots.
type Slot struct {
	// Wait is how long until then; 0 if the caller has none.
	Wait time.Duration

	// Reserved says that the tokens are kept for the caller, for a short while.
	Reserved bool
}

// pending reads FieldPending. understood is whether there is one.
func pending(h identity.Headers) (requests int, understood bool) {
	if h == nil {
		return 0, false
	}
	values := h.Values(FieldPending)
	if len(values) != 1 {
		return 0, false
	}
	n, err := strconv.ParseUint(values[0], 10, 32)
	return int(min(n, maxPending)), err == nil
}

// slotted is what the slots of a trip need of one of its takes; alone says that its bucket
// is one caller's, who has nobody to come at the same time with.
func (t *trip) slotted(place int) (b slot.Bucket, caller []byte, alone bool) {
	p := &t.plan
	take := &p.Takes[place]
	shape := &take.Shape
	b = slot.Bucket{
		Key: take.Key, Burst: shape.Burst(), Gap: int64(shape.TimeToFull(shape.Unit)),
		FullAt: p.Now + int64(p.Outs[place].ResetAfter),
	}
	if !shape.Algorithm.Drains() {
		b.Gap = int64(shape.Window()) / max(1, shape.Capacity)
	}
	for i := range p.Charges {
		c := &p.Charges[i]
		if c.Place != place || c.Joined {
			continue
		}
		who := p.Who
		if c.Principal > 0 {
			who = &p.Others[c.Principal-1]
		}
		caller = who.AppendSubject(t.bytes[:0])
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
		t.bytes = caller
		break
	}
	return b, caller, alone
}

// heldBack refuses a request without asking the buckets, if what one of them holds is
// reserved for others.
func (l *Limiter) heldBack(t *trip) bool {
	p := &t.plan
	if l.slots.Empty() {
		return false
	}
	_, understood := pending(t.request.Header)
	for i := range p.Takes {
		take := &p.Takes[i]
		if take.Shadow || take.Cost == 0 {
			continue
		}
		p.Outs[i] = bucket.Outcome{}
		b, caller, _ := t.slotted(i)
		s, b, held := l.slots.HoldsBack(p.Now, b.Key, take.Cost, l.slots.Caller(caller), understood)
		if !held {
			continue
		}
		for j := range p.Outs {
			p.Outs[j] = bucket.Outcome{Allowed: true, Unknown: true}
		}
		wait := time.Duration(max(1, s.At-p.Now))
		p.Outs[i] = bucket.Outcome{RetryAfter: wait, ResetAfter: max(wait, time.Duration(b.FullAt-p.Now))}
		l.conclude(t, false, nil)
		t.decision.Slot = Slot{Wait: wait, Reserved: s.Reserved}
		return true
	}
	return false
}

// space gives the caller of a refused request a time of its own, and the next request of
// one that has more. It comes after the buckets.
func (l *Limiter) space(t *trip) {
	p, d := &t.plan, &t.decision
	more, understood := pending(t.request.Header)
	verdicts, refused := d.Verdicts(), false
	for i := range p.Takes {
		take, out := &p.Takes[i], &verdicts[i].Outcome
		if take.Shadow || take.Cost == 0 || out.Unknown || out.Never || out.Allowed && !d.Allowed {
			continue
		}
		b, caller, alone := t.slotted(i)
		if alone && !understood {
			continue
		}
		who := l.slots.Caller(caller)
		if !out.Allowed {
			s := l.slots.Refused(p.Now, p.Now+int64(out.RetryAfter), b, take.Cost, who, understood)
			out.RetryAfter = time.Duration(s.At - p.Now)
			d.take(out.RetryAfter, s.Reserved)
			refused = true
			continue
		}
		out.Remaining = max(0, out.Remaining-l.slots.Ahead(p.Now, b.Key, who))
		if s, given := l.slots.Taken(p.Now, b, take.Cost, who, understood && more > 0 && i == d.binding); given {
			out.Remaining = 0
			d.take(time.Duration(s.At-p.Now), s.Reserved)
		}
	}
	if refused && !d.Allowed {
		d.bind(verdicts)
	}
}

// take keeps the latest of the times that a request was given.
func (d *Decision) take(wait time.Duration, reserved bool) {
	if wait > d.Slot.Wait {
		d.Slot = Slot{Wait: wait, Reserved: reserved}
	}
}

// ReservesSlots reports whether callers who say how many requests wait have times reserved
// for them.
func (l *Limiter) ReservesSlots() bool { return l.slots != nil && l.slots.Reserves() }

// Slots reports what the slots came to; the zero value without Options.Slots.
func (l *Limiter) Slots() slot.Stats {
	if l.slots == nil {
		return slot.Stats{}
	}
	return l.slots.Stats()
}
