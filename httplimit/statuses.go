package httplimit

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
)

// Statuses are statuses of answers, 200 to 599.
type Statuses struct{ has [600]bool }

// ParseStatuses reads statuses: "401", and "4xx" for all from 400 to 499. The error names those that are none.
func ParseStatuses(texts ...string) (*Statuses, error) {
	var s Statuses
	var wrong []string
	for _, text := range texts {
		class, isClass := strings.CutSuffix(text, "xx")
		n, err := strconv.Atoi(class)
		switch {
		case err != nil, strconv.Itoa(n) != class:
			wrong = append(wrong, strconv.Quote(text))
		case isClass && 2 <= n && n <= 5:
			for status := n * 100; status < n*100+100; status++ {
				s.has[status] = true
			}
		case !isClass && 200 <= n && n <= 599:
			s.has[n] = true
		default:
			wrong = append(wrong, strconv.Quote(text))
		}
	}
	switch {
	case len(wrong) > 0:
		return nil, fmt.Errorf("a status is %s, want one from 200 to 599, or 2xx, 3xx, 4xx or 5xx", strings.Join(wrong, " and "))
	case len(texts) == 0:
		return nil, fmt.Errorf("there is no status, want at least one, such as 401 or 4xx")
	}
	return &s, nil
}

// Has reports whether a status is among them.
func (s *Statuses) Has(status int) bool { return 0 <= status && status < len(s.has) && s.has[status] }

// countsWhen says which answers the rules of a request's endpoint count; nil if all.
func (h *handler) countsWhen(r *headgate.Request) *Statuses {
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
	login   *login
	counts  *Statuses
}

// forgives reports whether an answer that is complete says that the request does not count.
func (a *afterwards) forgives(m *meter) bool {
	switch {
	case m.hijacked, m.brokeOff():
		return false
	case a.counts != nil && !a.counts.Has(m.answered()):
		return true
	}
	return a.login.forgives(m.answered())
}
