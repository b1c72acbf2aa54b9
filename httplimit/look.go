package httplimit

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"

	"github.com/headgate-io/headgate"
)

// Portion is a part of what a request costs, and what it is for.
type Portion struct {
	What string  // such as a field of a schema
	Cost float64 // in tokens, a thousandth at least
}

// Looked is what a body says of a request.
type Looked struct {
	Portions []Portion // of its cost, the largest first; nil where it has none

	// Status is that of the answer by which the request is refused, whatever its limits, and Why says why; 0 if it is
	// not.
	Status int
	Why    string
}

// Look has a request hold what its body says of it, as a handler would, for whoever explains requests: nothing is
// counted. r is the same request, with the body. It reports false where bodies hold no calls.
func (c *Calls) Look(r *http.Request, request *headgate.Request) (l Looked, reads bool, err error) {
	at := c.at(request)
	if at == nil {
		return l, false, nil
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return l, true, err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	looks, target := *at, request.Target
	looks.faults = &new(Calls).faults
	answer := unsent{header: http.Header{}}
	if _, ok := looks.count(&answer, r, request, newRoom(1<<40)); !ok {
		l.Status, l.Why = answer.status, answer.why()
	}
	if at.priced != nil && at.priced.Portions != nil {
		l.Portions = at.priced.Portions(r, target, text)
	}
	return l, true, nil
}

// unsent is an answer that nobody is sent.
type unsent struct {
	header http.Header
	status int
	text   []byte
}

func (a *unsent) Header() http.Header { return a.header }

func (a *unsent) WriteHeader(status int) { a.status = status }

func (a *unsent) Write(text []byte) (int, error) {
	a.text = append(a.text, text...)
	return len(text), nil
}

// why is what problem details say, or else an error of GraphQL.
func (a *unsent) why() string {
	var told struct {
		Detail string `json:"detail"`
		Errors []struct {
			Message string `json:"message"`
		} `json:"errors"`
	}
	if json.Unmarshal(a.text, &told) != nil || told.Detail == "" && len(told.Errors) == 0 {
		return http.StatusText(a.status)
	}
	for _, e := range told.Errors {
		return e.Message
	}
	return told.Detail
}
