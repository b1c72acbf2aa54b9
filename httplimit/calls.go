package httplimit

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/body"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/internal/problem"
)

// Batch is one endpoint whose requests may hold many: an array of calls of JSON-RPC, or the
// requests of OData's $batch in JSON. They cost and count as many as they hold, all or none. A body
// whose parts cannot be counted is refused, and reaches nobody. Endpoint is required; every other
// zero value is a safe default.
type Batch struct {
	// Endpoint is a template that the table has, "POST /rpc".
	Endpoint string

	// Parts says where they stand in a body, and how many there may be.
	Parts body.Batch

	// Single refuses a body that holds more than one, in place of counting them. Default false.
	Single bool

	// ReadTimeout is how long a body may take to arrive, as Login.ReadTimeout. Default 10 s.
	ReadTimeout time.Duration
}

// CallOptions configures Calls. Endpoints is required.
type CallOptions struct {
	Endpoints *endpoint.Table // that of the Limiter
	Batches   []Batch
	MCP       []MCP
	Models    []Models
	Priced    []Priced
}

// Calls are the endpoints whose bodies hold calls. They are safe for concurrent use. Nil ones read nothing.
type Calls struct {
	current atomic.Pointer[sites[*called]]
	faults  [body.Faults]atomic.Uint64
}

type called struct {
	reading
	counter  *body.Counter
	single   bool
	faults   *[body.Faults]atomic.Uint64
	messages *messages // nil if bodies are counted
	priced   *Priced   // nil if it costs what others do
}

// NewCalls returns Calls, or an error that names every field at fault.
func NewCalls(o CallOptions) (*Calls, error) {
	c := &Calls{}
	use, err := c.Prepare(o)
	if err != nil {
		return nil, err
	}
	use()
	return c, nil
}

// Prepare checks other options, and returns what has them in force for requests to come. The error names every field at
// fault.
func (c *Calls) Prepare(o CallOptions) (use func(), err error) {
	if o.Endpoints == nil {
		return nil, errors.New("calls: Endpoints is nil, want the Limiter's")
	}
	all := &sites[*called]{table: o.Endpoints}
	var errs []error
	for i, b := range o.Batches {
		made, err := c.batch(b)
		if err = errors.Join(all.add(b.Endpoint, made), err); err != nil {
			errs = append(errs, fmt.Errorf("batches[%d] (%s): %w", i, b.Endpoint, err))
		}
	}
	messages := func(list string, i int, e MCP, method string) {
		made, err := c.messages(o.Endpoints, e, method)
		if err = errors.Join(all.add(e.Endpoint, made), err); err != nil {
			errs = append(errs, fmt.Errorf("%s[%d] (%s): %w", list, i, e.Endpoint, err))
		}
	}
	for i, e := range o.MCP {
		messages("mcp", i, e, endpoint.MCP)
	}
	for i, e := range o.Models {
		messages("models", i, MCP(e), endpoint.Model)
	}
	for i, p := range o.Priced {
		made, err := c.price(p)
		if err = errors.Join(all.add(p.Endpoint, made), err); err != nil {
			errs = append(errs, fmt.Errorf("priced[%d] (%s): %w", i, p.Endpoint, err))
		}
	}
	return func() { c.current.Store(all) }, errors.Join(errs...)
}

func (c *Calls) batch(b Batch) (*called, error) {
	made, err := c.reads(b.Parts, b.ReadTimeout)
	if err != nil {
		return nil, err
	}
	made.single = b.Single
	return made, nil
}

// reads makes what reads the bodies of one endpoint.
func (c *Calls) reads(b body.Batch, timeout time.Duration) (*called, error) {
	counter, err := body.NewCounter(b)
	timeout, errTimeout := readTimeout(timeout)
	if err = errors.Join(err, errTimeout); err != nil {
		return nil, err
	}
	return &called{reading: reading{counter.MaxBytes(), timeout}, counter: counter, faults: &c.faults}, nil
}

// Faults returns how many requests were refused because of a fault of their body; those that were counted are under
// body.None.
func (c *Calls) Faults(f body.Fault) uint64 {
	if c == nil || int(f) >= len(c.faults) {
		return 0
	}
	return c.faults[f].Load()
}

// at returns the endpoint that a request is of, or nil.
func (c *Calls) at(r *headgate.Request) *called {
	if c == nil {
		return nil
	}
	return c.current.Load().of(r)
}

// count finds out how many requests r holds, or what it costs, and leaves its body to be read as if nobody had. many
// says that its answer speaks for several. It reports false when r is answered already.
func (c *called) count(w http.ResponseWriter, r *http.Request, request *headgate.Request, room *room) (many, ok bool) {
	parts, fault := 1, body.Empty
	var text []byte
	var price Price
	if !bodiless(r) {
		if fault = c.counter.Wants(r.Header); fault == body.None {
			text, fault = c.buffer(w, r, room.of(request.Peer))
			if tooLate(w, r) {
				c.faults[body.Unread].Add(1)
				return false, false
			}
			switch {
			case fault != body.None || c.priced != nil:
			case c.messages != nil:
				var id []byte
				id, fault = c.messages.count(text, request)
				r.Body.(*replay).id = bytes.Clone(id) // as buffer left it
			default:
				parts, fault = c.counter.Count(text)
			}
		}
	}
	if fault == body.Empty { // nothing is held by it
		parts, fault = 1, body.None
	}
	if fault == body.None && c.priced != nil {
		price = c.priced.Price(r, request.Target, text)
		parts, fault = price.Parts, price.Fault
	}
	if fault == body.None && parts > 1 && c.single {
		fault = body.Many
	}
	c.faults[fault].Add(1)
	if fault != body.None {
		if price.Fault == body.None || !c.priced.answers(w, r, price) {
			c.refuse(w, r, fault)
		}
		return false, false
	}
	request.Parts = int64(max(1, parts))
	if price.Cost > 0 { // of all its parts
		request.Cost = (price.Cost-1)/request.Parts + 1
	}
	return price.Many || parts > 1, true
}

func (c *called) refuse(w http.ResponseWriter, r *http.Request, fault body.Fault) {
	switch fault {
	case body.Crowded:
		crowded(w, r)
		return
	case body.Encoding:
		compressed(w, r)
		return
	}
	d := problem.Details{Status: http.StatusBadRequest, Title: "Unreadable request body",
		Detail: "How many requests the body holds cannot be told in the form that is read here."}
	switch fault {
	case body.Media, body.Charset:
		d = problem.Details{Status: http.StatusUnsupportedMediaType,
			Detail: "This endpoint takes JSON in UTF-8 alone: what bodies hold is counted."}
	case body.Long:
		d = problem.Details{Status: http.StatusRequestEntityTooLarge,
			Detail: "This endpoint takes bodies of " + strconv.Itoa(c.most) + " bytes at most."}
	case body.Many:
		d = problem.Details{Status: http.StatusRequestEntityTooLarge,
			Detail: "This endpoint takes " + strconv.Itoa(c.counter.MaxParts()) + " requests in a body at most."}
		if c.single {
			d.Detail = "This endpoint takes one request in a body."
		}
	}
	switch {
	case d.Title == "": // another status than 400
	case c.priced != nil:
		d.Detail = "What the request costs cannot be told in the form that is read here."
	case c.messages == nil:
	case c.messages.method == endpoint.MCP:
		d.Detail = "This endpoint takes one message of JSON-RPC in a body, in the form that is read here."
	default:
		d.Detail = "Which model the body asks for cannot be told in the form that is read here."
	}
	problem.Write(w, r, d)
}
