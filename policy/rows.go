package policy

import (
	"math"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/rate"
)

// rules are the rules of a Set, by RuleID. Those of one group are neighbours: by subject, and of
// one subject the temporary before the lasting.
type rules struct {
	rows   []row
	extras []extra // by row.extra; 0 is empty
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

// writtenMode is the mode as it is written in rules.
func (r *row) writtenMode() Mode {
	if r.mode == partly {
		return Enforce
	}
	return r.mode
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
	answers uint32     // in answers and statuses
	penalty uint32     // in penalties and penaltyTerms
	refusal uint32     // in refusals and refusalTerms

	priority uint32 // in priorities and priorityTerms
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

// live reports whether a rule has not expired.
func (rs *rules) live(r *row, now int64) bool {
	expires := rs.extras[r.extra].expires
	return expires == 0 || now < expires
}

// of finds the rule of a group that has a subject: the lasting one, if it has
// that beside a temporary one.
func (rs *rules) of(g group, subject Subject) (RuleID, bool) {
	if g == 0 {
		return 0, false
	}
	for id := uint32(g - 1); ; id++ {
		r := &rs.rows[id]
		if r.subject == subject {
			if lasting, ok := rs.lasting(RuleID(id)); ok {
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
func (rs *rules) lasting(id RuleID) (RuleID, bool) {
	if r := &rs.rows[id]; !r.last && rs.rows[id+1].subject == r.subject {
		return id + 1, true
	}
	return 0, false
}

// temporary finds the temporary rule that stands, or stood, in place of a
// lasting one.
func (rs *rules) temporary(id RuleID) (RuleID, bool) {
	if id == 0 {
		return 0, false
	}
	if _, pair := rs.lasting(id - 1); pair {
		return id - 1, true
	}
	return 0, false
}

// standsFor reports the lasting rule in whose place a temporary one stands. One
// that is in shadow, or for a share of its subjects, stands beside it.
func (rs *rules) standsFor(id RuleID) (RuleID, bool) {
	lasting, ok := rs.lasting(id)
	return lasting, ok && rs.rows[lasting].id == rs.rows[id].id
}

// replacedBy finds the temporary rule that stands, or stood, in place of a
// lasting one.
func (rs *rules) replacedBy(id RuleID) (RuleID, bool) {
	over, ok := rs.temporary(id)
	return over, ok && rs.rows[over].id == rs.rows[id].id
}

// isInForce reports whether a rule is the one that its bucket is counted by, if
// a lasting and a temporary one share it.
func (rs *rules) isInForce(id RuleID, now int64) bool {
	if over, ok := rs.replacedBy(id); ok {
		return !rs.live(&rs.rows[over], now)
	}
	_, pair := rs.standsFor(id)
	return !pair || rs.live(&rs.rows[id], now)
}

// counting finds the rule of a group that the bucket of an ID is counted by.
func (rs *rules) counting(g group, subject Subject, id uint64, now int64) (RuleID, bool) {
	n, ok := rs.of(g, subject)
	if over, pair := rs.temporary(n); ok && pair && rs.rows[over].id == id && rs.isInForce(over, now) {
		return over, true
	}
	return n, ok && rs.rows[n].id == id && rs.isInForce(n, now)
}

// groupOf is the group that a rule is in.
func (rs *rules) groupOf(id RuleID) group {
	for id > 0 && !rs.rows[id-1].last {
		id--
	}
	return group(id + 1)
}
