package activity

import (
	"cmp"
	"iter"
	"slices"
	"time"
)

const (
	// Cell is how long requests are counted together in a series.
	Cell = 5 * time.Second

	cells     = int(Window / Cell)
	maxSeries = 1000 // rules; metrics tell no more apart
)

// Counters are how often a rule has admitted and denied since the process started; Shadow is how often it would have
// denied, were it not in shadow, and Abandoned how many of those admitted left before their turn.
type Counters struct{ Admitted, Denied, Shadow, Abandoned uint64 }

// series is what counters came to, in cells.
type series struct {
	latest int64 // the newest cell
	since  int64
	rules  map[string]*history
}

type history struct {
	last  Counters
	cells [cells][4]uint32
}

func (s *series) init(now int64) {
	s.latest, s.since, s.rules = now/int64(Cell), now, map[string]*history{}
}

// turn makes place for the cells up to one.
func (s *series) turn(cell int64) {
	for gone := range min(cell-s.latest, int64(cells)) {
		for _, h := range s.rules {
			h.cells[(s.latest+1+gone)%int64(cells)] = [4]uint32{}
		}
	}
	s.latest = max(s.latest, cell)
}

// Read takes the counters of all rules, by title. It is to be called about once a second.
func (t *Table) Read(all iter.Seq2[string, Counters]) {
	now := t.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.series
	s.turn(now / int64(Cell))
	for title, c := range all {
		h := s.rules[title]
		if h == nil {
			if c == (Counters{}) || len(s.rules) >= maxSeries {
				continue
			}
			h = &history{}
			s.rules[title] = h
		}
		at := &h.cells[s.latest%int64(cells)]
		at[0] += uint32(c.Admitted - h.last.Admitted)
		at[1] += uint32(c.Denied - h.last.Denied)
		at[2] += uint32(c.Shadow - h.last.Shadow)
		at[3] += uint32(c.Abandoned - h.last.Abandoned)
		h.last = c
	}
}

// Rate is what a rule admits and denies.
type Rate struct {
	Rule string `json:"rule"` // title; "" for requests that no rule applies to

	// Admitted, Denied and Shadow are by second, over the last complete cells, ten seconds.
	Admitted float64 `json:"admitted_per_second"`
	Denied   float64 `json:"denied_per_second"`
	Shadow   float64 `json:"shadow_denied_per_second"`

	// Hour counts requests of the last hour.
	Hour HourCount `json:"last_hour"`
}

// HourCount counts requests of the last hour.
type HourCount struct {
	Admitted uint64 `json:"admitted"`
	Denied   uint64 `json:"denied"`
	Shadow   uint64 `json:"shadow_denied"`

	// Abandoned is how many of those admitted never reached the API, as their callers left while they waited.
	Abandoned uint64 `json:"abandoned"`
}

// rateCells is over how many complete cells a rate is taken.
const rateCells = 2

// Rates reports every rule that decided anything in the last hour, the one that denies most first.
func (t *Table) Rates() []Rate {
	now := t.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.series
	s.turn(now / int64(Cell))
	list := []Rate{}
	for title, h := range s.rules {
		r := Rate{Rule: title}
		for i := range h.cells {
			r.Hour.Admitted += uint64(h.cells[i][0])
			r.Hour.Denied += uint64(h.cells[i][1])
			r.Hour.Shadow += uint64(h.cells[i][2])
			r.Hour.Abandoned += uint64(h.cells[i][3])
		}
		if r.Hour == (HourCount{}) {
			continue
		}
		for i := range int64(rateCells) {
			c := &h.cells[(s.latest-1-i+int64(cells))%int64(cells)]
			r.Admitted += float64(c[0])
			r.Denied += float64(c[1])
			r.Shadow += float64(c[2])
		}
		span := rateCells * Cell.Seconds()
		r.Admitted, r.Denied, r.Shadow = r.Admitted/span, r.Denied/span, r.Shadow/span
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b Rate) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(b.Hour.Denied, a.Hour.Denied),
			cmp.Compare(b.Hour.Admitted, a.Hour.Admitted), cmp.Compare(a.Rule, b.Rule))
	})
	return list
}

// Series is what a rule, or all of them together, admitted and denied in the last hour, in cells.
type Series struct {
	Since       time.Time `json:"since"` // of the first cell
	CellSeconds float64   `json:"cell_seconds"`
	Admitted    []int64   `json:"admitted"` // requests in each cell; the last one is under way
	Denied      []int64   `json:"denied"`
	Shadow      []int64   `json:"shadow_denied"`
}

// Series reports the last hour of the rules with these titles together, of all without a title.
func (t *Table) Series(titles ...string) Series {
	now := t.clock.Now()
	ahead := t.clock.Wall(now) - now
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.series
	s.turn(now / int64(Cell))
	first := max(s.latest-int64(cells)+1, s.since/int64(Cell))
	n := int(s.latest - first + 1)
	out := Series{
		Since: time.Unix(0, first*int64(Cell)+ahead).UTC(), CellSeconds: Cell.Seconds(),
		Admitted: make([]int64, n), Denied: make([]int64, n), Shadow: make([]int64, n),
	}
	for title, h := range s.rules {
		if len(titles) > 0 && !slices.Contains(titles, title) {
			continue
		}
		for i := range n {
			c := &h.cells[(first+int64(i))%int64(cells)]
			out.Admitted[i] += int64(c[0])
			out.Denied[i] += int64(c[1])
			out.Shadow[i] += int64(c[2])
		}
	}
	return out
}
