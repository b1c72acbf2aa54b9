package policy

import (
	"iter"
	"math"
	"math/bits"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/rate"
)

// RuleID is the place of a rule in one Set. It means nothing in another: the
// identity of a rule across reloads and processes is Terms.ID.
type RuleID uint32

// MaxApplied is the most rules that apply to one request: one a subject that
// is enforced and one that is tried in shadow, as many more from All, and the one
// of Fallback.
const MaxApplied = 4*subjects + 1

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
}

// Set is a compiled Document: immutable but for its Number, safe for concurrent use, and free of
// pointers where its size is, so that a million rules do not slow the garbage
// collector.
//
// The rules that share an endpoint and a project or tier are neighbours in
// rows: a group. A group is found by array index, except for those of one
// endpoint and one project or tier, which slots finds by hash:
//
//	request GET /v1/x of acme, tier gold     group in
//	(GET /v1/x, acme), (GET /v1/x, gold)     slots
//	(GET /v1/x)                              byEndpoint[3]
//	(default, acme), (*, acme)               byProject[17]
//	(default, gold), (*, gold)               byTier[1]
//	(default), (UNKNOWN), (*)                fixed
//
// So a look-up costs one probe for the project's name and at most two for the
// groups, whatever the number of rules.
type Set struct {
	endpoints *endpoint.Table
	costs     []int64 // by endpoint.ID; nil if each is 1
	rows      []row
	shapes    []rate.Shape // by row.limit
	limits    []rate.Limit // by row.limit
	extras    []extra      // by row.extra; 0 is empty

	projects, tiers, titles names    // titles are the rules' Names
	onlys                   []string // each Rule.Only of a limit once; 0 is none

	byEndpoint []endpointGroup // by endpoint.ID
	byProject  []tenantGroups  // by number in projects
	byTier     []tenantGroups  // by number in tiers
	fallback   tenantGroups    // rules for neither a project nor a tier
	unknown    group
	access     *access // rules of Mode Allow and Block; nil if there are none

	slots    []uint32 // tag in the high bits, group in the low tagShift
	tagShift uint8

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

// row is the hot form of a rule: 32 bytes, two to a cache line.
type row struct {
	id       uint64
	endpoint uint32 // an endpoint.ID, or one of the reserved numbers below
	who      who
	limit    uint32 // in shapes and limits
	extra    uint32 // in extras

	subject   Subject
	mode      Mode // or partly
	loss      StoreLoss
	algorithm Algorithm
	scope     Scope
	percent   uint8 // of the subjects that are denied, if mode is partly
	last      bool  // the group ends here
}

// partly is the mode of a row that denies a share of its subjects, and is in
// shadow for the others. It is a mode of its own so that rules without a share
// cost nothing more.
const partly = Block + 1

// trial tells the bucket of a temporary rule that counts beside its lasting one,
// because it is in shadow or for a share of its subjects, from that one's.
const trial = 0x7472_6961_6c00_0001

// extra is what few rules have.
type extra struct {
	since   int64      // Unix nanoseconds
	before  *rate.Past // shared by all rules that changed alike
	expires int64      // Unix nanoseconds; 0 is never
	title   uint32     // in titles
	only    uint32     // in onlys
}

// The endpoint numbers of the reserved endpoints in a row. UNKNOWN has
// endpoint.Unknown, which no template has.
const (
	rowUnknown  = uint32(endpoint.Unknown)
	rowDefault  = math.MaxUint32
	rowAll      = math.MaxUint32 - 1
	rowFallback = math.MaxUint32 - 2
	rowOrphan   = math.MaxUint32 - 3 // counts down: templates that no endpoint has
)

// who is nobody in particular (0), a project or a tier.
type who uint32

func ofProject(n uint32) who {
	if n == 0 {
		return 0
	}
	return who(n << 1)
}

func ofTier(n uint32) who {
	if n == 0 {
		return 0
	}
	return who(n<<1 | 1)
}

func (w who) isTier() bool   { return w&1 != 0 }
func (w who) number() uint32 { return uint32(w >> 1) }

// group is where a group starts in rows, plus 1; 0 is no group.
type group uint32

// endpointGroup is what one endpoint has: the group for everybody, and the
// subjects of its rules for projects and tiers, which spare vain probes.
type endpointGroup struct {
	group    group
	projects subjectSet
	tiers    subjectSet
}

// tenantGroups is what one project or tier has besides its rules for single
// endpoints.
type tenantGroups struct {
	byDefault group
	all       group
	tier      uint32 // of a project, by Document.Projects
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
	// The subjects that have their rule, and those that have one on trial. A
	// rule in shadow does not end the search: trying a limit must not switch off
	// the one that holds.
	var ruled, tried subjectSet
	for level, g := range &at {
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

// locate finds the group of every level for a request.
func (s *Set) locate(at *[levels]group, m endpoint.Match, project, tier string) {
	p, t := uint32(0), uint32(0)
	if m.Status == endpoint.Known {
		p, t = s.tenant(project, tier)
	}
	s.locateFor(at, m, p, t)
}

// locateFor is locate for a project and a tier by their numbers.
func (s *Set) locateFor(at *[levels]group, m endpoint.Match, p, t uint32) {
	at[LevelUnknown] = s.unknown
	if m.Status != endpoint.Known {
		return
	}
	at[LevelDefault], at[LevelAll] = s.fallback.byDefault, s.fallback.all
	var own endpointGroup
	if int(m.ID) < len(s.byEndpoint) {
		own = s.byEndpoint[m.ID]
		at[LevelEndpoint] = own.group
	}
	if p != 0 {
		has := &s.byProject[p]
		at[LevelDefaultProject], at[LevelAllProject] = has.byDefault, has.all
		if own.projects != 0 {
			at[LevelEndpointProject] = s.find(uint32(m.ID), ofProject(p))
		}
	}
	if t != 0 {
		has := &s.byTier[t]
		at[LevelDefaultTier], at[LevelAllTier] = has.byDefault, has.all
		if own.tiers != 0 {
			at[LevelEndpointTier] = s.find(uint32(m.ID), ofTier(t))
		}
	}
}

// tenant reports the numbers of a request's project and tier, 0 where no rule
// and no project of the document has the name.
func (s *Set) tenant(project, tier string) (p, t uint32) {
	p = s.projects.find(project)
	if tier != "" {
		return p, s.tiers.find(tier)
	}
	return p, s.byProject[p].tier
}

// find reports the group of one endpoint and one project or tier.
func (s *Set) find(ep uint32, w who) group {
	h := mix(ep, w)
	mask, low := len(s.slots)-1, uint32(1)<<s.tagShift-1
	for i := int(uint32(h)) & mask; ; i = (i + 1) & mask {
		slot := s.slots[i]
		if slot == 0 {
			return 0
		}
		if slot&^low != tag(h)&^low {
			continue // saves a look at a row elsewhere in memory
		}
		g := group(slot & low)
		if r := &s.rows[g-1]; r.endpoint == ep && r.who == w {
			return g
		}
	}
}

// mix hashes a pair. The numbers are ours, not a caller's, so it need not be
// keyed.
func mix(ep uint32, w who) uint64 {
	hi, lo := bits.Mul64(uint64(ep)<<32|uint64(w)^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	return hi ^ lo
}

// tag is the part of a hash that does not choose the slot.
func tag(h uint64) uint32 { return uint32(h >> 32) }

// live reports whether a rule has not expired.
func (s *Set) live(r *row, now int64) bool {
	expires := s.extras[r.extra].expires
	return expires == 0 || now < expires
}

// Terms returns what a limiter needs of a rule.
func (s *Set) Terms(id RuleID) Terms {
	r := &s.rows[id]
	more := &s.extras[r.extra]
	return Terms{
		Shape: s.shapes[r.limit], ID: r.id, Since: more.since, Before: more.before,
		Subject: r.subject, Mode: r.writtenMode(), Scope: r.scope, OnStoreLoss: r.loss,
		Calendar: r.algorithm >= Calendar,
	}
}

// SubjectName is the parameter or claim that a rule counts by, if its Subject is Named.
func (s *Set) SubjectName(id RuleID) string {
	_, name, _ := strings.Cut(s.onlys[s.extras[s.rows[id].extra].only], ":")
	return name
}

// writtenMode is the mode as it is written in rules.
func (r *row) writtenMode() Mode {
	if r.mode == partly {
		return Enforce
	}
	return r.mode
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

// group finds the group of any endpoint and tenant.
func (s *Set) group(ep uint32, w who) group {
	if ep != rowUnknown && ep != rowDefault && ep != rowAll {
		switch {
		case w != 0:
			return s.find(ep, w)
		case int(ep) < len(s.byEndpoint):
			return s.byEndpoint[ep].group
		}
		return 0
	}
	has := &s.fallback
	if w.isTier() {
		has = &s.byTier[w.number()]
	} else if w != 0 {
		has = &s.byProject[w.number()]
	}
	switch {
	case ep == rowDefault:
		return has.byDefault
	case ep == rowAll:
		return has.all
	case w == 0:
		return s.unknown
	}
	return 0
}

// groupNear is group for one that probably begins at a row: where it did in a
// Set that differs little.
func (s *Set) groupNear(start uint32, ep uint32, w who) group {
	if start < uint32(len(s.rows)) && (start == 0 || s.rows[start-1].last) {
		if r := &s.rows[start]; r.endpoint == ep && r.who == w {
			return group(start + 1)
		}
	}
	return s.group(ep, w)
}

// groupOf is the group that a rule is in.
func (s *Set) groupOf(id RuleID) group {
	for id > 0 && !s.rows[id-1].last {
		id--
	}
	return group(id + 1)
}

// of finds the rule of a group that has a subject: the lasting one, if it has
// that beside a temporary one.
func (s *Set) of(g group, subject Subject) (RuleID, bool) {
	if g == 0 {
		return 0, false
	}
	for id := uint32(g - 1); ; id++ {
		r := &s.rows[id]
		if r.subject == subject {
			if lasting, ok := s.lasting(RuleID(id)); ok {
				return lasting, true
			}
			return RuleID(id), true
		}
		if r.last {
			return 0, false
		}
	}
}

// lasting finds the lasting rule in whose place a temporary one stands, which
// follows it.
func (s *Set) lasting(id RuleID) (RuleID, bool) {
	if r := &s.rows[id]; !r.last && s.rows[id+1].subject == r.subject {
		return id + 1, true
	}
	return 0, false
}

// temporary finds the temporary rule that stands, or stood, in place of a
// lasting one.
func (s *Set) temporary(id RuleID) (RuleID, bool) {
	if id == 0 {
		return 0, false
	}
	if _, pair := s.lasting(id - 1); pair {
		return id - 1, true
	}
	return 0, false
}

// StandsFor reports the lasting rule in whose place a temporary one stands. One
// that is in shadow, or for a share of its subjects, stands beside it.
func (s *Set) StandsFor(id RuleID) (RuleID, bool) {
	lasting, ok := s.lasting(id)
	return lasting, ok && s.rows[lasting].id == s.rows[id].id
}

// replacedBy finds the temporary rule that stands, or stood, in place of a
// lasting one.
func (s *Set) replacedBy(id RuleID) (RuleID, bool) {
	over, ok := s.temporary(id)
	return over, ok && s.rows[over].id == s.rows[id].id
}

// isInForce reports whether a rule is the one that its bucket is counted by, if
// a lasting and a temporary one share it.
func (s *Set) isInForce(id RuleID, now int64) bool {
	if over, ok := s.replacedBy(id); ok {
		return !s.live(&s.rows[over], now)
	}
	_, pair := s.StandsFor(id)
	return !pair || s.live(&s.rows[id], now)
}

// counting finds the rule of a group that the bucket of an ID is counted by.
func (s *Set) counting(g group, subject Subject, id uint64, now int64) (RuleID, bool) {
	n, ok := s.of(g, subject)
	if over, pair := s.temporary(n); ok && pair && s.rows[over].id == id && s.isInForce(over, now) {
		return over, true
	}
	return n, ok && s.rows[n].id == id && s.isInForce(n, now)
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
