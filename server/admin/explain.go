package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/textproto"
	"strconv"
	"strings"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/httplimit"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/inspect"
)

// ExplainRequest is a request to be explained, as people write it.
type ExplainRequest struct {
	Method string `json:"method"`
	Target string `json:"target"`

	// Peer is the address the request comes from. Default 127.0.0.1.
	Peer string `json:"peer,omitempty"`

	// Header holds lines "Name: value".
	Header []string `json:"header,omitempty"`

	// User is the ID of one whom a program has logged in, and Project the user's.
	User    string `json:"user,omitempty"`
	Project string `json:"project,omitempty"`

	Identifier string `json:"identifier,omitempty"`

	// Body is read where bodies say what a request is, or costs; as JSON unless Header says otherwise.
	Body string `json:"body,omitempty"`

	// Parts is how many requests it holds, for a batch. Default 1.
	Parts int64 `json:"parts,omitempty"`

	// Cost is what it costs, each of its parts, where that is known of the request alone. Default what its
	// endpoint costs.
	Cost int64 `json:"cost,omitempty"`
}

// Check names every field at fault.
func (e *ExplainRequest) Check() error {
	var errs []error
	wrong := func(field, value, want string) {
		errs = append(errs, fmt.Errorf("%s is %q, want %s", field, asSent(value), want))
	}
	if e.Method == "" || strings.ContainsAny(e.Method, " \t\r\n") {
		wrong("method", e.Method, "a request method such as GET")
	}
	if e.Target == "" {
		wrong("target", e.Target, "a request target such as /v1/items/7?x=1")
	}
	if e.Peer == "" {
		e.Peer = "127.0.0.1"
	}
	if _, err := netip.ParseAddr(e.Peer); err != nil {
		wrong("peer", e.Peer, "an IP address")
	}
	if e.Parts < 0 {
		wrong("parts", strconv.FormatInt(e.Parts, 10), "how many requests it holds, or nothing for 1")
	}
	if e.Parts > 0 && e.Body != "" {
		wrong("parts", strconv.FormatInt(e.Parts, 10), "nothing beside a body, which says it")
	}
	if e.Cost < 0 {
		wrong("cost", strconv.FormatInt(e.Cost, 10), "how many tokens it costs, or nothing for what its endpoint does")
	}
	if e.Project != "" && e.User == "" {
		wrong("project", e.Project, "a user beside it: without one it comes with the credential")
	}
	if err := checkHeader(e.Header); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Request translates e, which has been checked.
func (e *ExplainRequest) Request() headgate.Request {
	peer, _ := netip.ParseAddr(e.Peer)
	r := headgate.Request{
		Method:     e.Method,
		Message:    endpoint.OfMessages(e.Method),
		Target:     e.Target,
		Peer:       peer,
		Header:     header(e.Header),
		Identifier: e.Identifier,
		Parts:      e.Parts,
		Cost:       e.Cost,
	}
	if e.User != "" {
		r.User = &identity.User{ID: e.User, Project: e.Project}
	}
	return r
}

// Explain says what the request, which has been checked, would be answered by a limiter, of which calls are the
// endpoints whose bodies are read. The error is the request's.
func (e *ExplainRequest) Explain(ctx context.Context, l *headgate.Limiter,
	calls *httplimit.Calls) (inspect.Explanation, error) {
	request := e.Request()
	queried := (e.Method == http.MethodGet || e.Method == http.MethodHead) && strings.Contains(e.Target, "?")
	if e.Body == "" && !queried {
		return inspect.Explain(ctx, l, request), nil
	}
	r, err := http.NewRequestWithContext(ctx, e.Method, "/", strings.NewReader(e.Body))
	if err != nil {
		return inspect.Explanation{}, fmt.Errorf("method is %q, want one of HTTP beside a body", asSent(e.Method))
	}
	if r.Header = header(e.Header); e.Body != "" && r.Header.Get("Content-Type") == "" {
		r.Header.Set("Content-Type", "application/json")
	}
	looked, reads, err := calls.Look(r, &request)
	if err != nil {
		return inspect.Explanation{}, err
	}
	if e.Cost > 0 && request.Cost != e.Cost {
		return inspect.Explanation{}, fmt.Errorf("cost is %d, want nothing beside a document, which says it", e.Cost)
	}
	x := inspect.Explain(ctx, l, request)
	if !reads && queried {
		return x, nil
	}
	x.Body = &inspect.Body{Read: reads, Parts: request.Parts, Status: looked.Status, Why: looked.Why}
	for _, p := range looked.Portions {
		x.Body.Portions = append(x.Body.Portions, inspect.Portion(p))
	}
	if looked.Status != 0 {
		x.Cost, x.Considered, x.Buckets = 0, nil, nil
		x.Verdict = inspect.Verdict{Reason: inspect.RefusedBody}
	}
	return x, nil
}

// checkHeader refuses lines that are not "Name: value". They are not repeated:
// they may hold a credential.
func checkHeader(lines []string) error {
	for _, line := range lines {
		if name, _, ok := strings.Cut(line, ":"); !ok || strings.TrimSpace(name) == "" {
			return errors.New("header has a line without a name, want Name: value")
		}
	}
	return nil
}

// header reads lines that were checked.
func header(lines []string) http.Header {
	header := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ":")
		header.Add(textproto.TrimString(name), textproto.TrimString(value))
	}
	return header
}

// readExplain reads the request from the query of a GET, else from the body.
func readExplain(w http.ResponseWriter, r *http.Request) (ExplainRequest, error) {
	if r.Method != http.MethodPost {
		query := r.URL.Query()
		number := func(name string) (n int64) {
			if text := query.Get(name); text != "" {
				var err error
				if n, err = strconv.ParseInt(text, 10, 64); err != nil {
					n = -1 // which Check says
				}
			}
			return n
		}
		return ExplainRequest{
			Method: query.Get("method"), Target: query.Get("target"), Peer: query.Get("peer"),
			Header: query["header"], User: query.Get("user"), Project: query.Get("project"),
			Identifier: query.Get("identifier"), Parts: number("parts"), Cost: number("cost"),
		}, nil
	}
	var e ExplainRequest
	return e, decode(w, r, &e)
}

func (d *Door) explain(w http.ResponseWriter, r *http.Request) {
	request, err := readExplain(w, r)
	if err == nil {
		err = request.Check()
	}
	var x inspect.Explanation
	if err == nil {
		x, err = request.Explain(r.Context(), d.Limiter, d.Bodies)
	}
	if err != nil {
		refuseError(w, r, invalidRequest, err)
		return
	}
	answer(w, http.StatusOK, x)
}
