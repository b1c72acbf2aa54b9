package policy

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/rate"
)

// checkTiers reports tiers of projects that no rule names: the projects have
// everybody's limits, as if they had no tier.
func (c *review) checkTiers() {
	s := c.set
	if len(c.doc.Projects)+len(c.o.ScoreTiers)+len(c.o.AgentTiers) == 0 || len(c.problems.list.Errors()) > 0 {
		return // a rule with an error may be the one that names the tier
	}
	ruled := c.ruledTiers()
	configured := func(tiers []string, where func(i int) string, otherwise string) {
		for i, tier := range tiers {
			n, classed := s.tiers.find(tier), c.o.ClassesBy.Tiers[tier] != Unclassed
			if (n == 0 || !ruled[n]) && !classed {
				c.found(Problem{Severity: Warning, Code: "tier_without_rule", Rule: -1,
					Source: c.o.Settings, Where: where(i), Field: "tier", Value: text(named(tier)),
					Want: "a tier that a rule names; without one " + otherwise}, "")
			}
		}
	}
	configured(c.o.ScoreTiers, func(i int) string { return fmt.Sprintf("anomalies.tiers[%d]", i) },
		"nothing follows from the score")
	configured(c.o.AgentTiers, func(int) string { return "signed_agents" }, "its agents have everybody's limits")
	first := map[uint32]string{} // of the projects of a tier that no rule names
	for n := range s.byProject {
		if tier := s.byProject[n].tier; tier != 0 && !ruled[tier] {
			project := s.projects.name(uint32(n))
			if known, ok := first[tier]; !ok || string(project) < known {
				first[tier] = string(project)
			}
		}
	}
	// their numbers are another time others
	byName := func(a, b uint32) int { return bytes.Compare(s.tiers.name(a), s.tiers.name(b)) }
	for _, n := range slices.SortedFunc(maps.Keys(first), byName) {
		tier, project := string(s.tiers.name(n)), first[n]
		want := "a tier that a rule names; without one its projects have everybody's limits"
		if near := closest(tier, c.tierNames(ruled)); near != "" {
			want += "; the closest is " + text(named(near))
		}
		c.found(Problem{Severity: Warning, Code: "tier_without_rule", Rule: -1,
			Where: "projects[" + text(named(project)) + "]",
			Field: "tier", Value: text(named(tier)), Want: want}, "")
	}
}

// tierNames lists the first of the tiers that are marked.
func (c *review) tierNames(marked []bool) []string {
	var names []string
	for n := 1; n < len(marked) && len(names) < maxNear; n++ {
		if marked[n] {
			names = append(names, string(c.set.tiers.name(uint32(n))))
		}
	}
	return names
}

// advice is a review that goes on to what works as it is written, and surprises.
type advice struct{ *review }

// advise reports notes: what works as it is written, and surprises.
func (c *advice) advise() {
	if len(c.problems.list.Errors()) == 0 { // else what is missing may be what is wrong
		members := c.memberTiers()
		for i := range c.rows {
			if g := &c.groups[c.grouped[i]]; g.count > 0 {
				if id := c.placed(i); c.set.live(&c.set.rows[id], c.wall) {
					c.noteRule(int(c.indexes[i]), id, members)
				}
			}
		}
		c.noteLogins()
		c.noteMessages()
		c.noteClasses()
		c.checkUnused()
	}
}

// memberTiers reports by number which tiers have a project, nil if the
// document gives projects no tiers: then keys and tokens do.
func (c *advice) memberTiers() []bool {
	if len(c.doc.Projects) == 0 {
		return nil
	}
	members := make([]bool, c.set.tiers.len()+1)
	for n := range c.set.byProject {
		members[c.set.byProject[n].tier] = true // 0 is no tier
	}
	for _, tier := range slices.Concat(c.o.ScoreTiers, c.o.AgentTiers) {
		members[c.set.tiers.find(tier)] = true
	}
	return members
}

func (c *advice) noteRule(i int, id RuleID, members []bool) {
	r := &c.set.rows[id]
	rule, limit := c.written(i), c.set.limits[r.limit]
	lasting, pair := c.set.lasting(id)
	c.noteBurst(i, rule, limit)
	c.notePenalty(i, rule)
	c.notePriority(i, rule)
	if rule.Algorithm == FixedWindow && !c.full("window_edge") {
		c.rule(Note, i, "window_edge", "algorithm", text(rule.Algorithm.String()),
			fmt.Sprintf("sliding_log where %d must be the most in any %s; where two windows meet, this one admits "+
				"%s within a moment",
				limit.Tokens, duration(limit.Per), twice(limit.Tokens)))
	}
	if e := c.set.extras[r.extra].expires; e != 0 && !pair && e-c.wall < int64(soon) && !c.full("expires_soon") {
		c.rule(Note, i, "expires_soon", "expires", rule.Expires.UTC().Format(time.RFC3339),
			"a later time if the rule is still needed then; less than 7 days are left")
	}
	if r.who.isTier() && members != nil && !members[r.who.number()] {
		members[r.who.number()] = true // once a tier
		want := "the tier of a project, unless keys or tokens name it"
		if near := closest(rule.Tier, c.tierNames(members)); near != "" {
			want += "; the closest is " + text(named(near))
		}
		c.rule(Note, i, "tier_unused", "tier", text(named(rule.Tier)), want)
	}
	if pair && c.same(r, &c.set.rows[lasting]) && !c.full("redundant") {
		c.rule(Note, i, "redundant", "rule", "the same as the lasting rule in whose place it stands",
			"another limit, or no such rule")
	}
	if rule.Mode == Shadow && rule.EnforcePercent != 0 && !c.full("percent_in_shadow") {
		c.rule(Note, i, "percent_in_shadow", "enforce_percent", number(rule.EnforcePercent),
			"mode enforce if some are to be denied; in shadow nobody is")
	}
	if base, ok := c.replaces(r); ok && c.equal(r, &c.set.rows[base]) && !c.full("redundant") {
		less := c.set.Rule(base)
		c.rule(Note, i, "redundant", "rule", "the same as ("+describe(&less)+")", "another limit, or no such rule")
	}
	c.noteAddressGuard(i, r)
}

const soon = 7 * 24 * time.Hour

// noteBurst reports a burst that was given and does not go with the rate: one
// that takes minutes to refill, or one that ordinary jitter uses up.
func (c *advice) noteBurst(i int, rule *Rule, l rate.Limit) {
	if rule.Burst == 0 || !l.Algorithm.Drains() {
		return
	}
	switch fill := fillTime(l); {
	case fill > time.Minute && l.Burst/2 > l.Tokens && !c.full("burst_high"):
		c.rule(Note, i, "burst_high", "burst", number(l.Burst),
			fmt.Sprintf(
				"at most what the rate gives in a minute, or twice the limit; this is what %d per %s give in %s",
				l.Tokens, duration(l.Per), duration(fill.Truncate(time.Second))))
	case rule.Algorithm == TokenBucket && fill < 50*time.Millisecond && l.Burst < l.Tokens && !c.full("burst_low"):
		c.rule(Note, i, "burst_low", "burst", number(l.Burst),
			fmt.Sprintf("what the rate gives in 50 ms at least; requests that come together are denied long before "+
				"%d per %s are reached",
				l.Tokens, duration(l.Per)))
	}
}

// fillTime is how long a limit takes to give its burst.
func fillTime(l rate.Limit) time.Duration {
	hi, lo := bits.Mul64(uint64(l.Burst), uint64(l.Per))
	if hi >= uint64(l.Tokens) {
		return math.MaxInt64
	}
	t, _ := bits.Div64(hi, lo, uint64(l.Tokens))
	return time.Duration(min(t, math.MaxInt64))
}

// twice is the double of n as text.
func twice(n int64) string {
	if n > math.MaxInt64/2 {
		return "twice that"
	}
	return number(2 * n)
}

// replaces finds the rule that a project's or tier's rule replaces, where that
// is certain and each caller has a bucket of its own in both.
func (c *advice) replaces(r *row) (RuleID, bool) {
	s := c.set
	if r.who == 0 || !ofOneProject(r.subject) {
		return 0, false
	}
	if !r.who.isTier() {
		tier := s.byProject[r.who.number()].tier
		if tier == 0 {
			if c.tieredAt(r) {
				return 0, false // a key or a token may name a tier
			}
		} else if id, ok := s.of(s.group(r.endpoint, ofTier(tier)), r.subject); ok {
			return id, true
		}
	}
	return s.of(s.group(r.endpoint, 0), r.subject)
}

// tieredAt reports whether some tier has a rule for what r rules.
func (c *advice) tieredAt(r *row) bool {
	if int64(r.endpoint) < int64(len(c.set.byEndpoint)) {
		return c.set.byEndpoint[r.endpoint].tiers&(1<<r.subject) != 0
	}
	return c.set.tiers.len() > 0
}

// equal reports whether two rules say the same for good.
func (c *advice) equal(a, b *row) bool {
	return a.mode == Enforce && !c.isTemporary(a) && !c.isTemporary(b) && c.same(a, b)
}

// same reports whether two rules say the same while both hold.
func (c *advice) same(a, b *row) bool {
	return a.limit == b.limit && a.mode == b.mode && a.percent == b.percent && a.loss == b.loss && a.scope == b.scope &&
		c.set.extras[a.extra].title == c.set.extras[b.extra].title &&
		c.set.extras[a.extra].answers == c.set.extras[b.extra].answers &&
		c.set.extras[a.extra].penalty == c.set.extras[b.extra].penalty &&
		c.set.extras[a.extra].refusal == c.set.extras[b.extra].refusal &&
		c.set.extras[a.extra].priority == c.set.extras[b.extra].priority
}

// noteAddressGuard reports a tenant's limit for each caller above the guard per
// address: a caller at one address never has it.
func (c *advice) noteAddressGuard(i int, r *row) {
	s := c.set
	if r.who == 0 || r.subject != SubjectPrincipal || r.mode != Enforce || r.endpoint == rowUnknown {
		return
	}
	id, ok := s.of(s.group(rowAll, r.who), SubjectIP)
	if !ok && !r.who.isTier() {
		if tier := s.byProject[r.who.number()].tier; tier != 0 {
			id, ok = s.of(s.group(rowAll, ofTier(tier)), SubjectIP)
		}
	}
	if !ok {
		id, ok = s.of(s.fallback.all, SubjectIP)
	}
	if !ok {
		return
	}
	q := &s.rows[id]
	if q.mode == Enforce && !c.isTemporary(q) && s.isInForce(id, c.wall) &&
		faster(s.limits[r.limit], s.limits[q.limit]) && !c.full("above_address_guard") {
		rule := s.Rule(id)
		c.rule(Note, i, "above_address_guard", "limit", limitText(s.limits[r.limit]),
			fmt.Sprintf(
				"callers at several addresses, or a rule of its own beside (%s): a caller at one address gets its %s",
				describe(&rule), limitText(s.limits[q.limit])))
	}
}

// loginWords are the words in paths behind which secrets are guessed.
var loginWords = map[string]bool{
	"login": true, "signin": true, "logon": true, "token": true, "password": true, "passwd": true,
	"otp": true, "mfa": true, "2fa": true, "totp": true, "passcode": true,
}

// noteLogins reports endpoints where somebody can guess a secret and no rule
// counts guesses by address or by login name.
func (c *advice) noteLogins() {
	if c.o.Endpoints == nil {
		return
	}
	guards := []group{c.set.fallback.all, c.set.fallback.byDefault, c.set.unknown}
	for id, t := range c.o.Endpoints.All() {
		method, path, _ := strings.Cut(t.String(), " ")
		if method == "GET" || method == "HEAD" || method == "OPTIONS" || method == "DELETE" || !isLogin(path) {
			continue
		}
		if c.guarded(append(guards[:3:3], c.set.byEndpoint[id].group)) {
			continue
		}
		c.found(Problem{Severity: Note, Code: "login_open", Rule: c.firstRule(id), Where: "endpoint " + t.String(),
			Field: "subject", Value: "neither the address nor a login name in any rule that applies",
			Want: "a rule with subject ip, identifier or identifier_ip, so that more keys are not more guesses"},
			t.String())
	}
}

// isLogin reports whether a path has one of loginWords among its words outside
// parameters.
func isLogin(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if strings.Contains(segment, "{") {
			continue
		}
		lower := strings.ToLower(segment)
		if loginWords[strings.NewReplacer("-", "", "_", "").Replace(lower)] {
			return true // sign-in
		}
		for word := range strings.FieldsFuncSeq(lower,
			func(r rune) bool { return r == '-' || r == '_' || r == '.' || r == ':' }) {
			if loginWords[word] {
				return true
			}
		}
	}
	return false
}

// guarded reports whether one of the groups counts by address or login name.
func (c *advice) guarded(groups []group) bool {
	s := c.set
	for _, g := range groups {
		for _, subject := range []Subject{SubjectIP, SubjectPrincipalIP, SubjectIdentifier, SubjectIdentifierIP,
			SubjectSite} {
			for _, subject := range []Subject{subject, subject.Counting(CountsRequests)} {
				if id, ok := s.of(g, subject); ok && s.rows[id].mode == Enforce && s.live(&s.rows[id], c.wall) {
					return true
				}
			}
		}
	}
	return false
}

// firstRule is the index of the first rule for an endpoint, or -1.
func (c *advice) firstRule(id endpoint.ID) int {
	if c.set.byEndpoint[id].group == 0 {
		return -1
	}
	for i := range c.rows {
		if c.rows[i].endpoint == uint32(id) {
			return int(c.indexes[i])
		}
	}
	return -1
}
