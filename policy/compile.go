package policy

import (
	"bytes"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/rate"
)

// CompileOptions is what a Document needs to become a Set. Endpoints is
// required; every other zero value is a safe default.
type CompileOptions struct {
	// Endpoints is the table that requests are matched by. Rules for templates
	// that it does not have are reported and left out; with nil, that is every
	// rule for a template.
	Endpoints *endpoint.Table

	// BurstPercent is the burst of rules that give none, in percent of their
	// limit, at least 100. More forgives spikes, less protects the backend
	// sooner. Default 100.
	BurstPercent int64

	// Costs is how many tokens a request to an endpoint takes; 1 where absent,
	// 0 for one that only looks.
	// It is here to be checked: a cost above a burst could never be paid.
	Costs map[endpoint.ID]int64

	// Unseen are the subjects that this process cannot tell apart, because it
	// knows no regions or reads no identifiers. Rules for them compile, with a
	// warning.
	Unseen []Subject

	// Identified are the endpoints where identifiers are read. When there are
	// any, a rule by identifier gets the warning of Unseen unless it is for one of
	// them, or for several.
	Identified []endpoint.ID

	// Shared says that the process shares a store of buckets with its like. Without
	// one, rules of scope strict, lease and sync compile with a warning: they count as
	// local ones.
	Shared bool

	// Keeps says why the shared store cannot count a limit, or nil. A rule of scope
	// strict, lease or sync whose limit it cannot is an error. Nil says that it can count
	// all.
	Keeps func(rate.Shape) error

	// Free is how many percent of limits of scope lease replicas have to themselves. A
	// cost above the rest of a burst could never be paid. Default 0.
	Free int

	// Previous is the Set that the new one replaces, for Terms.Since. Nil when
	// there is none.
	Previous *Set

	// Now is when the Set takes effect, by the clock that buckets are counted by. Default
	// time.Now().
	Now time.Time

	wall int64 // the same moment by the wall clock in Unix nanoseconds, if that differs; 0 if not
}

// Compile checks a document and makes it a Set. The Set is nil if, and only
// if, the problems hold an error. All problems are found at once; of each kind
// the first hundred are reported. Warnings that the document accepts, and notes,
// are left to Lint.
func Compile(doc Document, o CompileOptions) (*Set, Problems) {
	c := newCompiler(doc, o)
	c.compile()
	problems := c.problems.done()
	if len(problems.Errors()) > 0 {
		return nil, problems.unaccepted()
	}
	return c.set, problems.unaccepted()
}

// Lint reports what Compile would, and besides what it leaves out: notes, and
// what the document accepts.
func Lint(doc Document, o CompileOptions) Problems {
	c := newCompiler(doc, o)
	c.compile()
	c.advise()
	return c.problems.done()
}

func (c *compiler) compile() {
	c.checkIgnore()
	c.readProjects()
	for i := range c.doc.Rules {
		c.readRule(i)
	}
	c.readMoves()
	c.arrange()
	c.readRungs()
	c.check()
}

// compiler holds what is only needed until the Set is done.
type compiler struct {
	doc Document
	o   CompileOptions
	now int64 // Unix nanoseconds, by the clock of buckets: when changes begin

	wall int64 // the same by the wall clock: what has expired

	set      *Set
	problems problems

	hasDefault, hasUnknown bool
	ignored                []bool // by Document.Ignore: it accepted something

	places   map[string]*place // by Rule.Endpoint
	orphans  map[string]uint32 // by shape of the template
	compiled map[rate.Limit]compiledLimit

	lastLimit    rate.Limit // looked up last: neighbours often have the same
	lastCompiled compiledLimit

	extras map[extra]uint32
	pasts  map[rate.Past]*rate.Past
	kept   []bool // by RuleID of the previous Set: the new one has it too

	// The rules that passed, in the order of the document.
	rows    []row
	indexes []uint32 // of rows in Document.Rules
	grouped []uint32 // of rows in groups

	groups []pendingGroup
	slots  []uint32 // groups + 1 by hash, with tags as in Set.slots
}

// place is what one text in Rule.Endpoint means.
type place struct {
	number  uint32
	prefix  hash   // of Terms.ID
	closest string // for a template that no endpoint has
	want    string // not empty: the text is wrong
}

type compiledLimit struct {
	index uint32
	err   error
}

// pendingGroup is a group before its rows have their place.
type pendingGroup struct {
	endpoint uint32
	who      who
	start    uint32
	count    uint32

	lasting, temporary uint8 // the subjects that it has rules for, one bit each
}

func (g *pendingGroup) subjects() uint8 { return g.lasting | g.temporary }

func newCompiler(doc Document, o CompileOptions) *compiler {
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	c := &compiler{
		doc: doc, o: o, now: o.Now.UnixNano(), wall: o.wall,
		set: &Set{
			endpoints: o.Endpoints,
			projects:  newNames(), tiers: newNames(), titles: newNames(),
			extras:  make([]extra, 1),
			version: doc.Fingerprint(),
		},
		places:   map[string]*place{},
		orphans:  map[string]uint32{},
		compiled: map[rate.Limit]compiledLimit{},
		extras:   map[extra]uint32{{}: 0},
		pasts:    map[rate.Past]*rate.Past{},
		rows:     make([]row, 0, len(doc.Rules)),
		indexes:  make([]uint32, 0, len(doc.Rules)),
		grouped:  make([]uint32, 0, len(doc.Rules)),
		groups:   make([]pendingGroup, 0, len(doc.Rules)/4),
		slots:    make([]uint32, max(128, 1<<bits.Len(uint(len(doc.Rules)/2)))),
	}
	c.set.number.Store(doc.Number)
	if c.wall == 0 {
		c.wall = c.now
	}
	if c.o.BurstPercent == 0 {
		c.o.BurstPercent = 100
	}
	if c.o.BurstPercent < 100 {
		c.options("burst_percent", number(o.BurstPercent), "100 or more, or 0 for 100")
		c.o.BurstPercent = 100
	}
	return c
}

// readRule checks one rule by itself and notes its row.
func (c *compiler) readRule(i int) {
	r := &c.doc.Rules[i]
	c.noteFallback(r)
	at := c.place(r.Endpoint)
	limit, ok := c.checkRule(i, r, at)
	if !ok {
		return
	}
	w, ok := c.who(i, r)
	if !ok {
		return
	}
	title, ok := c.set.titles.add(r.Name)
	if !ok {
		c.tooManyNames(i, "name")
		return
	}
	g, fresh := c.group(at.number, w, r.Subject, !r.Expires.IsZero())
	if !fresh {
		c.duplicate(i, r, at, w)
		return
	}
	c.warnRule(i, r, at)
	c.groups[g].count++
	c.grouped = append(c.grouped, g)
	c.indexes = append(c.indexes, uint32(i))
	made := row{
		id:       at.prefix.text(r.Project).text(r.Tier).text(r.Subject.String()).sum(),
		endpoint: at.number, who: w, limit: limit,
		extra:   c.extra(extra{expires: expiry(r.Expires), title: title}),
		subject: r.Subject, mode: r.Mode, loss: r.OnStoreLoss,
		algorithm: r.Algorithm, scope: r.Scope,
	}
	if share := r.EnforcePercent; share > 0 && share < 100 && r.Mode == Enforce {
		made.mode, made.percent = partly, uint8(share)
	}
	c.rows = append(c.rows, made)
}

// who numbers the rule's project or tier.
func (c *compiler) who(i int, r *Rule) (who, bool) {
	if r.Tier != "" {
		n, ok := c.set.tiers.add(r.Tier)
		if !ok {
			c.tooManyNames(i, "tier")
		}
		return ofTier(n), ok
	}
	n, ok := c.set.projects.add(r.Project)
	if !ok {
		c.tooManyNames(i, "project")
	}
	return ofProject(n), ok
}

// expiry is when a rule ends in Unix nanoseconds, 0 for never. Times that do
// not fit (before 1970, after 2262) become the nearest that does.
func expiry(t time.Time) int64 {
	switch {
	case t.IsZero():
		return 0
	case t.Unix() <= 0:
		return 1
	case t.Unix() >= math.MaxInt64/int64(time.Second):
		return math.MaxInt64
	}
	return t.UnixNano()
}

// place says what the text of an endpoint means. It works each text out once.
func (c *compiler) place(text string) *place {
	if at, ok := c.places[text]; ok {
		return at
	}
	at := &place{}
	switch text {
	case Default:
		at.number, at.prefix = rowDefault, newHash().text(text)
	case UnknownEndpoint:
		at.number, at.prefix = rowUnknown, newHash().text(text)
	case All:
		at.number, at.prefix = rowAll, newHash().text(text)
	default:
		c.placeTemplate(at, text)
	}
	c.places[text] = at
	return at
}

func (c *compiler) placeTemplate(at *place, text string) {
	t, err := endpoint.ParseTemplate(text)
	if err != nil {
		at.want = wantEndpoint(text, err)
		return
	}
	if c.o.Endpoints != nil {
		if id, ok := c.o.Endpoints.Lookup(t); ok {
			at.number = uint32(id)
			at.prefix = newHash().text(shapeOf(c.o.Endpoints.Template(id).String()))
			return
		}
		if !c.problems.full("no_endpoint") { // nobody will see it, and it is slow
			if near, ok := c.o.Endpoints.Closest(t); ok {
				at.closest = near.String()
			}
		}
	}
	shape := shapeOf(t.String())
	n, ok := c.orphans[shape]
	if !ok {
		n = rowOrphan - uint32(len(c.orphans))
		c.orphans[shape] = n
	}
	at.number = n
}

// shapeOf drops the parameter names of a template, which do not tell two
// templates apart: "GET /a/{id}/{rest...}" becomes "GET /a/{}/{...}".
func shapeOf(template string) string {
	var b strings.Builder
	for {
		open := strings.IndexByte(template, '{')
		end := strings.IndexByte(template, '}')
		if open < 0 || end < open {
			b.WriteString(template)
			return b.String()
		}
		b.WriteString(template[:open+1])
		if strings.HasSuffix(template[:end], "...") {
			b.WriteString("...")
		}
		b.WriteByte('}')
		template = template[end+1:]
	}
}

// isOrphan reports whether a row's endpoint is a template that no endpoint has.
func (c *compiler) isOrphan(ep uint32) bool {
	return ep <= rowOrphan && ep > rowOrphan-uint32(len(c.orphans))
}

// limit compiles a limit, each different one once.
func (c *compiler) limit(r *Rule) (rate.Limit, compiledLimit) {
	l := rate.Limit{Tokens: r.Limit, Per: r.Per, Burst: r.Burst, Algorithm: rate.Algorithm(r.Algorithm)}
	if l.Per == 0 {
		l.Per = time.Second
	}
	switch {
	case l.Burst == 0 && !l.Algorithm.Drains():
		l.Burst = l.Tokens
	case l.Burst == 0:
		l.Burst = percentOf(l.Tokens, c.o.BurstPercent)
	}
	if l == c.lastLimit {
		return l, c.lastCompiled
	}
	known, ok := c.compiled[l]
	if ok {
		c.lastLimit, c.lastCompiled = l, known
		return l, known
	}
	shape, err := rate.Compile(l)
	known = compiledLimit{index: uint32(len(c.set.shapes)), err: err}
	if err == nil {
		c.set.shapes = append(c.set.shapes, shape)
		c.set.limits = append(c.set.limits, l)
	}
	c.compiled[l] = known
	return l, known
}

// percentOf is the burst that a rule without one gets, at least 1.
func percentOf(tokens, percent int64) int64 {
	hi, lo := bits.Mul64(uint64(tokens), uint64(percent))
	if hi >= 100 {
		return math.MaxInt64
	}
	burst, _ := bits.Div64(hi, lo, 100)
	return int64(max(1, min(burst, math.MaxInt64)))
}

// extra numbers what few rules have, each different one once.
func (c *compiler) extra(e extra) uint32 {
	if e == (extra{}) {
		return 0
	}
	n, ok := c.extras[e]
	if !ok {
		n = uint32(len(c.set.extras))
		c.set.extras = append(c.set.extras, e)
		c.extras[e] = n
	}
	return n
}

// group numbers the group of an endpoint and tenant, and reports false if it
// has a rule of the subject that lasts, or one that does not, already.
func (c *compiler) group(ep uint32, w who, s Subject, temporary bool) (uint32, bool) {
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

func (c *compiler) growSlots() {
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
func (c *compiler) arrange() {
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
	s.rows = make([]row, next)
	c.placeRows()
	c.buildSlots(probed)
	s.projects.trim()
	s.tiers.trim()
	s.titles.trim()
}

// isProbed reports whether a group is found by hash.
func (s *Set) isProbed(g *pendingGroup) bool {
	return g.who != 0 && g.endpoint != rowUnknown && g.endpoint < uint32(len(s.byEndpoint))
}

// indexGroup writes a group's entry in the arrays. It reports false for groups
// that no request can reach.
func (c *compiler) indexGroup(g *pendingGroup, at group) bool {
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
func (c *compiler) placeRows() {
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
	c.dateRows()
	c.set.former = c.formerRules()
}

// placed is where the i-th row that passed lies. A group has at most two rows a
// subject, so those before a given one are bit counts.
func (c *compiler) placed(i int) RuleID {
	r, g := &c.rows[i], &c.groups[c.grouped[i]]
	below := uint8(1)<<r.subject - 1
	before := bits.OnesCount8(g.lasting&below) + bits.OnesCount8(g.temporary&below)
	if !c.isTemporary(r) && g.temporary&(1<<r.subject) != 0 {
		before++
	}
	return RuleID(g.start + uint32(before))
}

func (c *compiler) isTemporary(r *row) bool { return c.set.extras[r.extra].expires != 0 }

// dateRows notes since when rows have their limit, and what came before.
//
// A temporary rule and the lasting one of the same place have one bucket, whose
// limit changes when the temporary one comes, and again when it expires. That
// time is known now, so the lasting rule is dated ahead: nobody need be there to
// change it.
func (c *compiler) dateRows() {
	s, since := c.set, c.sinceOf()
	for i := range c.rows {
		if g := &c.groups[c.grouped[i]]; g.count == 0 {
			continue
		}
		id := c.placed(i)
		r := &s.rows[id]
		if !s.isInForce(id, c.wall) {
			continue // dated with the one that is, or over
		}
		lasting, pair := s.StandsFor(id)
		from, past := since(c.grouped[i], r)
		c.date(r, from, past)
		if pair {
			shape, ends := s.shapes[r.limit], s.extras[r.extra].expires
			s.ends = append(s.ends, ends)
			from, past = c.followsAt(s.shapes[s.rows[lasting].limit], ruleWas{shape, from, past}, ends-(c.wall-c.now))
			c.date(&s.rows[lasting], from, past)
		}
	}
	slices.Sort(s.ends)
	s.ends = slices.Compact(s.ends)
}

func (c *compiler) date(r *row, since int64, before *rate.Past) {
	if since != 0 {
		e := c.set.extras[r.extra]
		e.since, e.before = since, before
		r.extra = c.extra(e)
	}
}

// buildSlots builds the hash index over the groups that need it.
func (c *compiler) buildSlots(probed int) {
	s := c.set
	s.tagShift = uint8(bits.Len(uint(len(s.rows))))
	low := uint32(1)<<s.tagShift - 1
	s.slots = make([]uint32, 1<<bits.Len(uint(2*probed)))
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

// sinceOf returns the function that finds Terms.Since and Terms.Before of a row.
//
// A rule that the previous Set had with the same shape goes on as before. With
// another shape, its buckets owe what they owe in the old one, and the new one
// counts from now. So it is with a rule that was there earlier and comes back:
// it was in nobody's way meanwhile. Without a previous Set there is nothing to
// convert.
func (c *compiler) sinceOf() func(g uint32, r *row) (int64, *rate.Past) {
	prev := c.o.Previous
	if prev == nil {
		return func(uint32, *row) (int64, *rate.Past) { return 0, nil }
	}
	groups := make([]group, len(c.groups))
	endpoints := c.previousEndpoints()
	projects, tiers := renumber(&c.set.projects, &prev.projects), renumber(&c.set.tiers, &prev.tiers)
	for i, g := range c.groups {
		ep, ok := g.endpoint, true
		if g.endpoint < uint32(len(c.set.byEndpoint)) {
			ep, ok = endpoints[g.endpoint], g.endpoint == rowUnknown || endpoints[g.endpoint] != 0
		}
		w := g.who
		switch {
		case w.isTier():
			w = ofTier(tiers[w.number()])
		case w != 0:
			w = ofProject(projects[w.number()])
		}
		if ok && g.count > 0 && (w != 0) == (g.who != 0) {
			groups[i] = prev.groupNear(g.start, ep, w)
		}
	}
	c.kept = make([]bool, len(prev.rows))
	return func(g uint32, r *row) (int64, *rate.Past) {
		shape := c.set.shapes[r.limit]
		if id, ok := prev.counting(groups[g], r.subject, r.id, c.wall); ok {
			c.keep(id)
			old := prev.Terms(id)
			return c.follows(shape, ruleWas{old.Shape, old.Since, old.Before})
		}
		if old, ok := prev.former.rules[r.id]; ok && old.settled > c.now {
			return c.follows(shape, old.ruleWas)
		}
		if c.now < prev.former.unknownUntil {
			return c.now, c.share(&rate.Past{Window: rate.MaxWindow}) // it may be one of those that are forgotten
		}
		return c.now, nil
	}
}

// keep marks a rule of the previous Set, and the one that shares its bucket, as
// one that the new Set has.
func (c *compiler) keep(id RuleID) {
	c.kept[id] = true
	if other, ok := c.o.Previous.StandsFor(id); ok {
		c.kept[other] = true
	}
	if other, ok := c.o.Previous.replacedBy(id); ok {
		c.kept[other] = true
	}
}

// previousEndpoints reports the numbers that the endpoints had in the previous
// Set, 0 where it did not have them.
func (c *compiler) previousEndpoints() []uint32 {
	prev := c.o.Previous
	numbers := make([]uint32, len(c.set.byEndpoint))
	for n := 1; n < len(numbers); n++ {
		if prev.endpoints == c.o.Endpoints {
			numbers[n] = uint32(n)
			continue
		}
		if prev.endpoints == nil {
			continue
		}
		if id, ok := prev.endpoints.Lookup(c.o.Endpoints.Template(endpoint.ID(n))); ok {
			numbers[n] = uint32(id)
		}
	}
	return numbers
}

// renumber reports, for every number in one table of names, the number in another.
// Of a document that changed little, most have the same in both.
func renumber(from, to *names) []uint32 {
	numbers := make([]uint32, from.len()+1)
	for n := uint32(1); n <= uint32(from.len()); n++ {
		if name := from.name(n); n <= uint32(to.len()) && bytes.Equal(name, to.name(n)) {
			numbers[n] = n
		} else {
			numbers[n] = to.findBytes(name)
		}
	}
	return numbers
}
