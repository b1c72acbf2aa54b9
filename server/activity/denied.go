package activity

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/endpoint"
	"github.com/headgate-io/headgate/identity"
	"github.com/headgate-io/headgate/key"
)

// DeniedWindow is how far back Denied looks.
const DeniedWindow = time.Minute

const (
	deniedCell  = int64(10 * time.Second)
	deniedCells = 6 // are a window
	ways        = 8
)

// denied counts denials by caller and rule. It is a table of sets of eight entries, each set with a lock of its own.
// A newcomer to a full set takes the place of the entry with the fewest denials in the window and inherits their
// number, as the algorithm Space-Saving does (Metwally, Agrawal and El Abbadi, 2005): nobody who was denied often is
// missing, and what is shown is at most Inherited too high.
type denied struct {
	sets []deniedSet
}

type deniedSet struct {
	mu      sync.Mutex
	entries [ways]deniedEntry // guarded by mu
}

type deniedEntry struct {
	key       key.Key
	who       identity.Principal
	template  endpoint.Template
	ruleID    uint64 // 0 where a rule of mode block did it
	rule      string // title
	cell      int64  // the newest that counts are of; 0 if the entry is free
	counts    [deniedCells]uint32
	inherited uint32
	early     uint32 // of those in the window, how many came before they were told to
	last      int64
	again     int64 // when the last one was told to come again
}

func (d *denied) init(most int, _ int64) { d.sets = make([]deniedSet, (most+ways-1)/ways) }

// turn forgets cells that have left the window.
func (e *deniedEntry) turn(cell int64) {
	switch gone := cell - e.cell; {
	case gone >= deniedCells:
		e.counts, e.early, e.inherited = [deniedCells]uint32{}, 0, 0
	default:
		for i := range gone {
			e.counts[(e.cell+1+i)%deniedCells] = 0
		}
	}
	e.cell = max(e.cell, cell)
}

func (e *deniedEntry) sum() (n uint32) {
	for _, c := range e.counts {
		n += c
	}
	return n
}

// note counts a denial, and reports whether the caller came before it was told to.
func (d *denied) note(k key.Key, who *identity.Principal, now int64, of *headgate.Decision) (early bool) {
	rule := ruleOf(of)
	s, cell := &d.sets[k.Hi%uint64(len(d.sets))], now/deniedCell
	s.mu.Lock()
	defer s.mu.Unlock()
	least := &s.entries[0]
	for i := range s.entries {
		e := &s.entries[i]
		if e.cell != 0 && e.key == k && e.ruleID == rule {
			e.turn(cell)
			return e.add(now, of)
		}
		if least.cell != 0 && (e.cell == 0 || e.cell+deniedCells <= cell || e.sum() < least.sum()) {
			least = e
		}
	}
	var inherited uint32
	if least.cell != 0 {
		least.turn(cell)
		inherited = least.sum()
	}
	*least = deniedEntry{key: k, who: kept(who), ruleID: rule, rule: titleOf(of), cell: cell, inherited: inherited}
	least.counts[cell%deniedCells] = inherited
	return least.add(now, of)
}

// ruleOf is the number of the rule that denied; 0 if one of mode block did.
func ruleOf(d *headgate.Decision) uint64 {
	if v, ok := d.Binding(); ok {
		return d.Policies().Terms(v.Rule).ID
	}
	return 0
}

func titleOf(d *headgate.Decision) string {
	if v, ok := d.Binding(); ok {
		return d.Policies().Rule(v.Rule).Title()
	}
	r, _ := d.Access()
	return r.Title()
}

// deniedOf is whose bucket was empty.
func deniedOf(d *headgate.Decision) *identity.Principal {
	if v, ok := d.Binding(); ok && v.Principal > 0 {
		return &d.Others[v.Principal-1]
	}
	return &d.Principal
}

// add counts one more.
func (e *deniedEntry) add(now int64, of *headgate.Decision) (early bool) {
	e.counts[e.cell%deniedCells]++
	if early = now < e.again; early {
		e.early++
	}
	e.last, e.again, e.template = now, now+int64(of.RetryAfter), of.Template()
	return early
}

// Denial is a caller that a rule denied within the window.
type Denial struct {
	Caller
	Rule     string `json:"rule"`
	Endpoint string `json:"endpoint"` // the last one
	Blocked  bool   `json:"blocked,omitempty"`
	Denied   uint64 `json:"denied"` // requests

	// Early is how many of them came before the caller was told to come again: a client that ignores Retry-After.
	Early uint64 `json:"early"`

	// AtMost is by how many Denied may be too high: more callers were denied than are told apart.
	AtMost uint64 `json:"at_most_too_high,omitempty"`

	// Last is when the last one was, and Again when it was told to come again.
	Last  time.Time `json:"last"`
	Again time.Time `json:"again"`
}

// EndpointDenials is how often requests for an endpoint were denied within the window.
type EndpointDenials struct {
	Endpoint string `json:"endpoint"`
	Rule     string `json:"rule"`
	Callers  int    `json:"callers"`
	Denied   uint64 `json:"denied"`
}

// Denied reports the callers that were denied most often within DeniedWindow, and the endpoints, at most so many
// of each. With reveal callers have their names.
func (t *Table) Denied(most int, reveal bool) (callers []Denial, endpoints []EndpointDenials) {
	now := t.clock.Now()
	ahead := t.clock.Wall(now) - now
	type place struct{ endpoint, rule string }
	byEndpoint := map[place]*EndpointDenials{}
	callers = []Denial{}
	for i := range t.denied.sets {
		s := &t.denied.sets[i]
		s.mu.Lock()
		entries := s.entries
		s.mu.Unlock()
		for j := range entries {
			e := &entries[j]
			if e.cell == 0 {
				continue
			}
			e.turn(max(e.cell, now/deniedCell))
			n := uint64(e.sum())
			if n == 0 {
				continue
			}
			d := Denial{
				Caller: shown(t.names.shown(e.key), &e.who, reveal), Rule: e.rule, Endpoint: templateText(e.template),
				Blocked: e.ruleID == 0,
				Denied:  n, Early: min(uint64(e.early), n), AtMost: min(uint64(e.inherited), n),
				Last: time.Unix(0, e.last+ahead).UTC(), Again: time.Unix(0, e.again+ahead).UTC(),
			}
			callers = append(callers, d)
			at := place{d.Endpoint, d.Rule}
			if byEndpoint[at] == nil {
				byEndpoint[at] = &EndpointDenials{Endpoint: d.Endpoint, Rule: d.Rule}
			}
			byEndpoint[at].Callers++
			byEndpoint[at].Denied += n
		}
	}
	slices.SortFunc(callers, func(a, b Denial) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.Hash, b.Hash), cmp.Compare(a.Rule, b.Rule))
	})
	endpoints = []EndpointDenials{}
	for _, e := range byEndpoint {
		endpoints = append(endpoints, *e)
	}
	slices.SortFunc(endpoints, func(a, b EndpointDenials) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.Endpoint, b.Endpoint), cmp.Compare(a.Rule, b.Rule))
	})
	return callers[:min(len(callers), most)], endpoints[:min(len(endpoints), most)]
}

func templateText(t endpoint.Template) string {
	if t == (endpoint.Template{}) {
		return "UNKNOWN"
	}
	return t.String()
}
