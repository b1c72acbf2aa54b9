package policy

import (
	"math"
	"math/bits"
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

	// Costs is how many tokens a request to an endpoint takes; 1 where absent. An endpoint
	// of cost 0 looks at its buckets, takes nothing and is never denied by them: for one that
	// tells clients their budget. A cost above a burst, which could never be paid, is
	// reported.
	Costs map[endpoint.ID]int64

	// Unseen are the subjects that this process cannot tell apart, because it
	// knows no regions or reads no identifiers. Rules for them compile, with a
	// warning.
	Unseen []Subject

	// Identified are the endpoints where identifiers are read. When there are
	// any, a rule by identifier gets the warning of Unseen unless it is for one of
	// them, or for several.
	Identified []endpoint.ID

	// Claims are the claims that tokens are read for, where there are any. A rule by
	// another gets the warning of Unseen.
	Claims []string

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

	// Predecessor stands in for Previous where that was another process's, whose
	// buckets this one goes on with. Nil when there is none, or Previous is set.
	Predecessor *Predecessor

	// Now is when the Set takes effect, by the clock that buckets are counted by. Default
	// time.Now().
	Now time.Time

	wall int64 // the same moment by the wall clock in Unix nanoseconds, if that differs; 0 if not

	fallback *Rule // of Set.Fallback; nil for none
}

// Compile checks a document and makes it a Set. The Set is nil if, and only
// if, the problems hold an error. All problems are found at once; of each kind
// the first hundred are reported. Warnings that the document accepts, and notes,
// are left to Lint.
func Compile(doc Document, o CompileOptions) (*Set, Problems) {
	c := newCompiler(doc, o, len(doc.Rules))
	c.read(doc.Rules)
	c.finish()
	return c.result()
}

// Lint reports what Compile would, and besides what it leaves out: notes, and
// what the document accepts.
func Lint(doc Document, o CompileOptions) Problems { return LintRest(doc, o, nil) }

// LintRest is Lint of a document of which found is wrong already: what it is
// about could not be read. Rules that a problem in found is about are looked at
// no further, and what may be missing because of them is not reported.
func LintRest(doc Document, o CompileOptions, found Problems) Problems {
	c := newCompiler(doc, o, len(doc.Rules), found...)
	c.read(doc.Rules)
	c.finish()
	c.advise()
	return c.problems.done()
}

// read checks each rule by itself, but for the first ones if it has read those
// before. What rules mean beside each other is for finish, as is what the present
// time and the previous Set have to say.
func (c *compiler) read(rules []Rule) {
	begin := len(c.doc.Rules)
	c.doc.Rules = rules
	for i := begin; i < len(rules); i++ {
		r := &rules[i]
		if c.broken[i] {
			c.content.rule(r)
			c.noteBroken(r)
			continue
		}
		at := c.place(r.Endpoint)
		c.content.ruleAt(at.content, r)
		c.readRule(i, at)
	}
}

// finish puts the rules in their places and checks them beside each other.
func (c *compiler) finish() {
	c.content.projects(c.doc.Projects)
	c.set.version = c.content.String()
	c.set.number.Store(c.doc.Number)
	c.readMoves()
	c.arrange()
	c.arrangeAccess()
	c.readNamedTiers()
	c.check()
	c.addFallback()
	c.set.lifetime = c.longestDebt()
}

// result is the Set, if there is no error, and all problems.
func (c *compiler) result() (*Set, Problems) {
	problems := c.problems.done()
	if len(problems.Errors()) > 0 {
		return nil, problems.unaccepted()
	}
	return c.set, problems.unaccepted()
}

// compiler holds what is only needed until the Set is done.
type compiler struct {
	doc Document // with the rules that were read
	o   CompileOptions
	now int64 // Unix nanoseconds, by the clock of buckets: when changes begin

	wall int64 // the same by the wall clock: what has expired

	set      *Set
	content  content // of the document
	problems problems

	broken map[int]bool // by index in Document.Rules: it could not be read

	hasDefault, hasUnknown bool
	fallbackTitle          uint32 // in titles
	ignored                []bool // by Document.Ignore: it accepted something

	places   map[string]*place // by Rule.Endpoint
	orphans  map[string]uint32 // by shape of the template
	compiled map[rate.Limit]compiledLimit

	lastLimit    rate.Limit // looked up last: neighbours often have the same
	lastCompiled compiledLimit

	extras map[extra]uint32
	onlys  map[string]uint32
	pasts  map[rate.Past]*rate.Past
	kept   []bool // by RuleID of the previous Set: the new one has it too

	// The rules that passed, in the order of the document.
	rows    []row
	indexes []uint32 // of rows in Document.Rules
	grouped []uint32 // of rows in groups

	accessIndexes []int // of access.rules in Document.Rules

	groups []pendingGroup
	slots  []uint32 // groups + 1 by hash, with tags as in Set.slots
}

// place is what one text in Rule.Endpoint means.
type place struct {
	number  uint32
	prefix  hash   // of Terms.ID
	content hash   // of the text; see ruleContent
	closest string // for a template that no endpoint has
	want    string // not empty: the text is wrong
}

type compiledLimit struct {
	index uint32
	err   error
}

// newCompiler begins with all of a document but its rules, of which there are
// about so many.
func newCompiler(doc Document, o CompileOptions, about int, found ...Problem) *compiler {
	doc.Rules = nil
	c := &compiler{
		doc: doc, o: o,
		set: &Set{
			endpoints: o.Endpoints,
			projects:  newNames(), tiers: newNames(), titles: newNames(),
			extras: make([]extra, 1), onlys: make([]string, 1),
		},
		places:   map[string]*place{},
		orphans:  map[string]uint32{},
		broken:   map[int]bool{},
		compiled: map[rate.Limit]compiledLimit{},
		extras:   map[extra]uint32{{}: 0},
		onlys:    map[string]uint32{},
		pasts:    map[rate.Past]*rate.Past{},
		rows:     make([]row, 0, about+1), // and that of addFallback
		indexes:  make([]uint32, 0, about),
		grouped:  make([]uint32, 0, about),
		groups:   make([]pendingGroup, 0, about), // mostly one of each rule
		slots:    make([]uint32, max(16, slotsFor(about))),
	}
	c.at(o.Now, o.wall)
	if c.o.BurstPercent == 0 {
		c.o.BurstPercent = 100
	}
	if c.o.BurstPercent < 100 {
		c.options("burst_percent", number(o.BurstPercent), "100 or more, or 0 for 100")
		c.o.BurstPercent = 100
	}
	for _, p := range found {
		c.problems.add(p)
		if p.Rule >= 0 {
			c.broken[p.Rule] = true
		}
	}
	c.checkIgnore()
	c.readProjects()
	if o.fallback != nil {
		c.fallbackTitle, _ = c.set.titles.add(o.fallback.Name)
	}
	return c
}

// at says when the Set takes effect, by the clock of buckets and by the wall
// clock; now and the same if they are zero.
func (c *compiler) at(now time.Time, wall int64) {
	if now.IsZero() {
		now = time.Now()
	}
	c.now, c.wall = now.UnixNano(), wall
	if c.wall == 0 {
		c.wall = c.now
	}
}

// readRule checks one rule by itself and notes its row.
func (c *compiler) readRule(i int, at *place) {
	r := &c.doc.Rules[i]
	c.noteFallback(r)
	if !r.Mode.Limits() {
		c.readAccess(i, r, at)
		return
	}
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
		id:       at.prefix.text(r.Project).text(r.Tier).text(r.SubjectText()).sum(),
		endpoint: at.number, who: w, limit: limit,
		extra:   c.extra(extra{expires: expiry(r.Expires), title: title, only: c.only(r.Only)}),
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
	at := &place{content: ruleContent(text)}
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
	l := rate.Limit{Tokens: r.Limit, Per: r.Per, Burst: c.o.BurstOf(r), Algorithm: r.Algorithm.Counts()}
	if l.Per == 0 {
		l.Per = time.Second
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

// BurstOf is the burst of a rule, also of one that gives none: that is BurstPercent
// of its limit, at least 1, or the limit if it counts in windows.
func (o *CompileOptions) BurstOf(r *Rule) int64 {
	switch {
	case r.Burst != 0:
		return r.Burst
	case !r.Algorithm.Counts().Drains():
		return r.Limit
	}
	hi, lo := bits.Mul64(uint64(r.Limit), uint64(max(o.BurstPercent, 100)))
	if hi >= 100 {
		return math.MaxInt64
	}
	burst, _ := bits.Div64(hi, lo, 100)
	return int64(max(1, min(burst, math.MaxInt64)))
}

// only numbers a Rule.Only.
func (c *compiler) only(s string) uint32 {
	if s == "" {
		return 0
	}
	n, ok := c.onlys[s]
	if !ok {
		n = uint32(len(c.set.onlys))
		c.set.onlys = append(c.set.onlys, s)
		c.onlys[s] = n
	}
	return n
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
