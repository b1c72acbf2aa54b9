package activity

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
)

// Spans is into how many equal spans of time a Result divides what it is about.
const Spans = 60

// mostWorst is how many callers a Result names.
const mostWorst = 10

// Trial has Limiters decide, one after the other, what a Sample asked for, at the times it did. Each Limiter is made
// on Clock, and its buckets are full at the start. It is used by one goroutine.
type Trial struct {
	sample Sample
	reveal bool
	now    int64

	requests []trialRequest
	asked    []int // in each span
	skipped  int
	base     []bool // which requests the first Limiter denied
}

type trialRequest struct {
	of     int // place in the sample
	at     int64
	target *trialTarget
}

type trialTarget struct{ method, target string }

// NewTrial prepares a trial for the endpoints of a table; what was asked of others is left out. With reveal callers
// have their names.
func NewTrial(s Sample, table *endpoint.Table, reveal bool) *Trial {
	t := &Trial{sample: s, reveal: reveal, now: s.Since.UnixNano(), asked: make([]int, Spans)}
	targets := map[endpoint.Template]*trialTarget{}
	for i := range s.Requests {
		r := &s.Requests[i]
		target, known := targets[r.Template]
		if !known {
			target = targetOf(r.Template, table)
			targets[r.Template] = target
		}
		if target == nil {
			t.skipped += r.Count
			continue
		}
		span := int64(r.Until.Sub(r.At))
		for n := range r.Count { // evenly from the first to the last
			at := r.At.UnixNano() + int64(n)*span/int64(max(r.Count-1, 1))
			t.requests = append(t.requests, trialRequest{i, at, target})
		}
	}
	slices.SortStableFunc(t.requests, func(a, b trialRequest) int { return cmp.Compare(a.at, b.at) })
	for i := range t.requests {
		t.asked[t.span(t.requests[i].at)]++
	}
	return t
}

// Clock is for headgate.Options.Now.
func (t *Trial) Clock() time.Time { return time.Unix(0, t.now).UTC() }

func (t *Trial) span(at int64) int {
	since, until := t.sample.Since.UnixNano(), t.sample.Until.UnixNano()
	part := float64(at-since) / float64(max(until-since, 1))
	return min(max(int(part*Spans), 0), Spans-1)
}

// About is what was tried: from when until when, by which part of the callers, and how many there were in all.
func (t *Trial) About() (since, until time.Time, part float64, callers int64) {
	return t.sample.Since, t.sample.Until, t.sample.Part, t.scaled(t.sample.Callers)
}

// Requests is how many requests the sample stands for, and Skipped how many of those are for endpoints that there are
// no more.
func (t *Trial) Requests() int64 { return t.scaled(len(t.requests)) }
func (t *Trial) Skipped() int64  { return t.scaled(t.skipped) }

// Asked is how many requests came in each span.
func (t *Trial) Asked() []int64 {
	all := make([]int64, Spans)
	for i, n := range t.asked {
		all[i] = t.scaled(n)
	}
	return all
}

// scaled is what n of the sample come to for all callers.
func (t *Trial) scaled(n int) int64 { return int64(math.Round(float64(n) / t.sample.Part)) }

// Result is what became of the requests under some rules. Numbers are for all callers, also where the sample is of a
// part of them.
type Result struct {
	Denied        int64 `json:"denied"`         // requests, by any rule
	CallersDenied int64 `json:"callers_denied"` // that were denied something

	// In comparison with the first Limiter of the Trial.
	Newly    int64 `json:"newly_denied"`
	NoLonger int64 `json:"no_longer_denied"`

	Spans []int64        `json:"spans"` // denied in each of 60 equal spans of time
	Worst []DeniedCaller `json:"worst"` // who would be denied most
}

// DeniedCaller is a caller of the sample, and how often it would be denied.
type DeniedCaller struct {
	Caller
	Requests int64 `json:"requests"`
	Denied   int64 `json:"denied"`
}

// Run has a Limiter decide.
func (t *Trial) Run(ctx context.Context, limiter *headgate.Limiter) (Result, error) {
	first := t.base == nil
	if first {
		t.base = make([]bool, len(t.requests))
	}
	var denied, newly, noLonger int
	spans := make([]int, Spans)
	callers := map[string]*DeniedCaller{}
	for i := range t.requests {
		if i%1024 == 0 && ctx.Err() != nil {
			return Result{}, ctx.Err()
		}
		r := &t.requests[i]
		of := &t.sample.Requests[r.of]
		t.now = r.at
		d := limiter.Check(ctx, requestOf(r.target, &of.Who))
		no := d.ByLimit()
		c := callers[of.Hash]
		if c == nil {
			c = &DeniedCaller{Caller: shown(of.Hash, &of.Who, t.reveal)}
			callers[of.Hash] = c
		}
		c.Requests++
		if no {
			denied++
			c.Denied++
			spans[t.span(r.at)]++
		}
		switch {
		case first:
			t.base[i] = no
		case no && !t.base[i]:
			newly++
		case !no && t.base[i]:
			noLonger++
		}
	}
	out := Result{
		Denied:   t.scaled(denied),
		Newly:    t.scaled(newly),
		NoLonger: t.scaled(noLonger),
		Spans:    make([]int64, Spans),
		Worst:    []DeniedCaller{},
	}
	for i, n := range spans {
		out.Spans[i] = t.scaled(n)
	}
	hit := 0
	for _, c := range callers {
		if c.Denied > 0 {
			hit++
			out.Worst = append(out.Worst, *c)
		}
	}
	out.CallersDenied = t.scaled(hit)
	slices.SortFunc(out.Worst, func(a, b DeniedCaller) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.Hash, b.Hash))
	})
	out.Worst = out.Worst[:min(len(out.Worst), mostWorst)]
	return out, nil
}

// requestOf is what a caller asks. Who showed a credential then counts as a user whom a program has logged in: the
// credential itself is not remembered. Its kind goes before its ID, so that a key and a token of one name stay two.
func requestOf(to *trialTarget, who *identity.Principal) headgate.Request {
	r := headgate.Request{Method: to.method, Target: to.target, Peer: who.Client}
	switch {
	case who.Kind == identity.LoggedIn:
		r.User = &identity.User{ID: who.ID, Project: who.Project}
	case who.Kind != identity.Address:
		r.User = &identity.User{ID: who.Kind.String() + ":" + who.ID, Project: who.Project}
	}
	if !r.Peer.IsValid() {
		r.Peer = netip.IPv6Unspecified()
	}
	return r
}

// targetOf is a target that a template of a table matches; nil if the table has no such template, or always prefers
// another.
func targetOf(t endpoint.Template, table *endpoint.Table) *trialTarget {
	if t == (endpoint.Template{}) {
		return &trialTarget{http.MethodGet, "/no-endpoint-has-this-path"}
	}
	id, ok := table.Lookup(t)
	if !ok {
		return nil
	}
	for _, value := range []string{"1", "x", "no-other-has-this"} {
		to := &trialTarget{t.Method(), filled(t.Path(), value)}
		if q := t.Query(); q != "" {
			to.target += "?" + filled(q, value)
		}
		if m := table.Match(to.method, to.target); m.Status == endpoint.Known && m.ID == id {
			return to
		}
	}
	return nil
}

// filled puts a value in the place of each parameter.
func filled(text, value string) string {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(text, "{")
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		_, text, _ = strings.Cut(rest, "}")
		b.WriteString(value)
	}
}
