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
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/internal/problem"
	"github.com/headgate-io/headgate/internal/refusal"
	"github.com/headgate-io/headgate/policy"
	"github.com/headgate-io/headgate/reservation"
)

// The paths where programs ask, in JSON; PathOpenAPI describes them.
//
// At PathCheck they ask by POST about one request with a Question, or about up to
// MaxBatch by {"requests": [...]}, which are decided one after the other. A question
// that is repeated under the same Idempotency-Key has the same answer and costs
// nothing; this process keeps it for ten minutes, if it has room.
//
// At PathSettle they say by POST what a request has cost that was reserved for.
const (
	PathCheck   = "/v1/check"
	PathSettle  = "/v1/settle"
	PathOpenAPI = "/v1/openapi.yaml"
)

// Bounds of what programs may ask at once.
const (
	MaxBatch = 1000
	maxBody  = 2 << 20
)

// Question describes a request.
type Question struct {
	Method string `json:"method"`
	Target string `json:"target"` // as it stood in the request line, with its query and nothing decoded

	// Message says that a message on a WebSocket is asked about: then Method is
	// WS-SEND or WS-RECEIVE, and the rest is that of the request which opened it.
	Message bool `json:"message"`

	// Client is the address at the other end of the connection that the request
	// came by. If that is a trusted proxy, Header says more.
	Client string `json:"client"`

	Header map[string]Lines `json:"header"` // in which credentials stand

	// User is who the program has logged in, by a session for one; then no
	// credential in Header is looked at. See identity.User.
	User *User `json:"user"`

	// Identifier is what the request tries to be, such as the account of a login,
	// for rules with subject identifier.
	Identifier string `json:"identifier"`

	// Cost is in tokens; 0 is what the endpoint costs.
	Cost int64 `json:"cost"`

	// Reserve makes the cost an estimate, which is settled at PathSettle within so
	// many seconds, or stands. 0 settles it at once.
	Reserve int64 `json:"reserve"`

	dry bool // nothing is taken: what would be answered is asked for
}

// User is an identity.User.
type User struct {
	ID      string `json:"id"`
	Project string `json:"project"`
}

const (
	// maxUser is how long an ID and a project may be, in bytes: they are told to those
	// who watch.
	maxUser = 255

	maxReserve = int64(reservation.MaxTimeout / time.Second)
)

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

	// Reservation is what PathSettle asks for, by Expires.
	Reservation string     `json:"reservation,omitempty"`
	Expires     *time.Time `json:"expires,omitempty"`

	Header  map[string]string `json:"header,omitempty"`  // fields for the client's answer
	Problem json.RawMessage   `json:"problem,omitempty"` // the body of a refusal (RFC 9457)
	Body    string            `json:"body,omitempty"`    // or one of another kind, as Header says
}

// check answers a program.
func (d *door) check(w http.ResponseWriter, r *http.Request) {
	text, ok := d.posted(w, r)
	if !ok {
		return
	}
	questions, batch, err := readQuestions(text)
	if err != nil {
		d.incomplete(w, r, err)
		return
	}
	key, err := onceKey(r.Header["Idempotency-Key"])
	if err != nil {
		d.incomplete(w, r, err)
		return
	}
	if key == "" {
		b := answerRoom.Get().(*[]byte)
		*b, _ = d.answers.appendAnswers((*b)[:0], r.Context(), questions, batch)
		if reply(w, *b); cap(*b) <= mostRoom {
			answerRoom.Put(b)
		}
		return
	}
	answer, err := d.kept.answer(r.Context(), key, text, func() (answer []byte, keep bool) {
		return d.answers.appendAnswers(nil, r.Context(), questions, batch)
	})
	switch {
	case errors.Is(err, errAnother):
		problem.Write(w, r, problem.Details{
			Status: http.StatusUnprocessableEntity, Title: "Key used twice",
			Detail: "The Idempotency-Key was used for another question within ten minutes.",
		})
	case err == nil:
		reply(w, answer)
	}
}

// answerRoom has memory in which answers are written, unless it is for more of them than most ask for.
var answerRoom = sync.Pool{New: func() any { return new([]byte) }}

const mostRoom = 128 << 10

// posted returns the body of a POST, or answers why there is none.
func (d *door) posted(w http.ResponseWriter, r *http.Request) (text []byte, ok bool) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		problem.Write(w, r, problem.Details{Status: http.StatusMethodNotAllowed, Detail: "This is asked for by POST."})
		return nil, false
	}
	var room bytes.Buffer
	room.Grow(int(min(max(r.ContentLength, 0), 64<<10)) + bytes.MinRead) // more once that has come
	_, err := room.ReadFrom(http.MaxBytesReader(w, r.Body, maxBody))
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		problem.Write(w, r, problem.Details{
			Status: http.StatusRequestEntityTooLarge,
			Detail: fmt.Sprintf("The body is longer than %d bytes.", maxBody),
		})
	case err != nil:
		d.incomplete(w, r, errors.New("the body did not arrive as a whole"))
	}
	return room.Bytes(), err == nil
}

func (d *door) incomplete(w http.ResponseWriter, r *http.Request, err error) {
	d.options.Failed(Incomplete, err)
	problem.Write(w, r, problem.Details{
		Status: http.StatusBadRequest,
		Title:  "Incomplete question",
		Detail: err.Error() + ".",
	})
}

func inJSON(v any) []byte {
	var b bytes.Buffer
	out := json.NewEncoder(&b)
	out.SetEscapeHTML(false)
	_ = out.Encode(v) // what is answered can be written
	return b.Bytes()
}

func reply(w http.ResponseWriter, answer []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(len(answer))) // small clients know no chunks
	_, _ = w.Write(answer)                                      // whoever asked is gone if this fails
}

// readQuestions reads a body and names every fault in it.
func readQuestions(text []byte) (questions []Question, batch bool, err error) {
	questions, batch, plain := readPlain(string(text))
	if !plain {
		if questions, batch, err = readAny(text); err != nil {
			return nil, batch, err
		}
	}
	var faults []string
	for i := range questions {
		found := questions[i].faults("")
		for j := range found {
			if batch {
				found[j] = fmt.Sprintf("requests[%d].%s", i, found[j])
			}
		}
		faults = append(faults, found...)
	}
	return questions, batch, listed(faults)
}

// readAny reads a body however it is written.
func readAny(text []byte) (questions []Question, batch bool, err error) {
	var both struct {
		Question
		Requests []Question `json:"requests"`
	}
	if err := decode(text, &both); err != nil {
		return nil, false, err
	}
	if both.Requests == nil {
		return []Question{both.Question}, false, nil
	}
	if !reflect.ValueOf(both.Question).IsZero() {
		return nil, true, errors.New("there are requests and a question beside them, want one of both")
	}
	if questions = both.Requests; len(questions) == 0 || len(questions) > MaxBatch {
		return nil, true, fmt.Errorf("requests has %d elements, want 1 to %d", len(questions), MaxBatch)
	}
	return questions, true, nil
}

// decode reads a body that is one value in JSON.
func decode(text []byte, v any) error {
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	var other *json.UnmarshalTypeError
	switch err := in.Decode(v); {
	case errors.As(err, &other) && other.Field != "":
		return fmt.Errorf("%s is a JSON %s, want a %s", strings.TrimPrefix(other.Field, "Question."),
			other.Value, other.Type)
	case err != nil:
		return fmt.Errorf("the body is no question: %s", strings.TrimPrefix(err.Error(), "json: "))
	case in.Decode(new(any)) != io.EOF:
		return errors.New("the body holds more than one JSON value, want one")
	}
	return nil
}

// Check says what about a question is wrong.
func (q *Question) Check() error {
	return listed(q.faults(""))
}

func (q *Question) faults(where string) (faults []string) {
	if q.Method == "" {
		faults = append(faults, where+"method is missing, want that of the request")
	}
	if q.Target == "" {
		faults = append(faults, where+"target is missing, want that of the request line")
	}
	if q.Client == "" {
		faults = append(faults, where+"client is missing, want the address that the request came from")
	}
	if q.Cost < 0 {
		faults = append(faults, where+"cost is below zero, want 0 or more")
	}
	if q.Reserve < 0 || q.Reserve > maxReserve {
		faults = append(faults, where+fmt.Sprintf("reserve is %d, want seconds from 1 to %d, or 0",
			q.Reserve, maxReserve))
	}
	if u := q.User; u != nil && (u.ID == "" || len(u.ID) > maxUser || len(u.Project) > maxUser) {
		const want = "user.id is missing, or it or user.project is longer than %d bytes; leave user out where " +
			"nobody is logged in"
		faults = append(faults, where+fmt.Sprintf(want, maxUser))
	}
	if _, err := netip.ParseAddr(q.Client); q.Client != "" && err != nil {
		faults = append(faults, where+"client is no address, want one such as 192.0.2.7")
	}
	return faults
}

// Ask answers a question of a program as if the request had come here itself.
func (a *Answers) Ask(ctx context.Context, q *Question) Answer {
	w := &told{header: http.Header{}}
	answer := a.ask(ctx, q, q.request(new(described), (&http.Request{}).WithContext(ctx)), w)
	answer.Header = make(map[string]string, len(w.header))
	for name, lines := range w.header {
		if name != "Content-Length" { // which the caller writes
			answer.Header[name] = strings.Join(lines, ", ")
		}
	}
	return answer
}

// ask answers a question about a request, but for the fields, which w has.
func (a *Answers) ask(ctx context.Context, q *Question, r *http.Request, w *told) (answer Answer) {
	answer.Reason = "override"
	own := false // the body is what a rule says
	if !a.refused(w, r) {
		request := a.gate.Request(r)
		q.complete(&request)
		var d headgate.Decision
		var made headgate.Reservation
		switch {
		case q.dry:
			d = a.limiter.Look(ctx, request).Decision
		case q.Reserve > 0:
			made, d = a.limiter.Reserve(ctx, request, time.Duration(q.Reserve)*time.Second)
		default:
			d, _ = a.limiter.Wait(ctx, request) // which denies where it would have to wait
		}
		if a.gate.Answer(w, r, &d) {
			w.WriteHeader(http.StatusOK)
		} else {
			own = refusal.Of(&d).Body != nil
		}
		if made.ID != (reservation.ID{}) {
			answer.Reservation, answer.Expires = made.ID.String(), &made.Expires
		}
		a.describe(&answer, &d)
	}
	answer.Allowed, answer.Status = w.status == http.StatusOK, w.status
	switch body := bytes.TrimSpace(w.body.Bytes()); {
	case len(body) == 0:
	case own || w.header.Get("Content-Type") != problem.MediaType:
		answer.Body = w.body.String()
	default:
		answer.Problem = json.RawMessage(body)
	}
	return answer
}

// appendAnswers answers questions one after the other, as Ask would, in JSON. It says whether the answers are to be
// kept for whoever asks again.
func (a *Answers) appendAnswers(b []byte, ctx context.Context, questions []Question, batch bool) (_ []byte, keep bool) {
	b = slices.Grow(b, usualAnswer*len(questions))
	rooms, unasked := make([]described, 1), (&http.Request{}).WithContext(ctx)
	if a.shown.Load() { // who is shown requests may keep them
		rooms = make([]described, len(questions))
	}
	w := &told{header: http.Header{}}
	if keep = true; batch {
		b = append(b, `{"decisions":[`...)
	}
	for i := range questions {
		if i > 0 {
			b = append(b, ',')
		}
		answer := a.ask(ctx, &questions[i], questions[i].request(&rooms[i%len(rooms)], unasked), w)
		b = answer.append(b, w.header)
		keep = keep && answer.Status != http.StatusServiceUnavailable // which another try may find mended
		clear(w.header)
		w.status = 0
		w.body.Reset()
	}
	if batch {
		b = append(b, "]}"...)
	}
	return append(b, '\n'), keep
}

// described is the memory of a request that is described.
type described struct {
	http.Request
	url url.URL
}

// request is what a question describes; like is one with its context.
func (q *Question) request(room *described, like *http.Request) *http.Request {
	r := &room.Request
	*r = *like
	r.Method, r.RequestURI, r.Proto, r.ProtoMajor, r.ProtoMinor = q.Method, q.Target, "HTTP/1.1", 1, 1
	r.RemoteAddr, r.Body = q.Client, http.NoBody
	if len(q.Header) > 0 {
		r.Header = make(http.Header, len(q.Header))
	}
	for name, lines := range q.Header {
		name = http.CanonicalHeaderKey(name)
		r.Header[name] = append(r.Header[name], lines...)
	}
	r.URL = readTarget(&room.url, q.Target)
	return r
}

// complete adds what a program says of a request besides. It goes before what is read in it.
func (q *Question) complete(r *headgate.Request) {
	if q.Cost != 0 {
		r.Cost = q.Cost
	}
	r.Message = q.Message
	if q.Identifier != "" {
		r.Identifier = q.Identifier
	}
	if q.User != nil {
		r.User = &identity.User{ID: q.User.ID, Project: q.User.Project}
	}
}

func (a *Answers) describe(answer *Answer, decision *headgate.Decision) {
	answer.Reason, answer.Cost = decision.Reason.String(), decision.Cost
	switch {
	case decision.Endpoint.Status == endpoint.Known:
		answer.Endpoint = decision.Template().String()
	case decision.Reason != headgate.InvalidTarget:
		answer.Endpoint = "UNKNOWN"
	}
	binding, ok := decision.Binding()
	if !ok || binding.Outcome.Unknown {
		return
	}
	answer.Rule = *a.titles.Get(decision.Policies(), binding.Rule, title)
	numbers := &struct {
		remaining    int64
		retry, reset float64
	}{binding.Outcome.Remaining, decision.RetryAfter.Seconds(), binding.Outcome.ResetAfter.Seconds()}
	answer.Remaining, answer.RetryAfter, answer.ResetAfter = &numbers.remaining, &numbers.retry, &numbers.reset
}

func title(rule policy.Rule) *string { t := rule.Title(); return &t }
