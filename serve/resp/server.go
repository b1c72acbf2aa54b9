// Package resp is a door for clients of Redis: it answers CL.THROTTLE as
// redis-cell does, so that a program which uses that changes an address, and
// HG.CHECK, which asks about a request as package decisions does. It speaks RESP2
// and RESP3 (https://redis.io/docs/latest/develop/reference/protocol-spec).
package resp

import (
	"bufio"
	"bytes"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/conns"
	"github.com/headgate-io/headgate/key"
	"github.com/headgate-io/headgate/rate"
	"github.com/headgate-io/headgate/serve/decisions"
)

// Options configures a Server. Buckets, Name, Now, Trusted and MaxConnections are
// required.
type Options struct {
	// Buckets keeps what CL.THROTTLE counts, where Reach says, under the names that
	// Name gives to keys. The number tells what is kept together (bucket.Take.Tag).
	Buckets bucket.Store
	Reach   bucket.Reach
	Name    func(key []byte) (key.Key, uint16)

	// Keeps says why Buckets cannot count a limit, which a command may name as large
	// as it likes. Default nil: every limit is counted.
	Keeps func(rate.Shape) error

	// Now is the time in Unix nanoseconds.
	Now func() int64

	// Check answers HG.CHECK; decisions.Answers.Ask is one. Default nil: there is no such
	// command.
	Check func(context.Context, *decisions.Question) decisions.Answer

	// Trusted says who may connect.
	Trusted func(netip.Addr) bool

	// Password, if set, is what AUTH or HELLO has to say before anything else is
	// answered.
	Password string

	// MaxConnections bounds those that are open. Others are told so and closed.
	MaxConnections int

	// Patience is how long a client may take to send a command, once it has begun,
	// and to take replies. Between commands it may be silent. Default 10 s.
	Patience time.Duration

	// Failed, if set, is told of connections that were refused or closed for what
	// they sent.
	Failed func(decisions.Fault, error)
}

// pending is how many bytes of replies are kept back while more commands are there.
const pending = 16 << 10

// Server answers clients.
type Server struct {
	options Options
	shapes  shapes
	conns   *conns.Server
}

// New returns a Server, or an error that names every option at fault.
func New(o Options) (*Server, error) {
	var errs []error
	for _, f := range []struct {
		wrong bool
		text  string
	}{
		{o.Buckets == nil, "Buckets is nil, want a store"},
		{o.Name == nil, "Name is nil, want a function that names buckets"},
		{o.Now == nil, "Now is nil, want a clock"},
		{o.Trusted == nil, "Trusted is nil, want a function that says who may connect"},
		{o.MaxConnections < 1, fmt.Sprintf("MaxConnections is %d, want 1 or more", o.MaxConnections)},
	} {
		if f.wrong {
			errs = append(errs, errors.New(f.text))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("resp options: %w", err)
	}
	if o.Failed == nil {
		o.Failed = func(decisions.Fault, error) {}
	}
	if o.Keeps == nil {
		o.Keeps = func(rate.Shape) error { return nil }
	}
	s := &Server{options: o, shapes: shapes{keeps: o.Keeps}}
	s.conns = conns.New(conns.Options{
		Trusted: o.Trusted, Most: o.MaxConnections, Patience: o.Patience, Answer: s.answer,
		Refused:  func(err error) { o.Failed(decisions.Untrusted, err) },
		Panicked: func(err error) { o.Failed(decisions.Panicked, err) },
		Refusal: func(why conns.Why) []byte {
			if why == conns.Untrusted {
				return appendError(nil, "ERR this address may not connect")
			}
			return appendError(nil, "ERR max number of clients reached")
		},
	})
	return s, nil
}

// Serve answers on l until Shutdown.
func (s *Server) Serve(l net.Listener) error { return s.conns.Serve(l) }

// Shutdown closes idle connections, and the others once their commands are
// answered, or when ctx ends, which is its error. The listener is to be closed
// before.
func (s *Server) Shutdown(ctx context.Context) error { return s.conns.Shutdown(ctx) }

// answer serves one connection.
func (s *Server) answer(c *conns.Conn) {
	in := bufio.NewReaderSize(c, 16<<10)
	client := &client{server: s, commands: commands{in: in}, known: s.options.Password == ""}
	var out []byte
	for busy := 0; ; {
		if in.Buffered() == 0 {
			if len(out) > 0 && !c.Send(out) || !c.Busy(-busy) {
				return
			}
			out = out[:0]
			if err := c.Await(in); err != nil {
				return
			}
			busy = 1
			c.Busy(busy)
		}
		c.Begin()
		args, err := client.next()
		if err != nil {
			s.options.Failed(decisions.Incomplete, err)
			var fault protocolError
			if errors.As(err, &fault) {
				out = appendError(out, fault.Error())
			}
			c.Send(out)
			return
		}
		if out = client.run(out, args); len(out) >= pending || client.leaving {
			if !c.Send(out) || client.leaving {
				return
			}
			out = out[:0]
		}
	}
}

// client is what is known of a connection.
type client struct {
	server *Server
	commands
	known   bool // it has said the password, or there is none
	resp3   bool
	leaving bool

	// Of CL.THROTTLE: the limit of the one before, which most repeat, and what a store is asked with.
	limit rate.Limit
	shape rate.Shape
	takes [1]bucket.Take
	outs  [1]bucket.Outcome
}

var throttle = []byte("CL.THROTTLE")

// run appends the reply to a command to b.
func (c *client) run(b []byte, args [][]byte) []byte {
	if len(args[0]) == len(throttle) && bytes.EqualFold(args[0], throttle) && c.known { // most are
		return c.throttle(b, args[1:])
	}
	name := strings.ToUpper(string(args[0][:min(len(args[0]), 32)]))
	switch {
	case name == "QUIT":
		c.leaving = true
		return appendStatus(b, "OK")
	case name == "AUTH":
		return c.auth(b, args[1:])
	case name == "HELLO":
		return c.hello(b, args[1:])
	case name == "RESET": // whoever has the connection next has to say the password
		c.known, c.resp3 = c.server.options.Password == "", false
		return appendStatus(b, "RESET")
	case !c.known:
		return appendError(b, "NOAUTH Authentication required.")
	}
	switch name {
	case "HG.CHECK":
		if c.server.options.Check != nil {
			return c.check(b, args[1:])
		}
	case "PING":
		if len(args) > 1 {
			return appendBulk(b, string(args[1]))
		}
		return appendStatus(b, "PONG")
	case "ECHO":
		if len(args) == 2 {
			return appendBulk(b, string(args[1]))
		}
		return wrongCount(b, name)
	case "SELECT":
		if len(args) == 2 && string(args[1]) == "0" {
			return appendStatus(b, "OK")
		}
		return appendError(b, "ERR DB index is out of range")
	case "CLIENT":
		return c.describe(b, args[1:])
	case "COMMAND":
		return appendLength(b, '*', 0)
	case "INFO":
		return appendBulk(b, "# Server\r\nredis_mode:standalone\r\nserver:headgate\r\n")
	}
	return appendError(b, "ERR unknown command '"+string(args[0][:min(len(args[0]), 64)])+"'")
}

// describe reads what a client says of itself, and keeps nothing of it. What would
// have to be kept, such as CLIENT TRACKING, is an error.
func (c *client) describe(b []byte, args [][]byte) []byte {
	if len(args) == 0 {
		return wrongCount(b, "client")
	}
	switch strings.ToUpper(string(args[0][:min(len(args[0]), 16)])) {
	case "SETINFO", "SETNAME", "NO-EVICT", "NO-TOUCH":
		return appendStatus(b, "OK")
	case "ID":
		return appendInt(b, 1)
	}
	return appendError(b, "ERR unknown subcommand of CLIENT")
}

func wrongCount(b []byte, name string) []byte {
	return appendError(b, "ERR wrong number of arguments for '"+strings.ToLower(name)+"' command")
}

// auth reads [USER] PASSWORD.
func (c *client) auth(b []byte, args [][]byte) []byte {
	switch {
	case len(args) < 1 || len(args) > 2:
		return wrongCount(b, "auth")
	case c.server.options.Password == "":
		return appendError(b, "ERR AUTH <password> called without any password configured for the default user. "+
			"Are you sure your configuration is correct?")
	case !c.says(args[len(args)-1]):
		return appendError(b, "WRONGPASS invalid username-password pair or user is disabled.")
	}
	c.known = true
	return appendStatus(b, "OK")
}

func (c *client) says(password []byte) bool {
	return subtle.ConstantTimeCompare(password, []byte(c.server.options.Password)) == 1
}

// hello reads [VERSION [AUTH USER PASSWORD] [SETNAME NAME]].
func (c *client) hello(b []byte, args [][]byte) []byte {
	resp3, known := c.resp3, c.known
	if len(args) > 0 {
		switch string(args[0]) {
		case "2":
			resp3 = false
		case "3":
			resp3 = true
		default:
			return appendError(b, "NOPROTO unsupported protocol version")
		}
		args = args[1:]
	}
	for len(args) > 0 {
		switch option := strings.ToUpper(string(args[0])); {
		case option == "AUTH" && len(args) >= 3:
			if !known && !c.says(args[2]) {
				return appendError(b, "WRONGPASS invalid username-password pair or user is disabled.")
			}
			known, args = true, args[3:]
		case option == "SETNAME" && len(args) >= 2:
			args = args[2:]
		default:
			return appendError(b, "ERR Syntax error in HELLO")
		}
	}
	if !known {
		return appendError(b, "NOAUTH HELLO must be called with the client already authenticated, otherwise the "+
			"HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP "+
			"protocol version at the same time")
	}
	c.resp3, c.known = resp3, known
	if resp3 {
		b = appendLength(b, '%', 5)
	} else {
		b = appendLength(b, '*', 10)
	}
	b = appendBulk(appendBulk(b, "server"), "headgate")
	b = appendBulk(appendBulk(b, "version"), "7.0.0") // of Redis: what its clients ask for
	b = appendBulk(b, "proto")
	if b = appendInt(b, 2); resp3 {
		b[len(b)-3] = '3'
	}
	b = appendBulk(appendBulk(b, "mode"), "standalone")
	return appendBulk(appendBulk(b, "role"), "master")
}
