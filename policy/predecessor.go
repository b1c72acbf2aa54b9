package policy

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/headgate-io/headgate/rate"
)

// Predecessor is what is known of the Set that an earlier process had in force last. Buckets that
// were kept over a restart were filled by its limits, so the first Set of the next process follows
// it as one that is reloaded follows Previous: what changed while no process ran changes when the
// next one loads it.
type Predecessor struct {
	rules map[uint64]ruleWas // by Terms.ID: what buckets are counted by
	later map[uint64]ruleWas // what they are counted by once a temporary rule has ended, which is known ahead
	gone  map[uint64]int64   // of those that were gone already: when nobody owes anything for them

	unknownUntil int64 // as in former

	projects map[string]string // the tier of each that has one
	moves    map[string]savedMove
}

// savedPredecessor is a Predecessor in a file, in columns: a million rules are mostly numbers.
type savedPredecessor struct {
	Shapes []rate.Shape
	Pasts  []savedPast

	IDs    []uint64 // by rule, as what follows
	Limits []uint32 // in Shapes
	Since  []int64
	Before []uint32 // in Pasts, from 1; 0 is none
	Later  []uint32 // the rules among them that begin when a temporary one ends, in order

	Gone map[uint64]int64 // as Predecessor.gone

	UnknownUntil int64
	Projects     map[string]string
	Moves        map[string]savedMove
}

type savedPast struct {
	Limit  uint32 // in Shapes, from 1; 0 is one that is not known
	Since  int64
	Before uint32
	Window time.Duration
	Spent  bool
}

type savedMove struct {
	First, Since, Until int64
	Tiers               []string
}

// Save writes what the Set of another process has to know to follow s, for ReadPredecessor. Wall is the present by
// the wall clock, and now by the clock that buckets are counted by, in Unix nanoseconds.
func (s *Set) Save(w io.Writer, wall, now int64) error {
	out := saver{
		saved:  savedPredecessor{UnknownUntil: s.former.unknownUntil, Gone: map[uint64]int64{}},
		shapes: map[rate.Shape]uint32{},
		pasts:  map[*rate.Past]uint32{},
	}
	for id := range RuleID(s.Len()) {
		if !s.isInForce(id, wall) {
			continue
		}
		terms := s.Terms(id)
		out.rule(terms.ID, ruleWas{terms.Shape, terms.Since, terms.Before})
		if lasting, ok := s.StandsFor(id); ok {
			next := s.Terms(lasting)
			out.saved.Later = append(out.saved.Later, uint32(len(out.saved.IDs)))
			out.rule(next.ID, ruleWas{next.Shape, next.Since, next.Before})
		}
	}
	for id, old := range s.former.rules {
		if old.settled > now {
			out.rule(id, old.ruleWas)
			out.saved.Gone[id] = old.settled
		}
	}
	out.saved.Projects = map[string]string{}
	for n := range s.byProject {
		if tier := s.tiers.name(s.byProject[n].tier); n > 0 && len(tier) > 0 {
			out.saved.Projects[string(s.projects.name(uint32(n)))] = string(tier)
		}
	}
	out.saved.Moves = map[string]savedMove{}
	for n, m := range s.moves {
		own := savedMove{First: m.first, Since: m.since, Until: m.until}
		for _, tier := range m.tiers {
			own.Tiers = append(own.Tiers, string(s.tiers.name(tier)))
		}
		out.saved.Moves[string(s.projects.name(n))] = own
	}
	return gob.NewEncoder(w).Encode(&out.saved)
}

type saver struct {
	saved  savedPredecessor
	shapes map[rate.Shape]uint32
	pasts  map[*rate.Past]uint32
}

func (o *saver) rule(id uint64, was ruleWas) {
	o.saved.IDs = append(o.saved.IDs, id)
	o.saved.Limits = append(o.saved.Limits, o.shape(was.shape))
	o.saved.Since = append(o.saved.Since, was.since)
	o.saved.Before = append(o.saved.Before, o.past(was.before))
}

func (o *saver) shape(sh rate.Shape) uint32 {
	n, ok := o.shapes[sh]
	if !ok {
		n = uint32(len(o.saved.Shapes))
		o.shapes[sh] = n
		o.saved.Shapes = append(o.saved.Shapes, sh)
	}
	return n
}

// past numbers a past after what came before it.
func (o *saver) past(p *rate.Past) uint32 {
	if p == nil {
		return 0
	}
	if n, ok := o.pasts[p]; ok {
		return n
	}
	own := savedPast{Since: p.Since, Before: o.past(p.Before), Window: p.Window, Spent: p.Spent}
	if p.Shape != (rate.Shape{}) {
		own.Limit = o.shape(p.Shape) + 1
	}
	o.saved.Pasts = append(o.saved.Pasts, own)
	o.pasts[p] = uint32(len(o.saved.Pasts))
	return o.pasts[p]
}

var errColumns = errors.New("the rules of an earlier process: its parts do not fit together")

// ReadPredecessor reads what Set.Save wrote.
func ReadPredecessor(r io.Reader) (*Predecessor, error) {
	var in savedPredecessor
	if err := gob.NewDecoder(r).Decode(&in); err != nil {
		return nil, fmt.Errorf("the rules of an earlier process: %w", err)
	}
	if n := len(in.IDs); len(in.Limits) != n || len(in.Since) != n || len(in.Before) != n {
		return nil, errColumns
	}
	pasts := make([]*rate.Past, 1, 1+len(in.Pasts))
	for _, p := range in.Pasts {
		if int(p.Before) >= len(pasts) || int(p.Limit) > len(in.Shapes) {
			return nil, errColumns
		}
		own := &rate.Past{Since: p.Since, Before: pasts[p.Before], Window: p.Window, Spent: p.Spent}
		if p.Limit > 0 {
			own.Shape = in.Shapes[p.Limit-1]
		}
		pasts = append(pasts, own)
	}
	p := &Predecessor{
		rules: make(map[uint64]ruleWas, len(in.IDs)), later: map[uint64]ruleWas{}, gone: in.Gone,
		unknownUntil: in.UnknownUntil, projects: in.Projects, moves: in.Moves,
	}
	for i, id := range in.IDs {
		if int(in.Limits[i]) >= len(in.Shapes) || int(in.Before[i]) >= len(pasts) {
			return nil, errColumns
		}
		was := ruleWas{in.Shapes[in.Limits[i]], in.Since[i], pasts[in.Before[i]]}
		if _, later := slices.BinarySearch(in.Later, uint32(i)); later {
			p.later[id] = was
		} else {
			p.rules[id] = was
		}
	}
	return p, nil
}

// was is what the buckets of a rule were counted by at a time.
func (p *Predecessor) was(id uint64, now int64) (ruleWas, bool) {
	if later, ok := p.later[id]; ok && later.since <= now {
		return later, true
	}
	was, ok := p.rules[id]
	return was, ok
}

// sinceOf is dating.sinceOf for the first Set of a process.
func (p *Predecessor) sinceOf(c *dating) func(g uint32, r *row) (int64, *rate.Past) {
	return func(_ uint32, r *row) (int64, *rate.Past) {
		shape := c.set.shapes[r.limit]
		settled, gone := p.gone[r.id]
		if old, ok := p.was(r.id, c.now); ok && (!gone || settled > c.now) {
			return c.follows(shape, old)
		}
		if c.now < p.unknownUntil {
			return c.now, c.share(&rate.Past{Window: rate.MaxWindow}) // it may be one of those that were forgotten
		}
		return c.now, nil
	}
}

// former is what the first Set of a process remembers of rules that it does not have.
func (p *Predecessor) former(c *dating) former {
	gone := former{unknownUntil: p.unknownUntil}
	has := make(map[uint64]bool, len(c.set.rows))
	for i := range c.set.rows {
		has[c.set.rows[i].id] = true
	}
	for id := range p.rules {
		old, _ := p.was(id, c.now)
		settled, before := p.gone[id]
		if !before {
			settled = old.shape.Settled(c.now, old.before)
		}
		if !has[id] {
			gone.add(id, formerRule{old, settled}, c.now)
		}
	}
	return gone
}

// longest is the largest value of a limit that there was.
func (p *Predecessor) longest(of func(rate.Shape) int64) (longest int64) {
	seen := map[rate.Shape]bool{}
	for _, was := range p.rules {
		if !seen[was.shape] {
			seen[was.shape] = true
			longest = max(longest, of(was.shape))
		}
	}
	return longest
}

// readMoves is moving.readMoves for the first Set of a process.
func (p *Predecessor) readMoves(c *moving) {
	for name, old := range p.moves {
		if old.Until <= c.now {
			continue
		}
		own, ok := move{first: old.First, since: old.Since, until: old.Until}, true
		for _, tier := range old.Tiers[:min(len(old.Tiers), mostTiers)] {
			n, found := c.set.tiers.add(tier)
			own.tiers, ok = append(own.tiers, n), ok && found
		}
		if project, found := c.set.projects.add(name); ok && found && len(c.set.moves) < mostMoves {
			c.remember(project, own)
		}
	}
	until := saturatingAdd(c.now, c.longestFill())
	for project, from := range p.projects {
		if c.doc.Projects[project] != from {
			c.moved(project, from, until)
		}
	}
	for project, tier := range c.doc.Projects {
		if _, known := p.projects[project]; !known && tier != "" {
			c.moved(project, "", until)
		}
	}
}

func saturatingAdd(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
