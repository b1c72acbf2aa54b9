package httplimit

import (
	"net/http"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
)

// countsWhen says which answers the rules of a request's endpoint count; nil if all.
func (h *handler) countsWhen(r *headgate.Request) *policy.Statuses {
	if len(h.options.CountWhen) == 0 {
		return nil
	}
	table := h.lim.Endpoints()
	m := table.Match(r.Method, r.Target)
	if m.Status != endpoint.Known {
		return nil
	}
	return h.options.CountWhen[table.Template(m.ID).String()]
}

// afterwards says what happens to a request's tokens once it is answered.
type afterwards struct {
	reserve *Reserve
	always  bool // not only where a rule that applies counts only some answers
	counts  *policy.Statuses
	looked  // if many, the request counts whatever the status of its answer

	exchange Exchange // of an endpoint that is metered
	metered  *metered
}

// forgives reports whether an answer says that the rules of the endpoint do not count the request;
// 0 for one that is not complete.
func (a *afterwards) forgives(status int) bool {
	switch {
	case status == 0:
		return false
	case a.counts != nil && !a.counts.Has(status):
		return true
	}
	return a.login.forgives(status)
}

// Unanswered says that what is written to w is no answer of the API behind, which may have acted on the request all the
// same: it counts, whatever its status, where only some answers do. For handlers that send requests on. It does nothing
// to another w than a Handler has passed on, or one that unwraps to it.
func Unanswered(w http.ResponseWriter) {
	for w != nil {
		switch own := w.(type) {
		case *meter:
			own.instead = true
			return
		case interface{ Unwrap() http.ResponseWriter }:
			w = own.Unwrap()
		default:
			return
		}
	}
}
