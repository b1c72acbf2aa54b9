package policy

import (
	"iter"
	"math"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/rate"
)

// RuleID is the place of a rule in one Set. It means nothing in another: the
// identity of a rule across reloads and processes is Terms.ID.
type RuleID uint32

// MaxApplied is the most rules that apply to one request: one a subject that
// is enforced and one that is tried in shadow, as many more from All, the one
// of Fallback, and of a tier besides (ResolveTier) as many again.
const MaxApplied = 8*dimensions + 1

// Applied is a rule that applies to a request, and the level it was found at.
type Applied struct {
	Rule   RuleID
	Level  Level
	Shadow bool // it counts, and denies nothing: all of it is in shadow, or this caller's share
}

// Terms is what a limiter needs of a rule to name and fill its bucket.
type Terms struct {
	Shape rate.Shape

	// ID is the same for the same endpoint, project, tier and subject in
	// every process and after every reload, whatever the limit.
	ID uint64

	// Since is when Shape took effect for this ID, in Unix nanoseconds; 0
	// means before this process knew the rule. Before is what it replaced, as
	// far as a bucket may still owe for it.
	Since  int64
	Before *rate.Past

	Subject     Subject
	Mode        Mode
	Scope       Scope
	OnStoreLoss StoreLoss

	Calendar bool // the window is Set.Period, and Shape says how much it holds
	// requests under way are counted: a request takes one token of Shape, which is a sliding log of how long the place
	// of one is kept that nobody says is still under way
	Concurrent bool
	PerRequest bool // a request takes one token of Shape, whatever it costs
}

// Set is a compiled Document: immutable but for its Number, safe for concurrent use, and free of
// pointers where its size is, so that a million rules do not slow the garbage
// collector.
type Set struct {
	endpoints *endpoint.Table
	costs     []int64 // by endpoint.ID; nil if each is 1
	index
	shapes []rate.Shape // by row.limit
	limits []rate.Limit // by row.limit

	titles names    // the rules' Names
	onlys  []string // each Rule.Only of a limit once; 0 is none

	answers      []Answers // each Rule.CountWhen once; 0 is none
	statuses     []*Statuses
	penalties    []Penalty // each Rule.Penalty once; 0 is none
	penaltyTerms []*PenaltyTerms
	refusals     []Refusal // each Rule.Refusal once; 0 is none
	refusalTerms []*RefusalTerms

	priorities    []Priority // each Rule.Priority once; 0 is none
	priorityTerms []*PriorityTerms
	classesBy     ClassesBy     // without Endpoints
	endpointClass []Class       // by endpoint.ID; nil if nothing is said of any
	tierClass     []Class       // of classesBy.Tiers, by the number of the tier; nil without classesBy
	classed       [Classes]bool // the classes that requests are of, as far as is known
	prioritises   bool
	places        *PriorityTerms

	access *access // rules of Mode Allow and Block; nil if there are none

	present subjectSet // the subjects that any rule has

	hasFallback bool // the last row is the rule of Fallback
	version     string
	number      atomic.Int64 // Document.Number, or what a Numberer said later

	former     former
	moves      map[uint32]move // by number in projects: those that changed their tier
	namedTiers []uint32        // tiers by number, of callers who name theirs; see LargerTiers
	ends       []int64         // when temporary rules give way to lasting ones, ascending; Unix nanoseconds
	since      int64           // Unix nanoseconds; 0 for a first one

	lifetime int64 // how long a debt lasts at most that buckets had when the Set came into force

}

// Len reports how many rules can apply to a request. Rules for templates that
// no endpoint has are not among them.
func (s *Set) Len() int {
	if s.hasFallback {
		return len(s.rows) - 1
	}
	return len(s.rows)
}

// Bound is above every RuleID of the Set, the one of Fallback included.
func (s *Set) Bound() int { return len(s.rows) }

// Endpoints is the table that requests are matched by under these rules, which their RuleIDs and endpoint.IDs
// belong to: CompileOptions.Endpoints.
func (s *Set) Endpoints() *endpoint.Table { return s.endpoints }

// MatchOf is how requests of a template are matched under these rules. One that is gone has the rules of an endpoint
// without any of its own.
func (s *Set) MatchOf(t endpoint.Template) endpoint.Match {
	if s.endpoints != nil {
		if id, ok := s.endpoints.Lookup(t); ok {
			return endpoint.Match{ID: id, Status: endpoint.Known}
		}
	}
	return endpoint.Match{ID: endpoint.ID(len(s.byEndpoint)), Status: endpoint.Known}
}

// Cost is how many tokens a request to an endpoint takes: what CompileOptions.Costs says, or else 1.
func (s *Set) Cost(id endpoint.ID) int64 {
	if int(id) < len(s.costs) {
		return s.costs[id]
	}
	return 1
}

// Version names the content of the document: equal for equal rules and
// projects, in whatever order.
func (s *Set) Version() string { return s.version }

// Number is the Number of the document: how its source numbers versions of it,
// 0 if it does not, or has not yet.
func (s *Set) Number() int64 { return s.number.Load() }

// Since is when the Set took the place of the one before, in Unix nanoseconds;
// 0 if there was none.
func (s *Set) Since() int64 { return s.since }

// Settled is when no bucket owes any more what it owed at since, in Unix
// nanoseconds, if it was counted by a rule of this Set or the one before;
// math.MaxInt64 if that is later than can be told.
func (s *Set) Settled(since int64) int64 {
	if s.lifetime > math.MaxInt64-since {
		return math.MaxInt64
	}
	return since + s.lifetime
}

// Tier reports the tier that the document gives a project, or "".
func (s *Set) Tier(project string) string {
	return string(s.tiers.name(s.byProject[s.projects.find(project)].tier))
}

// Chooser says whether a rule that is enforced for a share of its subjects is
// for the one of the request at hand; see Set.Enforces.
type Chooser interface{ Chosen(rule RuleID) bool }

// Resolve is ResolveFor for nobody in particular: it returns all the rules that
// may apply to one caller or another, Shadow only if that is so for everybody.
func (s *Set) Resolve(dst []Applied, now int64, m endpoint.Match, project, tier string) []Applied {
	return s.ResolveFor(dst, now, m, project, tier, nil)
}

// ResolveFor appends the rules that apply to a request and returns the result,
// fewer than MaxApplied. m is the request's endpoint; now is in Unix
// nanoseconds and decides which rules have expired; project and tier may be
// empty, and an empty tier stands for the one that the document gives the
// project; chooser is asked about rules that are enforced for a share of their
// subjects. When dst has room, ResolveFor allocates nothing.
func (s *Set) ResolveFor(dst []Applied, now int64, m endpoint.Match, project, tier string, chooser Chooser) []Applied {
	var at [levels]group
	var p, t uint32
	if m.Status == endpoint.Known {
		p, t = s.tenant(project, tier)
	}
	s.locateFor(&at, m, p, t)
	return s.resolve(dst, now, &at, chooser)
}

// ResolveTier appends the rules that name a tier and hold for a request, of each
// subject the first as in ResolveFor: for a caller that pays by them besides those
// that hold for it anyway. Where the tier has no rule there is none.
func (s *Set) ResolveTier(dst []Applied, now int64, m endpoint.Match, tier string, chooser Chooser) []Applied {
	t := s.tiers.find(tier)
	if t == 0 || m.Status != endpoint.Known {
		return dst
	}
	var at [levels]group
	s.locateFor(&at, m, 0, t)
	for level := range at {
		if !Level(level).ofTier() {
			at[level] = 0
		}
	}
	return s.resolve(dst, now, &at, chooser)
}

// resolve appends the rules of the groups of each level that apply.
func (s *Set) resolve(dst []Applied, now int64, at *[levels]group, chooser Chooser) []Applied {
	// The subjects that have their rule, and those that have one on trial. A
	// rule in shadow does not end the search: trying a limit must not switch off
	// the one that holds.
	var ruled, tried subjectSet
	for level, g := range at {
		if Level(level) == LevelAllProject {
			ruled, tried = 0, 0
		}
		if g == 0 || ruled == s.present {
			continue
		}
		for id := uint32(g - 1); ; id++ {
			r := &s.rows[id]
			if bit := subjectSet(1) << r.subject; ruled&bit == 0 && (r.extra == 0 || s.live(r, now)) {
				switch {
				case r.mode == Enforce, r.mode == partly && chooser != nil && chooser.Chosen(RuleID(id)):
					ruled |= bit
					dst = append(dst, Applied{Rule: RuleID(id), Level: Level(level)})
				case r.mode == partly && chooser == nil:
					dst = append(dst, Applied{Rule: RuleID(id), Level: Level(level)})
				case tried&bit == 0:
					tried |= bit
					dst = append(dst, Applied{Rule: RuleID(id), Level: Level(level), Shadow: true})
				}
			}
			if r.last {
				break
			}
		}
	}
	return dst
}

// Terms returns what a limiter needs of a rule.
func (s *Set) Terms(id RuleID) Terms {
	r := &s.rows[id]
	more := &s.extras[r.extra]
	subject, counted := r.subject.Counts()
	concurrent := counted == CountsUnderWay
	return Terms{
		Shape: s.shapes[r.limit], ID: r.id, Since: more.since, Before: more.before,
		Subject: subject, Mode: r.writtenMode(), Scope: r.scope, OnStoreLoss: r.loss,
		Calendar: r.algorithm >= Calendar && !concurrent, Concurrent: concurrent,
		PerRequest: counted == CountsRequests,
	}
}

// SubjectName is the parameter or claim that a rule counts by, if its Subject is Named.
func (s *Set) SubjectName(id RuleID) string {
	r := Rule{Only: s.onlys[s.extras[s.rows[id].extra].only]}
	return r.SubjectName()
}

// LimitsConcurrency reports whether a rule limits how many requests are under way.
func (s *Set) LimitsConcurrency() bool { return s.counts(CountsUnderWay) }

// LimitsRequests reports whether a rule limits how many requests there are, whatever each costs.
func (s *Set) LimitsRequests() bool { return s.counts(CountsRequests) }

func (s *Set) counts(what Counted) bool {
	return s.present>>(subjects*what)&(1<<subjects-1) != 0
}

// Enforces reports whether a rule denies what a subject, by the bytes that name
// its bucket, takes above the limit. Where the rule has a percentage, that is
// decided by a hash of the rule's identity and the subject: the same in every
// process, and raising the percentage only adds subjects. The hash has no key.
func (s *Set) Enforces(id RuleID, subject []byte) bool {
	r := &s.rows[id]
	if r.mode != partly {
		return r.mode == Enforce
	}
	rule := r.id
	if _, ok := s.lasting(id); ok {
		rule ^= trial
	}
	place, _ := bits.Mul64(newHash().number(rule).bytes(subject).sum(), 100)
	return place < uint64(r.percent)
}

// Percent reports for how many of a hundred subjects a rule that is not in
// shadow is enforced.
func (s *Set) Percent(id RuleID) int {
	if r := &s.rows[id]; r.mode == partly {
		return int(r.percent)
	}
	return 100
}

// Rule returns a rule with its defaults filled in, and its endpoint as the
// endpoint table writes it. It is for people: it allocates.
func (s *Set) Rule(id RuleID) Rule {
	r := &s.rows[id]
	limit, more := s.limits[r.limit], s.extras[r.extra]
	rule := Rule{
		Endpoint: s.endpointText(r.endpoint),
		Limit:    limit.Tokens, Per: limit.Per, Burst: limit.Burst,
		Subject: r.subject, Algorithm: r.algorithm, Mode: r.writtenMode(), Scope: r.scope, OnStoreLoss: r.loss,
		Only: s.onlys[more.only], Name: string(s.titles.name(more.title)), EnforcePercent: int64(r.percent),
		CountWhen: s.answers[more.answers], Penalty: s.penalties[more.penalty], Refusal: s.refusals[more.refusal],
		Priority: s.priorities[more.priority],
	}
	if r.who.isTier() {
		rule.Tier = string(s.tiers.name(r.who.number()))
	} else {
		rule.Project = string(s.projects.name(r.who.number()))
	}
	if more.expires != 0 {
		rule.Expires = time.Unix(0, more.expires).UTC()
	}
	return rule
}

// ForEverybody yields the rules that are for neither a project nor a tier and have
// not expired at now.
func (s *Set) ForEverybody(now int64) iter.Seq[RuleID] {
	return func(yield func(RuleID) bool) {
		for i := range s.Len() {
			if r := &s.rows[i]; r.who == 0 && s.live(r, now) && !yield(RuleID(i)) {
				return
			}
		}
	}
}

func (s *Set) endpointText(n uint32) string {
	switch n {
	case rowUnknown:
		return UnknownEndpoint
	case rowDefault:
		return Default
	case rowAll, rowFallback:
		return All
	}
	return s.endpoints.Template(endpoint.ID(n)).String()
}

// NextEnd is the first time after now, in Unix nanoseconds, at which a temporary
// rule gives way to a lasting one; math.MaxInt64 if none does.
func (s *Set) NextEnd(now int64) int64 {
	i, found := slices.BinarySearch(s.ends, now)
	if found {
		i++
	}
	if i == len(s.ends) {
		return math.MaxInt64
	}
	return s.ends[i]
}

// LastEnd is the last time, now or before, at which a temporary rule of this Set
// gave way to a lasting one; 0 if none did.
func (s *Set) LastEnd(now int64) int64 {
	i, found := slices.BinarySearch(s.ends, now)
	if found {
		return now
	}
	if i == 0 {
		return 0
	}
	return s.ends[i-1]
}

// StandsFor reports the lasting rule in whose place a temporary one stands. One
// that is in shadow, or for a share of its subjects, stands beside it.
func (s *Set) StandsFor(id RuleID) (RuleID, bool) { return s.standsFor(id) }
