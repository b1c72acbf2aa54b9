package policy

import (
	"net/http"
	"strings"

	"github.com/headgate-io/headgate/endpoint"
)

// noteMessages reports what is easily forgotten where the bodies of requests have endpoints of their own: one that no
// rule is for, which is no longer counted with the endpoint that takes the body either; and streams by which clients
// listen for messages, of which a client may hold as many as it likes.
func (c *advice) noteMessages() {
	if c.o.Endpoints == nil {
		return
	}
	var paths []string         // of the messages of MCP
	ruled := map[uint32]bool{} // of those of all bodies, which have a rule
	for id, t := range c.o.Endpoints.All() {
		if t.Method() == endpoint.MCP {
			paths = append(paths, t.Path())
		}
		if endpoint.OfBodies(t.Method()) {
			ruled[uint32(id)] = false
		}
	}
	for i := range c.rows {
		if _, of := ruled[c.rows[i].endpoint]; of && c.set.live(&c.rows[i], c.wall) {
			ruled[c.rows[i].endpoint] = true
		}
	}
	for id, t := range c.o.Endpoints.All() {
		switch method := t.Method(); {
		case endpoint.OfBodies(method):
			if !ruled[uint32(id)] && !c.full("message_unruled") {
				c.found(Problem{Severity: Note, Code: "message_unruled", Rule: -1, Where: "endpoint " + t.String(),
					Field: "rule", Value: "missing", Want: "a rule for it, or no such endpoint: with one, it counts " +
						"apart from what takes the body, and has a budget of " + Default + " to itself"}, t.String())
			}
		case method == http.MethodGet && listens(paths, t.Path()):
			guards := []group{c.set.fallback.all, c.set.fallback.byDefault, c.set.byEndpoint[id].group}
			if !c.boundsUnderWay(guards) && !c.full("listeners_open") {
				c.found(Problem{Severity: Note, Code: "listeners_open", Rule: c.firstRule(id),
					Where: "endpoint " + t.String(), Field: "subject", Value: "no in_flight: in any rule that applies",
					Want: "a rule with algorithm concurrency, so that a client holds so many streams and no more"},
					t.String())
			}
		}
	}
}

// listens reports whether a path is that of an endpoint of MCP, below which the messages are.
func listens(messages []string, path string) bool {
	for _, p := range messages {
		if strings.HasPrefix(p, path+"/") {
			return true
		}
	}
	return false
}

// boundsUnderWay reports whether a rule of some groups denies requests by how many are under way.
func (c *advice) boundsUnderWay(groups []group) bool {
	s := c.set
	for _, g := range groups {
		for of := range Subject(subjects) {
			if id, ok := s.of(g, of.Counting(CountsUnderWay)); ok && s.rows[id].mode == Enforce &&
				s.live(&s.rows[id], c.wall) {
				return true
			}
		}
	}
	return false
}
