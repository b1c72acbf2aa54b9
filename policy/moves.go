package policy

import (
	"slices"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/rate"
)

// A project that moves to another tier meets other rules, whose buckets are
// full. Handed out as they are, each move would be worth a burst. So as long as
// it can matter, the bucket of the rule that the project had before the moves
// goes on counting beside the one of the rule in force: at the rate in force,
// and with room for the largest burst of the rules in between. What one move
// gives is then at most what the larger burst leaves.
//
//	free: 10 per second, burst 10     gold: 100 per second, burst 300
//
//	at       tier  takes  bucket of free        bucket of gold
//	0 s      free     10  10 of 10 owed
//	0 s      gold    290  300 of 300 owed       290 of 300 owed
//	0 s      free      0  300 of 300 owed, and  0 of 10 in a bucket for the stay
//	1 s      free     10  at 10 per second

// mostMoves is how many projects that moved a Set remembers, and mostTiers how
// many tiers of each. For what lies beyond, a move hands out a full bucket.
const (
	mostMoves = 1 << 16
	mostTiers = 8
)

// longestMove is the longest that a move is remembered.
const longestMove = 31 * 24 * time.Hour

// move is a project that has changed its tier in the document.
type move struct {
	first int64 // the first time, in Unix nanoseconds
	since int64 // the last time
	until int64 // when it is forgotten

	// tiers by number, 0 for none, the one before the first change first and the
	// present one not among them unless the project was in it before.
	tiers []uint32
}

// moving finds projects that move between tiers.
type moving struct {
	*task
	*findings
}

// readMoves finds the projects whose tier is another than in the previous Set,
// and carries over those that moved before.
func (c *moving) readMoves() {
	prev := c.o.Previous
	switch {
	case prev == nil && c.o.Predecessor != nil:
		c.o.Predecessor.readMoves(c)
		return
	case prev == nil:
		return
	}
	c.carryMoves()
	until := c.now + c.longestFill()
	for n := uint32(1); n < uint32(len(prev.byProject)); n++ {
		from := string(prev.tiers.name(prev.byProject[n].tier))
		if from == "" && len(c.doc.Projects) == 0 {
			continue
		}
		project := string(prev.projects.name(n))
		if c.doc.Projects[project] != from {
			c.moved(project, from, until)
		}
	}
	for n := uint32(1); n < uint32(len(c.set.byProject)); n++ {
		if project := c.set.projects.name(n); c.set.byProject[n].tier != 0 && prev.projects.findBytes(project) == 0 {
			c.moved(string(project), "", until)
		}
	}
}

// carryMoves takes over what the previous Set remembers.
func (c *moving) carryMoves() {
	prev := c.o.Previous
	for n, old := range prev.moves {
		if old.until <= c.now {
			continue
		}
		own := move{first: old.first, since: old.since, until: old.until, tiers: make([]uint32, len(old.tiers))}
		ok := true
		for i, t := range old.tiers {
			var found bool
			own.tiers[i], found = c.set.tiers.add(string(prev.tiers.name(t)))
			ok = ok && found
		}
		if project, found := c.set.projects.add(string(prev.projects.name(n))); ok && found {
			c.remember(project, own)
		}
	}
}

// moved notes that a project left a tier.
func (c *moving) moved(project, from string, until int64) {
	n, ok := c.set.projects.add(project)
	tier, ok2 := c.set.tiers.add(from)
	own, known := c.set.moves[n]
	if !ok || !ok2 || !known && len(c.set.moves) >= mostMoves {
		return
	}
	if !known {
		own.first = c.now
	}
	own.since, own.until = c.now, max(own.until, until)
	if !slices.Contains(own.tiers, tier) && len(own.tiers) < mostTiers {
		own.tiers = append(own.tiers, tier)
	}
	c.remember(n, own)
}

func (c *moving) remember(project uint32, m move) {
	if c.set.moves == nil {
		c.set.moves = map[uint32]move{}
	}
	c.set.moves[project] = m
}

// longestFill is how long a bucket that any rule of the old and the new Set owes
// for may need to be full, between a second and longestMove.
func (c *moving) longestFill() int64 {
	longest := int64(time.Second)
	fill := func(sh rate.Shape) int64 { return min(sh.Settled(0, nil), int64(longestMove)) }
	if c.o.Predecessor != nil {
		longest = max(longest, c.o.Predecessor.longest(fill))
	}
	all := [][]rate.Shape{c.set.shapes}
	if c.o.Previous != nil {
		all = append(all, c.o.Previous.shapes)
	}
	for _, shapes := range all {
		for _, sh := range shapes {
			longest = max(longest, fill(sh))
		}
	}
	return longest
}

// Guard is a bucket that has to have room besides the one of a rule, because the
// caller's project has changed its tier, or the caller's credential may.
type Guard struct {
	Of    int        // the rule in force, as an index of what applies
	ID    uint64     // Terms.ID of the rule that was in force before
	Shape rate.Shape // at the rate in force, with the largest burst since

	// Since is the last change that may have mattered, and First the first, in
	// Unix nanoseconds. What drained before Since is not known. Window is not 0 if
	// it may have been counted in windows.
	First, Since int64
	Window       time.Duration

	// Own says that the bucket is the one of the rule in force itself: the
	// project came back. If Shape is also that of the rule, there is one bucket,
	// which counts since Since; else the rule needs another for the stay.
	Own bool

	// Larger says that the bucket is the one of a larger tier's rule, Rule, as it
	// counts for callers of that tier: see LargerTiers. Before is then what its Shape
	// replaced.
	Larger bool
	Rule   RuleID
	Before *rate.Past
}

// Moved reports when a project that has its tier from the document last changed
// it, in Unix nanoseconds, as long as that may matter; else 0.
func (s *Set) Moved(now int64, project, tier string) int64 {
	if len(s.moves) == 0 || project == "" || tier != "" {
		return 0
	}
	if m, ok := s.moves[s.projects.find(project)]; ok && now < m.until {
		return m.since
	}
	return 0
}

// EarlierTiers appends the guards of the rules that apply to a request of a project
// that Moved knows. Rules whose bucket is not the project's alone have none: a
// budget by address is shared with other tiers' callers. Nor has one that LargerTiers
// appended to dst already: a bucket counts by one limit.
func (s *Set) EarlierTiers(dst []Guard, now int64, m endpoint.Match, project string, applied []Applied,
	chooser Chooser) []Guard {
	p := s.projects.find(project)
	own, larger := s.moves[p], dst
	for i, a := range applied {
		r := &s.rows[a.Rule]
		if a.Shadow || a.Level == LevelFallback || !ofOneProject(r.subject) || r.algorithm >= Calendar {
			continue // a budget by the calendar begins anew with the tier
		}
		g := Guard{Of: i, Shape: s.shapes[r.limit], First: own.first, Since: own.since}
		g.include(s, r)
		burst, first, others := s.limits[r.limit].Burst, true, false
		for _, tier := range own.tiers {
			id, ok := s.ruling(now, m, p, tier, r.subject, a.Level.EveryEndpoint(), chooser, 0)
			if !ok || s.rows[id].algorithm >= Calendar {
				continue
			}
			q := &s.rows[id]
			if first {
				first, g.ID = false, q.id
			}
			g.include(s, q)
			others = others || q.id != r.id
			burst = max(burst, s.limits[q.limit].Burst)
		}
		if !others || guarded(larger, i, g.ID) {
			continue // the same rule in all of its tiers
		}
		g.Own = g.ID == r.id
		g.Since = max(own.since, s.extras[r.extra].since)
		g.Shape = g.Shape.Grow(burst - s.limits[r.limit].Burst)
		if g.Shape.Algorithm == rate.LeakyBucket {
			g.Shape.Algorithm = rate.TokenBucket // who waits is the rule's to say
		}
		dst = append(dst, g)
	}
	return dst
}

// ofOneProject reports whether all callers that share a bucket are of one
// project. Of requests under way nothing is known of a tier before.
func ofOneProject(s Subject) bool {
	s, what := s.Counts()
	return what != CountsUnderWay && (s == SubjectPrincipal || s == SubjectPrincipalIP || s == SubjectProject)
}

// ruling finds the rule that would be in force for a subject if the project were
// in a tier, among those for every endpoint or the others. Without a chooser it
// may be one that is enforced for a share, and is the one behind as many of those
// as after says.
func (s *Set) ruling(now int64, m endpoint.Match, p, tier uint32, subject Subject, every bool,
	chooser Chooser, after int) (RuleID, bool) {
	var at [levels]group
	s.locateFor(&at, m, p, tier)
	from, to := LevelEndpointProject, LevelUnknown
	if every {
		from, to = LevelAllProject, LevelAll
	}
	for level := from; level <= to; level++ {
		if at[level] == 0 {
			continue
		}
		for id := RuleID(at[level] - 1); ; id++ {
			r := &s.rows[id]
			if r.subject == subject && s.live(r, now) &&
				(r.mode == Enforce || r.mode == partly && (chooser == nil || chooser.Chosen(id))) {
				if after--; after < 0 || r.mode == Enforce {
					return id, true
				}
			}
			if r.last {
				break
			}
		}
	}
	return 0, false
}

// include notes what matters of a rule that was in force at one time or another:
// when its limit changed, and whether it counts in windows.
func (g *Guard) include(s *Set, r *row) {
	more := &s.extras[r.extra]
	g.Window = max(g.Window, s.shapes[r.limit].Window())
	if more.since != 0 {
		g.First = min(g.First, more.since)
	}
	for p := more.before; p != nil; p = p.Before {
		g.Window = max(g.Window, p.Window, p.Shape.Window())
		if p.Since != 0 {
			g.First = min(g.First, p.Since)
		}
	}
}

// Past writes into p, and returns, what came before Since.
func (g *Guard) Past(p *[2]rate.Past) *rate.Past {
	p[0], p[1] = rate.Past{Since: g.First, Before: &p[1], Window: g.Window}, rate.Past{Window: g.Window}
	return &p[0]
}
