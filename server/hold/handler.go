package hold

import (
	"net/http"
	"strconv"

	"github.com/headgate-io/headgate/internal/problem"
)

// Handler returns next for requests that fit. The others are answered at once:
//
//	414  the target is longer than MaxTarget     503  too many requests are under way, in
//	431  there are more than MaxHeaders fields        total or of the client's address
//
// A body that comes too slowly ends with os.ErrDeadlineExceeded.
func (l *Limiter) Handler(next http.Handler) http.Handler { return &handler{l, next} }

type handler struct {
	l    *Limiter
	next http.Handler
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l := h.l
	if why, status := l.oversized(r); status != 0 {
		l.count(why)
		problem.Write(w, r, problem.Details{Status: status})
		return
	}
	c, _ := r.Context().Value(connKey{}).(*conn)
	var g *group
	if c != nil {
		g = c.group.Load()
	}
	why, ok := l.begin(g)
	if !ok {
		l.count(why)
		if why == RequestsOfAddress && !g.exempt {
			g.turn.refused()
		}
		busy(w, r)
		return
	}
	defer l.end(g)
	if r.ProtoMajor == 1 && (r.Body == nil || r.Body == http.NoBody) {
		h.next.ServeHTTP(w, r) // the connection is watched, which is enough
		return
	}
	x := newExchange(l, c, w, r)
	defer x.finish()
	h.next.ServeHTTP(x, r)
	x.flushRest()
}

// oversized says what about r is too long, with the status of the answer.
func (l *Limiter) oversized(r *http.Request) (Reason, int) {
	if len(r.RequestURI) > l.o().MaxTarget {
		return Target, http.StatusRequestURITooLong
	}
	n := 0
	for _, lines := range r.Header {
		n += len(lines)
	}
	if n > l.o().MaxHeaders {
		return Headers, http.StatusRequestHeaderFieldsTooLarge
	}
	return 0, 0
}

// retryAfter is when a client may come again that was one too many, in seconds.
const retryAfter = 5

// busy answers a request for which there is no room. Over HTTP/2 the answer has
// no body: that of a client whose window is closed would wait for it.
func busy(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	if r.ProtoMajor != 1 {
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	problem.Write(w, r, problem.Details{
		Status: http.StatusServiceUnavailable, Type: problem.TemporaryReducedCapacity,
		Detail: "Too many requests are under way.",
	})
}
