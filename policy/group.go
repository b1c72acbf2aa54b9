package policy

import "math/bits"

// pendingGroup is a group before its rows have their place.
type pendingGroup struct {
	endpoint uint32
	who      who
	start    uint32
	count    uint32

	lasting, temporary subjectSet // the subjects that it has rules for
}

func (g *pendingGroup) subjects() subjectSet { return g.lasting | g.temporary }

// grouping holds the rules that passed, in the order of the document, and the groups that they are in.
type grouping struct {
	*task
	*places

	rows    []row
	indexes []uint32 // of rows in Document.Rules
	grouped []uint32 // of rows in groups

	groups []pendingGroup
	slots  []uint32 // groups + 1 by hash, with tags as in Set.slots
}

// newGrouping makes room for about so many rules.
func newGrouping(t *task, p *places, about int) *grouping {
	return &grouping{
		task: t, places: p,
		rows:    make([]row, 0, about+1), // and that of addFallback
		indexes: make([]uint32, 0, about),
		grouped: make([]uint32, 0, about),
		groups:  make([]pendingGroup, 0, about), // mostly one of each rule
		slots:   make([]uint32, max(16, slotsFor(about))),
	}
}

// group numbers the group of an endpoint and tenant, and reports false if it
// has a rule of the subject that lasts, or one that does not, already.
func (c *grouping) group(ep uint32, w who, s Subject, temporary bool) (uint32, bool) {
	own := pendingGroup{endpoint: ep, who: w, lasting: 1 << s}
	if temporary {
		own.lasting, own.temporary = 0, 1<<s
	}
	h := mix(ep, w)
	low := uint32(len(c.slots)) - 1
	i := uint32(h) & low
	for ; c.slots[i] != 0; i = (i + 1) & low {
		if (c.slots[i]^tag(h))&^low != 0 {
			continue // as in Set.find
		}
		n := c.slots[i]&low - 1
		if g := &c.groups[n]; g.endpoint == ep && g.who == w {
			fresh := g.lasting&own.lasting == 0 && g.temporary&own.temporary == 0
			g.lasting |= own.lasting
			g.temporary |= own.temporary
			return n, fresh
		}
	}
	c.groups = append(c.groups, own)
	c.slots[i] = tag(h)&^low | uint32(len(c.groups))
	if 2*len(c.groups) >= len(c.slots) {
		c.growSlots()
	}
	return uint32(len(c.groups) - 1), true
}

// slotsFor is how many slots so many groups are found by: at most half of them
// are taken.
func slotsFor(groups int) int { return 1 << bits.Len(uint(2*groups)) }

func (c *grouping) growSlots() {
	c.slots = make([]uint32, 2*len(c.slots))
	low := uint32(len(c.slots)) - 1
	for n, g := range c.groups {
		h := mix(g.endpoint, g.who)
		i := uint32(h) & low
		for c.slots[i] != 0 {
			i = (i + 1) & low
		}
		c.slots[i] = tag(h)&^low | uint32(n+1)
	}
}

// arrange puts the rows of a group next to each other, in the order of their
// subjects, and builds the index.
func (c *grouping) arrange() {
	s := c.set
	s.byEndpoint = make([]endpointGroup, 1)
	if c.o.Endpoints != nil {
		s.byEndpoint = make([]endpointGroup, c.o.Endpoints.Len()+1)
	}
	byProject := make([]tenantGroups, s.projects.len()+1)
	copy(byProject, s.byProject)
	s.byProject = byProject
	s.byTier = make([]tenantGroups, s.tiers.len()+1)

	next, probed := uint32(0), 0
	for i := range c.groups {
		g := &c.groups[i]
		if g.count == 0 || !c.indexGroup(g, group(next+1)) {
			g.count = 0
			continue
		}
		if s.isProbed(g) {
			probed++
		}
		g.start = next
		next += g.count
		s.present |= g.subjects()
	}
	if c.inPlace(int(next)) {
		c.adopt()
	} else {
		s.rows = make([]row, next, next+1) // and that of addFallback
		c.placeRows()
		c.buildSlots(probed)
	}
}

// inPlace reports whether the rows, so many of which have a place, are where
// they belong already: each is a group by itself, as it mostly is. Then a group
// has the number of its row. Room that was made for many more is given back.
func (c *grouping) inPlace(placed int) bool {
	n := len(c.rows)
	return placed == n && len(c.groups) == n && cap(c.rows)-n <= n/4 && len(c.slots) <= slotsFor(n)
}

// adopt makes the rows and slots of the compiler those of the Set: a third of the
// memory that a compiler needs is not written a second time. The slots have all
// groups then, also those that nobody looks for by hash.
func (c *grouping) adopt() {
	s := c.set
	s.rows, s.slots = c.rows, c.slots
	s.tagShift = uint8(bits.Len(uint(len(c.slots) - 1)))
	for i := range s.rows {
		s.rows[i].last = true
	}
}

// indexGroup writes a group's entry in the arrays. It reports false for groups
// that no request can reach.
func (c *grouping) indexGroup(g *pendingGroup, at group) bool {
	s := c.set
	has := &s.fallback
	switch {
	case g.who.isTier():
		has = &s.byTier[g.who.number()]
	case g.who != 0:
		has = &s.byProject[g.who.number()]
	}
	switch {
	case g.endpoint == rowDefault:
		has.byDefault = at
	case g.endpoint == rowAll:
		has.all = at
	case g.endpoint == rowUnknown:
		if g.who != 0 {
			return false
		}
		s.unknown = at
	case c.isOrphan(g.endpoint):
		return false
	case g.who == 0:
		s.byEndpoint[g.endpoint].group = at
	case g.who.isTier():
		s.byEndpoint[g.endpoint].tiers |= g.subjects()
	default:
		s.byEndpoint[g.endpoint].projects |= g.subjects()
	}
	return true
}

// placeRows moves every row into its group, subjects ascending, of one subject
// the temporary before the lasting.
func (c *grouping) placeRows() {
	for i := range c.rows {
		r, g := &c.rows[i], &c.groups[c.grouped[i]]
		if g.count == 0 {
			continue
		}
		at := c.placed(i)
		c.set.rows[at] = *r
		c.set.rows[at].last = uint32(at) == g.start+g.count-1
	}
	for id := range c.set.rows {
		if _, pair := c.set.lasting(RuleID(id)); pair && c.set.rows[id].mode != Enforce {
			c.set.rows[id].id ^= trial
		}
	}
}

// placed is where the i-th row that passed lies. A group has at most two rows a
// subject, so those before a given one are bit counts.
func (c *grouping) placed(i int) RuleID {
	r, g := &c.rows[i], &c.groups[c.grouped[i]]
	below := subjectSet(1)<<r.subject - 1
	before := bits.OnesCount64(uint64(g.lasting&below)) + bits.OnesCount64(uint64(g.temporary&below))
	if !c.isTemporary(r) && g.temporary&(1<<r.subject) != 0 {
		before++
	}
	return RuleID(g.start + uint32(before))
}

func (c *grouping) isTemporary(r *row) bool { return c.set.extras[r.extra].expires != 0 }

// buildSlots builds the hash index over the groups that need it.
func (c *grouping) buildSlots(probed int) {
	s := c.set
	s.tagShift = uint8(bits.Len(uint(len(s.rows))))
	low := uint32(1)<<s.tagShift - 1
	s.slots = make([]uint32, slotsFor(probed))
	mask := len(s.slots) - 1
	for i := range c.groups {
		g := &c.groups[i]
		if g.count == 0 || !s.isProbed(g) {
			continue
		}
		h := mix(g.endpoint, g.who)
		at := int(uint32(h)) & mask
		for s.slots[at] != 0 {
			at = (at + 1) & mask
		}
		s.slots[at] = tag(h)&^low | (g.start + 1)
	}
}

// ruledTiers reports by number which tiers have a rule.
func (c *grouping) ruledTiers() []bool {
	ruled := make([]bool, c.set.tiers.len()+1)
	for i := range c.groups {
		if w := c.groups[i].who; w.isTier() {
			ruled[w.number()] = true
		}
	}
	return ruled
}

// overrides are the subjects for which some project or tier has a rule of its
// own.
type overrides struct{ projects, tiers subjectSet }

// allForTenants reports the overrides of All.
func (c *grouping) allForTenants() (mask overrides) {
	for i := range c.groups {
		switch g := &c.groups[i]; {
		case g.endpoint != rowAll || g.who == 0:
		case g.who.isTier():
			mask.tiers |= g.subjects()
		default:
			mask.projects |= g.subjects()
		}
	}
	return mask
}
