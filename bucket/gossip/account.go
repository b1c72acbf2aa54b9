package gossip

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/rate"
)

// Account is what one replica knows of one bucket. It begins as Open makes it. Times are
// nanoseconds of the replica's own monotonic clock, in any epoch, and never step back. Who has an
// Account guards it.
type Account struct {
	shape rate.Shape

	// state is what all are known or presumed to owe, and own is what this replica alone does.
	state, own bucket.State

	nth      uint32 // tells accounts of one bucket apart that this replica had one after the other
	admitted int64  // tokens, here, since it was opened
	told     int64  // of them, by the last message
	grown    int64  // when they last grew
	changed  int64  // the same, or later if they are told anew
	untold   int64  // since when some of them were not told
	latest   int64  // when the last of those were admitted that a message told of
	returned int64  // tokens of them that this replica no longer owes, as they turned out not to be spent
	spare    int64  // units that were given back and are no whole token yet
	at       int64  // up to when silence is accounted for

	others  []other // in the order of their names
	doubted bool    // one of them said more than it could have admitted by then

	// part is the bucket of an equal part of the limit, while others are not told.
	part      bucket.State
	partShape rate.Shape
	parts     int // by how many partShape divides; 0 if there is none
}

// other is what was heard of another replica about the bucket.
type other struct {
	name     uint64
	nth      uint32
	heard    bool  // something was
	most     uint8 // percent of a limit that it may claim
	said     int64 // tokens, its count
	counted  int64 // of them, those that are debited
	at       int64 // when they came to be that
	claimed  int64 // units that it claimed until then, less what drains of them
	presumed int64 // units that were debited since, as nothing was heard of it
	returned int64 // tokens that it gave back, its count

	// owed is what it alone owes, of what was debited here: it drains as state does, beside nothing else. That is at
	// most what state holds more than all others owe alone, since of two in one bucket one drains at a time. So as
	// much may come back, and no lie forgives what another admitted.
	owed bucket.State
}

// Open returns an account of a bucket, the nth that a replica makes, of which nothing is owed.
func Open(nth uint32, sh rate.Shape, now int64) Account {
	return Account{shape: sh, nth: nth, at: now, changed: now, latest: math.MinInt64}
}

// Spend has the account begin with an empty bucket, of which has drained what does since a time:
// of what others admitted before it, a replica that joins them knows nothing.
func (a *Account) Spend(since int64) {
	a.state = bucket.State{Debt: a.shape.Capacity, Stamp: since}
}

// Silence is what one replica hears of the others: what an account needs to know of that.
type Silence struct {
	Replicas int           // that are members, this one among them; 1 or more
	Silent   []Silent      // of them, those that are not heard of
	Unheard  bool          // another is heard, and says that it does not hear this one; no decision depends on it
	After    time.Duration // for which a replica, or what it has to say of one bucket, may be silent
}

// Silent is a replica that was not heard of since a time.
type Silent struct {
	Name  uint64
	Since int64
}

// presume debits the equal part of those that are silent, for the time since it was done last. It
// is debited at the beginning of that time, so that it drains in it as what is admitted does.
func (a *Account) presume(now int64, s *Silence) {
	if now <= a.at {
		return
	}
	if a.doubted {
		a.doubted = false
		for i := range a.others { // at the beginning of that time as well
			since := a.others[i].at
			a.debit(since, a.believe(now, s, &a.others[i]), s.Replicas, &a.others[i])
		}
	}
	for i := range s.Silent {
		from := max(a.at, s.Silent[i].Since)
		if from >= now {
			continue
		}
		units := a.shape.Drained(time.Duration(now-from)) / int64(max(1, s.Replicas))
		o := a.other(s.Silent[i].Name)
		o.presumed = addUnits(o.presumed, units)
		a.state.Debt = min(addUnits(a.state.Debt, units), mostOwed(&a.shape, s.Replicas))
	}
	a.at = now
}

// debit adds units of another replica to what is owed at now, whatever that is, up to the burst for each replica.
func (a *Account) debit(now, units int64, replicas int, o *other) {
	wide := a.shape
	wide.Capacity = mostOwed(&a.shape, replicas)
	a.state, _ = a.state.Shift(now, wide, units, 0)
	a.state.Debt = min(a.state.Debt, wide.Capacity)
	o.owed, _ = o.owed.Shift(now, wide, units, 0)
	o.owed.Debt = min(o.owed.Debt, wide.Capacity)
}

// forgive takes off what another replica gave back: first of what it said and is not debited yet, then of what it
// alone owes.
func (a *Account) forgive(now, tokens int64, o *other) {
	late := min(tokens, o.said-o.counted)
	o.counted += late
	if units := a.shape.UnitsSaturating(tokens - late); units > 0 {
		var moved int64
		o.owed, moved = o.owed.Shift(now, a.shape, -units, 0)
		a.state, _ = a.state.Shift(now, a.shape, moved, 0)
		o.claimed = max(0, o.claimed+moved)
	}
}

// mostOwed is the most that a bucket owes, in units: all that replicas can admit at one moment.
// So what they admitted too much is waited for, and nobody is locked out for longer.
func mostOwed(sh *rate.Shape, replicas int) int64 {
	hi, lo := bits.Mul64(uint64(sh.Capacity), uint64(max(1, replicas)))
	if hi != 0 || lo > rate.MaxCapacity {
		return rate.MaxCapacity
	}
	return int64(lo)
}

// tokensOwed is mostOwed in tokens.
func tokensOwed(sh *rate.Shape, replicas int) int64 { return mostOwed(sh, replicas) / max(1, sh.Unit) }

func addUnits(a, b int64) int64 {
	return min(a, rate.MaxCapacity-min(b, rate.MaxCapacity)) + min(b, rate.MaxCapacity)
}

// other is the record of a replica.
func (a *Account) other(name uint64) *other {
	i, found := slices.BinarySearchFunc(a.others, name, func(o other, name uint64) int {
		switch {
		case o.name < name:
			return -1
		case o.name > name:
			return 1
		}
		return 0
	})
	if !found {
		a.others = slices.Insert(a.others, i, other{name: name})
	}
	return &a.others[i]
}

// Take takes cost tokens if the bucket has room for them, as far as is known.
func (a *Account) Take(now int64, s *Silence, cost int64) bool {
	a.presume(now, s)
	units, ok := rate.Units(&a.shape, cost)
	if !ok {
		return false
	}
	after, ok := a.state.Try(now, &a.shape, units)
	if !ok || !a.takePart(now, s, units) {
		return false
	}
	a.state = after
	if cost > 0 {
		own, ok := a.own.Try(now, &a.shape, units)
		if !ok { // it owes more than the burst, for costs that were known late
			own, _ = a.own.Shift(now, a.shape, units, 0)
		}
		a.own = own
		if a.Pending() == 0 {
			a.untold = now
		}
		a.admitted += cost
		a.changed, a.grown = now, now
	}
	return true
}

// takePart takes from this replica's part, if it has to keep to that: because there is more to say
// than goes into messages, and this bucket's turn did not come. Who is not heard by others needs no
// such bound: it hears what they admit, and leaves it to them.
func (a *Account) takePart(now int64, s *Silence, units int64) bool {
	if a.Pending() == 0 || now-a.untold <= int64(s.After) || s.Replicas < 2 {
		a.parts = 0
		return true
	}
	if a.parts != s.Replicas {
		a.parts, a.partShape = s.Replicas, a.shape.Divide(s.Replicas)
		a.part = bucket.State{Debt: a.partShape.Capacity, Stamp: now} // others know of what it had until now
	}
	after, ok := a.part.Try(now, &a.partShape, bucket.Rescale(units, a.partShape.Unit, a.shape.Unit, true))
	if ok {
		a.part = after
	}
	return ok
}

// Return takes tokens back that Take gave at a time, for a request that another bucket denied. It
// reports false if they were told of: then they stay taken, and what was admitted since is not given
// back in their place.
func (a *Account) Return(now, tokens, taken int64) bool {
	units, ok := rate.Units(&a.shape, tokens)
	if !ok || tokens <= 0 || tokens > a.Pending() || taken <= a.latest {
		return false
	}
	a.admitted -= tokens
	a.state = a.state.Refund(now, a.shape, units, taken)
	a.own = a.own.Refund(now, a.shape, units, taken)
	return true
}

// Shape is the limit that the account counts by.
func (a *Account) Shape() rate.Shape { return a.shape }

// Correct changes what is owed, outside of any request, and reports by how many units.
func (a *Account) Correct(now int64, s *Silence, c *bucket.Change) (moved int64) {
	a.presume(now, s)
	units := c.Due(now, a.state.Stamp)
	wide := a.shape // all may owe more together than one bucket does
	wide.Capacity = max(wide.Capacity, mostOwed(&a.shape, s.Replicas)/2)
	a.state, moved = a.state.Shift(now, wide, units, c.Charged)
	var own int64
	a.own, own = a.own.Shift(now, a.shape, units, c.Charged)
	switch {
	case moved > 0:
		if a.Pending() == 0 {
			a.untold = now
		}
		a.admitted += (moved + a.shape.Unit - 1) / a.shape.Unit
		a.changed, a.grown = now, now
	case own < 0:
		a.spare -= own
		a.returned += a.spare / a.shape.Unit
		a.spare %= a.shape.Unit
		a.changed = now
	}
	return moved
}

// Pending is how many tokens were admitted of which no message has told yet.
func (a *Account) Pending() int64 { return a.admitted - a.told }

// Entry is what a message says of one bucket.
type Entry struct {
	Shape    rate.Shape
	Nth      uint32 // the account's number at the teller: counts of one number are of one beginning
	Admitted int64  // tokens, by the teller, since the account was opened there
	Returned int64  // tokens of them that it gave back, as requests turned out to cost less
	Own      int64  // tokens that the teller alone owes, rounded up
	Owed     int64  // tokens that all owe as far as the teller knows, rounded up
}

// Count is how many tokens of a replica's counts are in what an Entry says that all owe.
type Count struct {
	Name     uint64
	Nth      uint32
	Admitted int64
	Returned int64
}

// Copy is how the bucket stands at now for one that joins: what all owe, also what is still to be
// debited of what some said, and the counts that are in it, the replica's own among them.
func (a *Account) Copy(now int64, self uint64) (Entry, []Count) {
	e, known := a.Look(now), []Count{{self, a.nth, a.admitted, a.returned}}
	for _, o := range a.others {
		if o.heard {
			e.Owed += o.said - o.counted
			known = append(known, Count{o.name, o.nth, o.said, o.returned})
		}
	}
	e.Owed = min(e.Owed, rate.MaxCapacity)
	return e, known
}

// Tell is what to say of the bucket now, and takes it for said.
func (a *Account) Tell(now int64, s *Silence) Entry {
	a.presume(now, s)
	if a.Pending() > 0 {
		a.told, a.latest = a.admitted, a.grown
	}
	e := a.Look(now)
	// Who hears of this account for the first time lets drain what it hears of from then on. What drained
	// on the way drained there as well.
	e.Own = min(e.Admitted, e.Own+a.shape.Drained(s.After)/a.shape.Unit)
	return e
}

// Look is how the bucket stands at now.
func (a *Account) Look(now int64) Entry {
	return Entry{
		Shape:    a.shape,
		Nth:      a.nth,
		Admitted: a.admitted,
		Returned: a.returned,
		Own:      a.own.Owed(&a.shape, now),
		Owed:     a.state.Owed(&a.shape, now),
	}
}

// Teller is who an Entry comes from.
type Teller struct {
	Name uint64

	// Most is how many percent of a limit one replica may claim, 1 to 100.
	Most int

	// Back says that it was silent until now, or a moment ago: what was presumed of it is
	// reconciled with what it says.
	Back bool
}

// Hear notes what another replica says of the bucket.
func (a *Account) Hear(now int64, s *Silence, from Teller, e *Entry) {
	a.presume(now, s)
	o := a.other(from.Name)
	if o.heard && (e.Nth < o.nth || e.Nth == o.nth && (e.Admitted < o.said || e.Returned < o.returned ||
		e.Admitted == o.said && e.Returned == o.returned)) {
		return // late, or told again
	}
	said := e.Admitted - o.counted
	back := e.Returned - o.returned
	switch {
	case !o.heard:
		// How much of the count was debited by an account that was here before, nobody knows. What
		// the teller owes alone was not, or has drained here as well.
		said, back = min(e.Own, e.Admitted), 0
		o.at = now
	case e.Nth > o.nth:
		said = e.Admitted
		back = e.Returned
	}
	o.nth, o.heard, o.most = e.Nth, true, uint8(from.Most)
	o.counted, o.said, o.returned = e.Admitted-said, e.Admitted, e.Returned
	units := a.believe(now, s, o)
	// More than all may owe, by this limit or the teller's, is not kept for later.
	most := max(tokensOwed(&a.shape, s.Replicas), tokensOwed(&e.Shape, s.Replicas))
	o.said = min(o.said, o.counted+most)
	if from.Back {
		units -= min(units, o.presumed)
	}
	o.presumed = 0
	a.debit(now, units, s.Replicas, o)
	a.forgive(now, back, o)
}

// believe counts what another said, and is what that weighs. Nobody admits more than a bucket of its
// own allows. Who says that it did is debited so much now, and the rest when that could have been: its
// costs became known only afterwards, or it goes by a larger limit, of which nothing is known here yet.
func (a *Account) believe(now int64, s *Silence, o *other) (units int64) {
	drained := percent(a.shape.Drained(time.Duration(max(0, now-o.at))), int(o.most))
	late := a.shape.Drained(s.After) // messages take longer and shorter
	may := addUnits(percent(addUnits(a.shape.Capacity, late), int(o.most)), drained)
	said := o.said - o.counted
	said = min(said, max(0, may-o.claimed)/a.shape.Unit)
	units = a.shape.UnitsSaturating(said)
	o.claimed = max(0, addUnits(o.claimed, units)-drained)
	o.counted, o.at = o.counted+said, max(o.at, now)
	a.doubted = a.doubted || o.counted < o.said
	return units
}

// percent is so many percent of units, rounded down.
func percent(units int64, of int) int64 { return units/100*int64(of) + units%100*int64(of)/100 }

// Adopt has a replica that joins others begin with what one of them knows, and what it admitted
// itself meanwhile.
func (a *Account) Adopt(now int64, replicas int, e *Entry, known []Count) {
	// What was heard already is newer than the copy, or is not in it.
	owed := addUnits(a.shape.UnitsSaturating(e.Owed), a.shape.UnitsSaturating(a.own.Owed(&a.shape, now)))
	for i := range a.others {
		o := &a.others[i]
		at := slices.IndexFunc(known, func(c Count) bool { return c.Name == o.name })
		switch {
		case !o.heard:
		case at < 0 || known[at].Nth < o.nth:
			owed = addUnits(owed, o.claimed)
		case known[at].Nth == o.nth:
			owed = addUnits(owed, a.shape.UnitsSaturating(o.counted-known[at].Admitted))
		}
	}
	for _, c := range known {
		o := a.other(c.Name)
		if !o.heard || c.Nth > o.nth {
			*o = other{name: c.Name, nth: c.Nth, most: o.most, heard: true}
		}
		if c.Nth == o.nth && c.Admitted > o.counted {
			o.said, o.counted, o.at = max(o.said, c.Admitted), c.Admitted, now
		}
		if c.Nth == o.nth {
			o.returned = max(o.returned, c.Returned)
		}
		o.owed = bucket.State{} // of what the copy holds nobody says who owes how much now
	}
	owed = min(owed, mostOwed(&a.shape, replicas))
	a.state = bucket.State{Debt: owed, Stamp: now}
}

// Change has the account go on under another limit. What is owed stays owed, in tokens.
func (a *Account) Change(now int64, replicas int, to *rate.Shape) {
	from := a.shape
	restate := func(s bucket.State, most int64) bucket.State {
		return bucket.State{Debt: min(to.UnitsSaturating(s.Owed(&from, now)), most), Stamp: now}
	}
	a.state, a.own = restate(a.state, mostOwed(to, replicas)), restate(a.own, to.MaxDebt())
	for i := range a.others {
		o := &a.others[i]
		o.presumed = bucket.Rescale(o.presumed, to.Unit, from.Unit, false)
		o.claimed = min(bucket.Rescale(o.claimed, to.Unit, from.Unit, false), to.Capacity)
		o.owed = restate(o.owed, mostOwed(to, replicas))
	}
	a.shape, a.parts, a.spare = *to, 0, 0
}

// Keep forgets what was heard of replicas that are members no more.
func (a *Account) Keep(member func(name uint64) bool) {
	a.others = slices.DeleteFunc(a.others, func(o other) bool { return !member(o.name) })
}

// Describe writes into o how the bucket stands, as far as is known, after a take of cost tokens was
// allowed or not.
func (a *Account) Describe(o *bucket.Outcome, now int64, cost int64, allowed bool) {
	units, ok := rate.Units(&a.shape, cost)
	if !ok {
		units = -1
	}
	a.state.Report(o, now, &a.shape, units, allowed)
}

// Idle reports whether the account may be forgotten: nothing is owed, and all was told.
func (a *Account) Idle(now int64) bool {
	return a.Pending() == 0 && a.state.Owed(&a.shape, now) == 0 && a.own.Owed(&a.shape, now) == 0
}
