package httplimit

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/slot"
)

// Dialect is a way to write the X-RateLimit-* fields. One name must never
// carry two meanings, so there is no mixture.
type Dialect uint8

const (
	// NoLegacy sends no X-RateLimit-* fields.
	NoLegacy Dialect = iota
	// DeltaSeconds writes X-RateLimit-Reset as seconds from now, as Envoy,
	// Kong and the early IETF drafts do.
	DeltaSeconds
	// EpochSeconds writes X-RateLimit-Reset as a Unix time, as GitHub does.
	EpochSeconds
)

// Field names in the canonical form of http.Header, which is what a handler
// further in finds with Get.
const (
	fieldRateLimit  = "Ratelimit"
	fieldPolicy     = "Ratelimit-Policy"
	fieldRetryAfter = "Retry-After"
	fieldExpose     = "Access-Control-Expose-Headers"
)

// exposed lists what a browser's script may read of a cross-origin response.
const (
	exposed       = "RateLimit, RateLimit-Policy, Retry-After"
	exposedLegacy = ", X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, X-RateLimit-Strategy"
)

// setFields tells the client its budget: draft-ietf-httpapi-ratelimit-headers-10
// as RFC 9651 structured fields, and X-RateLimit-* if asked for.
func (h *handler) setFields(header http.Header, r *http.Request, d *headgate.Decision) {
	binding, limited := d.Binding()
	if !limited {
		return
	}
	if !h.options.OmitFields {
		h.setRateLimit(header, d)
	}
	if h.options.Legacy != NoLegacy {
		h.setLegacy(header, d.Policies().Rule(binding.Rule), binding.Outcome)
	}
	if r.Header.Get("Origin") != "" {
		names := exposed
		if h.options.Legacy != NoLegacy {
			names += exposedLegacy
		}
		header.Add(fieldExpose, names)
	}
}

func (h *handler) setRateLimit(header http.Header, d *headgate.Decision) {
	var quotaBuf, policyBuf [192]byte
	quota, policies := quotaBuf[:0], policyBuf[:0]
	verdicts := d.Verdicts()
	var only *rendered
	for i := range verdicts {
		v := &verdicts[i]
		if v.Shadow || v.Unparsable || v.Earlier || v.Outcome.Unknown || v.Principal > 0 && listed(verdicts[:i], v.Rule) {
			continue // not in force, so nothing to obey; or told with its rule; or not asked
		}
		v = tighter(verdicts, v)
		rule := h.rules.Get(d.Policies(), v.Rule, render)
		if len(quota) > 0 {
			quota, policies = append(quota, ", "...), append(policies, ", "...)
		}
		if d.Slot.Wait > 0 && binds(d, v) {
			quota = appendSlot(quota, rule, d.Slot)
		} else {
			quota = appendQuota(quota, rule, &v.Outcome)
		}
		policies = append(policies, h.describe(rule)...)
		only = rule
	}
	if only == nil {
		return
	}
	// One allocation for both values' slices, one for each string; the policy
	// of a single rule, which is most requests, is there already.
	values := &[2]string{string(quota)}
	if described := h.describe(only); len(described) == len(policies) {
		values[1] = described
	} else {
		values[1] = string(policies)
	}
	header[fieldRateLimit], header[fieldPolicy] = values[0:1:1], values[1:2:2]
}

// binds reports whether v is by the rule that a decision's slot is about.
func binds(d *headgate.Decision, v *headgate.Verdict) bool {
	binding, limited := d.Binding()
	return limited && binding.Rule == v.Rule
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
		a, b := &other.Outcome, &v.Outcome
		if b.Allowed && (!a.Allowed || a.Remaining < b.Remaining) || !a.Allowed && a.RetryAfter > b.RetryAfter {
			v = other
		}
	}
	return v
}

// rendered is what responses say of a rule, written once.
type rendered struct {
	policy.Rule
	name     string // as an RFC 9651 string
	policy   string // as an item of RateLimit-Policy
	reserved string // as one that says that slots are reserved
}

// describe is the item of RateLimit-Policy for a rule.
func (h *handler) describe(rule *rendered) string {
	if h.reserves {
		return rule.reserved
	}
	return rule.policy
}

// render writes an item of RateLimit-Policy: name, q (quota), w (window in
// seconds) and, where it differs from q, the burst, as a comment parameter
// under our prefix (-10 §3.1).
func render(rule policy.Rule) *rendered {
	name := string(appendName(nil, rule.Title()))
	item := strconv.AppendInt([]byte(name+";q="), rule.Limit, 10)
	item = strconv.AppendInt(append(item, ";w="...), rate.Seconds(rule.Per), 10)
	if rule.Burst != rule.Limit {
		item = strconv.AppendInt(append(item, ";headgate-burst="...), rule.Burst, 10)
	}
	return &rendered{Rule: rule, name: name, policy: string(item), reserved: string(item) + ";headgate-reserves"}
}

// Fields returns what RateLimit and RateLimit-Policy say of one limit, an item each: for those who
// limit by something else than the rules of a headgate.Limiter. Of rule its title, Limit, Per, Burst and
// Algorithm count.
func Fields(rule policy.Rule, got *bucket.Outcome) (quota, described string) {
	r := render(rule)
	return string(appendQuota(nil, r, got)), r.policy
}

// appendSlot appends one item of RateLimit for a client that has a time of its own: to the
// millisecond under our prefix, and in whole seconds for everybody else.
func appendSlot(dst []byte, rule *rendered, s slot.Offer) []byte {
	dst = append(append(dst, rule.name...), ";r=0;t="...)
	dst = strconv.AppendInt(dst, rate.Seconds(s.Wait), 10)
	ms := (s.Wait + time.Millisecond - 1) / time.Millisecond
	return strconv.AppendInt(append(dst, ";headgate-slot="...), int64(ms), 10)
}

// appendQuota appends one item of RateLimit: name, r (tokens left) and t
// (seconds until there is more, -10 §4.1), which a full bucket leaves out.
func appendQuota(dst []byte, rule *rendered, got *bucket.Outcome) []byte {
	dst = append(dst, rule.name...)
	dst = strconv.AppendInt(append(dst, ";r="...), got.Remaining, 10)
	if wait := untilMore(&rule.Rule, got); wait > 0 {
		dst = strconv.AppendInt(append(dst, ";t="...), rate.Seconds(wait), 10)
	}
	return dst
}

// untilMore is how long until the bucket holds more than now: for a denied
// request until it would pass, else until the next whole token. It is 0 for a
// full bucket, and when no wait helps.
func untilMore(rule *policy.Rule, got *bucket.Outcome) time.Duration {
	if got.Never {
		return 0
	}
	if !got.Allowed {
		return got.RetryAfter
	}
	if rule.Algorithm != policy.TokenBucket && rule.Algorithm != policy.LeakyBucket {
		return got.ResetAfter // tokens of a window do not come back one by one
	}
	missing := rule.Burst - got.Remaining - 1 // tokens short of full, after the next one
	if missing < 0 {
		return 0
	}
	// Rounded to the side of a later time; the field has whole seconds.
	return got.ResetAfter - time.Duration(float64(missing)*float64(rule.Per)/float64(rule.Limit))
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

// setLegacy writes the fields of the old world, for the binding rule.
func (h *handler) setLegacy(header http.Header, rule policy.Rule, got bucket.Outcome) {
	reset := rate.Seconds(got.ResetAfter)
	if h.options.Legacy == EpochSeconds {
		now := h.options.Now().UnixNano()
		reset = rate.Seconds(time.Duration(now + min(int64(got.ResetAfter), math.MaxInt64-now)))
	}
	header.Set("X-Ratelimit-Limit", strconv.FormatInt(rule.Limit, 10))
	header.Set("X-Ratelimit-Remaining", strconv.FormatInt(got.Remaining, 10))
	header.Set("X-Ratelimit-Reset", strconv.FormatInt(reset, 10))
	header.Set("X-Ratelimit-Strategy", rule.Algorithm.String())
}
