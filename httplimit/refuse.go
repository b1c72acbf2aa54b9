package httplimit

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/internal/problem"
	"github.com/headgate-io/headgate/internal/refusal"
	"github.com/headgate-io/headgate/rate"
)

// noTarget is what a client is told whose request has no target that Target
// accepts.
const noTarget = "The request target is neither a path that starts with / nor a whole http or https URL, or it was " +
	"changed on its way."

func (h *handler) refuse(w http.ResponseWriter, r *http.Request, target string, d *headgate.Decision) {
	why, header := refusal.Of(d), w.Header()
	switch d.Reason {
	case headgate.UnknownMethod:
		header.Set("Allow", strings.Join(h.options.Methods(target), ", "))
	case headgate.BadCredential:
		if why.Status == http.StatusForbidden {
			header.Set("WWW-Authenticate", `Bearer error="insufficient_scope"`) // RFC 6750 section 3.1
			break
		}
		challenge := `Bearer error="invalid_token"`
		if d.Principal.Rejected.Unproven() {
			challenge = `DPoP error="invalid_dpop_proof"` // RFC 9449 section 7.1
		}
		header.Set("WWW-Authenticate", challenge)
	case headgate.InvalidTarget:
		if target == "" {
			why.Detail = noTarget
		}
	}
	if why.RetryAfter > 0 || d.Reason == headgate.OverLimit || d.Reason == headgate.InPenalty {
		header.Set(fieldRetryAfter, retryAfter(why.RetryAfter))
	}
	if h.options.Refuse != nil {
		problem.Release(w, r)
		told := *d
		h.options.Refuse(w, r, &told)
		return
	}
	if refuseMessage(w, r, &why) {
		return
	}
	problem.Write(w, r, why.Details)
}

// retryAfter writes a wait as Retry-After (RFC 9110 section 10.2.3) has it.
func retryAfter(wait time.Duration) string {
	return strconv.FormatInt(max(1, rate.Seconds(wait)), 10)
}
