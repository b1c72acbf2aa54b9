// Package refusal says of a decision why the request was refused: as an answer
// over HTTP, as a status of gRPC, and in words. It is the one place that turns
// reasons into those.
package refusal

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/problem"
	"github.com/headgate-io/headgate/rate"
)

// Refusal is why a request was refused.
type Refusal struct {
	problem.Details        // over HTTP; Detail is fit for gRPC as well
	Code            uint32 // of gRPC (google.rpc.Code)

	// RetryAfter is when trying again may help; 0 if waiting does not.
	RetryAfter time.Duration
}

// The codes of google.rpc.Code that reasons have.
const (
	canceled          uint32 = 1
	invalidArgument   uint32 = 3
	permissionDenied  uint32 = 7
	resourceExhausted uint32 = 8
	unimplemented     uint32 = 12
	unavailable       uint32 = 14
	unauthenticated   uint32 = 16
)

type answer struct {
	code    uint32
	details problem.Details
}

var answers = [headgate.Reasons]answer{
	headgate.NoRule: {permissionDenied, problem.Details{
		Status: http.StatusForbidden,
		Detail: "No rate limit rule covers this endpoint, and this server serves none without."}},
	headgate.OverLimit: {resourceExhausted, problem.Details{
		Status: http.StatusTooManyRequests, Type: problem.QuotaExceeded, Title: "Quota exceeded"}},
	headgate.CostAboveBurst: {resourceExhausted, problem.Details{
		Status: http.StatusTooManyRequests, Type: problem.QuotaExceeded, Title: "Quota exceeded",
		Detail: "This request costs more than the limit's burst ever holds; waiting does not help."}},
	headgate.UnknownEndpoint: {unimplemented, problem.Details{
		Status: http.StatusNotFound, Detail: "No endpoint has this path."}},
	headgate.UnknownMethod: {unimplemented, problem.Details{
		Status: http.StatusMethodNotAllowed, Detail: "This path has no such method."}},
	headgate.InvalidTarget: {invalidArgument, problem.Details{
		Status: http.StatusBadRequest, Title: "Invalid request target"}},
	headgate.StoreFailed: {unavailable, problem.Details{
		Status: http.StatusServiceUnavailable, Type: problem.TemporaryReducedCapacity,
		Title: "Rate limit state unavailable", Detail: "The limits cannot be checked at the moment."}},
	headgate.NoPolicies: {unavailable, problem.Details{
		Status: http.StatusServiceUnavailable, Type: problem.TemporaryReducedCapacity,
		Title: "Rate limits unavailable", Detail: "No limits have been loaded yet."}},
	headgate.RulesStale: {unavailable, problem.Details{
		Status: http.StatusServiceUnavailable, Type: problem.TemporaryReducedCapacity,
		Title: "Rate limits out of date", Detail: "The limits have not been confirmed for too long."}},
	headgate.InvalidCost: {invalidArgument, problem.Details{
		Status: http.StatusBadRequest, Title: "Invalid cost",
		Detail: "The cost of this request comes out below zero."}},
	headgate.ReservationsFull: {unavailable, problem.Details{
		Status: http.StatusServiceUnavailable, Type: problem.TemporaryReducedCapacity,
		Title:  "Too many requests under way",
		Detail: "Too many requests are being served whose cost is not known yet."}},
	headgate.TooManyCredentials: {invalidArgument, problem.Details{
		Status: http.StatusBadRequest, Title: "Too many credentials",
		Detail: "This request presents more different credentials than are looked at."}},
	headgate.BadCredential: {unauthenticated, problem.Details{
		Status: http.StatusUnauthorized, Title: "Invalid credential",
		Detail: "A credential of this request is not known, has expired or was revoked."}},
	headgate.CredentialUnverified: {unavailable, problem.Details{
		Status: http.StatusServiceUnavailable, Type: problem.TemporaryReducedCapacity,
		Title: "Credential not verified", Detail: "A credential of this request cannot be verified at the moment."}},
	headgate.Blocked: {permissionDenied, problem.Details{
		Status: http.StatusForbidden, Detail: "This request is blocked."}},
	headgate.InPenalty: {resourceExhausted, problem.Details{
		Status: http.StatusTooManyRequests, Type: problem.QuotaExceeded, Title: "Blocked for a time",
		Detail: "This caller was denied too often, and is blocked for a time."}},
	headgate.Abandoned: {canceled, problem.Details{
		Status: http.StatusServiceUnavailable, Detail: "The request ended before its turn came."}},
}

// invalidTargets is what is said of each fault of a target: once, as scanners have many of them.
var invalidTargets = func() (said [math.MaxUint8 + 1]string) {
	for fault := range said {
		said[fault] = "The request target " + endpoint.Fault(fault).String() + "."
	}
	return said
}()

// Unavailable is when to come back after a fault of the limiter itself: by then a
// breaker has probed and a reload has been tried several times.
const Unavailable = 5 * time.Second

// Of says why d, which is no allowed one, is refused.
func Of(d *headgate.Decision) Refusal {
	r := Refusal{Details: answers[d.Reason].details, Code: answers[d.Reason].code}
	switch {
	case d.Reason == headgate.OverLimit:
		r.RetryAfter = d.RetryAfter
		r.Detail = overLimit(d, AppendWait(nil, d))
		r.Violated = violated(d)
	case d.Reason == headgate.InPenalty:
		r.RetryAfter = d.RetryAfter
		if v, ok := d.Binding(); ok {
			r.Detail = inPenalty(d, d.Policies().Rule(v.Rule).Title())
		}
		r.Violated = violated(d)
	case d.Reason == headgate.CostAboveBurst:
		r.Violated = violated(d)
	case d.Reason == headgate.BadCredential && d.Principal.Rejected == identity.KeyOutOfScope:
		r.Status, r.Code, r.Title, r.Detail = http.StatusForbidden, permissionDenied, "",
			"The API key of this request is not for this endpoint."
	case d.Reason == headgate.InvalidTarget:
		r.Detail = invalidTargets[d.Endpoint.Fault]
	case r.Status == http.StatusServiceUnavailable:
		r.RetryAfter = Unavailable
	}
	if d.Reason == headgate.OverLimit || d.Reason == headgate.CostAboveBurst || d.Reason == headgate.InPenalty {
		r.asRuled(d)
	}
	return r
}

// asRuled has the rule that decided say what is answered, if it does (policy.Rule.Refusal).
func (r *Refusal) asRuled(d *headgate.Decision) {
	v, ok := d.Binding()
	if !ok {
		return
	}
	says := d.Policies().RefusalOf(v.Rule)
	if says == nil {
		return
	}
	if r.Status = says.Status; r.Status == http.StatusServiceUnavailable {
		r.Code, r.Type, r.Title = unavailable, problem.TemporaryReducedCapacity, ""
	}
	if says.Hidden {
		r.Detail = "Too many requests."
		if r.RetryAfter > 0 {
			r.Detail += " Retry in " + wholeSeconds(r.RetryAfter) + "."
		}
	}
	if says.Media != "" {
		rule := d.Policies().Rule(v.Rule)
		r.ContentType, r.Body = says.ContentType(), says.AppendBody(nil, &rule, r.RetryAfter)
	}
}

// overLimit says in words which limit was met and how long it lasts. The
// burst is named because "10/s let 15 through" is the commonest surprise.
func overLimit(d *headgate.Decision, wait []byte) string {
	v, ok := d.Binding()
	if !ok {
		return ""
	}
	rule := d.Policies().Rule(v.Rule)
	b := make([]byte, 0, 160)
	b = append(b, "Limit "...)
	b = append(b, rule.Title()...)
	b = append(append(b, ": "...), rule.Rate()...)
	b = strconv.AppendInt(append(b, ", burst "...), rule.Burst, 10)
	if v.Lowered > 0 {
		b = strconv.AppendInt(append(b, ", lowered to "...), int64(v.Lowered)*100/rate.Whole, 10)
		b = append(b, " % for the moment"...)
	}
	b = append(append(b, ". Retry in "...), wait...)
	return string(append(b, '.'))
}

// AppendWait appends how long a request that is over a limit has to wait, as its refusal says it.
func AppendWait(b []byte, d *headgate.Decision) []byte {
	return append(b, d.RetryAfter.Round(time.Microsecond).String()...)
}

// Around is what problem details say before that wait and behind it of a decision that is Alone. Both are the same for
// all of one rule, and one part of its rate that is in force (headgate.Verdict.Lowered).
func Around(d *headgate.Decision) (before, behind string) {
	const wait = "…" // which is in no title
	r := Of(d)
	r.Detail = overLimit(d, []byte(wait))
	before, behind, _ = strings.Cut(string(r.AppendJSON(nil)), wait)
	return before, behind
}

// Alone reports whether d is over the limit of one rule, which has no words of its own for it.
func Alone(d *headgate.Decision) bool {
	binding, ok := d.Binding()
	if d.Reason != headgate.OverLimit || !ok || d.Policies().RefusalOf(binding.Rule) != nil {
		return false
	}
	verdicts := d.Verdicts()
	for i := range verdicts {
		if v := &verdicts[i]; !v.Shadow && !v.Outcome.Allowed && v.Rule != binding.Rule {
			return false
		}
	}
	return true
}

// inPenalty says in words by which limit and for how long the caller is blocked. It is as precise
// as the header field: to the second above.
func inPenalty(d *headgate.Decision, title string) string {
	return "Limit " + title + " was exceeded again and again. Retry in " + wholeSeconds(d.RetryAfter) + "."
}

// wholeSeconds is a wait as Retry-After has it, rounded up.
func wholeSeconds(d time.Duration) string {
	return ((d + time.Second - 1) / time.Second * time.Second).String()
}

// violated names the enforced rules that had no room, and that clients are told of.
func violated(d *headgate.Decision) []string {
	var names []string
	for _, v := range d.Verdicts() {
		says := d.Policies().RefusalOf(v.Rule)
		if !v.Shadow && !v.Outcome.Allowed && (says == nil || !says.Hidden) {
			if title := d.Policies().Rule(v.Rule).Title(); !v.Unparsable && !v.Earlier && v.Principal == 0 ||
				!slices.Contains(names, title) {
				names = append(names, title)
			}
		}
	}
	return names
}
