package replay

import (
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/internal/perrule"
	"github.com/headgate-io/headgate/policy"
)

// Report is who would have been denied.
type Report struct {
	Format   string    `json:"format"`
	Lines    int64     `json:"lines"`
	Requests int64     `json:"requests"` // of those lines
	From     time.Time `json:"from"`
	Until    time.Time `json:"until"`
	Callers  int       `json:"callers"` // users, addresses, or networks of IPv6; of the first 100,000
	Late     int64     `json:"late"`    // requests that stand behind later ones, and were counted with those
	Sides    []*Side   `json:"sides"`   // for each set of rules

	// Of a decision log: Settled counts what was decided by other means than a limit, by reason,
	// and is not decided again; Missing what was not written down.
	Settled map[string]int64 `json:"settled_otherwise,omitempty"`
	Missing int64            `json:"missing,omitempty"`

	// Lowered counts those of a decision log that met a rule whose rate was lowered then, as the API
	// was slow or failed. It is lowered as much here: what the API had done under other rules nobody
	// knows.
	Lowered int64 `json:"lowered,omitempty"`

	// Faults are why lines could not be read, the first ones; Unread counts all.
	Faults []error `json:"-"`
	Unread int64   `json:"unread"`

	spans map[int64]span // by At divided by width, but for the one that is counted
	width int64          // nanoseconds
	place int64          // of the span that is counted
	now   span
}

// Side is what came of one set of rules.
type Side struct {
	Name    string           `json:"name"`
	Allowed int64            `json:"allowed"`
	Denied  int64            `json:"denied"`  // by a rule
	Refused map[string]int64 `json:"refused"` // before any rule was asked, by reason: unknown_endpoint
	Rules   []RuleCount      `json:"rules"`   // those that denied most first

	// In comparison with the first Side.
	Newly    int64 `json:"newly_denied"`
	NoLonger int64 `json:"no_longer_denied"`

	// In comparison with what a decision log says: as decided then, and otherwise.
	Same      int64 `json:"same,omitempty"`
	Different int64 `json:"different,omitempty"`

	rules  map[string]*RuleCount // by title; those of none under ""
	none   *RuleCount
	byRule perrule.Values[RuleCount]
}

// Share is the part of requests that were denied by a rule, of those that any rule was asked about.
func (s *Side) Share() float64 {
	if asked := s.Allowed + s.Denied; asked > 0 {
		return float64(s.Denied) / float64(asked)
	}
	return 0
}

// RuleCount is what a rule did.
type RuleCount struct {
	Rule    string   `json:"rule"`    // its title; "" where none applied
	Allowed int64    `json:"allowed"` // requests to which it was the one that came closest to denying
	Denied  int64    `json:"denied"`
	Shadow  int64    `json:"shadow_denied"` // that it would have, were it not in shadow
	Callers int      `json:"callers"`       // that it denied
	Worst   []Caller `json:"worst"`

	denied map[string]int64
}

// Caller is one that was denied so many times.
type Caller struct {
	Who    string `json:"who"`
	Denied int64  `json:"denied"`
}

const maxWorst = 10

// span counts what came in a span of time.
type span struct{ requests, denied int64 }

// maxSpans bounds them: when there are more, each becomes twice as wide.
const maxSpans = 1 << 13

// faulty counts lines that could not be read, with why the first ones could not.
func (r *Report) faulty(lines int64, why []error) {
	r.Unread += lines
	r.Faults = append(r.Faults, why[:min(len(why), maxFaults-len(r.Faults))]...)
}

// at notes when requests are denied.
func (r *Report) at(at int64, d *headgate.Decision) {
	if place := at / r.width; place != r.place {
		r.gather()
		r.place = at / r.width
	}
	if r.now.requests++; d.ByLimit() {
		r.now.denied++
	}
}

// gather puts what was counted to the spans.
func (r *Report) gather() {
	if r.now.requests == 0 {
		return
	}
	s := r.spans[r.place]
	r.spans[r.place] = span{s.requests + r.now.requests, s.denied + r.now.denied}
	r.now = span{}
	if len(r.spans) > maxSpans {
		wider := make(map[int64]span, maxSpans)
		for i, s := range r.spans {
			sum := wider[i/2]
			wider[i/2] = span{sum.requests + s.requests, sum.denied + s.denied}
		}
		r.spans, r.width = wider, 2*r.width
	}
}

// Denials returns the part of requests that the last set of rules denied in each of so many equal spans of time, and
// how many came.
func (r *Report) Denials(spans int) (denied []float64, requests []int64) {
	r.gather()
	denied, requests = make([]float64, spans), make([]int64, spans)
	first, last := r.From.UnixNano()/r.width, r.Until.UnixNano()/r.width
	for at, s := range r.spans {
		i := int((at - first) * int64(spans) / (last - first + 1))
		denied[i] += float64(s.denied)
		requests[i] += s.requests
	}
	for i := range denied {
		if requests[i] > 0 {
			denied[i] /= float64(requests[i])
		}
	}
	return denied, requests
}

// settled counts a line that is not decided again.
func (r *Report) settled(d *Decided) {
	if d.Reason == "" {
		return // it says how many lines are missing
	}
	if r.Settled == nil {
		r.Settled = map[string]int64{}
	}
	if _, known := r.Settled[d.Reason]; known || len(r.Settled) < headgate.Reasons {
		r.Settled[strings.Clone(d.Reason)]++
	} else {
		r.Settled["others"]++
	}
}

// compare counts whether a decision is as it was: allowed, or denied by the rule of then. Where several deny, a gateway
// names the one with the longest wait, which may be another here, as it spaces the waits of its callers.
func (s *Side) compare(d *headgate.Decision, then *Decided) {
	same := d.Allowed == then.Allowed
	if same && !d.Allowed {
		same = slices.ContainsFunc(d.Verdicts(), func(v headgate.Verdict) bool {
			return !v.Shadow && !v.Outcome.Allowed && s.of(d, v).Rule == then.Rule
		})
	}
	if same {
		s.Same++
	} else {
		s.Different++
	}
}

func newSide(name string) *Side {
	s := &Side{Name: name, Refused: map[string]int64{}, rules: map[string]*RuleCount{}}
	s.none = s.titled("")
	return s
}

// of is what the rule of a verdict did.
func (s *Side) of(d *headgate.Decision, v headgate.Verdict) *RuleCount {
	return s.byRule.Get(d.Policies(), v.Rule, func(r policy.Rule) *RuleCount { return s.titled(r.Title()) })
}

func (s *Side) titled(title string) *RuleCount {
	c := s.rules[title]
	if c == nil {
		c = &RuleCount{Rule: title, denied: map[string]int64{}}
		s.rules[title] = c
	}
	return c
}

// count counts a decision.
func (s *Side) count(d *headgate.Decision, caller string) {
	c := s.none
	if binding, ok := d.Binding(); ok {
		c = s.of(d, binding)
	}
	switch {
	case d.Allowed:
		s.Allowed++
		c.Allowed++
	case d.ByLimit():
		s.Denied++
		c.Denied++
		if _, known := c.denied[caller]; known || len(c.denied) < maxCallers {
			c.denied[caller]++
		}
	default:
		s.Refused[d.Reason.String()]++
	}
	for _, v := range d.Verdicts() {
		if v.Shadow && !v.Outcome.Allowed {
			s.of(d, v).Shadow++
		}
	}
}
