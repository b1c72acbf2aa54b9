package httplimit

import (
	"net/http"
	"strconv"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/internal/problem"
	"github.com/headgate-io/headgate/internal/refusal"
	"github.com/headgate-io/headgate/internal/values"
	"github.com/headgate-io/headgate/rate"
)

// noTarget is what a client is told whose request has no target that Target
// accepts.
const noTarget = "The request target is neither a path that starts with / nor a whole http or https URL, or it was " +
	"changed on its way."

// wantedSignature is what a signature has to cover and to say (RFC 9421 section 5.1).
const wantedSignature = `sig=("@authority" "signature-agent";key="sig");created;expires;tag="web-bot-auth"`

func (h *handler) refuse(w http.ResponseWriter, r *http.Request, target string, d *headgate.Decision) {
	if _, message := r.Body.(*replay); !message && h.options.Refuse == nil && refusal.Alone(d) {
		h.refuseAlone(w, r, d)
		return
	}
	why, header := refusal.Of(d), w.Header()
	switch d.Reason {
	case headgate.UnknownMethod:
		h.allow(w, target)
	case headgate.BadCredential:
		if why.Status == http.StatusForbidden {
			header.Set("WWW-Authenticate", `Bearer error="insufficient_scope"`) // RFC 6750 section 3.1
			break
		}
		challenge := `Bearer error="invalid_token"`
		switch why := d.Principal.Rejected; {
		case why.Unproven():
			challenge = `DPoP error="invalid_dpop_proof"` // RFC 9449 section 7.1
		case why.Signature():
			header.Set("Accept-Signature", wantedSignature)
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

// allow says which methods there are.
func (h *handler) allow(w http.ResponseWriter, target string) {
	var buf [64]byte
	b := buf[:0]
	for i, method := range h.options.Methods(target) {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(b, method...)
	}
	room := values.Of(w)
	w.Header()["Allow"] = room.One(room.Text(b))
}

// refuseAlone answers what one rule has denied, which is nearly all of a flood: what is the same each time is written
// once for a rule.
func (h *handler) refuseAlone(w http.ResponseWriter, r *http.Request, d *headgate.Decision) {
	binding, _ := d.Binding()
	rule := h.rules.Get(d.Policies(), binding.Rule, h.render).loweredTo(binding.Lowered, h.render)
	says := rule.refused.Load()
	if says == nil {
		says = new(around)
		says.before, says.behind = refusal.Around(d)
		rule.refused.Store(says)
	}
	var buf [32]byte
	room := values.Of(w)
	w.Header()[fieldRetryAfter] = room.One(room.Text(appendRetryAfter(buf[:0], d.RetryAfter)))
	wait := room.Text(refusal.AppendWait(buf[:0], d))
	problem.Write(w, r, problem.Details{
		Status: http.StatusTooManyRequests, JSON: [...]string{says.before, wait, says.behind},
	})
}

// appendRetryAfter writes a wait as Retry-After (RFC 9110 section 10.2.3) has it.
func appendRetryAfter(b []byte, wait time.Duration) []byte {
	return strconv.AppendInt(b, max(1, rate.Seconds(wait)), 10)
}

func retryAfter(wait time.Duration) string { return string(appendRetryAfter(nil, wait)) }
