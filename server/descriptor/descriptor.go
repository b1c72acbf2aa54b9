// Package descriptor reads the configuration of envoyproxy/ratelimit, a tree of
// descriptors for each domain, and finds the limit of a request in it.
package descriptor

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/headgate-io/headgate/rate"
)

// Entry is a part of a descriptor, as Envoy sends it.
type Entry struct{ Key, Value string }

// Limit is what the configuration says for descriptors of one kind.
type Limit struct {
	// Path names the limit by where it stands: the domain, and each key with the
	// value that the configuration gives it, such as "shop/user=gold/path".
	Path string

	Place    string   // the file and line that it stands at
	Name     string   // as the configuration calls it, often empty
	Replaces []string // names of limits that do not count beside this one

	Unlimited bool // nothing is counted
	Shadow    bool // counted, and never refused
	Quota     bool // refuses only if all limits of its kind do that a request meets
	Nothing   bool // requests_per_unit is 0: everything is refused

	// Requests may pass in Units of Unit; 0 of them is one.
	Requests uint32
	Unit     Unit
	Units    uint32

	// Metadata is what the configuration says besides, as encoding/json would decode it.
	Metadata map[string]any

	// Shape is a token bucket that holds Requests and is filled by as many in that
	// time: so many at once, and never twice as many around the end of a window.
	// It has been in force since Since, in Unix nanoseconds, in place of
	// Before.
	Shape  rate.Shape
	Since  int64
	Before *rate.Past

	shared []string // of each level, the wildcard whose values share a counter; or empty
}

// Unit is a period of the configuration.
type Unit uint8

// The units have the numbers of envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit.
const (
	Second Unit = 1 + iota
	Minute
	Hour
	Day
	Month // of 30 days, as envoyproxy/ratelimit has it
	Year  // of 365
	Week
)

var units = map[string]Unit{
	"second": Second,
	"minute": Minute,
	"hour":   Hour,
	"day":    Day,
	"month":  Month,
	"year":   Year,
	"week":   Week,
}

// Duration is how long the unit lasts.
func (u Unit) Duration() time.Duration {
	const day = 24 * time.Hour
	return [...]time.Duration{0, time.Second, time.Minute, time.Hour, day, 30 * day, 365 * day, 7 * day}[u]
}

// Limits are those of all domains. They never change.
type Limits struct {
	domains map[string]*node
	all     []*Limit // in the order of the configuration
}

// node is a level of the tree.
type node struct {
	place    string           // file and line, where the configuration has it
	limit    *Limit           // nil if descriptors that end here have none
	exact    map[Entry]*node  // by key and value
	wild     []wildcard       // in the order of the configuration
	defaults map[string]*node // by key alone
}

type wildcard struct {
	key, value string
	node       *node
}

func newNode() *node { return &node{exact: map[Entry]*node{}, defaults: map[string]*node{}} }

// All lists the limits, in the order of the configuration.
func (l *Limits) All() []*Limit { return l.all }

// Find returns the limit for a descriptor, nil if it has none: each entry is
// looked for among the children of the one before, first by key and value, then
// among wildcards, then by key alone. A limit is for descriptors that end where it
// stands, and not for longer ones.
func (l *Limits) Find(domain string, entries []Entry) *Limit {
	at := l.domains[domain]
	if at == nil || len(entries) == 0 {
		return nil
	}
	for _, e := range entries {
		if at = at.child(e); at == nil {
			return nil
		}
	}
	return at.limit
}

// Override returns the limit that a question itself sets for a descriptor, in place of the one that
// the configuration has: requests in so many units, of which 0 is one. It counts where that one does,
// so that what was spent stays spent, and nothing else of it holds: neither a name nor a mode. It is
// nil for a domain that the configuration does not know. Number is that of a Unit. The error names the
// value at fault.
func (l *Limits) Override(domain string, entries []Entry, requests uint32, number int32, units uint32) (*Limit, error) {
	if number < int32(Second) || number > int32(Week) {
		return nil, fmt.Errorf("unit of a limit is %d, want %d to %d", number, Second, Week)
	}
	unit := Unit(number)
	if l.domains[domain] == nil {
		return nil, nil
	}
	own := &Limit{Path: domain, Requests: requests, Unit: unit, Units: units, Nothing: requests == 0}
	if configured := l.Find(domain, entries); configured != nil {
		own.Path, own.shared = configured.Path, configured.shared
	}
	if own.Nothing {
		return own, nil
	}
	per, most := unit.Duration(), int64(math.MaxInt64)
	if n := int64(max(units, 1)); n > most/int64(per) {
		return nil, fmt.Errorf("unit_multiplier of a limit is %d, want %d at most of such a unit", units,
			most/int64(per))
	} else {
		per *= time.Duration(n)
	}
	var err error
	if own.Shape, err = rate.Compile(rate.Limit{Tokens: int64(requests), Per: per,
		Burst: int64(requests)}); err != nil {
		return nil, fmt.Errorf("a limit of %d in %v: %w", requests, per, err)
	}
	return own, nil
}

// Period is the time in which Requests may pass.
func (l *Limit) Period() time.Duration { return l.Unit.Duration() * time.Duration(max(l.Units, 1)) }

// FindAnyOrder is Find for entries that have no order, at most MaxUnordered of them with a key each:
// the tree is followed by whichever of them it has a level for, in the order in which they are given
// where it has several. It returns them in the order of the levels. Each node is looked at once at
// most, because a level has one node for an entry.
func (l *Limits) FindAnyOrder(domain string, entries []Entry) (*Limit, []Entry) {
	at := l.domains[domain]
	if at == nil || len(entries) == 0 || len(entries) > MaxUnordered {
		return nil, nil
	}
	ordered := make([]Entry, 0, len(entries))
	if limit := at.findAny(entries, 0, &ordered); limit != nil {
		return limit, ordered
	}
	return nil, nil
}

// MaxUnordered bounds entries without an order.
const MaxUnordered = 16

// findAny finds the limit below n for those of entries that used, a bit for each, has not.
func (n *node) findAny(entries []Entry, used uint16, ordered *[]Entry) *Limit {
	if len(*ordered) == len(entries) {
		return n.limit
	}
	for i, e := range entries {
		if used&(1<<i) != 0 {
			continue
		}
		next := n.child(e)
		if next == nil {
			continue
		}
		*ordered = append(*ordered, e)
		if limit := next.findAny(entries, used|1<<i, ordered); limit != nil {
			return limit
		}
		*ordered = (*ordered)[:len(*ordered)-1]
	}
	return nil
}

func (n *node) child(e Entry) *node {
	if next := n.exact[e]; next != nil {
		return next
	}
	for i := range n.wild {
		if w := &n.wild[i]; w.key == e.Key && matches(w.value, e.Value) {
			return w.node
		}
	}
	return n.defaults[e.Key]
}

// matches reports whether a value fits a pattern, in which * stands for any text.
func matches(pattern, value string) bool {
	first, rest, _ := strings.Cut(pattern, "*")
	value, ok := strings.CutPrefix(value, first)
	if !ok {
		return false
	}
	for {
		part, behind, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(value, part)
		}
		at := strings.Index(value, part)
		if at < 0 {
			return false
		}
		value, rest = value[at+len(part):], behind
	}
}

// Subject appends what tells the counters of a limit apart to b: the entries of
// the descriptor, each with its length, so that no two descriptors have the same.
// Values that share a counter have their wildcard there.
func (l *Limit) Subject(b []byte, entries []Entry) []byte {
	text := func(kind byte, s string) {
		b = append(b, kind, byte(len(s)>>24), byte(len(s)>>16), byte(len(s)>>8), byte(len(s)))
		b = append(b, s...)
	}
	for i, e := range entries {
		text('k', e.Key)
		if i < len(l.shared) && l.shared[i] != "" {
			text('w', l.shared[i])
		} else {
			text('v', e.Value)
		}
	}
	return b
}

// Follow carries on from the limits before: one whose numbers are others now took
// effect at now, so that what its counters owe is kept. It returns until when
// counters may owe what they owed at now, and whether any limit changed.
func (l *Limits) Follow(before *Limits, now int64) (settled int64, changed bool) {
	was := make(map[string]*Limit, len(before.all))
	for _, old := range before.all {
		was[old.Path] = old
		settled = max(settled, old.Shape.Settled(now, old.Before))
	}
	for _, limit := range l.all {
		old := was[limit.Path]
		switch {
		case old == nil || old.Shape == rate.Shape{} || limit.Shape == rate.Shape{}:
		case old.Shape == limit.Shape:
			limit.Since, limit.Before = old.Since, old.Before
		default:
			limit.Since, limit.Before, changed = now, old.Shape.Replaced(old.Since, old.Before, now), true
		}
		settled = max(settled, limit.Shape.Settled(now, limit.Before))
	}
	return settled, changed
}
