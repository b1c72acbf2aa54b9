package charge

import (
	"context"
	"errors"
	"math"
	"sync"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
)

// Receipt is what an admitted request took from which buckets, so that it can
// be corrected once it is known what the request was worth.
type Receipt struct {
	Cost int64 // tokens that were taken

	at      int64 // Unix nanoseconds
	match   endpoint.Match
	of      endpoint.Template // of match: by other rules its ID may be another
	tenants []tenant
	items   []item

	uncharged int64 // tokens above Cost, where some bucket did not take them on

	// of places among the requests under way, which are renewed while others settle
	mu         sync.Mutex
	concurrent bool // guarded by mu: there are such places, and they are not given back
	change     [1]bucket.Change
	moved      [1]int64
}

// tenant is one whose rules a request was charged by.
type tenant struct{ project, tier, also string }

// item is what was taken from one bucket.
type item struct {
	tenant int // in Receipt.tenants

	rule       uint64 // policy.Terms.ID
	every      bool   // a rule for "*"
	key        key.Key
	tag        uint16 // and reach, as in bucket.Take
	reach      bucket.Reach
	place      uint32 // as in bucket.Take; not 0 if units are a place that several processes know of
	shape      rate.Shape
	units      int64
	cost       int64 // tokens that are units
	fixed      bool  // whatever the request turns out to have cost
	guaranteed bool  // it is of what the class was guaranteed, beside what the rule's own bucket was charged

	moved int64 // of Earlier, when the project had moved last

	concurrent bool  // units are a place among the requests under way
	since      int64 // when it was counted, or was counted anew, in Unix nanoseconds
	lost       bool  // or it counts no more: others may have it, so it is not given back, but taken anew if one is free

	counts *policy.Statuses // the answers that the rule counts, nil for all: as it was when the request came

	corrected bool // or it may have been; a settlement that is repeated leaves it alone
}

// Receipt writes that of a request that was admitted into r, which may be one that is done with: it lists the buckets
// of all enforced rules, and of the shadow rules that had room.
func (p *Plan) Receipt(r *Receipt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Cost, r.at, r.match, r.of = p.Cost, p.Now, p.Match, p.Endpoints.Template(p.Match.ID)
	r.tenants, r.items, r.uncharged, r.concurrent = r.tenants[:0], r.items[:0], 0, p.Concurrent
	for n := range 1 + len(p.Others) {
		who := p.Of(n)
		t := tenant{project: who.Project, tier: who.Tier}
		if n < len(p.Also) {
			t.also = p.Also[n]
		}
		r.tenants = append(r.tenants, t)
	}
	if cap(r.items) < len(p.Takes) {
		r.items = make([]item, 0, len(p.Takes))
	}
	for i := range p.Charges {
		c := &p.Charges[i]
		take, out := &p.Takes[c.Place], &p.Outs[c.Place]
		units, possible := take.Shape.Units(take.Cost)
		if c.Joined || !possible || !out.Allowed {
			continue
		}
		if out.Unknown && take.Place == 0 {
			units = 0 // it passed without being charged there, so nothing comes back
		}
		r.items = append(r.items, item{
			tenant: int(c.Principal), rule: c.id, every: c.Level.EveryEndpoint(),
			key: take.Key, tag: take.Tag, reach: take.Reach, place: take.Place, shape: take.Shape, units: units,
			moved: c.moved, cost: take.Cost, fixed: c.most > 0, guaranteed: c.Kind == Guaranteed,
			counts: p.Set.CountWhen(c.Rule), concurrent: c.Concurrent, since: p.Now + int64(out.Later),
		})
	}
}

// Void has a receipt give nothing back to a bucket that is about to be filled:
// what was taken is given back by that.
func (r *Receipt) Void(k key.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.items {
		own := &r.items[i]
		switch {
		case own.key != k:
		case own.concurrent:
			own.lost = true // and the request goes on
		default:
			own.units = 0
		}
	}
}

// Spend has a receipt give back so many units less to a bucket that was given
// them: by that, others may have the room already, and how much of it was whose
// is not known. Under another limit it gives nothing.
func (r *Receipt) Spend(k key.Key, shape rate.Shape, units int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.items {
		own := &r.items[i]
		switch {
		case own.key != k || units == 0:
		case own.concurrent: // it is under way as before
		case own.shape != shape:
			own.units = 0
		default:
			own.units -= min(units, own.units)
		}
	}
}

// Settlement is what Settle is asked for.
type Settlement struct {
	Set       *policy.Set // the rules in force, nil for none
	Now, Wall int64       // as in Request
	Actual    int64       // tokens that were spent
	// rules of the endpoint alone count none of them, but those that say themselves which answers
	// count
	Forgiven bool
	Status   int  // of the answer, for rules that count only some; 0 if it is not known, and counts
	Void     bool // the request was never served: rules that count requests count it no more

	lowered rate.Lowerings // as in Plan
}

// due is how many tokens a bucket counts in the end.
func (s *Settlement) due(it *item) int64 {
	switch {
	case it.counts != nil:
		if s.Status != 0 && !it.counts.Has(s.Status) {
			return 0
		}
	case s.Forgiven && !it.every:
		return 0
	}
	if it.fixed && !s.Void {
		return it.cost
	}
	return s.Actual
}

// Settle corrects the buckets of a receipt in Store. It reports how many tokens
// of the difference some bucket did not take on. An error means that a bucket was
// not corrected, or may not have been; the same Settle again does the rest.
func (pl *Planner) Settle(ctx context.Context, buckets bucket.Store, r *Receipt,
	s Settlement) (uncharged int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return pl.settle(ctx, buckets, r, &s, nil)
}

// Release gives back the places of a receipt among the requests under way, and nothing else: for a request that was
// refused after its buckets were charged.
func (pl *Planner) Release(ctx context.Context, buckets bucket.Store, r *Receipt, s Settlement) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Actual = r.Cost
	_, err := pl.settle(ctx, buckets, r, &s, nil)
	return err
}

// Renew has the places of receipts among the requests under way count from now on, those that have counted for a third
// of the time that they are kept for. A place that cannot be renewed in time is taken by others, and its request goes
// on. Places that several processes know of are renewed together, many in one message.
func (pl *Planner) Renew(ctx context.Context, buckets bucket.Store, receipts []*Receipt, s Settlement) error {
	var failed []error
	var due renewals
	for _, r := range receipts {
		if err := pl.renew(ctx, buckets, r, &s, &due); err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(append(failed, due.renew(ctx, buckets, &s))...)
}

// renew renews the places of a receipt that this process alone knows of, and adds the others to those that are due.
func (pl *Planner) renew(ctx context.Context, buckets bucket.Store, r *Receipt, s *Settlement, due *renewals) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.concurrent {
		return nil
	}
	due.of = r
	_, err := pl.settle(ctx, buckets, r, s, due)
	return err
}

// renewals are places to be renewed in one message. No receipt is locked while it is under way: its request may end.
type renewals struct {
	of       *Receipt // whose places are looked at
	receipts []*Receipt
	changes  []bucket.Change
}

func (d *renewals) add(c bucket.Change) {
	d.receipts, d.changes = append(d.receipts, d.of), append(d.changes, c)
}

// mostRenewed bounds the places of one message, which has to be answered as soon as a decision.
const mostRenewed = 64

// renew renews those that are due.
func (d *renewals) renew(ctx context.Context, buckets bucket.Store, s *Settlement) error {
	var failed []error
	for from := 0; from < len(d.changes); from += mostRenewed {
		to := min(from+mostRenewed, len(d.changes))
		some := d.changes[from:to]
		if err := buckets.Correct(ctx, s.Now, some, make([]int64, len(some))); err != nil {
			failed = append(failed, err) // each is due again the next time
			continue
		}
		var ended []bucket.Change
		for i := range some {
			if !d.receipts[from+i].renewed(&some[i], s.Now) {
				c := some[i]
				c.Renew = false
				ended = append(ended, c)
			}
		}
		if len(ended) > 0 {
			failed = append(failed, buckets.Correct(ctx, s.Now, ended, make([]int64, len(ended))))
		}
	}
	return errors.Join(failed...)
}

// renewed notes that a place was renewed at now. It is false if its request has ended meanwhile: the receipt may be
// that of another by now.
func (r *Receipt) renewed(c *bucket.Change, now int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.items {
		if it := &r.items[i]; it.place == c.Place && it.key == c.Key && !it.corrected {
			it.since, it.shape, it.lost = now, c.Shape, false
			return true
		}
	}
	return false
}

// Concurrent reports whether there are places to renew.
func (r *Receipt) Concurrent() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.concurrent
}

// AddPlaces adds one for each place that it has among the requests under way, by the rule's policy.Terms.ID.
func (r *Receipt) AddPlaces(to map[uint64]int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.items {
		if it := &r.items[i]; it.concurrent && !it.corrected && !it.guaranteed {
			to[it.rule]++
		}
	}
}

// settle corrects the buckets of a receipt; or renews its places, unless due is nil.
func (pl *Planner) settle(ctx context.Context, buckets bucket.Store, r *Receipt, s *Settlement,
	renewed *renewals) (uncharged int64, err error) {
	renew := renewed != nil
	var failed []error
	var applied [policy.MaxApplied]policy.Applied
	inForce, of := applied[:0], -1
	match := r.match
	if s.Set != nil && match.Status == endpoint.Known {
		match = s.Set.MatchOf(r.of)
		s.lowered = pl.loweredAt(s.Set.Endpoints(), match, s.Now)
	}
	for i := range r.items {
		it := &r.items[i]
		due := s.due(it)
		switch {
		case it.corrected, !it.concurrent && (renew || due == it.cost):
			continue
		case renew && !it.lost && s.Now-it.since < it.shape.Tick/3:
			continue
		case it.lost && !renew && it.place == 0:
			continue
		case !renew && it.place != 0: // whatever the rules are now: nobody else can have the place
			if err := giveBack(ctx, buckets, r, it, s.Now); err != nil {
				failed = append(failed, err)
			}
			continue
		}
		who := r.tenants[it.tenant]
		if s.Set != nil && it.tenant != of { // those of one tenant are neighbours
			of = it.tenant
			inForce = rulesOf(inForce[:0], s, match, who)
		}
		if s.Set != nil && it.moved != 0 && s.Set.Moved(s.Now, who.project, who.tier) != it.moved {
			continue // it moved again, or long ago: what was taken stays taken
		}
		c, ok := pl.correction(r, it, s, inForce, due)
		if !ok {
			if !it.concurrent {
				r.uncharged = max(r.uncharged, due-it.cost)
			}
			continue
		}
		if c.Renew = renew; renew && it.place != 0 {
			renewed.add(c)
			continue
		}
		if err := correct(ctx, buckets, r, it, &c, s); err != nil {
			failed = append(failed, err)
		}
	}
	if !renew {
		r.concurrent = false
	}
	return r.uncharged, errors.Join(failed...)
}

// giveBack gives a place back that several processes know of. It may be asked for again. The receipt is not locked
// while the message is under way: whoever renews other places looks at it meanwhile, and finds that its request ended.
func giveBack(ctx context.Context, buckets bucket.Store, r *Receipt, it *item, now int64) error {
	changes := []bucket.Change{{Key: it.key, Tag: it.tag, Reach: it.reach, Shape: it.shape, Place: it.place,
		Units: -it.units, Charged: it.since}}
	it.corrected = true
	r.mu.Unlock()
	err := buckets.Correct(ctx, now, changes, make([]int64, 1))
	r.mu.Lock()
	it.corrected = err == nil
	return err
}

// rulesOf appends the rules that requests of a tenant are counted by.
func rulesOf(dst []policy.Applied, s *Settlement, m endpoint.Match, who tenant) []policy.Applied {
	dst = s.Set.Resolve(dst, s.Wall, m, who.project, who.tier)
	for _, g := range s.Set.LargerTiers(nil, s.Wall, m, who.project, dst, nil) {
		dst = append(dst, policy.Applied{Rule: g.Rule, Level: dst[g.Of].Level})
	}
	if who.also != "" {
		dst = s.Set.ResolveTier(dst, s.Wall, m, who.also, nil)
	}
	if rule, ok := s.Set.Fallback(); ok { // it may have been charged, whether or not it is in effect now
		dst = append(dst, rule)
	}
	return dst
}

// correct makes the change of one bucket, and notes whether it was, or may have
// been. What is added twice is to the client's cost; what is given back twice
// would be tokens that nobody paid for.
func correct(ctx context.Context, buckets bucket.Store, r *Receipt, it *item, c *bucket.Change, s *Settlement) error {
	r.change[0] = *c
	err := buckets.Correct(ctx, s.Now, r.change[:], r.moved[:])
	if c.Renew {
		if err == nil {
			it.since, it.shape, it.lost = s.Now, c.Shape, r.moved[0] < it.units
		}
		return err
	}
	if err != nil {
		it.corrected = c.Units < 0 && it.reach.Scope().Shared() && !errors.Is(err, bucket.ErrLost)
		return err
	}
	it.corrected = true
	if c.Units > 0 {
		r.uncharged = max(r.uncharged, s.Actual-it.cost-r.moved[0]/c.Shape.Unit)
	}
	return nil
}

// correction is the change of one bucket, in terms of its rule as it is now.
// It reports false for a rule that applies to such requests no more: its bucket
// is left alone, since no shape is known that it surely has.
func (pl *Planner) correction(r *Receipt, it *item, s *Settlement, inForce []policy.Applied,
	actual int64) (bucket.Change, bool) {
	for _, a := range inForce {
		terms := s.Set.Terms(a.Rule)
		if terms.ID != it.rule {
			continue
		}
		if terms.Calendar {
			terms.Shape, terms.Since, terms.Before = calendarNow(it.shape, &terms), 0, nil
		}
		if it.moved != 0 {
			terms.Shape, terms.Since, terms.Before = it.shape, it.moved, nil
		}
		at, slower := r.at, lowered(s.lowered, &terms, a.Level)
		if it.guaranteed { // whose bucket never had another limit, and is never lowered
			terms.Shape, terms.Since, terms.Before, slower = it.shape, 0, nil, nil
		}
		// A bucket that was evicted before its limit changed has drained at the full rate.
		if slower != nil && (terms.Before == nil || terms.Since <= at) {
			at = slower.Since(at, s.Now) - 1 // which is rounded up, and what is given back must not be
		}
		take := pl.Allowances.Restate(s.Now, bucket.Take{Key: it.key, Shape: terms.Shape, Since: terms.Since,
			Before: terms.Before})
		c := bucket.Change{
			Key:    it.key,
			Tag:    it.tag,
			Reach:  it.reach,
			Shape:  take.Shape,
			Since:  take.Since,
			Before: take.Before,

			Lowered: slower,
		}
		if it.concurrent {
			if c.Units, c.Charged, c.Place = -it.units, it.since, it.place; it.place == 0 {
				c.Charged = it.counted(&c)
			}
			return c, true
		}
		if actual > it.cost {
			c.Units = c.Shape.UnitsSaturating(actual - it.cost)
			return c, true
		}
		back := it.shape.UnitsSaturating(it.cost - actual)
		c.Units, c.Charged = -bucket.Unspent(it.shape, c.Shape, it.units, back, at, s.Now), it.since
		c.Left = bucket.Unspent(it.shape, c.Shape, it.units, it.units, at, s.Now)
		if changedTwice(&terms, r.at) || !c.Shape.Algorithm.Drains() && c.Since > r.at {
			c.Units = 0 // it may have been another limit in between
		}
		// The store keeps a charge for as long as it takes to drain at the rate of that time. If that was lowered
		// since, others may owe in its place.
		if it.reach.Scope().Shared() && bucket.Unspent(it.shape, c.Shape, it.units, it.units, r.at, s.Now) == 0 {
			c.Units, c.Left = 0, 0
		}
		return c, true
	}
	return bucket.Change{}, false
}

// never is a time that no cell of a log holds.
const never = math.MinInt64

// counted is since when a place counts in the bucket of c, which every change to another time for which places are kept
// converts. It is never where the place may have run out in between: its rule was gone, or kept places for a shorter
// time, or nobody knows any more what the limits were. Others may have it then.
func (it *item) counted(c *bucket.Change) int64 {
	if it.lost {
		return never
	}
	var room [rate.MaxPast + 1]rate.Past
	later := append(room[:0], rate.Past{Shape: c.Shape, Since: c.Since})
	for past := c.Before; past != nil && later[len(later)-1].Since > it.since; past = past.Before {
		later = append(later, *past)
	}
	since, shape := it.since, &it.shape
	for i := len(later) - 1; i >= 0; i-- {
		switch to := &later[i]; {
		case to.Since <= it.since && to.Shape != (rate.Shape{}):
		case to.Shape == (rate.Shape{}) || to.Since >= bucket.CountedUntil(it.key, shape, since):
			return never
		case to.Shape.Tick != shape.Tick:
			since, shape = to.Since, &to.Shape
		}
	}
	return since
}

// changedTwice says whether a rule may have had a third limit, between the one
// that charged at a time and the one that it has: which may have given back or
// forgiven what was charged, whatever the first and the last say.
func changedTwice(terms *policy.Terms, at int64) bool {
	return terms.Since > at && (terms.Before == nil || terms.Before.Since > at || terms.Before.Shape == (rate.Shape{}))
}
