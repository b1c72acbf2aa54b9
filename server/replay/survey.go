package replay

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/policy"
)

// Survey counts what callers use of endpoints, to suggest limits that leave most of them alone: how many requests
// each caller sends in its busiest minute, and in its busiest ten seconds.
type Survey struct {
	// Endpoints are those that exist; nil to make them of the paths, where segments that look like an ID are one.
	Endpoints *endpoint.Table

	used    map[string]*usage // by template, policy.UnknownEndpoint or policy.All
	callers int
	Left    int64 // requests of callers and endpoints beyond those that are counted
}

// usage is what callers use of one endpoint.
type usage struct {
	requests int64
	by       map[string]*pace
}

// pace is how a caller sends requests.
type pace struct{ minute, ten window }

// window counts requests in spans of one length, and keeps the most.
type window struct {
	at         int64
	count, max int32
}

func (w *window) add(span int64) {
	if w.at != span {
		w.at, w.count = span, 0
	}
	w.count++
	w.max = max(w.max, w.count)
}

const (
	maxPaces     = 2_000_000 // of endpoint and caller
	maxEndpoints = 2_000
)

// count counts one request.
func (s *Survey) count(at int64, e *Entry, caller string) {
	name, known := s.endpointOf(e)
	if !known && s.Endpoints == nil {
		return // nobody's endpoint: what the server had not
	}
	s.use(name, caller, at)
	if known {
		s.use(policy.All, caller, at)
	}
}

func (s *Survey) use(name, caller string, at int64) {
	if s.used == nil {
		s.used = map[string]*usage{}
	}
	u := s.used[name]
	if u == nil {
		if len(s.used) >= maxEndpoints {
			s.Left++
			return
		}
		u = &usage{by: map[string]*pace{}}
		s.used[name] = u
	}
	u.requests++
	p := u.by[caller]
	if p == nil {
		if s.callers >= maxPaces {
			s.Left++
			return
		}
		s.callers++
		p = &pace{}
		u.by[caller] = p
	}
	p.minute.add(at / int64(time.Minute))
	p.ten.add(at / int64(10*time.Second))
}

func (s *Survey) endpointOf(e *Entry) (name string, known bool) {
	if s.Endpoints != nil {
		m := s.Endpoints.Match(e.Method, e.Target)
		if m.Status != endpoint.Known {
			return policy.UnknownEndpoint, false
		}
		return s.Endpoints.Template(m.ID).String(), true
	}
	if e.Status >= 400 && e.Status < 500 && e.Status != 429 {
		return "", false
	}
	return Discover(e.Method, e.Target)
}

// Discover makes a template of a request: segments of the path that look like an ID become parameters.
func Discover(method, target string) (template string, ok bool) {
	if method == "HEAD" {
		method = "GET"
	}
	path, _, _ := strings.Cut(target, "?")
	if !strings.HasPrefix(path, "/") || len(path) > 500 {
		return "", false
	}
	if strings.ContainsAny(path, "%;\\{}") {
		return "", false
	}
	segments, names := strings.Split(strings.TrimSuffix(path[1:], "/"), "/"), 0
	for i, segment := range segments {
		if looksLikeID(segment) {
			if names++; names == 1 {
				segments[i] = "{id}"
			} else {
				segments[i] = "{id" + strconv.Itoa(names) + "}"
			}
		}
	}
	t, err := endpoint.ParseTemplate(method + " /" + strings.Join(segments, "/"))
	if err != nil {
		return "", false
	}
	return t.String(), true
}

// looksLikeID reports whether a segment is probably one of many: digits, a UUID or another long number in
// hexadecimal, or a word with digits in it that is longer than words are.
func looksLikeID(s string) bool {
	digits, hex := 0, 0
	for i := range len(s) {
		switch c := s[i]; {
		case '0' <= c && c <= '9':
			digits++
			hex++
		case 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F' || c == '-':
			hex++
		}
	}
	switch {
	case s == "" || digits == 0:
		return false
	case digits == len(s):
		return true
	case hex == len(s) && len(s) >= 12:
		return true
	}
	return digits >= 4 && len(s) >= 20 && !strings.Contains(s, ".")
}

// Figures are how many requests callers send at their busiest.
type Figures struct {
	Half int `json:"half"` // half of the callers send no more
	P95  int `json:"p95"`
	P99  int `json:"p99"`
	Most int `json:"most"` // what one did
}

func figures(peaks []int32) (f Figures) {
	if len(peaks) == 0 {
		return f
	}
	slices.Sort(peaks)
	at := func(part float64) int { return int(peaks[min(len(peaks)-1, int(part*float64(len(peaks))))]) }
	return Figures{at(0.5), at(0.95), at(0.99), int(peaks[len(peaks)-1])}
}

// Suggestion is a rule, and what it was made of.
type Suggestion struct {
	Rule     policy.Rule
	Of       string // the endpoint, or for policy.Default those without a rule of their own
	Requests int64
	Callers  int
	Minute   Figures // requests of a caller in its busiest minute
	Ten      Figures // in its busiest ten seconds
}

// few is below how many callers an endpoint says too little for a limit of its own.
const few = 20

// Suggest returns rules that give each caller so many times what 99 of 100 callers use: one for every endpoint that
// needs much more than others, a default for the others, one for what is no endpoint and one for all together.
func (s *Survey) Suggest(times float64) []Suggestion {
	var own []Suggestion
	rest := Suggestion{Of: policy.Default}
	var minutes, tens []int32
	for name, u := range s.used {
		if name == policy.All || name == policy.UnknownEndpoint {
			continue
		}
		one := suggestion(name, u)
		own = append(own, one)
		rest.Requests += u.requests
		for _, p := range u.by {
			minutes, tens = append(minutes, p.minute.max), append(tens, p.ten.max)
		}
	}
	rest.Callers = len(minutes)
	if all := s.used[policy.All]; all != nil {
		rest.Callers = len(all.by)
	}
	rest.Minute, rest.Ten = figures(minutes), figures(tens)
	rest.Rule = limitOf(policy.Default, rest.Minute.P99, rest.Ten.P99, times)
	own = slices.DeleteFunc(own, func(one Suggestion) bool {
		return one.Callers < few || round(float64(one.Minute.P99)*times) < 2*rest.Rule.Limit
	})
	for i := range own {
		own[i].Rule = limitOf(own[i].Of, own[i].Minute.P99, own[i].Ten.P99, times)
	}
	slices.SortFunc(own, func(a, b Suggestion) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), strings.Compare(a.Of, b.Of))
	})
	if rest.Requests > 0 {
		own = append(own, rest)
	}
	unknown := Suggestion{Of: policy.UnknownEndpoint}
	if u := s.used[policy.UnknownEndpoint]; u != nil {
		unknown = suggestion(policy.UnknownEndpoint, u)
	}
	// Those who look for holes are among these callers, so fewer of them are left alone.
	unknown.Rule = limitOf(policy.UnknownEndpoint, max(unknown.Minute.P95, 5), max(unknown.Ten.P95, 5), times)
	own = append(own, unknown)
	if u := s.used[policy.All]; u != nil {
		all := suggestion(policy.All, u)
		all.Rule = limitOf(policy.All, all.Minute.P99, all.Ten.P99, 2*times)
		all.Rule.Subject = policy.SubjectIP
		own = append(own, all)
	}
	return own
}

func suggestion(name string, u *usage) Suggestion {
	var minutes, tens []int32
	for _, p := range u.by {
		minutes, tens = append(minutes, p.minute.max), append(tens, p.ten.max)
	}
	return Suggestion{Of: name, Requests: u.requests, Callers: len(u.by), Minute: figures(minutes), Ten: figures(tens)}
}

func limitOf(at string, minute, ten int, times float64) policy.Rule {
	limit := round(float64(minute) * times)
	return policy.Rule{Endpoint: at, Limit: limit, Per: time.Minute, Burst: min(limit, round(float64(ten)*times))}
}

// round rounds up to a number that people write: 1, 2, 3, 5, 10, 15, 20, 30, 50 and so on.
func round(n float64) int64 {
	for scale := int64(1); ; scale *= 10 {
		for _, step := range []float64{1, 1.5, 2, 3, 5, 7.5} {
			if v := int64(math.Ceil(step * float64(scale))); float64(v) >= n || scale > math.MaxInt32 {
				return v
			}
		}
	}
}

// Templates are the endpoints that were found.
func (s *Survey) Templates() (texts []string) {
	for name := range s.used {
		if name != policy.All && name != policy.UnknownEndpoint {
			texts = append(texts, name)
		}
	}
	slices.Sort(texts)
	return texts
}
