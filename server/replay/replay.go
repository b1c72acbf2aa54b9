// Package replay has rules decide the requests of a log, at the times that the log has them: who would have been
// denied.
//
//	log ──▶ Entry ──▶ in the order of time ──▶ a Limiter for each set of rules ──▶ Report
//	                  on a clock that the log moves
package replay

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/identity"
)

// Rules are what requests are decided by: a Limiter, made on a clock of the replay's.
type Rules struct {
	Name    string // "in force"
	Limiter *headgate.Limiter
}

// Replay goes through logs. It is used by one goroutine.
type Replay struct {
	format *Format // nil while it is to be found out

	// Fields are for logs in JSON; see ParseFormat.
	Fields map[string]string

	// Progress, if set, is told now and then how many lines were read, and how many bytes of the files.
	Progress func(lines, bytes int64)

	// Survey, if set, counts the requests.
	Survey *Survey

	// Arrivals, if set, keeps when they came.
	Arrivals *Arrivals

	now    int64
	rules  []Rules
	report *Report
}

// Clock is for the Options.Now of the Limiters.
func (r *Replay) Clock() time.Time { return time.Unix(0, r.now) }

// New returns a Replay that finds the format out if it is "", or an error that says what is wrong with the options.
func New(format string, fields map[string]string) (*Replay, error) {
	r := &Replay{
		Fields: fields,
		report: &Report{callers: map[string]bool{}, spans: map[int64]span{}, width: int64(time.Second)},
	}
	if format == "" && len(fields) > 0 {
		format = "json"
	}
	if format != "" {
		f, err := ParseFormat(format, fields)
		if err != nil {
			return nil, err
		}
		r.format = &f
	}
	return r, nil
}

// Use has the entries decided by some rules; the first are compared with the others.
func (r *Replay) Use(rules ...Rules) {
	r.rules = rules
	for _, one := range rules {
		r.report.Sides = append(r.report.Sides, newSide(one.Name))
	}
}

const (
	maxLine    = 1 << 20
	maxFaults  = 5       // that are told; all are counted
	maxSecond  = 1 << 16 // entries of one second that are spread over it
	maxCallers = 100_000 // that are counted one by one
	everyLines = 1 << 14 // between two looks at the context
)

// Read goes through one log, packed by gzip or not. What cannot be read of it is counted, and the first lines are told
// with their reasons. A log of which no line can be read is an error.
func (r *Replay) Read(ctx context.Context, name string, log io.Reader) error {
	counted := &counter{Reader: log}
	in := bufio.NewReaderSize(counted, 1<<18)
	if head, _ := in.Peek(2); bytes.Equal(head, []byte{0x1f, 0x8b}) {
		unpacked, err := gzip.NewReader(in)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		in = bufio.NewReaderSize(unpacked, 1<<18)
	}
	before := r.report.Requests
	var second []Entry
	var lines int64
	flush := func() {
		for i := range second {
			at := second[i].At
			if r.format.Seconds {
				at += int64(i) * int64(time.Second) / int64(len(second))
			}
			r.decide(ctx, at, &second[i])
		}
		second = second[:0]
	}
	var err error
	for err == nil {
		var line []byte
		line, err = readLine(in)
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		lines++
		r.report.Lines++
		line = unwrap(line)
		if lines%everyLines == 0 {
			if ctx.Err() != nil {
				err = ctx.Err()
				break
			}
			if r.Progress != nil {
				r.Progress(r.report.Lines, counted.n)
			}
		}
		if r.format == nil {
			f, err := ParseFormat(Detect(line), r.Fields)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			r.format = &f
		}
		var e Entry
		if fault := r.format.read(line, &e); fault != nil {
			r.report.fault(fmt.Errorf("%s:%d: %w", name, lines, fault))
			continue
		}
		if len(second) > 0 && (second[0].At != e.At || len(second) == maxSecond) {
			flush()
		}
		second = append(second, e)
	}
	flush()
	switch {
	case errors.Is(err, io.EOF) && lines > 0 && r.report.Requests == before:
		return fmt.Errorf("no line of %s could be read as %s: %w", name, r.format.Name, errors.Join(r.report.Faults...))
	case errors.Is(err, io.EOF):
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}

// readLine returns a line, without what is longer than any request.
func readLine(in *bufio.Reader) ([]byte, error) {
	line, err := in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return bytes.TrimRight(line, "\r\n"), err
	}
	long := slices.Clone(line)
	for errors.Is(err, bufio.ErrBufferFull) {
		line, err = in.ReadSlice('\n')
		if len(long) < maxLine {
			long = append(long, line...)
		}
	}
	return bytes.TrimRight(long, "\r\n"), err
}

type counter struct {
	io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// decide has every set of rules decide an entry. Time does not go back: servers write a request down when it ends.
func (r *Replay) decide(ctx context.Context, at int64, e *Entry) {
	if r.report.Requests == 0 {
		r.report.From = time.Unix(0, at).UTC()
	}
	if at < r.now {
		at = r.now
		r.report.Late++
	}
	r.now = at
	r.report.Until = time.Unix(0, at).UTC()
	r.report.Requests++
	caller := e.User
	if caller == "" {
		caller = prefixed(e.Client)
	}
	if len(r.report.callers) < maxCallers {
		r.report.callers[caller] = true
	}
	if r.Survey != nil {
		r.Survey.count(at, e, caller)
	}
	if r.Arrivals != nil {
		r.Arrivals.count(at, caller)
	}
	request := headgate.Request{Method: e.Method, Target: e.Target, Peer: e.Client}
	if e.User != "" {
		request.User = &identity.User{ID: e.User}
	}
	var first bool
	for i := range r.rules {
		d := r.rules[i].Limiter.Check(ctx, request)
		r.report.Sides[i].count(&d, caller)
		if i == 0 {
			first = d.Allowed
		} else if first && !d.Allowed {
			r.report.Sides[i].Newly++
		} else if !first && d.Allowed {
			r.report.Sides[i].NoLonger++
		}
		if i == len(r.rules)-1 {
			r.report.at(at, &d)
		}
	}
}

// prefixed is the network that an address is taken for: a /64 of IPv6.
func prefixed(a netip.Addr) string {
	if a = a.Unmap(); a.Is4() {
		return a.String()
	}
	if p, err := a.Prefix(64); err == nil {
		return p.String()
	}
	return a.String()
}

// Report returns what came of it.
func (r *Replay) Report() *Report {
	out := r.report
	out.Callers = len(out.callers)
	if r.format != nil {
		out.Format = r.format.Name
	}
	for _, s := range out.Sides {
		s.Rules = s.Rules[:0]
		for _, rule := range s.rules {
			if rule.Allowed+rule.Denied+rule.Shadow == 0 {
				continue
			}
			rule.Callers, rule.Worst = len(rule.denied), nil
			for who, n := range rule.denied {
				rule.Worst = append(rule.Worst, Caller{who, n})
			}
			slices.SortFunc(rule.Worst, func(a, b Caller) int {
				return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.Who, b.Who))
			})
			rule.Worst = rule.Worst[:min(len(rule.Worst), maxWorst)]
			s.Rules = append(s.Rules, *rule)
		}
		slices.SortFunc(s.Rules, func(a, b RuleCount) int {
			return cmp.Or(cmp.Compare(b.Denied+b.Shadow, a.Denied+a.Shadow), cmp.Compare(b.Allowed, a.Allowed),
				cmp.Compare(a.Rule, b.Rule))
		})
	}
	return out
}
