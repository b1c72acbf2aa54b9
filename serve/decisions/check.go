package decisions

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/internal/problem"
)

// PathCheck is where programs ask, by POST and in JSON: about one request with a
// Question, or about up to MaxBatch by {"requests": [...]}, which are decided one
// after the other.
const PathCheck = "/v1/check"

// Bounds of what programs may ask at once.
const (
	MaxBatch = 1000
	maxBody  = 2 << 20
)

// Question describes a request.
type Question struct {
	Method string `json:"method"`
	Target string `json:"target"` // as it stood in the request line, with its query and nothing decoded

	// Client is the address at the other end of the connection that the request
	// came by. If that is a trusted proxy, Header says more.
	Client string `json:"client"`

	Header map[string]Lines `json:"header"` // in which credentials stand

	// Identifier is what the request tries to be, such as the account of a login,
	// for rules with subject identifier.
	Identifier string `json:"identifier"`

	// Cost is in tokens; 0 is what the endpoint costs.
	Cost int64 `json:"cost"`
}

// Lines are the lines of a field: a text in JSON, or a list of texts.
type Lines []string

// UnmarshalJSON reads either.
func (l *Lines) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '"' {
		*l = make(Lines, 1)
		return json.Unmarshal(text, &(*l)[0])
	}
	if json.Unmarshal(text, (*[]string)(l)) != nil {
		return errors.New("a field of header is neither a text nor a list of texts")
	}
	return nil
}

// Answer says what is decided about a request.
type Answer struct {
	Allowed bool   `json:"allowed"`
	Status  int    `json:"status"` // to answer the client with; 200 where the request may pass
	Reason  string `json:"reason"` // a word of headgate.Reason, or "override"

	Endpoint string `json:"endpoint,omitempty"` // the template, or UNKNOWN
	Cost     int64  `json:"cost,omitempty"`     // in tokens

	// Rule is the one that came closest to refusing, or did; without one, the
	// rest is left out. The times are in seconds: until the same request succeeds,
	// and until the bucket is full.
	Rule       string   `json:"rule,omitempty"`
	Remaining  *int64   `json:"remaining,omitempty"`
	RetryAfter *float64 `json:"retry_after,omitempty"`
	ResetAfter *float64 `json:"reset_after,omitempty"`

	Header  map[string]string `json:"header,omitempty"`  // fields for the client's answer
	Problem json.RawMessage   `json:"problem,omitempty"` // the body of a refusal (RFC 9457)
}

// asked is what goes with a described request beside what HTTP has room for.
type asked struct {
	question *Question
	decision *headgate.Decision // nil until it is known
}

type askedKey struct{}

func askedOf(r *http.Request) *asked { return r.Context().Value(askedKey{}).(*asked) }

// check answers a program.
func (d *door) check(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		problem.Write(w, r, problem.Details{Status: http.StatusMethodNotAllowed, Detail: "Questions are asked by POST."})
		return
	}
	questions, batch, err := readQuestions(http.MaxBytesReader(w, r.Body, maxBody))
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		problem.Write(w, r, problem.Details{Status: http.StatusRequestEntityTooLarge, Detail: fmt.Sprintf("The body is longer than %d bytes.", maxBody)})
		return
	case err != nil:
		d.options.Failed(Incomplete, err)
		problem.Write(w, r, problem.Details{Status: http.StatusBadRequest, Title: "Incomplete question", Detail: err.Error() + "."})
		return
	}
	decided := make([]Answer, len(questions))
	for i := range questions {
		decided[i] = d.decide(r.Context(), &questions[i])
	}
	var answer any = map[string][]Answer{"decisions": decided}
	if !batch {
		answer = decided[0]
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	_ = out.Encode(answer) // whoever asked is gone if this fails
}

// readQuestions reads a body and names every fault in it.
func readQuestions(body io.Reader) (questions []Question, batch bool, err error) {
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, false, err
	}
	var both struct {
		Question
		Requests []Question `json:"requests"`
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	var other *json.UnmarshalTypeError
	if err := in.Decode(&both); errors.As(err, &other) && other.Field != "" {
		field := strings.TrimPrefix(other.Field, "Question.")
		return nil, false, fmt.Errorf("%s is a JSON %s, want a %s", field, other.Value, other.Type)
	} else if err != nil {
		return nil, false, fmt.Errorf("the body is no question: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if in.Decode(new(any)) != io.EOF {
		return nil, false, errors.New("the body holds more than one JSON value, want one")
	}
	questions, batch = []Question{both.Question}, both.Requests != nil
	if batch {
		if own := both.Question; own.Method != "" || own.Target != "" || own.Client != "" || own.Header != nil || own.Identifier != "" || own.Cost != 0 {
			return nil, true, errors.New("there are requests and a question beside them, want one of both")
		}
		if questions = both.Requests; len(questions) == 0 || len(questions) > MaxBatch {
			return nil, true, fmt.Errorf("requests has %d elements, want 1 to %d", len(questions), MaxBatch)
		}
	}
	var faults []string
	for i := range questions {
		where := ""
		if batch {
			where = fmt.Sprintf("requests[%d].", i)
		}
		faults = append(faults, questions[i].faults(where)...)
	}
	const most = 10
	if n := len(faults); n > most {
		faults = append(faults[:most], fmt.Sprintf("and %d more", n-most))
	}
	if len(faults) > 0 {
		return nil, batch, errors.New(strings.Join(faults, "; "))
	}
	return questions, batch, nil
}

// Check says what about a question is wrong.
func (q *Question) Check() error {
	if faults := q.faults(""); len(faults) > 0 {
		return errors.New(strings.Join(faults, "; "))
	}
	return nil
}

// Ask returns what answers questions of programs, or an error that names every
// option at fault. Who may ask is the caller's to say.
func Ask(o Options) (func(context.Context, *Question) Answer, error) {
	// What a program says of a request besides goes before what is read in it.
	cost, identifier, decided := o.Limit.Cost, o.Limit.Identifier, o.Limit.Decided
	o.Limit.Cost = func(r *http.Request) int64 {
		if a := askedOf(r); a.question.Cost != 0 || cost == nil {
			return a.question.Cost
		}
		return cost(r)
	}
	o.Limit.Identifier = func(r *http.Request) string {
		if a := askedOf(r); a.question.Identifier != "" || identifier == nil {
			return a.question.Identifier
		}
		return identifier(r)
	}
	o.Limit.Decided = func(r *http.Request, d *headgate.Decision) {
		askedOf(r).decision = d
		if decided != nil {
			decided(r, d)
		}
	}
	answers, err := Answers(o)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, q *Question) Answer { return q.decide(ctx, o.Limiter, answers) }, nil
}

func (q *Question) faults(where string) (faults []string) {
	for _, f := range []struct {
		wrong bool
		text  string
	}{
		{q.Method == "", "method is missing, want that of the request"},
		{q.Target == "", "target is missing, want that of the request line"},
		{q.Client == "", "client is missing, want the address that the request came from"},
		{q.Cost < 0, "cost is below zero, want 0 or more"},
	} {
		if f.wrong {
			faults = append(faults, where+f.text)
		}
	}
	if _, err := netip.ParseAddr(q.Client); q.Client != "" && err != nil {
		faults = append(faults, where+"client is no address, want one such as 192.0.2.7")
	}
	return faults
}

// decide answers a question as if the request had come here itself.
func (q *Question) decide(ctx context.Context, lim *headgate.Limiter, answers http.Handler) Answer {
	a := &asked{question: q}
	r := &http.Request{
		Method: q.Method, RequestURI: q.Target, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header, len(q.Header)), RemoteAddr: q.Client, Body: http.NoBody,
	}
	for name, lines := range q.Header {
		name = http.CanonicalHeaderKey(name)
		r.Header[name] = append(r.Header[name], lines...)
	}
	r.URL, _ = url.ParseRequestURI(q.Target)
	w := &told{header: http.Header{}}
	answers.ServeHTTP(w, r.WithContext(context.WithValue(ctx, askedKey{}, a)))
	answer := Answer{Allowed: w.status == http.StatusOK, Status: w.status, Reason: "override", Header: make(map[string]string, len(w.header))}
	for name, lines := range w.header {
		if name != "Content-Length" { // which the caller writes
			answer.Header[name] = strings.Join(lines, ", ")
		}
	}
	if body := bytes.TrimSpace(w.body.Bytes()); len(body) > 0 {
		answer.Problem = json.RawMessage(body)
	}
	if a.decision != nil {
		answer.describe(lim, a.decision)
	}
	return answer
}

func (a *Answer) describe(lim *headgate.Limiter, decision *headgate.Decision) {
	a.Reason, a.Cost = decision.Reason.String(), decision.Cost
	switch {
	case decision.Endpoint.Status == endpoint.Known:
		a.Endpoint = lim.Endpoints().Template(decision.Endpoint.ID).String()
	case decision.Reason != headgate.InvalidTarget:
		a.Endpoint = "UNKNOWN"
	}
	binding, ok := decision.Binding()
	if !ok || binding.Outcome.Unknown {
		return
	}
	seconds := func(t time.Duration) *float64 { s := t.Seconds(); return &s }
	a.Rule, a.Remaining = decision.Policies().Rule(binding.Rule).Title(), &binding.Outcome.Remaining
	a.RetryAfter, a.ResetAfter = seconds(decision.RetryAfter), seconds(binding.Outcome.ResetAfter)
}
