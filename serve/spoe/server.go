// Package spoe is a door for HAProxy's filter spoe: an agent that is asked about each
// request by a message, over connections that stay open, and answers by variables
// (HAProxy, doc/SPOE.txt; protocol SPOP 2.0).
//
// The arguments of a message describe a request by their names: method, target,
// client, and if wanted headers (req.hdrs_bin), identifier and cost. The variables
// that answer it are
//
//	allowed       bool    whether it may pass
//	status        int     to answer the client with
//	reason        text    a word of headgate.Reason
//	ratelimit     text    the fields RateLimit, RateLimit-Policy and Retry-After
//	policy        text    of the answer; each is missing where that has none
//	retry_after   text
//	allow         text
//	authenticate  text    the field WWW-Authenticate
//	problem       text    the body of a refusal
//	content_type  text    its media type
//
// A message that does not say what it asks about is answered by none of them, so a
// configuration passes requests on where allowed is true, and nowhere else.
package spoe

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/internal/conns"
	"github.com/headgate-io/headgate/serve/decisions"
)

// Options configures a Server. Check, Trusted and MaxConnections are required.
type Options struct {
	// Check answers questions; decisions.Answers.Ask is one.
	Check func(context.Context, *decisions.Question) decisions.Answer

	// Trusted says who may connect.
	Trusted func(netip.Addr) bool

	// MaxConnections bounds those that are open.
	MaxConnections int

	// Patience is how long HAProxy may take to send a frame, once it has begun, and
	// to take one. Between frames it may be silent. Default 10 s.
	Patience time.Duration

	// Failed, if set, is told of connections that were refused or closed for what
	// they sent, and of messages that do not describe a request.
	Failed func(decisions.Fault, error)
}

// Bounds of a connection.
const (
	maxFrame    = 16 << 10 // bytes; HAProxy's own default is a little less
	minFrame    = 256
	maxAtOnce   = 64 // questions of one connection that are decided at the same time
	maxArgument = 64 // arguments of a message
)

// Server answers HAProxy.
type Server struct {
	options Options
	conns   *conns.Server
}

// New returns a Server, or an error that names every option at fault.
func New(o Options) (*Server, error) {
	var errs []error
	for _, f := range []struct {
		wrong bool
		text  string
	}{
		{o.Check == nil, "Check is nil, want a function that decides"},
		{o.Trusted == nil, "Trusted is nil, want a function that says who may connect"},
		{o.MaxConnections < 1, fmt.Sprintf("MaxConnections is %d, want 1 or more", o.MaxConnections)},
	} {
		if f.wrong {
			errs = append(errs, errors.New(f.text))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("spoe options: %w", err)
	}
	if o.Failed == nil {
		o.Failed = func(decisions.Fault, error) {}
	}
	s := &Server{options: o}
	s.conns = conns.New(conns.Options{
		Trusted: o.Trusted, Most: o.MaxConnections, Patience: o.Patience, Answer: s.answer,
		Refused:  func(err error) { o.Failed(decisions.Untrusted, err) },
		Panicked: func(err error) { o.Failed(decisions.Panicked, err) },
		Refusal: func(why conns.Why) []byte {
			if why == conns.Untrusted {
				return appendDisconnect(nil, errUntrusted)
			}
			return appendDisconnect(nil, errUnavailable)
		},
	})
	return s, nil
}

// Serve answers on l until Shutdown.
func (s *Server) Serve(l net.Listener) error { return s.conns.Serve(l) }

// Shutdown closes idle connections, and the others once their questions are
// answered, or when ctx ends, which is its error. The listener is to be closed
// before.
func (s *Server) Shutdown(ctx context.Context) error { return s.conns.Shutdown(ctx) }

// session is a connection of HAProxy.
type session struct {
	server *Server
	conn   *conns.Conn
	in     *bufio.Reader
	most   int // bytes of a frame

	writing sync.Mutex    // held by who writes to conn
	slots   chan struct{} // one for each question that is being decided
	asked   sync.WaitGroup
}

func (s *Server) answer(c *conns.Conn) {
	o := &session{
		server: s, conn: c, in: bufio.NewReaderSize(c, maxFrame+4), most: maxFrame,
		slots: make(chan struct{}, maxAtOnce),
	}
	err := o.serve()
	o.asked.Wait()
	var f *fault
	if errors.As(err, &f) {
		s.options.Failed(decisions.Incomplete, fmt.Errorf("%v: %w", c.RemoteAddr(), err))
		o.send(appendDisconnect(nil, f))
	}
}

// serve returns nil when the connection has ended in order, or by a failure of the network.
func (o *session) serve() error {
	f, err := o.next()
	if err != nil {
		return quiet(err)
	}
	healthcheck, err := o.hello(f)
	if err != nil || healthcheck {
		return err
	}
	for {
		f, err := o.next()
		if err != nil {
			return quiet(err)
		}
		switch f.kind {
		case notify:
			if err := o.notified(f); err != nil {
				return err
			}
		case haproxyDisconnect:
			o.asked.Wait()
			o.send(appendDisconnect(nil, &fault{0, "bye"}))
			return nil
		default:
			return errInvalid
		}
	}
}

// quiet is nil for what is no fault of a frame.
func quiet(err error) error {
	var f *fault
	if errors.As(err, &f) {
		return err
	}
	return nil
}

// next reads a frame. It is good until the next one is read.
func (o *session) next() (frame, error) {
	if err := o.conn.Await(o.in); err != nil {
		return frame{}, err
	}
	head, err := o.in.Peek(4)
	if err != nil {
		return frame{}, err
	}
	n := binary.BigEndian.Uint32(head)
	if uint64(n) > uint64(o.most) {
		return frame{}, errTooBig
	}
	whole, err := o.in.Peek(4 + int(n))
	if err != nil {
		return frame{}, err
	}
	_, _ = o.in.Discard(len(whole)) // it stays in the buffer until that is read into
	return readFrame(whole[4:])
}

// hello answers the first frame.
func (o *session) hello(f frame) (healthcheck bool, err error) {
	if f.kind != haproxyHello || f.stream != 0 || f.frame != 0 {
		return false, errInvalid
	}
	versions, size := "", uint64(0)
	for r := (reader{b: f.payload}); len(r.b) > 0; {
		name, v := r.named()
		if r.bad {
			return false, errInvalid
		}
		switch name {
		case "supported-versions":
			versions, _ = v.(string)
		case "max-frame-size":
			size, _ = v.(uint64)
		case "healthcheck":
			healthcheck, _ = v.(bool)
		}
	}
	switch {
	case versions == "":
		return false, errNoVersion
	case !speaks(versions):
		return false, errVersion
	case size == 0:
		return false, errNoSize
	case size < minFrame:
		return false, errSize
	}
	o.most = int(min(size, maxFrame))
	o.send(appendFrame(nil, agentHello, 0, 0, func(b []byte) []byte {
		b = appendString(appendText(b, "version"), "2.0")
		b = appendUint32(appendText(b, "max-frame-size"), uint64(o.most))
		return appendString(appendText(b, "capabilities"), "pipelining")
	}))
	return healthcheck, nil
}

func speaks(versions string) bool {
	for v := range strings.SplitSeq(versions, ",") {
		if strings.HasPrefix(strings.TrimSpace(v), "2.") {
			return true
		}
	}
	return false
}

// notified has the messages of a frame decided, beside those of others.
func (o *session) notified(f frame) error {
	questions, err := messages(f.payload)
	if errors.Is(err, errInvalid) {
		return err
	}
	if err != nil {
		o.server.options.Failed(decisions.Incomplete, err)
	}
	o.slots <- struct{}{}
	o.conn.Busy(1)
	o.asked.Go(func() {
		defer func() { <-o.slots; o.conn.Busy(-1) }()
		defer o.conn.Recover()
		reply := appendFrame(nil, ack, f.stream, f.frame, func(b []byte) []byte {
			for i := range questions {
				b = appendAnswer(b, o.server.options.Check(context.Background(), &questions[i]))
			}
			return b
		})
		if len(reply)-4 > o.most { // by a rule with a long name; without it nothing passes
			const long = "an answer has %d bytes, and HAProxy takes %d: raise its tune.bufsize"
			o.server.options.Failed(decisions.Incomplete, fmt.Errorf(long, len(reply)-4, o.most))
			reply = appendFrame(nil, ack, f.stream, f.frame, func(b []byte) []byte { return b })
		}
		o.send(reply)
	})
	return nil
}

func (o *session) send(b []byte) {
	o.writing.Lock()
	defer o.writing.Unlock()
	if !o.conn.Send(b) {
		_ = o.conn.Close() // whoever reads from it learns it
	}
}

// messages reads those of a frame. None of them is returned where one does not
// describe a request: one answer of several would pass for all.
func messages(payload []byte) (questions []decisions.Question, err error) {
	var faults []error
	for r := (reader{b: payload}); len(r.b) > 0; {
		name := r.text()
		count := r.bytes(1)
		if r.bad || count[0] > maxArgument {
			return nil, errInvalid
		}
		var q decisions.Question
		for range count[0] {
			argument, v := r.named()
			if r.bad {
				return nil, errInvalid
			}
			if err := fill(&q, argument, v); err != nil {
				faults = append(faults, fmt.Errorf("message %.64q: %w", name, err))
			}
		}
		if err := q.Check(); err != nil {
			faults = append(faults, fmt.Errorf("message %.64q: %w", name, err))
		}
		questions = append(questions, q)
	}
	if len(questions) > 1 {
		const many = "a frame has %d messages, want one: their answers would have the same names"
		faults = append(faults, fmt.Errorf(many, len(questions)))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return questions, nil
}

// fill sets what an argument says.
func fill(q *decisions.Question, name string, v value) (err error) {
	text, isText := v.(string)
	switch name {
	case "method":
		q.Method = text
	case "target":
		q.Target = text
	case "identifier":
		if q.Identifier = text; v == nil { // the sample was not there
			isText = true
		}
	case "client":
		if a, ok := v.(netip.Addr); ok && a.IsValid() {
			q.Client = a.String()
			return nil
		}
		return fmt.Errorf("client is %s, want src", kindOf(v))
	case "headers":
		list, ok := v.(binaryValue)
		if !ok {
			return fmt.Errorf("headers is %s, want req.hdrs_bin", kindOf(v))
		}
		fields, err := headers(list)
		if err != nil {
			return err
		}
		q.Header = make(map[string]decisions.Lines, len(fields))
		for name, lines := range fields {
			q.Header[name] = lines
		}
		return nil
	case "cost":
		switch n := v.(type) {
		case int64:
			q.Cost = n
		case uint64:
			q.Cost = int64(min(n, 1<<62))
		default:
			return fmt.Errorf("cost is %s, want a number", kindOf(v))
		}
		return nil
	default:
		return fmt.Errorf("argument is %.64q, want method, target, client, headers, identifier or cost", name)
	}
	if !isText {
		return fmt.Errorf("%s is %s, want a text", name, kindOf(v))
	}
	return nil
}

// appendAnswer appends the actions that set the variables of an answer.
func appendAnswer(b []byte, a decisions.Answer) []byte {
	b = appendBool(appendVariable(b, "allowed"), a.Allowed)
	b = appendUint32(appendVariable(b, "status"), uint64(a.Status))
	b = appendString(appendVariable(b, "reason"), a.Reason)
	for _, f := range []struct{ variable, field string }{
		{"ratelimit", "Ratelimit"}, {"policy", "Ratelimit-Policy"}, {"retry_after", "Retry-After"},
		{"allow", "Allow"}, {"authenticate", "Www-Authenticate"}, {"content_type", "Content-Type"},
	} {
		if text := a.Header[f.field]; text != "" {
			b = appendString(appendVariable(b, f.variable), text)
		}
	}
	if body := string(a.Problem) + a.Body; body != "" { // it is one of them
		b = appendString(appendVariable(b, "problem"), body)
	}
	return b
}
