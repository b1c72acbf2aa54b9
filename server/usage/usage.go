// Package usage counts what verified callers did, by the day ([Days]) and in the last hour: for each of
// them all requests together and, for each rule that applied, how many were
// admitted and how many that rule denied.
//
// Its memory is set when a Table is made. Only callers whose credential was
// verified enter it, so that nobody gets in, or drives anybody out, by inventing
// credentials. When more of them come than there is room for, the one that was
// not seen for longest is forgotten, and answers say from when on they are
// complete: what a [Usage] counts is exact since its Since.
//
// An hour is kept as 30 cells of two minutes. The newest is the one under way,
// so a full answer covers between 58 and 60 minutes, and Since says which.
package usage

import (
	"fmt"
	"math"
	"time"
	"unsafe"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/steady"
	"github.com/headgate-io/headgate/key"
)

const (
	// Cell is how long the requests are counted together.
	Cell = 2 * time.Minute

	// cells are an hour.
	cells = 30

	// MaxRules is how many rules of one caller are counted apart. With more, the
	// one that did not apply for longest is forgotten.
	MaxRules = 7

	// shards is how many locks there are. More spread callers further; the
	// requests of one caller meet at one lock in any case.
	shards = 64

	maxSubject = 256 // bytes, above which hashing a caller allocates
)

// Options configures a Table.
type Options struct {
	// MaxCallers is how many callers are remembered, 1 to 1,000,000. They take
	// about 2 KiB each, once they are used. Required.
	MaxCallers int

	// Now is the clock. The default does not step.
	Now func() time.Time
}

// Table holds the counts. It is safe for concurrent use.
type Table struct {
	keys   *key.Hasher
	clock  *steady.Clock
	start  int64 // by clock, as all times are until they are told
	shards [shards]shard
}

// New returns an empty Table.
func New(o Options) (*Table, error) {
	if o.MaxCallers < 1 || o.MaxCallers > 1_000_000 {
		return nil, fmt.Errorf("MaxCallers is %d, want 1 to 1000000", o.MaxCallers)
	}
	t := &Table{keys: key.NewHasher(), clock: steady.New(o.Now)}
	t.start = t.clock.Now()
	for i := range t.shards {
		t.shards[i].init(perShard(o.MaxCallers), cellOf(t.start))
	}
	return t, nil
}

// perShard leaves room for an uneven spread: 4.5 standard deviations above the
// mean, so that a table forgets none of its MaxCallers but in one case of
// thousands.
func perShard(most int) int {
	mean := float64(most) / shards
	return int(mean+4.5*math.Sqrt(mean)) + 4
}

func cellOf(now int64) int64 { return max(now, 0) / int64(Cell) }

// Bytes is the memory that the table was given. Pages of it that no caller has
// used yet take none of the machine's.
func (t *Table) Bytes() int {
	bytes := int(unsafe.Sizeof(*t))
	for i := range t.shards {
		s := &t.shards[i]
		bytes += len(s.callers)*int(unsafe.Sizeof(caller{})) + len(s.heads)*int(unsafe.Sizeof(int32(0)))
	}
	return bytes
}

// Observe counts one decision, for each of the principals that it charged. It
// fits headgate.Options.Observe, and allocates nothing.
func (t *Table) Observe(_ *headgate.Request, d *headgate.Decision) {
	if d.Principal.Kind == identity.Address {
		return
	}
	t.observe(&d.Principal, 0, d)
	for i := range d.Others {
		t.observe(&d.Others[i], 1+i, d)
	}
}

// Abandoned takes back what Observe has counted of an admitted request whose caller left before its turn, at a time by
// the clock of Decision.At. It fits headgate.Options.Abandoned.
func (t *Table) Abandoned(_ *headgate.Request, d *headgate.Decision, at int64) {
	if d.Principal.Kind == identity.Address {
		return
	}
	then := cellOf(t.clock.Now() - max(0, at-d.At))
	t.takeBack(&d.Principal, 0, d, then)
	for i := range d.Others {
		t.takeBack(&d.Others[i], 1+i, d, then)
	}
}

// takeBack takes back what was counted of a request for the n-th of its principals.
func (t *Table) takeBack(who *identity.Principal, n int, d *headgate.Decision, then int64) {
	k := t.name(who)
	s := t.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.find(k)
	if c == nil {
		return // forgotten meanwhile
	}
	c.total.takeBack(then)
	verdicts := d.Verdicts()
	for i := range verdicts {
		if v := &verdicts[i]; v.Of(n) && v.Outcome.Allowed && !v.Unparsable && !v.Earlier {
			if rule := c.find(d.Policies().Terms(v.Rule).ID); rule != nil {
				rule.takeBack(then)
			}
		}
	}
}

// observe counts a decision for the n-th of its principals.
func (t *Table) observe(who *identity.Principal, n int, d *headgate.Decision) {
	k := t.name(who)
	s := t.shard(k)
	now := cellOf(t.clock.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	c, now := s.enter(k, now)
	c.total.add(now, d.Allowed)
	verdicts := d.Verdicts()
	for i := range verdicts {
		v := &verdicts[i]
		switch {
		case !v.Of(n):
		case (v.Unparsable || v.Earlier) && (v.Outcome.Allowed || denied(verdicts[:i], v)): // the rule's second one
		case !v.Outcome.Allowed:
			c.rule(d.Policies().Terms(v.Rule).ID, now).add(now, false)
		case d.Allowed:
			c.rule(d.Policies().Terms(v.Rule).ID, now).add(now, true)
		}
	}
}

// denied reports whether the rule of a second verdict denied by its first: then
// the request is counted.
func denied(verdicts []headgate.Verdict, second *headgate.Verdict) bool {
	for i := range verdicts {
		if verdicts[i].Rule == second.Rule && !verdicts[i].Outcome.Allowed {
			return true
		}
	}
	return false
}

// name is the key of a caller: 128 bits, under secrets of this table.
func (t *Table) name(who *identity.Principal) key.Key {
	var room [maxSubject]byte
	return t.keys.Key(0, 0, who.AppendSubject(room[:0]))
}

func (t *Table) shard(k key.Key) *shard { return &t.shards[k.Hi%shards] }

// Count is how many requests there were.
type Count struct {
	Admitted uint64
	Denied   uint64

	// Since is when counting began, and Complete says that it is the beginning
	// of the hour: nothing before was forgotten, and the process ran. It lies up
	// to a Cell ahead when the caller was forgotten a moment ago.
	Since    time.Time
	Complete bool
}

// Usage is what one caller did in the last hour.
type Usage struct {
	Total Count

	// AdmittedBy and DeniedBy are Total in the cells of the hour, the oldest first; the last one is under way.
	AdmittedBy, DeniedBy []uint64

	rules map[uint64]Count
	other Count // of a rule that is not in rules
}

// Rule reports the requests that a rule, named by policy.Terms.ID, admitted and
// denied. A rule in shadow denies none: then Denied is how many it would have.
// Requests that another rule denied are in neither number.
func (u *Usage) Rule(id uint64) Count {
	if c, ok := u.rules[id]; ok {
		return c
	}
	return u.other
}

// Of reports what a caller did. It is nothing, and complete, of one known by its
// address alone.
func (t *Table) Of(who identity.Principal) Usage {
	k := t.name(&who)
	s := t.shard(k)
	now := cellOf(t.clock.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	now = s.at(now)
	u := Usage{rules: map[uint64]Count{}, AdmittedBy: make([]uint64, cells), DeniedBy: make([]uint64, cells)}
	c := s.find(k)
	if c == nil {
		u.Total = t.count(&tally{since: s.forgotten + 1}, now)
		u.other = u.Total
		return u
	}
	u.Total = t.count(&c.total, now)
	for i := range u.AdmittedBy {
		n := c.total.at(now - cells + 1 + int64(i))
		u.AdmittedBy[i], u.DeniedBy[i] = uint64(n.admitted), uint64(n.denied)
	}
	for i := range c.used {
		u.rules[c.ids[i]] = t.count(&c.rules[i], now)
	}
	u.other = t.count(&tally{since: c.sinceOfNewRule()}, now)
	return u
}

// count adds up the hour of a tally.
func (t *Table) count(own *tally, now int64) Count {
	begin := (now - cells + 1) * int64(Cell)
	since := max(begin, own.since*int64(Cell), t.start)
	admitted, denied := own.sum(now)
	clock := t.clock.Now()
	shown := since + t.clock.Wall(clock) - clock // the wall clock may have been set
	return Count{Admitted: admitted, Denied: denied, Since: time.Unix(0, shown).UTC(), Complete: since == begin}
}
