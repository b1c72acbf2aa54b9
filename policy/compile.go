package policy

import (
	"math"
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

	// ClassesBy says of which class requests are, beside what rules say of those that they apply to (Priority).
	ClassesBy ClassesBy

	// Parts is how many requests one of an endpoint may hold, where it is more than one. A
	// batch that no burst holds is reported.
	Parts map[endpoint.ID]int64

	// Metered are the endpoints whose requests cost what their bodies have, in bytes or tokens of a language
	// model, or ask for. A rule that is for others too and counts them is reported.
	Metered []endpoint.ID

	// Dearest is what one request of an endpoint may cost at most, where requests say themselves what they cost. A rule
	// whose burst is less is reported.
	Dearest map[endpoint.ID]int64

	// Followed are the endpoints whose rates are lowered while the API behind is slow or fails, for advice alone.
	Followed []Followed

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

	// Settings names where what follows of tiers, and costs, classes, Identified and Followed are from, for what is
	// found wrong with them, such as "headgate.yaml". Default the Document's Source.
	Settings string

	// ScoreTiers are the tiers whose rules callers pay by as well for what they did
	// (ResolveTier). One that no rule names is reported.
	ScoreTiers []string

	// AgentTiers are the tiers of agents that are known by their signatures. One that no rule names is reported.
	AgentTiers []string

	// UnknownRefused says that requests which match no endpoint are refused before any rule is asked, so that rules
	// are not missing for them.
	UnknownRefused bool

	// Shared says that the process shares a store of buckets with its like. Without
	// one, rules of scope strict, lease and sync compile with a warning: they count as
	// local ones.
	Shared bool

	// Gossips says that replicas tell each other what they admitted. Without it, rules of scope gossip are local ones.
	Gossips bool

	// Keeps says why the shared store cannot count a limit, or nil. A rule of scope
	// strict, lease or sync whose limit it cannot is an error. Nil says that it can count
	// all.
	Keeps func(rate.Shape) error

	// Free is how many percent of limits of scope lease replicas have to themselves. A
	// cost above the rest of a burst could never be paid. Default 0.
	Free int

	// OneByOne says that the shared store decides over each bucket by itself, and all of scope
	// strict: as one does that has CL.THROTTLE alone. It is for advice.
	OneByOne bool

	// Times is what refused callers are told, for advice alone.
	Times Times

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
	c.read(doc.Rules, 0)
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
	c.read(doc.Rules, 0)
	c.finish()
	(&advice{review: &c.review}).advise()
	return c.problems.done()
}

// read checks each rule by itself, but for those that it has read before. They are
// the document's from first on. What rules mean beside each other is for finish, as
// is what the present time and the previous Set have to say.
func (c *compiler) read(rules []Rule, first int) {
	c.rules, c.first = rules, first
	for i := c.count; i < first+len(rules); i++ {
		r := &rules[i-first]
		if c.broken[i] {
			c.content.rule(r)
			c.noteBroken(r)
			continue
		}
		at := c.place(r.Endpoint)
		c.content.ruleAt(at.content, r)
		c.readRule(i, r, at)
	}
	c.count = max(c.count, first+len(rules))
}

// finish puts the rules in their places and checks them beside each other.
func (c *compiler) finish() {
	c.looked = false
	c.content.projects(c.doc.Projects)
	c.set.version = c.content.String()
	c.set.number.Store(c.doc.Number)
	c.readMoves()
	c.arrange()
	c.dateRows()
	c.set.former = c.formerRules()
	c.set.projects.trim()
	c.set.tiers.trim()
	c.set.titles.trim()
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

// compiler makes a Set of a document. Its parts are only needed until the Set is done:
//
//	findings   what is wrong
//	places     endpoints of rules
//	numbering  limits, and what else many rules have in common
//	grouping   rows, and the groups that they are in
//	dating     since when rules have their limit, by what was before
//	moving     projects that changed their tier
//	ruleCheck  one rule by itself
//	review     rules beside each other; advice, where that is asked for
type compiler struct {
	*task
	*findings
	*places
	*numbering
	*grouping
	dating
	moving
	ruleCheck
	review

	content       content // of the document
	fallbackTitle uint32  // in titles
	accessIndexes []int   // of access.rules in Document.Rules
}

// task is what all parts of a compiler work on.
type task struct {
	o   CompileOptions
	set *Set

	now  int64 // Unix nanoseconds, by the clock of buckets: when changes begin
	wall int64 // the same by the wall clock: what has expired
}

// newCompiler begins with all of a document but its rules, of which there are
// about so many.
func newCompiler(doc Document, o CompileOptions, about int, found ...Problem) *compiler {
	doc.Rules = nil
	t := &task{o: o, set: &Set{
		endpoints: o.Endpoints,
		index:     index{rules: rules{extras: make([]extra, 1)}, projects: newNames(), tiers: newNames()},
		titles:    newNames(), onlys: make([]string, 1),
		answers: make([]Answers, 1), statuses: make([]*Statuses, 1), penalties: make([]Penalty, 1),
		penaltyTerms: make([]*PenaltyTerms, 1),
		refusals:     make([]Refusal, 1), refusalTerms: make([]*RefusalTerms, 1),
		priorities: make([]Priority, 1), priorityTerms: make([]*PriorityTerms, 1),
	}}
	f := &findings{doc: doc, broken: map[int]bool{}}
	p := &places{findings: f, endpoints: o.Endpoints, known: map[string]*place{}, orphans: map[string]uint32{}}
	n := &numbering{
		task: t, compiled: map[rate.Limit]compiledLimit{},
		extras: map[extra]uint32{{}: 0}, onlys: map[string]uint32{}, answerNumbers: map[Answers]uint32{},
		penaltyNumbers: map[Penalty]uint32{},
		refusalNumbers: map[Refusal]uint32{}, priorityNumbers: map[Priority]uint32{},
	}
	g := newGrouping(t, p, about)
	c := &compiler{
		task: t, findings: f, places: p, numbering: n, grouping: g,
		dating:    dating{task: t, numbering: n, grouping: g, pasts: map[rate.Past]*rate.Past{}},
		moving:    moving{task: t, findings: f},
		ruleCheck: ruleCheck{task: t, findings: f, places: p, numbering: n},
		review:    review{task: t, findings: f, places: p, grouping: g},
	}
	c.at(o.Now, o.wall)
	if c.o.BurstPercent == 0 {
		c.o.BurstPercent = 100
	}
	if c.o.BurstPercent < 100 {
		c.options("burst_percent", number(o.BurstPercent), "100 or more, or 0 for 100")
		c.o.BurstPercent = 100
	}
	for _, known := range found {
		c.problems.add(known)
		if known.Rule >= 0 {
			c.broken[known.Rule] = true
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
func (t *task) at(now time.Time, wall int64) {
	if now.IsZero() {
		now = time.Now()
	}
	t.now, t.wall = now.UnixNano(), wall
	if t.wall == 0 {
		t.wall = t.now
	}
}

// readRule checks one rule by itself and notes its row.
func (c *compiler) readRule(i int, r *Rule, at *place) {
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
		extra: c.extra(extra{
			expires: expiry(r.Expires),
			title:   title,
			only:    c.only(r.Only),
			answers: c.answers(r.CountWhen),
			penalty: c.penalty(r.Penalty),
			refusal: c.refusal(r.Refusal), priority: c.priority(r.Priority),
		}),
		subject: r.Subject, mode: r.Mode, loss: r.OnStoreLoss,
		algorithm: r.Algorithm, scope: r.Scope,
	}
	if _, what := r.Subject.Counts(); what == CountsUnderWay {
		made.algorithm = Concurrency
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
