package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/internal/clip"
	"github.com/headgate-io/headgate/rate"
)

// ruleCheck looks at one rule by itself.
type ruleCheck struct {
	*task
	*findings
	*places
	*numbering
}

// checkRule reports everything that is wrong with one rule by itself, and the
// number of its compiled limit.
func (c *ruleCheck) checkRule(i int, r *Rule, at *place) (limit uint32, ok bool) {
	ok = true
	wrong := func(field, value, want string) {
		ok = false
		c.rule(Error, i, field, field, value, want)
	}
	c.checkCommon(r, at, wrong)
	if want := c.wantName(r, at); want != "" {
		wrong("subject", text(r.SubjectText()), want)
	}
	sound, shape := true, rate.Shape{}
	if r.Limit <= 0 {
		sound = false
		wrong("limit", number(r.Limit), "1 or more")
	}
	if r.Per < 0 || r.Per%time.Second != 0 {
		sound = false
		wrong("per", r.Per.String(), "whole seconds, 1 or more, or none for 1")
	}
	if r.Burst < 0 {
		sound = false
		wrong("burst", number(r.Burst), fmt.Sprintf("1 or more, or none for %d%% of limit", c.o.BurstPercent))
	}
	if _, what := r.Subject.Counts(); what == CountsUnderWay || r.Algorithm == Concurrency {
		sound = c.checkConcurrency(r, sound, wrong)
	} else if r.Algorithm > Calendar && !r.Algorithm.OnCalendar() {
		sound = false
		wrong("algorithm", number(int64(r.Algorithm)), wantAlgorithm)
	} else if sound && r.Algorithm.OnCalendar() && r.Per != perDay && r.Per != perWeek && r.Per != perMonth {
		sound = false
		wrong("per", duration(max(r.Per, time.Second)),
			"24h for a day, 168h for a week or 720h for a month of the calendar")
	} else if sound && r.Burst > 0 && r.Burst != r.Limit && !r.Algorithm.Counts().Drains() {
		sound = false
		wrong("burst", number(r.Burst),
			fmt.Sprintf("none, because a %v admits its limit of %d in a window and has no other burst",
				r.Algorithm, r.Limit))
	}
	if sound {
		l, compiled := c.limit(r)
		switch {
		case compiled.err != nil && !l.Algorithm.Drains():
			wrong("limit", fmt.Sprintf("%d per %s", l.Tokens, duration(l.Per)),
				fmt.Sprintf("at most %d per %s, which a %v counts exactly", min(l.Tokens, l.Algorithm.MaxCount()),
					duration(min(l.Per, longestWindow)), r.Algorithm))
		case compiled.err != nil:
			wrong("limit", fmt.Sprintf("%d per %s with burst %d", l.Tokens, duration(l.Per), l.Burst),
				"one that counts exactly: "+oneLine(compiled.err))
		}
		if limit = compiled.index; compiled.err == nil {
			shape = c.set.shapes[limit]
		}
	}
	enum := func(field string, v uint8, texts []string) {
		if int(v) >= len(texts) {
			wrong(field, number(int64(v)), oneOf(texts))
		}
	}
	if r.Subject >= dimensions {
		wrong("subject", number(int64(r.Subject)), wantSubject)
	}
	enum("mode", uint8(r.Mode), modeTexts)
	enum("scope", uint8(r.Scope), scopeTexts)
	enum("on_store_loss", uint8(r.OnStoreLoss), storeLossTexts)
	if sound && int(r.Scope) < len(scopeTexts) {
		if want := c.checkScope(r); want != "" {
			wrong("scope", text(r.Scope.String()), want)
		}
	}
	if r.EnforcePercent < 0 || r.EnforcePercent > 100 {
		wrong("enforce_percent", number(r.EnforcePercent), "1 to 100, or none for 100")
	}
	checkAfterwards(r, wrong)
	c.checkRefusal(r, wrong)
	checkPriority(r, shape, wrong)
	return limit, ok
}

// The shortest and the longest time that the place of a request is kept whose process has died, and what it is where
// a rule says none, or a second, which a table says for it.
const (
	shortestKept = 5 * time.Second
	longestKept  = time.Hour
	defaultKept  = 30 * time.Second
)

// checkConcurrency reports what is wrong with a rule that limits how many requests are under way, and whether it can be
// compiled.
func (c *ruleCheck) checkConcurrency(r *Rule, sound bool, wrong func(field, value, want string)) bool {
	_, what := r.Subject.Counts()
	switch {
	case what != CountsUnderWay:
		sound = false
		wrong("subject", text(r.SubjectText()), text(countedTexts[CountsUnderWay]+r.Whose())+
			", because a "+concurrencyText+" counts requests under way, beside the rate of the same callers")
	case r.Algorithm != Concurrency && r.Algorithm != TokenBucket:
		sound = false
		wrong("algorithm", text(r.Algorithm.String()), text(concurrencyText)+
			" or none, because subject "+r.SubjectText()+" counts requests under way; or subject "+
			text(r.Whose()))
	}
	if per := r.Per; per > time.Second && (per < shortestKept || per > longestKept) {
		sound = false
		wrong("per", duration(per), duration(shortestKept)+" to "+duration(longestKept)+", how long the place of a "+
			"request is kept whose process has died, or none for "+duration(defaultKept))
	}
	if r.Burst > 0 && r.Burst != r.Limit {
		sound = false
		wrong("burst", number(r.Burst), "none, because all of a limit on requests under way may begin at once")
	}
	if r.CountWhen != "" {
		sound = false
		wrong("count_when", text(string(r.CountWhen)),
			"none, because a request is under way whatever its answer will be")
	}
	return sound
}

// checkCommon reports what is wrong with the fields that rules of all modes have.
func (c *ruleCheck) checkCommon(r *Rule, at *place, wrong func(field, value, want string)) {
	if at.want != "" {
		wrong("endpoint", text(r.Endpoint), at.want)
	}
	if r.Project != "" && r.Tier != "" {
		wrong("tier", text(named(r.Tier)), "none, because project is "+text(named(r.Project)))
	}
	if r.Project != "" && !isName(r.Project) {
		wrong("project", text(r.Project), "a project in UTF-8, or none for all projects")
	}
	if r.Tier != "" && !isName(r.Tier) {
		wrong("tier", text(r.Tier), "a tier in UTF-8, or none for all tiers")
	}
	if !r.Expires.IsZero() && (r.Expires.Year() < 1 || r.Expires.Year() > 9999) {
		wrong("expires", fmt.Sprintf("in the year %d", r.Expires.Year()),
			"a time that RFC 3339 can write, up to the year 9999")
	}
	if printable(r.Name) != r.Name {
		wrong("name", text(r.Name), "printable ASCII, because clients see it in a header")
	}
	if len(r.Name) > MaxName {
		wrong("name", number(int64(len(r.Name)))+" bytes long", number(MaxName)+" bytes at most")
	}
}

// checkScope says which scope a sound rule should have if it cannot have its own.
func (c *ruleCheck) checkScope(r *Rule) (want string) {
	_, what := r.Subject.Counts()
	switch {
	case r.Scope == Local:
	case what == CountsUnderWay && r.Scope != Strict && r.Scope != Lease:
		return oneOf([]string{Strict.String(), Lease.String(), Local.String()}) + ", because " + notPlaces[r.Scope]
	case what == CountsUnderWay:
		return c.checkKept(r)
	case r.Algorithm == LeakyBucket && r.Scope == Gossip:
		return text(Strict.String()) +
			", because replicas that tell each other afterwards keep no queue together; or algorithm token_bucket"
	case r.Algorithm == LeakyBucket && (r.Scope == Lease || r.Scope == Sync):
		return text(Strict.String()) +
			", because a queue of all replicas has to be asked for every turn; or algorithm token_bucket"
	case !r.Algorithm.Counts().Drains():
		return fmt.Sprintf("%q, because a %v is counted in one place alone; or algorithm token_bucket",
			Local, r.Algorithm)
	case r.Scope.Shared():
		return c.checkKept(r)
	}
	return ""
}

// notPlaces is why scopes are not for limits on requests under way.
var notPlaces = map[Scope]string{
	Split:  "requests that are under way at a gateway are not ended when another joins, and its part becomes smaller",
	Sync:   "gateways that tell the store afterwards would let more begin at once",
	Gossip: "gateways that tell each other afterwards would let more begin at once",
}

// checkKept is what is wrong with the limit of a shared rule for the store that keeps it, if anything.
func (c *ruleCheck) checkKept(r *Rule) string {
	if c.o.Keeps == nil {
		return ""
	}
	_, compiled := c.limit(r)
	if compiled.err != nil {
		return "" // reported as a limit
	}
	shape := c.set.shapes[compiled.index]
	if err := c.o.Keeps(shape); err != nil {
		return "a limit that the shared store can count: " + oneLine(err)
	}
	terms, _ := r.Priority.Terms()
	if terms == nil {
		return ""
	}
	for _, share := range terms.Shares {
		if part, ok := shape.Share(share.Percent); !ok {
			continue
		} else if err := c.o.Keeps(part); err != nil {
			return fmt.Sprintf("a limit of which the shared store can count what is guaranteed to class %v: %s",
				share.Class, oneLine(err))
		}
	}
	return ""
}

// longestWindow is rate.MaxWindow in whole seconds.
const longestWindow = time.Duration(rate.MaxWindow) / time.Second * time.Second

// isName reports whether a project or tier could be one: not empty, more than
// space, and UTF-8, as tokens and last good copies are.
func isName(name string) bool {
	return strings.TrimSpace(name) != "" && utf8.ValidString(name)
}

// wantEndpoint says what should stand where text, which is no template, does.
func wantEndpoint(text string, err error) string {
	for _, reserved := range []string{Default, UnknownEndpoint, All} {
		if strings.EqualFold(strings.TrimSpace(text), reserved) {
			return strconv.Quote(reserved) + ", written exactly so"
		}
	}
	if inner := errors.Unwrap(err); inner != nil {
		err = inner // it need not repeat the text
	}
	return `a template such as "GET /v1/items/{id}", or "default", "UNKNOWN" or "*" (` + oneLine(err) + ")"
}

// warnRule reports what is doubtful about a rule that is right by itself.
func (c *ruleCheck) warnRule(i int, r *Rule, at *place) {
	if c.isOrphan(at.number) {
		want := "the template of an endpoint"
		if at.closest != "" {
			want += "; the closest is " + text(at.closest)
		}
		c.rule(Warning, i, "no_endpoint", "endpoint", text(r.Endpoint), want)
	}
	if c.unseen(r, at) {
		c.rule(Warning, i, "unseen", "subject", text(r.SubjectText()), wantSeen(r))
	}
	if at.number == rowUnknown && r.Mode.Limits() && (r.Project != "" || r.Tier != "") {
		field, value := "project", r.Project
		if r.Tier != "" {
			field, value = "tier", r.Tier
		}
		c.rule(Warning, i, "unreachable", field, text(named(value)),
			"none, because UNKNOWN rules are the same for everybody; this one never applies")
	}
	c.warnIdle(i, r)
	if r.Scope.Shared() && !c.o.Shared {
		c.rule(Warning, i, "unshared", "scope", text(r.Scope.String()),
			"a store that replicas share, in the configuration; without one each replica admits the limit by itself")
	}
	if r.Scope == Gossip && !c.o.Gossips {
		c.rule(Warning, i, "unshared", "scope", text(r.Scope.String()),
			"gossip between replicas, in the configuration; without it each replica admits the limit by itself")
	}
	if r.OnStoreLoss != LossClosed && !r.Scope.Shared() {
		c.rule(Warning, i, "unused_store_loss", "on_store_loss", text(r.OnStoreLoss.String()),
			"none, because scope is "+text(r.Scope.String())+" and needs no store; or scope strict, lease or sync")
	}
	if expires := expiry(r.Expires); expires != 0 && expires <= c.wall {
		c.rule(Warning, i, "expired", "expires", r.Expires.UTC().Format(time.RFC3339),
			"a time in the future; the rule no longer applies")
	}
}

// review looks at rules beside each other, once all have their places.
type review struct {
	*task
	*findings
	*places
	*grouping

	hasDefault, hasUnknown, hasAll bool
}

// noteFallback remembers that the document has the rules of last resort, right
// or wrong.
func (c *review) noteFallback(r *Rule) {
	_, what := r.Subject.Counts()
	one := r.Only != "" && !r.Subject.Named() // caller or network; who has not what a subject names counts by another
	if what == CountsUnderWay || r.Project != "" || r.Tier != "" || one {
		return
	}
	if expires := expiry(r.Expires); expires != 0 && expires <= c.wall {
		return
	}
	c.hasDefault = c.hasDefault || r.Endpoint == Default
	c.hasUnknown = c.hasUnknown || r.Endpoint == UnknownEndpoint
	c.hasAll = c.hasAll || r.Endpoint == All
}

// noteBroken is noteFallback of a rule that could not be read. Without an endpoint
// it may be any.
func (c *review) noteBroken(r *Rule) {
	c.noteFallback(r)
	if r.Endpoint == "" {
		c.hasDefault, c.hasUnknown, c.hasAll = true, true, true
	}
}

// duplicate reports a rule for what an earlier one rules already. A temporary
// rule is none for what a lasting one rules: it stands in its place.
func (c *compiler) duplicate(i int, r *Rule, at *place, w who) {
	const code = "duplicate"
	if c.problems.full(code) {
		c.rule(Error, i, code, "", "", "")
		return
	}
	first := 0
	for n := range c.rows {
		if o := &c.rows[n]; o.endpoint == at.number && o.who == w && o.subject == r.Subject &&
			c.isTemporary(o) == !r.Expires.IsZero() {
			first = int(c.indexes[n])
			break
		}
	}
	c.duplicateOf(i, r, first)
}

// readProjects numbers the projects that have a tier.
func (c *compiler) readProjects() {
	s := c.set
	s.byProject = make([]tenantGroups, len(c.doc.Projects)+1)
	bad := map[string]string{}
	for project, tier := range c.doc.Projects {
		if !isName(project) || !isName(tier) {
			bad[project] = tier
			continue
		}
		p, ok := s.projects.add(project)
		t, ok2 := s.tiers.add(tier)
		if !ok || !ok2 {
			c.options("projects", "beyond the 4 GiB that all names may take", "fewer or shorter names")
			return
		}
		s.byProject[p].tier = t
	}
	for _, project := range sortedKeys(bad) {
		p := Problem{Code: "projects", Rule: -1, Where: "projects",
			Field: "project", Value: text(project), Want: "a project in UTF-8"}
		if isName(project) {
			p.Where += "[" + text(project) + "]"
			p.Field, p.Value, p.Want = "tier", text(bad[project]), "a tier in UTF-8; leave out projects that have none"
		}
		c.found(p, "")
	}
}

// check reports what is wrong between rules, and between rules and costs.
func (c *review) check() {
	if !c.hasDefault {
		have := "have no limit"
		switch {
		case c.hasUnknown:
			have = "have that of UNKNOWN"
		case c.hasAll:
			have += ` but that of "*", which counts all endpoints together`
		}
		c.found(Problem{Severity: Warning, Code: "no_default", Rule: -1, Where: "rules",
			Field: "default", Value: "missing",
			Want: `a rule with endpoint "default"; endpoints without a rule of their own ` + have}, Default)
	}
	if !c.hasUnknown && !c.o.UnknownRefused {
		c.found(Problem{Severity: Warning, Code: "no_unknown", Rule: -1, Where: "rules",
			Field: "UNKNOWN", Value: "missing",
			Want: `a rule with endpoint "UNKNOWN"; requests that match no endpoint have no limit`}, UnknownEndpoint)
	}
	c.readClasses()
	costs, batches := c.readCosts(), slices.Sorted(maps.Keys(c.o.Parts))
	priced := slices.Sorted(maps.Keys(c.o.Dearest))
	all := c.allForTenants()
	for i := range c.rows {
		if g := &c.groups[c.grouped[i]]; g.count > 0 {
			id := c.placed(i)
			c.checkCosts(int(c.indexes[i]), id, costs)
			c.checkClassCosts(int(c.indexes[i]), id, costs)
			c.checkParts(int(c.indexes[i]), id, batches)
			c.checkDearest(int(c.indexes[i]), id, priced)
			c.checkMetered(int(c.indexes[i]), id)
			c.checkVoid(int(c.indexes[i]), id, all)
			c.checkPathAlone(int(c.indexes[i]), id)
			c.checkCounted(int(c.indexes[i]), id)
			if len(c.broken) == 0 { // else the guard may be the one that is
				c.checkLockout(int(c.indexes[i]), id)
			}
		}
	}
	c.checkFollowed()
	c.checkIdentified()
}

// checkLockout reports a rule by identifier that one address can keep empty,
// and with it the owner of the account out. A guard by identifier_ip or ip that
// gives less in the long run makes that take more than one.
func (c *review) checkLockout(i int, id RuleID) {
	s := c.set
	r := &s.rows[id]
	if r.paidBy() != SubjectIdentifier || r.mode != Enforce || !s.live(r, c.wall) || r.endpoint == rowUnknown ||
		!c.reads(r.endpoint) {
		return
	}
	if c.isGuarded(r, SubjectIdentifierIP, SubjectIP) {
		return
	}
	c.rule(Warning, i, "lockout", "subject", text(SubjectIdentifier.String()),
		"beside it a rule by identifier_ip or ip that gives less; else one address can keep the owner of an "+
			"account out")
}

// checkPathAlone reports a rule by a path parameter that nothing else goes with.
// Whoever sends requests chooses the value: a new one is a new bucket, and the
// bucket of somebody else's can be kept empty.
func (c *review) checkPathAlone(i int, id RuleID) {
	r := &c.set.rows[id]
	if r.paidBy() != SubjectPath || r.mode != Enforce || !c.set.live(r, c.wall) || len(c.broken) > 0 ||
		c.isGuarded(r, SubjectPrincipal, SubjectIP, SubjectSite, SubjectPrincipalIP, SubjectProject) {
		return
	}
	c.rule(Warning, i, "path_alone", "subject", text(c.written(i).Only),
		"beside it a rule by principal, ip or site that gives less; else one caller can spend what everybody has "+
			"for a value, and has a new budget for each value that it makes up")
}

// paidBy is by which subject a rule counts what is spent; one that counts requests under way spends nothing.
func (r *row) paidBy() Subject {
	of, what := r.subject.Counts()
	if what == CountsUnderWay {
		return r.subject
	}
	return of
}

// isGuarded reports whether a rule by one of these subjects, which gives less in the
// long run, holds wherever r does.
func (c *review) isGuarded(r *row, by ...Subject) bool {
	s := c.set
	_, what := r.subject.Counts()
	for _, n := range []uint32{r.endpoint, rowDefault, rowAll} {
		for _, w := range []who{r.who, 0} {
			for _, subject := range by {
				// A request that costs more than a token counts as one where requests are counted.
				for _, subject := range []Subject{subject, subject.Counting(what)} {
					guard, ok := s.of(s.group(n, w), subject)
					if ok && s.rows[guard].mode == Enforce && s.live(&s.rows[guard], c.wall) &&
						s.countsAll(&s.rows[guard], r) &&
						faster(s.limits[r.limit], s.limits[s.rows[guard].limit]) {
						return true
					}
				}
			}
		}
	}
	return false
}

// reads reports whether identifiers may be read at an endpoint, by number.
func (c *review) reads(n uint32) bool {
	switch {
	case len(c.o.Identified) == 0:
		return !slices.Contains(c.o.Unseen, SubjectIdentifier)
	case n == rowDefault, n == rowAll:
		return true
	}
	return slices.Contains(c.o.Identified, endpoint.ID(n))
}

// checkIdentified reports endpoints whose bodies are read for nothing.
func (c *review) checkIdentified() {
	for _, id := range c.o.Identified {
		if len(c.broken) == 0 && !slices.ContainsFunc(c.set.rows, func(r row) bool {
			of, _ := r.subject.Counts()
			return (of == SubjectIdentifier || of == SubjectIdentifierIP) && c.set.live(&r, c.wall) &&
				(r.endpoint == uint32(id) || r.endpoint == rowDefault || r.endpoint == rowAll ||
					r.endpoint == rowUnknown)
		}) {
			c.found(Problem{Severity: Warning, Code: "unused_identifier", Rule: -1, Source: c.o.Settings,
				Where: "identifiers", Field: c.set.endpointText(uint32(id)), Value: "read",
				Want: "a rule by identifier_ip or identifier that applies there; without one its bodies are read " +
					"for nothing"},
				c.set.endpointText(uint32(id)))
		}
	}
	c.checkNames()
	c.checkTiers()
	c.checkScattered()
	c.checkOneByOne()
	c.checkTimes()
}

func limitText(l rate.Limit) string {
	return fmt.Sprintf("%d per %s (burst %d)", l.Tokens, duration(l.Per), l.Burst)
}

// describe names a rule by what makes it unique.
func describe(r *Rule) string {
	s := quoted(printable(r.Endpoint))
	if s == "" {
		s = "no endpoint"
	}
	if r.Project != "" {
		s += ", project " + quoted(printable(named(r.Project)))
	}
	if r.Tier != "" {
		s += ", tier " + quoted(printable(named(r.Tier)))
	}
	switch {
	case r.Only != "" && !r.Mode.Limits():
		s += ", " + quoted(printable(r.Only))
	case r.Subject != SubjectPrincipal:
		s += ", per " + quoted(printable(r.SubjectText()))
	}
	return s
}

// quoted shortens what a message quotes, which may be a whole file by mistake.
func quoted(s string) string { return clip.To(s, 100) }

func text(s string) string { return strconv.Quote(quoted(s)) }

func number(n int64) string { return strconv.FormatInt(n, 10) }

// oneLine is an error's message without its line ends.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
