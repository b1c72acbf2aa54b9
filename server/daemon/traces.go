package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/trace"
)

// newTraces returns what tells a collector of requests, or nil.
func (p *parts) newTraces(ctx context.Context, c config.Traces, caller func(*identity.Principal) string, version string,
	log *slog.Logger) (*trace.Tracer, error) {
	if !c.On() {
		return nil, nil
	}
	o := trace.Options{
		Endpoint: c.Endpoint, OneIn: c.OneIn, PerSecond: c.PerSecond, Caller: caller, Version: version,
		Trusted: func(a netip.Addr) bool { return p.who().Trusts(a) },
		Failed:  seldom(log, "traces cannot be sent"),
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
	if p.traces == nil {
		return next
	}
	return p.traces.Handler(next)
}

// time asks for the times of the stages of some decisions.
func (p *parts) time(ctx context.Context, r *headgate.Request) *headgate.Stages {
	if p.traces != nil {
		if s := p.traces.Time(ctx, r); s != nil {
			return s
		}
	}
	return timeSome(ctx, r)
}

// lastSpans is how long the end of the process waits for the collector.
const lastSpans = 5 * time.Second

func (p *parts) sendLastSpans() {
	if p.traces == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastSpans)
	defer cancel()
	_ = p.traces.Close(ctx) // what could not be sent was said
}

func (p *parts) traceStats() func() trace.Stats {
	if p.traces == nil {
		return nil
	}
	return p.traces.Stats
}
