package daemon

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/trace"
)

// newTraces returns what tells a collector of requests, or nil.
func (p *parts) newTraces(ctx context.Context, c config.Traces) (*trace.Tracer, error) {
	if !c.On() {
		return nil, nil
	}
	o := trace.Options{
		Endpoint: c.Endpoint, OneIn: c.OneIn, PerSecond: c.PerSecond, Caller: p.names.Hash, Version: p.version,
		Trusted: func(a netip.Addr) bool { return p.who().Trusts(a) },
		Failed:  seldom(p.log, "traces cannot be sent"),
	}
	if c.HeadersFile != "" {
		var err error
		if o.Headers, err = readHeaders(c.HeadersFile); err != nil {
			return nil, fmt.Errorf("traces.headers_file: %w", err)
		}
	}
	return trace.New(ctx, o)
}

var fieldLine = regexp.MustCompile(`^([A-Za-z0-9-]+):[ \t]*([^\r\n]*?)[ \t]*$`)

// readHeaders reads fields, NAME: VALUE a line. An error repeats no value, which may be a secret.
func readHeaders(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	fields, n := map[string]string{}, 0
	for line := range strings.Lines(string(text)) {
		n++
		if line = strings.TrimRight(line, "\r\n"); strings.TrimSpace(line) == "" {
			continue
		}
		match := fieldLine.FindStringSubmatch(line)
		if match == nil {
			return nil, fmt.Errorf("%s:%d is no field, want NAME: VALUE", path, n)
		}
		fields[match[1]] = match[2]
	}
	return fields, nil
}

// traced has requests traced on their way to next, if any are.
func (p *parts) traced(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if t := p.traces.get(); t != nil {
			t.Serve(w, r, next)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// time asks for the times of the stages of some decisions.
func (p *parts) time(ctx context.Context, r *headgate.Request) *headgate.Stages {
	if t := p.traces.get(); t != nil {
		if s := t.Time(ctx, r); s != nil {
			return s
		}
	}
	return timeSome(ctx, r)
}

// lastSpans is how long the collector is waited for in the end.
const lastSpans = 5 * time.Second

// trace sends spans until ctx ends, and then those that are left. Requests under way by then are in no trace.
func (p *parts) trace(ctx context.Context, t *trace.Tracer) {
	<-ctx.Done()
	ctx, cancel := context.WithTimeout(context.Background(), lastSpans)
	defer cancel()
	_ = t.Close(ctx) // what could not be sent was said
}

func (p *parts) traceStats() (s trace.Stats, on bool) {
	if t := p.traces.get(); t != nil {
		return t.Stats(), true
	}
	return s, false
}
