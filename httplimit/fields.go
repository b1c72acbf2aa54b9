package httplimit

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/values"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
)

// Draft is a version of draft-ietf-httpapi-ratelimit-headers, by which the RateLimit fields are written. The versions
// use the same names for different things, so there is no mixture.
type Draft uint8

const (
	// Draft10 writes, as RFC 9651 structured fields,
	//	RateLimit: "name";r=9;t=1
	//	RateLimit-Policy: "name";q=5;w=1
	Draft10 Draft = iota

	// Draft11 writes the same: -11, of May 2026, has changed neither field.
	Draft11

	// Proposal166 writes what the working group's pull request 166 would make of them, as of August 2026. It is no
	// draft yet, and may change:
	//	RateLimit: "name";a=9;w=1;c=1
	//	RateLimit-Policy: "name";q=5;w=1
	//	RateLimit-Partition: "name";headgate-endpoint;headgate-principal
	// c is what the request cost, and the last field says what divides the quota: two requests for which one of these
	// differs have quotas of their own.
	Proposal166

	// Draft07 writes
	//	RateLimit: limit=5, remaining=9, reset=1
	//	RateLimit-Policy: 5;w=1
	Draft07

	// Draft06 writes what -04 to -06 say: RateLimit-Limit: 5, RateLimit-Remaining: 9, RateLimit-Reset: 1, and
	// RateLimit-Policy: 5;w=1.
	Draft06

	// Draft03 writes what -00 to -03 say: RateLimit-Limit: 5, 5;w=1, RateLimit-Remaining: 9 and RateLimit-Reset: 1.
	Draft03
)

// Dialect is a way to write the X-RateLimit-* fields. One name must never
// carry two meanings, so there is no mixture.
type Dialect uint8

const (
	// NoLegacy sends no X-RateLimit-* fields.
	NoLegacy Dialect = iota
	// DeltaSeconds writes X-RateLimit-Reset as seconds from now, as Kong does.
	DeltaSeconds
	// EpochSeconds writes X-RateLimit-Reset as a Unix time, as GitHub does.
	EpochSeconds
	// ISO8601 writes X-RateLimit-Reset as a time of RFC 3339 in UTC: 2026-11-20T12:00:00Z.
	ISO8601
	// WithPolicies is DeltaSeconds with the policies behind the limit, as Envoy has made it of -03:
	// X-RateLimit-Limit: 10, 10;w=1;name="per-ip".
	WithPolicies
)

// Field names in the canonical form of http.Header, which is what a handler
// further in finds with Get.
const (
	fieldRateLimit  = "Ratelimit"
	fieldPolicy     = "Ratelimit-Policy"
	fieldPartition  = "Ratelimit-Partition"
	fieldLimit      = "Ratelimit-Limit"
	fieldRemaining  = "Ratelimit-Remaining"
	fieldReset      = "Ratelimit-Reset"
	fieldRetryAfter = "Retry-After"
	fieldExpose     = "Access-Control-Expose-Headers"

	legacyLimit     = "X-Ratelimit-Limit"
	legacyRemaining = "X-Ratelimit-Remaining"
	legacyReset     = "X-Ratelimit-Reset"
	legacyStrategy  = "X-Ratelimit-Strategy"
)

// names are the fields that o has written.
func (o *Options) names() []string {
	var names []string
	switch {
	case o.OmitFields:
	case o.Draft == Draft03:
		names = append(names, fieldLimit, fieldRemaining, fieldReset)
	case o.Draft == Draft06:
		names = append(names, fieldLimit, fieldRemaining, fieldReset, fieldPolicy)
	case o.Draft == Proposal166:
		names = append(names, fieldRateLimit, fieldPolicy, fieldPartition)
	default:
		names = append(names, fieldRateLimit, fieldPolicy)
	}
	if o.Legacy != NoLegacy {
		names = append(names, legacyLimit, legacyRemaining, legacyReset, legacyStrategy)
	}
	return names
}

// exposed lists what a browser's script may read of a cross-origin response.
func exposed(names []string) string {
	var b strings.Builder
	for _, name := range names {
		b.WriteString(strings.ReplaceAll(name, "Ratelimit", "RateLimit") + ", ")
	}
	return b.String() + fieldRetryAfter
}

// Told is a limit that clients are told of.
type Told struct {
	rule *rendered
	got  bucket.Outcome
	less int64         // of the burst, which the request's class leaves for others
	slot time.Duration // until the time of its own that the client has by this limit; 0 if it has none
}

// Tell returns what a client is told of a limit that is not a rule of a headgate.Limiter. Of rule its title, Limit,
// Per, Burst and Algorithm count. What divides the quota, for Proposal166, is one word under our prefix.
func (o *Options) Tell(rule policy.Rule, got *bucket.Outcome, divides string) Told {
	r := o.Draft.render(rule)
	r.partition = r.name + ";headgate-" + divides
	return Told{rule: r, got: *got}
}

// SetFields sets the fields of a request that cost so many tokens: told has each limit that it met, and binding is the
// place of the one that decided, or -1 if clients are not told of that one.
func (o *Options) SetFields(header http.Header, told []Told, binding int, cost int64) {
	o.setFields(nil, header, told, binding, cost)
}

// setFields is SetFields for the header of w, which may bring room for values; nil for none.
func (o *Options) setFields(w http.ResponseWriter, header http.Header, told []Told, binding int, cost int64) {
	if len(told) == 0 {
		return
	}
	if binding < 0 {
		for i := range told {
			if binding < 0 || tells(&told[i].got, &told[binding].got) {
				binding = i
			}
		}
	}
	which := told
	if o.BindingOnly {
		which = told[binding : binding+1]
	}
	switch {
	case o.OmitFields:
	case o.Draft >= Draft07:
		o.setEarly(header, which, &told[binding])
	default:
		o.setRateLimit(w, header, which, cost)
	}
	if o.Legacy != NoLegacy {
		o.setLegacy(header, which, &told[binding])
	}
}

// setFields tells the client its budget.
func (h *handler) setFields(w http.ResponseWriter, r *http.Request, d *headgate.Decision) {
	bound := d.Bound()
	if bound < 0 {
		return
	}
	if len(h.names) > 0 { // a header that is looked at is copied by net/http before it is sent
		var room [4]Told
		told, binding := room[:0], -1
		verdicts := d.Verdicts()
		for i := range verdicts {
			v, rule := h.shown(d, verdicts, i)
			if v == nil {
				continue
			}
			told = append(told, Told{})
			t := &told[len(told)-1] // written where it stays: a copy waits for what was just written in pieces
			t.rule, t.got, t.less = rule, v.Outcome, d.Policies().Leaves(v.Rule, d.Class)
			if v.Rule == verdicts[bound].Rule {
				binding, t.slot = len(told)-1, d.Slot.Wait
			}
		}
		h.options.setFields(w, w.Header(), told, binding, d.Cost)
	}
	if origin := r.Header["Origin"]; len(origin) > 0 && origin[0] != "" {
		w.Header().Add(fieldExpose, h.exposed)
	}
}

// shown is the verdict that fields have of the i-th one's rule; nil if they have none by it.
func (h *handler) shown(d *headgate.Decision, verdicts []headgate.Verdict, i int) (*headgate.Verdict, *rendered) {
	v := &verdicts[i]
	if v.Shadow || v.Unparsable || v.Earlier || v.Outcome.Unknown || v.Principal > 0 && listed(verdicts[:i], v.Rule) {
		return nil, nil // not in force, so nothing to obey; or told with its rule; or not asked
	}
	rule := h.rules.Get(d.Policies(), v.Rule, h.render)
	if rule.hidden {
		return nil, nil
	}
	v = tighter(verdicts, v)
	return v, rule.loweredTo(v.Lowered, h.render)
}

// setRateLimit writes the fields of -08 and later.
func (o *Options) setRateLimit(w http.ResponseWriter, header http.Header, told []Told, cost int64) {
	var quotaBuf, policyBuf [192]byte
	quota, policies := quotaBuf[:0], policyBuf[:0]
	var partitions []byte
	for i := range told {
		t := &told[i]
		if i > 0 {
			quota, policies = append(quota, ", "...), append(policies, ", "...)
		}
		quota = o.Draft.appendQuota(quota, t)
		policies = append(policies, t.rule.policy...)
		if o.Draft == Proposal166 {
			quota = strconv.AppendInt(append(quota, ";c="...), cost, 10)
			if i > 0 {
				partitions = append(partitions, ", "...)
			}
			partitions = append(partitions, t.rule.partition...)
		}
	}
	// The policy of a single rule, which is most requests, is there already.
	room := values.Of(w)
	if room == nil {
		room = values.Lend()
		defer room.GiveBack()
	}
	list := room.List(2)
	list[0], list[1] = room.Text(quota), told[0].rule.policy
	if len(told) > 1 {
		list[1] = room.Text(policies)
	}
	header[fieldRateLimit], header[fieldPolicy] = list[0:1:1], list[1:2:2]
	if partitions != nil {
		header[fieldPartition] = []string{string(partitions)}
	}
}

// setEarly writes the fields of -07 and before: one limit, and the policies.
func (o *Options) setEarly(header http.Header, told []Told, binding *Told) {
	limit, remaining, reset := strconv.FormatInt(binding.rule.Limit, 10),
		strconv.FormatInt(binding.got.Remaining, 10), strconv.FormatInt(rate.Seconds(binding.got.ResetAfter), 10)
	policies := policies(told, false)
	if o.Draft == Draft07 {
		header[fieldRateLimit] = []string{"limit=" + limit + ", remaining=" + remaining + ", reset=" + reset}
		header[fieldPolicy] = []string{policies}
		return
	}
	if o.Draft == Draft03 {
		limit += ", " + policies
	} else {
		header[fieldPolicy] = []string{policies}
	}
	header[fieldLimit], header[fieldRemaining], header[fieldReset] = []string{limit}, []string{remaining},
		[]string{reset}
}

// policies lists what is written of limits, by -07 and before or WithPolicies.
func policies(told []Told, named bool) string {
	list := make([]string, len(told))
	for i := range told {
		if list[i] = told[i].rule.policy; named {
			list[i] = told[i].rule.named
		}
	}
	return strings.Join(list, ", ")
}

// listed reports whether one of the verdicts is listed for a rule.
func listed(verdicts []headgate.Verdict, rule policy.RuleID) bool {
	return slices.ContainsFunc(verdicts, func(v headgate.Verdict) bool {
		return v.Rule == rule && !v.Unparsable && !v.Earlier && !v.Outcome.Unknown
	})
}

// tighter is v, or the same rule's verdict about another bucket (the one that
// unparsable requests share, the caller's from before a change of tier, that of
// another of its credentials), where that has less. Those stand behind v.
func tighter(verdicts []headgate.Verdict, v *headgate.Verdict) *headgate.Verdict {
	if last := &verdicts[len(verdicts)-1]; !last.Unparsable && !last.Earlier && last.Principal == 0 {
		return v
	}
	rule := v.Rule
	for i := range verdicts {
		other := &verdicts[i]
		if other.Rule != rule || other.Shadow || other.Outcome.Unknown {
			continue
		}
		if tells(&other.Outcome, &v.Outcome) {
			v = other
		}
	}
	return v
}

// tells reports whether a client has to know of a rather than of b.
func tells(a, b *bucket.Outcome) bool {
	return b.Allowed && (!a.Allowed || a.Remaining < b.Remaining) || !a.Allowed && a.RetryAfter > b.RetryAfter
}

// rendered is what responses say of a rule, written once.
type rendered struct {
	policy.Rule
	hidden    bool   // clients are told nothing of it
	name      string // as an RFC 9651 string
	policy    string // as an item of RateLimit-Policy
	partition string // as an item of RateLimit-Partition
	named     string // as a policy of WithPolicies

	refused atomic.Pointer[around] // what its refusals say; nil until there was one

	perToken float64 // nanoseconds until the next one

	lowered uint16                   // the part of the rule's rate that this is of, in 1024ths; 0 for all of it
	lower   atomic.Pointer[rendered] // of such a part, the one that was asked for last
}

// around is what problem details say before and behind how long to wait.
type around struct{ before, behind string }

// render writes an item of RateLimit-Policy: name, q (quota), w (window in
// seconds) and, where it differs from q, the burst, as a comment parameter
// under our prefix (-10 §3.1). Before -08 the quota stands in the name's place.
func (version Draft) render(rule policy.Rule) *rendered {
	r := &rendered{Rule: rule, name: string(appendName(nil, rule.Title()))}
	r.perToken = float64(rule.Per) / float64(rule.Limit)
	terms, err := rule.Refusal.Terms()
	r.hidden = err == nil && terms != nil && terms.Hidden
	if rule.Algorithm == policy.Concurrency {
		// A quota of requests under way has a unit, and no window (-08 §3.1.2). Before there were units it is not told.
		r.hidden = r.hidden || version >= Draft07
		r.policy = r.name + ";q=" + strconv.FormatInt(rule.Limit, 10) + `;qu="concurrent-requests"`
		r.named = strconv.FormatInt(rule.Limit, 10) + ";name=" + r.name
		r.partition = r.name + divides(&rule)
		return r
	}
	window := ";w=" + strconv.FormatInt(rate.Seconds(rule.Per), 10)
	r.policy = strconv.FormatInt(rule.Limit, 10) + window
	r.named = r.policy + ";name=" + r.name
	if version < Draft07 {
		r.policy = r.name + ";q=" + r.policy
	}
	if rule.Burst != rule.Limit {
		r.policy += ";headgate-burst=" + strconv.FormatInt(rule.Burst, 10)
	}
	r.partition = r.name + divides(&rule)
	return r
}

// loweredTo is what responses say of the rule while a part of its rate is in force, in 1024ths: 0 is all of it.
func (r *rendered) loweredTo(part uint16, render func(policy.Rule) *rendered) *rendered {
	if part == 0 {
		return r
	}
	if last := r.lower.Load(); last != nil && last.lowered == part {
		return last
	}
	rule := r.Rule
	if rule.Algorithm == policy.Concurrency {
		rule.Limit = max(1, rule.Limit*int64(part)/rate.Whole)
	} else {
		rule.Limit, rule.Per = slower(rule.Limit, rule.Per, int64(part))
	}
	next := render(rule)
	next.lowered, next.perToken = part, r.perToken*rate.Whole/float64(part)
	r.lower.Store(next)
	return next
}

// slower is a part of a rate, as a client may be told of it: in whole tokens and whole seconds, and no more than it is.
// Of fewer tokens and more seconds, what comes closer.
func slower(tokens int64, per time.Duration, part int64) (int64, time.Duration) {
	fewer := int64(float64(tokens) * float64(part) / rate.Whole)
	seconds := rate.Seconds(per)
	longer := int64(math.Ceil(float64(seconds) * rate.Whole / float64(part)))
	if fewer > 0 && float64(fewer)*float64(longer) >= float64(tokens)*float64(seconds) {
		return fewer, per
	}
	return tokens, time.Duration(longer) * time.Second
}

// renders renders the rules of a limiter that may reserve slots, which it says then.
func (version Draft) renders(reserves bool) func(policy.Rule) *rendered {
	if !reserves || version >= Draft07 {
		return version.render
	}
	return func(rule policy.Rule) *rendered {
		r := version.render(rule)
		if rule.Algorithm != policy.Concurrency {
			r.policy += ";headgate-reserves"
		}
		return r
	}
}

// divides lists what divides a rule's quota (Proposal166), in the order of letters: where one of them is another one,
// so is the bucket. The dimensions that the proposal registers are what clients know of themselves; these are what the
// server tells them apart by, so they have our prefix.
func divides(rule *policy.Rule) string {
	by := ""
	if rule.Endpoint != policy.All && rule.Endpoint != policy.UnknownEndpoint {
		by = ";headgate-endpoint"
	}
	switch subject, _ := rule.Subject.Counts(); subject {
	case policy.SubjectEndpoint:
		return by
	case policy.SubjectPrincipalIP:
		return by + ";headgate-ip;headgate-principal"
	case policy.SubjectIdentifierIP:
		return by + ";headgate-identifier;headgate-ip"
	}
	subject, _ := rule.Subject.Counts()
	return by + ";headgate-" + subject.String()
}

// Fields returns what RateLimit and RateLimit-Policy say of one limit by Draft10, an item each: for those who
// limit by something else than the rules of a headgate.Limiter. Of rule its title, Limit, Per, Burst and
// Algorithm count.
func Fields(rule policy.Rule, got *bucket.Outcome) (quota, described string) {
	r := Draft10.render(rule)
	return string(Draft10.appendQuota(nil, &Told{rule: r, got: *got})), r.policy
}

// keys are the parameters of RateLimit for what is left, and for when there is more.
func (version Draft) keys() (left, until string) {
	if version == Proposal166 {
		return ";a=", ";w="
	}
	return ";r=", ";t="
}

// appendQuota appends one item of RateLimit: name, r (tokens left) and t (seconds until there is more, -10 §4.1),
// which a full bucket leaves out. A client that has a time of its own is told that: to the millisecond under our
// prefix, and in whole seconds for everybody else.
func (version Draft) appendQuota(dst []byte, t *Told) []byte {
	left, until := version.keys()
	dst = append(append(dst, t.rule.name...), left...)
	if t.slot > 0 {
		dst = strconv.AppendInt(append(append(dst, '0'), until...), rate.Seconds(t.slot), 10)
		ms := (t.slot + time.Millisecond - 1) / time.Millisecond
		return strconv.AppendInt(append(dst, ";headgate-slot="...), int64(ms), 10)
	}
	dst = strconv.AppendInt(dst, t.got.Remaining, 10)
	if wait := untilMore(t.rule, &t.got, t.less); wait > 0 {
		dst = strconv.AppendInt(append(dst, until...), rate.Seconds(wait), 10)
	}
	return dst
}

// untilMore is how long until the bucket holds more than now: for a denied
// request until it would pass, else until the next whole token. It is 0 for a
// full bucket, and when no wait helps. Of the burst so many tokens less are the
// client's.
func untilMore(rule *rendered, got *bucket.Outcome, less int64) time.Duration {
	if got.Never {
		return 0
	}
	if !got.Allowed {
		return got.RetryAfter
	}
	if rule.Algorithm != policy.TokenBucket && rule.Algorithm != policy.LeakyBucket {
		return got.ResetAfter // tokens of a window do not come back one by one
	}
	missing := rule.Burst - less - got.Remaining - 1 // tokens short of full, after the next one
	if missing < 0 {
		return 0
	}
	// Rounded to the side of a later time; the field has whole seconds.
	wait := got.ResetAfter - time.Duration(float64(missing)*rule.perToken)
	if less > 0 && wait <= 0 { // it passed by what its class is guaranteed, whose tokens come back more slowly
		return got.ResetAfter
	}
	return wait
}

// appendName appends an RFC 9651 §3.3.3 string. Rule titles are printable
// ASCII: policy refuses others.
func appendName(dst []byte, name string) []byte {
	dst = append(dst, '"')
	for i := range len(name) {
		if name[i] == '"' || name[i] == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, name[i])
	}
	return append(dst, '"')
}

// setLegacy writes the fields of the old world, for one rule.
func (o *Options) setLegacy(header http.Header, told []Told, binding *Told) {
	limit := strconv.FormatInt(binding.rule.Limit, 10)
	if o.Legacy == WithPolicies {
		limit += ", " + policies(told, true)
	}
	header[legacyLimit] = []string{limit}
	header[legacyRemaining] = []string{strconv.FormatInt(binding.got.Remaining, 10)}
	header[legacyReset] = []string{o.reset(max(binding.got.ResetAfter, binding.got.RetryAfter))}
	header[legacyStrategy] = []string{binding.rule.Algorithm.String()}
}

// reset writes when a bucket is full, after so long, as the dialect has it; a time rounded up to the second.
func (o *Options) reset(after time.Duration) string {
	if o.Legacy == DeltaSeconds || o.Legacy == WithPolicies {
		return strconv.FormatInt(rate.Seconds(after), 10)
	}
	now := time.Now().UnixNano()
	if o.Now != nil {
		now = o.Now().UnixNano()
	}
	at := rate.Seconds(time.Duration(now + min(int64(after), math.MaxInt64-now)))
	if o.Legacy == ISO8601 {
		return time.Unix(at, 0).UTC().Format(time.RFC3339)
	}
	return strconv.FormatInt(at, 10)
}
