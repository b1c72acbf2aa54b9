package httplimit

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/problem"
	"github.com/headgate-io/headgate/rate"
)

// answers is the one place that turns reasons into HTTP.
var answers = [headgate.Reasons]problem.Details{
	headgate.NoRule: {
		Status: http.StatusForbidden,
		Detail: "No rate limit rule covers this endpoint, and this server serves none without.",
	},
	headgate.OverLimit: {
		Status: http.StatusTooManyRequests, Type: problem.QuotaExceeded, Title: "Quota exceeded",
	},
	headgate.CostAboveBurst: {
		Status: http.StatusTooManyRequests, Type: problem.QuotaExceeded, Title: "Quota exceeded",
		Detail: "This request costs more than the limit's burst ever holds; waiting does not help.",
	},
	headgate.UnknownEndpoint: {
		Status: http.StatusNotFound, Detail: "No endpoint has this path.",
	},
	headgate.UnknownMethod: {
		Status: http.StatusMethodNotAllowed, Detail: "This path has no such method.",
	},
	headgate.InvalidTarget: {
		Status: http.StatusBadRequest, Title: "Invalid request target",
	},
	headgate.StoreFailed: {
		Status: http.StatusServiceUnavailable, Type: problem.TemporaryReducedCapacity,
		Title: "Rate limit state unavailable", Detail: "The limits cannot be checked at the moment.",
	},
	headgate.NoPolicies: {
		Status: http.StatusServiceUnavailable, Type: problem.TemporaryReducedCapacity,
		Title: "Rate limits unavailable", Detail: "No limits have been loaded yet.",
	},
	headgate.RulesStale: {
		Status: http.StatusServiceUnavailable, Type: problem.TemporaryReducedCapacity,
		Title: "Rate limits out of date", Detail: "The limits have not been confirmed for too long.",
	},
	headgate.InvalidCost: {
		Status: http.StatusBadRequest, Title: "Invalid cost", Detail: "The cost of this request comes out below zero.",
	},
	headgate.ReservationsFull: {
		Status: http.StatusServiceUnavailable, Type: problem.TemporaryReducedCapacity,
		Title: "Too many requests under way", Detail: "Too many requests are being served whose cost is not known yet.",
	},
	headgate.TooManyCredentials: {
		Status: http.StatusBadRequest, Title: "Too many credentials",
		Detail: "This request presents more different credentials than are looked at.",
	},
	headgate.BadCredential: {
		Status: http.StatusUnauthorized, Title: "Invalid credential",
		Detail: "A credential of this request is not known, has expired or was revoked.",
	},
	headgate.CredentialUnverified: {
		Status: http.StatusServiceUnavailable, Type: problem.TemporaryReducedCapacity,
		Title: "Credential not verified", Detail: "A credential of this request cannot be verified at the moment.",
	},
	headgate.Abandoned: { // mostly to nobody
		Status: http.StatusServiceUnavailable, Detail: "The request ended before its turn came.",
	},
}

// noTarget is what a client is told whose request has no target that Target
// accepts.
const noTarget = "The request target is neither a path that starts with / nor a whole http or https URL, or it was changed on its way."

// unavailableRetry is when to come back after a 503, in seconds: by then a
// breaker has probed and a reload has been tried several times.
const unavailableRetry = "5"

func (h *handler) refuse(w http.ResponseWriter, r *http.Request, target string, d *headgate.Decision) {
	answer := answers[d.Reason]
	header := w.Header()
	switch d.Reason {
	case headgate.OverLimit:
		header.Set(fieldRetryAfter, strconv.FormatInt(max(1, rate.Seconds(d.RetryAfter)), 10))
		answer.Detail = overLimit(d)
		answer.Violated = violated(d)
	case headgate.CostAboveBurst:
		answer.Violated = violated(d)
	case headgate.UnknownMethod:
		header.Set("Allow", strings.Join(h.options.Methods(target), ", "))
	case headgate.BadCredential:
		if d.Principal.Rejected == identity.KeyOutOfScope {
			answer.Status, answer.Title, answer.Detail = http.StatusForbidden, "", "The API key of this request is not for this endpoint."
			header.Set("WWW-Authenticate", `Bearer error="insufficient_scope"`) // RFC 6750 section 3.1
			break
		}
		header.Set("WWW-Authenticate", `Bearer error="invalid_token"`)
	case headgate.InvalidTarget:
		answer.Detail = "The request target " + d.Endpoint.Fault.String() + "."
		if target == "" {
			answer.Detail = noTarget
		}
	case headgate.StoreFailed, headgate.CredentialUnverified, headgate.NoPolicies, headgate.RulesStale, headgate.ReservationsFull, headgate.Abandoned:
		header.Set(fieldRetryAfter, unavailableRetry)
	}
	problem.Write(w, r, answer)
}

// overLimit says in words which limit was met and how long it lasts. The
// burst is named because "10/s let 15 through" is the commonest surprise.
func overLimit(d *headgate.Decision) string {
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
	b = append(append(b, ". Retry in "...), d.RetryAfter.Round(time.Microsecond).String()...)
	return string(append(b, '.'))
}

// violated names the enforced rules that had no room.
func violated(d *headgate.Decision) []string {
	var names []string
	for _, v := range d.Verdicts() {
		if !v.Shadow && !v.Outcome.Allowed {
			if title := d.Policies().Rule(v.Rule).Title(); !v.Unparsable && !v.Earlier && v.Principal == 0 || !slices.Contains(names, title) {
				names = append(names, title)
			}
		}
	}
	return names
}
