// Package readers has requests that the engine takes for plain read by others: the servers of
// fasthttp and of Node, whose parser is llhttp. Whoever reads such a request in another way could
// be made to serve what no limit counted.
package readers

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"github.com/valyala/fasthttp"

	"github.com/headgate-io/headgate/internal/streams"
	"github.com/headgate-io/headgate/server/engine"
)

// Read is a request as every reader can tell it.
type Read struct {
	Method, Target, Host string
	Fields               []string // "name: value", names in lower case, all of a name in their order, without Host
	Body                 string
}

// Plain is a stream of requests that the engine read itself.
type Plain struct {
	Stream []byte // up to the end of the last one, or all of it if that ended the connection
	Read   []Read
	Closed bool // by the last one
}

// Engine reads streams, and knows which requests in them are plain.
type Engine struct {
	listener *streams.Listener
	fast     *engine.Server
	seen     []streams.Request // of the present stream
	left     int               // bytes of it that were for net/http; -1 if none were
}

// NewEngine returns an Engine, which is to be closed.
func NewEngine() *Engine {
	e := &Engine{listener: streams.NewListener()}
	e.fast = engine.New(&http.Server{
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			e.seen = append(e.seen, streams.Seen(r))
		}),
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     log.New(io.Discard, "", 0),
		ConnState: func(c net.Conn, s http.ConnState) {
			if _, own := c.(*streams.Conn); own || s != http.StateNew {
				return
			}
			rest, _ := io.ReadAll(c) // what the engine hands over
			e.left = len(rest)
			_ = c.Close()
		},
	})
	go func() { _ = e.fast.Serve(e.listener) }()
	return e
}

// Close ends the Engine.
func (e *Engine) Close() { _ = e.fast.Close() }

// Read returns the plain requests that a stream begins with. It reports false if there is none, or
// one that is not whole.
func (e *Engine) Read(stream []byte) (p Plain, ok bool) {
	e.seen, e.left = nil, -1
	c := streams.NewConn(stream)
	e.listener.Connect(c)
	<-c.Closed()
	if len(e.seen) == 0 {
		return p, false
	}
	for _, r := range e.seen {
		if r.Failed {
			return p, false
		}
		p.Read = append(p.Read, Read{r.Method, r.Target, r.Host, listed(r.Header), r.Body})
	}
	p.Closed = e.seen[len(e.seen)-1].Closes
	p.Stream = stream[:len(stream)-max(e.left, 0)]
	return p, true
}

func listed(h http.Header) (fields []string) {
	for name, values := range h {
		for _, value := range values {
			fields = append(fields, strings.ToLower(name)+": "+value)
		}
	}
	return sorted(fields)
}

// sorted sorts fields by their names, and leaves those of one name in their order.
func sorted(fields []string) []string {
	slices.SortStableFunc(fields, func(a, b string) int {
		a, _, _ = strings.Cut(a, ":")
		b, _, _ = strings.Cut(b, ":")
		return strings.Compare(a, b)
	})
	return fields
}

// Reader reads the requests of many streams, as far as it goes with each.
type Reader struct {
	Name string
	Read func([][]byte) ([][]Read, error)

	// Same is what a request has to have in common, where that is less than all; nil if it is all.
	Same func(Read) Read
}

// All are the readers.
var All = []Reader{{"fasthttp", byFasthttp, asFasthttp}, {"llhttp", byNode, nil}}

// asFasthttp leaves out what fasthttp changes: it splits cookies, drops those with a lone quotation mark, and puts the
// others together again; it keeps the last of several fields User-Agent or Content-Type; it writes close in lower case;
// and it says of a request that may have a body and tells of none that it has 0 bytes. None of this moves a request's
// end. Headgate looks at no
// User-Agent, and refuses a body that it is to read if that has two types.
func asFasthttp(r Read) Read {
	var fields []string
	for i, f := range r.Fields {
		switch name, value, _ := strings.Cut(f, ": "); {
		case name == "cookie" || name == "user-agent" || name == "content-length" && value == "0":
		case name == "content-type" && (value == "" || i+1 < len(r.Fields) &&
			strings.HasPrefix(r.Fields[i+1], name+": ")):
		case name == "connection":
			fields = append(fields, strings.ToLower(f))
		default:
			fields = append(fields, f)
		}
	}
	r.Fields = fields
	return r
}

// byFasthttp has fasthttp's server read. It keeps some fields in places of their own, and puts cookies together.
func byFasthttp(all [][]byte) ([][]Read, error) {
	var seen []Read
	s := fasthttp.Server{
		Handler: func(ctx *fasthttp.RequestCtx) {
			r := Read{Method: string(ctx.Method()), Target: string(ctx.Request.Header.RequestURI()),
				Host: string(ctx.Request.Header.Host()), Body: string(ctx.Request.Body())}
			for name, value := range ctx.Request.Header.All() {
				if lower := strings.ToLower(string(name)); lower != "host" {
					r.Fields = append(r.Fields, lower+": "+string(value))
				}
			}
			r.Fields = sorted(r.Fields)
			seen = append(seen, r)
		},
		DisableHeaderNamesNormalizing: true, DisablePreParseMultipartForm: true, NoDefaultServerHeader: true,
		Logger: log.New(io.Discard, "", 0),
	}
	found := make([][]Read, len(all))
	for i, stream := range all {
		seen = nil
		_ = s.ServeConn(streams.NewConn(stream)) // an error is the end of what it reads
		found[i] = seen
	}
	return found, nil
}

//go:embed readers.js
var script string

// byNode has Node's parser read, in one process for all.
func byNode(all [][]byte) ([][]Read, error) {
	cmd := exec.Command("node", "-e", script)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	var out, fault bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &fault
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var writing sync.WaitGroup
	writing.Go(func() {
		for _, stream := range all {
			_, _ = stdin.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(stream))), stream...))
		}
		_ = stdin.Close()
	})
	err = cmd.Wait()
	writing.Wait()
	if err != nil {
		return nil, fmt.Errorf("node: %w: %s", err, fault.String())
	}
	found := make([][]Read, len(all))
	lines := json.NewDecoder(&out)
	for i := range all {
		var line struct {
			Requests []struct {
				Method, Target string
				Fields         []string
				Body           []byte
			}
		}
		if err := lines.Decode(&line); err != nil {
			return nil, fmt.Errorf("node: stream %d of %d: %w", i+1, len(all), err)
		}
		for _, r := range line.Requests {
			read := Read{Method: r.Method, Target: r.Target, Body: string(r.Body)}
			for f := range slices.Chunk(r.Fields, 2) {
				if strings.EqualFold(f[0], "host") {
					read.Host = f[1]
				} else {
					read.Fields = append(read.Fields, strings.ToLower(f[0])+": "+f[1])
				}
			}
			read.Fields = sorted(read.Fields)
			found[i] = append(found[i], read)
		}
	}
	return found, nil
}
