package policy

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headgate-io/headgate/endpoint"
)

// Rules of Mode Allow and Block settle a request before any bucket is asked: it is exempt from every
// limit, or refused. Their place (endpoint, project or tier) is that of a limit. Their subject is
// everybody there, SubjectPrincipal, or one caller or network (Rule.Only):
//
//	GET /health                  allow    health checks, whoever sends them
//	*  project acme              allow    all that acme's callers send
//	*  ip:192.0.2.0/24           block    a network, at known endpoints and others
//	*  token:alice               block    one caller
//
// A request that a block holds for is refused, whatever else says allow.

// callerKinds are the kinds of identity.Principal that Rule.Only can name.
var callerKinds = []string{"api_key", "token", "certificate", "user", "signed_agent"}

const onlyNetwork = "ip" // the kind of Rule.Only that is an address or a network

// maxOnly is the longest Rule.Only in bytes.
const maxOnly = 255

// SubjectText is what stands in a rule as its subject: Only, or the text of Subject.
func (r *Rule) SubjectText() string {
	if r.Only != "" {
		return r.Only
	}
	return r.Subject.String()
}

// Whose says who shares a bucket: SubjectText, without what is counted, which Rate says.
func (r *Rule) Whose() string {
	of, _ := cutCounted(r.SubjectText())
	return of
}

// SetSubject reads what SubjectText writes: "ip", "ip:192.0.2.0/24", "token:alice". Networks are written in one
// way: without host bits, and an address alone without its length.
func (r *Rule) SetSubject(written string) error {
	if of, what := cutCounted(written); what != CountsTokens {
		return r.setCounting(written, of, what)
	}
	kind, value, one := strings.Cut(written, ":")
	r.Only = ""
	wrong := Problem{Code: "subject", Rule: -1, Field: "subject", Value: text(written), Want: wantSubject}
	if !one {
		if r.Subject.UnmarshalText([]byte(written)) != nil || r.Subject.Named() {
			return wrong
		}
		return nil
	}
	wrong.Want += `; or, to allow or block, one network or caller: "ip:192.0.2.0/24", "api_key:ID", "token:ID", ` +
		`"certificate:ID", "user:ID" or "signed_agent:ID"`
	switch {
	case kind == onlyNetwork:
		network, err := parseNetwork(value)
		if err != nil {
			wrong.Want = `an address or a network behind "ip:", such as "ip:192.0.2.7" or "ip:2001:db8::/32"`
			return wrong
		}
		r.Subject, r.Only = SubjectIP, onlyNetwork+":"+networkText(network)
	case slices.Contains(callerKinds, kind):
		if value == "" || len(written) > maxOnly || !utf8.ValidString(value) ||
			strings.ContainsFunc(value, unicode.IsControl) {
			wrong.Want = "the name of a caller behind " + text(kind+":") + ", without control characters, " +
				strconv.Itoa(maxOnly) + " bytes in all at most"
			return wrong
		}
		r.Subject, r.Only = SubjectPrincipal, written
	case kind == pathParameter || kind == claimOfToken:
		if !isSubjectName(value) {
			wrong.Want = "the name of a parameter or claim behind " + text(kind+":") +
				", such as customer, org or realm.id, of printable ASCII without spaces, " +
				strconv.Itoa(maxSubjectName) + " bytes at most"
			return wrong
		}
		if r.Subject, r.Only = SubjectPath, written; kind == claimOfToken {
			r.Subject = SubjectClaim
		}
	default:
		return wrong
	}
	return nil
}

// setCounting is SetSubject where something else than tokens is counted.
func (r *Rule) setCounting(written, of string, what Counted) error {
	var base Rule
	err := base.SetSubject(of)
	_, again := base.Subject.Counts()
	if err != nil || base.Only != "" && !base.Subject.Named() || again != CountsTokens {
		return Problem{Code: "subject", Rule: -1, Field: "subject", Value: text(written), Want: wantSubject}
	}
	r.Subject, r.Only = base.Subject, base.Only
	r.count(what)
	return nil
}

// count has a rule count something else of the same callers.
func (r *Rule) count(what Counted) {
	if r.Subject = r.Subject.Counting(what); r.Only != "" {
		r.Only = countedTexts[what] + r.Whose()
	}
	if what == CountsUnderWay {
		r.Algorithm = Concurrency
	}
}

// The kinds of Rule.Only that name what a limit counts by, and the longest such name in bytes.
const (
	pathParameter  = "path"
	claimOfToken   = "claim"
	maxSubjectName = 64
)

// isSubjectName reports whether s could be the name of a path parameter or a claim. Clients see it in a header.
func isSubjectName(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return s != "" && len(s) <= maxSubjectName
}

// SubjectName is the parameter or claim that Only names, for Subject.Named.
func (r *Rule) SubjectName() string {
	of, _ := cutCounted(r.Only)
	_, name, _ := strings.Cut(of, ":")
	return name
}

// Whom is the subject of a rule as it is written, for forms of rules.
type Whom struct {
	Subject Subject
	Only    string
}

// MarshalText writes Rule.SubjectText.
func (w Whom) MarshalText() ([]byte, error) {
	if w.Only != "" {
		return []byte(w.Only), nil
	}
	return w.Subject.MarshalText()
}

// UnmarshalText is Rule.SetSubject.
func (w *Whom) UnmarshalText(written []byte) error {
	var r Rule
	err := r.SetSubject(string(written))
	*w = Whom{r.Subject, r.Only}
	return err
}

// String is Rule.SubjectText.
func (w Whom) String() string { return (&Rule{Subject: w.Subject, Only: w.Only}).SubjectText() }

// Algorithm is how a rule by this subject counts where it says written: nothing, or token_bucket, for a subject that
// counts requests under way stands for Concurrency.
func (w Whom) Algorithm(written Algorithm) Algorithm {
	if _, what := w.Subject.Counts(); what == CountsUnderWay && written == TokenBucket {
		return Concurrency
	}
	return written
}

func parseNetwork(s string) (netip.Prefix, error) {
	if !strings.Contains(s, "/") {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			return netip.Prefix{}, cmp.Or(err, error(Problem{}))
		}
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err == nil && p.Addr().Is4In6() {
		return netip.Prefix{}, Problem{}
	}
	return p.Masked(), err
}

// networkText writes an address alone without its length.
func networkText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// Limits reports whether a rule has a limit, and counts.
func (m Mode) Limits() bool { return m != Allow && m != Block }

// Caller is of whom Set.Access is asked: what identity has found out about a request.
type Caller struct {
	Kind, ID string // of a verified credential, as callerKinds and Rule.Only have it; ID is empty for none
	Project  string
	Tier     string // empty stands for the one that the document gives the project
	Address  netip.Addr
}

// access is what a Set knows of rules of Mode Allow and Block.
type access struct {
	rules    []accessRule
	byToken  int64 // when the last block ends that goes by what a token says; 0 if there is none
	byKey    int64 // the same, by what is known of an API key
	byAgent  int64 // the same, by whose a signature is
	places   map[accessPlace]standing
	callers  map[callerKey]accessPair
	networks map[networkKey]accessPair
}

type accessRule struct {
	rule    Rule
	from    int64 // Unix nanoseconds: before, a temporary limit stands in its place
	expires int64 // as in extra
}

// accessPlace is where rules stand.
type accessPlace struct {
	endpoint uint32
	who      who
}

// callerKey and networkKey are for whom rules of a place are, if not for everybody.
type (
	callerKey struct {
		accessPlace
		kind, id string
	}
	networkKey struct {
		accessPlace
		network netip.Prefix
	}
)

// accessPair is a lasting rule and the temporary one that stands in its place, by their number in access.rules
// plus 1.
type accessPair struct{ lasting, temporary int }

// standing is what stands in one place: the rule for everybody, and for whom there are others, which spares vain
// look-ups.
type standing struct {
	everybody accessPair
	callers   bool
	v4, v6    []int // how long the prefixes of networks are, the longest first
}

// Access reports the rule of Mode Allow or Block that settles what a caller sends to an endpoint, by its place in
// AccessRules; false if there is none. Of several a block comes first; then the endpoint's own before those for
// all, the project's before the tier's and everybody's, one caller's before its network's, and a smaller network's
// before a larger one's.
func (s *Set) Access(now int64, m endpoint.Match, c *Caller) (rule int, mode Mode, ok bool) {
	if s.access == nil {
		return 0, 0, false
	}
	own := rowUnknown
	if m.Status == endpoint.Known {
		own = uint32(m.ID)
	}
	return s.accessAt(now, c, own, rowAll)
}

// Blocked reports whether a rule of Mode Block for all endpoints holds for a caller, for what is none of them.
func (s *Set) Blocked(now int64, c *Caller) bool {
	if s.access == nil {
		return false
	}
	_, mode, ok := s.accessAt(now, c, rowAll)
	return ok && mode == Block
}

func (s *Set) accessAt(now int64, c *Caller, rows ...uint32) (rule int, mode Mode, ok bool) {
	p, t := s.tenant(c.Project, c.Tier)
	for _, ep := range rows {
		for n, w := range [...]who{ofProject(p), ofTier(t), 0} {
			if w == 0 && n < 2 {
				continue
			}
			found, is := s.access.at(accessPlace{ep, w}, c, now)
			if !is || ok && s.access.rules[found].rule.Mode != Block {
				continue
			}
			rule, mode, ok = found, s.access.rules[found].rule.Mode, true
			if mode == Block {
				return rule, mode, ok
			}
		}
	}
	return rule, mode, ok
}

// at finds the rule of one place, a block before an allow.
func (a *access) at(place accessPlace, c *Caller, now int64) (found int, ok bool) {
	has, any := a.places[place]
	if !any {
		return 0, false
	}
	look := func(p accessPair) (done bool) {
		n, live := a.live(p, now)
		if !live || ok && a.rules[n].rule.Mode != Block {
			return false
		}
		found, ok = n, true
		return a.rules[n].rule.Mode == Block
	}
	if has.callers && c.ID != "" && look(a.callers[callerKey{place, c.Kind, c.ID}]) {
		return found, ok
	}
	lengths := has.v6
	if c.Address.Is4() {
		lengths = has.v4
	}
	for _, bits := range lengths {
		// A prefix of the zero Addr is none, which no rule is for.
		if network, err := c.Address.Prefix(bits); err == nil && look(a.networks[networkKey{place, network}]) {
			return found, ok
		}
	}
	look(has.everybody)
	return found, ok
}

// live is the rule of a pair that holds now.
func (a *access) live(p accessPair, now int64) (int, bool) {
	for _, n := range [...]int{p.temporary, p.lasting} {
		if n > 0 {
			if r := &a.rules[n-1]; now >= r.from && (r.expires == 0 || now < r.expires) {
				return n - 1, true
			}
		}
	}
	return 0, false
}

// BlocksByToken reports whether a block may hold for the caller of a token that nobody has verified: one of
// a caller, a project or a tier.
func (s *Set) BlocksByToken(now int64) bool { return s.access != nil && now < s.access.byToken }

// BlocksByKey is BlocksByToken for an API key that could not be looked up.
func (s *Set) BlocksByKey(now int64) bool { return s.access != nil && now < s.access.byKey }

// BlocksByAgent is BlocksByToken for a signature that was not checked.
func (s *Set) BlocksByAgent(now int64) bool { return s.access != nil && now < s.access.byAgent }

// AccessRules reports how many rules of Mode Allow and Block there are. No RuleID names them.
func (s *Set) AccessRules() int {
	if s.access == nil {
		return 0
	}
	return len(s.access.rules)
}

// AccessRule is one of AccessRules, from 0.
func (s *Set) AccessRule(n int) Rule { return s.access.rules[n].rule }

// readAccess checks a rule of Mode Allow or Block and notes it.
func (c *compiler) readAccess(i int, r *Rule, at *place) {
	if !c.checkAccess(i, r, at) {
		return
	}
	w, ok := c.who(i, r)
	if !ok {
		return
	}
	c.warnRule(i, r, at)
	c.warnAccess(i, r, at)
	if c.set.access == nil {
		c.set.access = &access{
			places:   map[accessPlace]standing{},
			callers:  map[callerKey]accessPair{},
			networks: map[networkKey]accessPair{},
		}
	}
	first, twice := c.set.access.add(accessPlace{at.number, w}, r)
	if twice {
		c.duplicateOf(i, r, c.accessIndexes[first])
		return
	}
	c.accessIndexes = append(c.accessIndexes, i)
}

// add adds a rule, if none for the same stands in its place: that is then reported.
func (a *access) add(place accessPlace, r *Rule) (other int, twice bool) {
	has := a.places[place]
	kind, value, _ := strings.Cut(r.Only, ":")
	network := networkOf(r)
	pair := has.everybody
	switch {
	case network.IsValid():
		pair = a.networks[networkKey{place, network}]
	case r.Only != "":
		pair = a.callers[callerKey{place, kind, value}]
	}
	slot := &pair.lasting
	if !r.Expires.IsZero() {
		slot = &pair.temporary
	}
	if *slot != 0 {
		return *slot - 1, true
	}
	kept := *r
	kept.Limit, kept.Per = 0, 0
	a.rules = append(a.rules, accessRule{rule: kept, expires: expiry(r.Expires)})
	*slot = len(a.rules)
	if r.Mode == Block {
		end := expiry(r.Expires)
		if end == 0 {
			end = math.MaxInt64
		}
		byAny := r.Project != "" || r.Tier != ""
		if byAny || kind == "token" {
			a.byToken = max(a.byToken, end)
		}
		if byAny || kind == "api_key" {
			a.byKey = max(a.byKey, end)
		}
		if byAny || kind == "signed_agent" {
			a.byAgent = max(a.byAgent, end)
		}
	}
	switch {
	case network.IsValid():
		a.networks[networkKey{place, network}] = pair
		lengths := &has.v6
		if network.Addr().Is4() {
			lengths = &has.v4
		}
		if n, found := slices.BinarySearchFunc(*lengths, network.Bits(), func(a, b int) int { return b - a }); !found {
			*lengths = slices.Insert(*lengths, n, network.Bits())
		}
	case r.Only != "":
		a.callers[callerKey{place, kind, value}] = pair
		has.callers = true
	default:
		has.everybody = pair
	}
	a.places[place] = has
	return 0, false
}

// networkOf is the network that a rule is for; none if it is for others.
func networkOf(r *Rule) netip.Prefix {
	kind, value, _ := strings.Cut(r.Only, ":")
	if kind != onlyNetwork {
		return netip.Prefix{}
	}
	network, _ := parseNetwork(value) // it was checked
	return network
}

// checkAccess reports what is wrong with a rule of Mode Allow or Block by itself.
func (c *ruleCheck) checkAccess(i int, r *Rule, at *place) (ok bool) {
	ok = true
	because := ", because mode is " + r.Mode.String()
	wrong := func(field, value, want string) {
		ok = false
		c.rule(Error, i, field, field, value, want)
	}
	c.checkCommon(r, at, wrong)
	if at.number == rowDefault {
		wrong("endpoint", text(r.Endpoint), `a template, "UNKNOWN" or "*" for all requests`+because)
	}
	if read := (Rule{}); r.Only != "" {
		if err := read.SetSubject(r.Only); err != nil || read.Only != r.Only || read.Subject != r.Subject ||
			r.Subject.Named() {
			wrong("subject", text(r.Only), "a network or a caller as Rule.SetSubject reads it")
		}
	} else if r.Subject != SubjectPrincipal {
		wrong("subject", text(r.Subject.String()),
			`none for everybody, or one network or caller, such as "ip:192.0.2.0/24" or "token:alice"`+because)
	}
	if r.Limit != 0 {
		wrong("limit", number(r.Limit), "none"+because)
	}
	if r.Per != 0 && r.Per != time.Second {
		wrong("per", r.Per.String(), "none"+because)
	}
	if r.Burst != 0 {
		wrong("burst", number(r.Burst), "none"+because)
	}
	if r.EnforcePercent != 0 {
		wrong("enforce_percent", number(r.EnforcePercent), "none"+because)
	}
	if r.Algorithm != TokenBucket {
		wrong("algorithm", text(r.Algorithm.String()), "none"+because)
	}
	if r.Scope != Local {
		wrong("scope", text(r.Scope.String()), "none"+because)
	}
	if r.OnStoreLoss != LossClosed {
		wrong("on_store_loss", text(r.OnStoreLoss.String()), "none"+because)
	}
	if r.CountWhen != "" {
		wrong("count_when", text(string(r.CountWhen)), "none"+because)
	}
	if r.Penalty != "" {
		wrong("penalty", text(string(r.Penalty)), "none"+because)
	}
	if r.Refusal != "" {
		wrong("refusal", text(string(r.Refusal)), "none"+because)
	}
	if r.Priority != "" {
		wrong("priority", text(string(r.Priority)), "none"+because)
	}
	return ok
}

// warnAccess reports a rule that settles every request there is.
func (c *ruleCheck) warnAccess(i int, r *Rule, at *place) {
	network := networkOf(r)
	if at.number != rowAll || r.Project != "" || r.Tier != "" ||
		r.Only != "" && (!network.IsValid() || network.Bits() > 0) {
		return
	}
	what := "no limit holds for any request"
	if r.Mode == Block {
		what = "every request is refused"
	}
	c.rule(Warning, i, "every_request", "mode", text(r.Mode.String()),
		"one endpoint, project, tier, network or caller that it is for: now "+what)
}

// arrangeAccess checks the rules of Mode Allow and Block beside the limits, of which one may stand in the same place.
func (c *compiler) arrangeAccess() {
	a := c.set.access
	if a == nil {
		return
	}
	for n := range c.rows {
		row := &c.rows[n]
		if row.subject != SubjectPrincipal {
			continue
		}
		pair := a.places[accessPlace{row.endpoint, row.who}].everybody
		temporary := c.isTemporary(row)
		if temporary && pair.temporary != 0 || !temporary && pair.lasting != 0 {
			twice := pair.lasting
			if temporary {
				twice = pair.temporary
			}
			first, second := c.accessIndexes[twice-1], int(c.indexes[n])
			second, first = max(first, second), min(first, second)
			c.duplicateOf(second, c.written(second), first)
			continue
		}
		if temporary && pair.lasting != 0 && row.mode == Enforce {
			a.rules[pair.lasting-1].from = c.set.extras[row.extra].expires
		}
	}
}
