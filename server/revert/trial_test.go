package revert

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/endpoint"
)

// feed is what came to an endpoint in a part: requests of the callers 0 to
// callers-1, in equal shares, and of a greedy one.
type feed struct {
	total, denied   int // of each caller
	callers         int // 0 is 4
	greedy, refused int // requests of one caller more, and those denied
}

func (m *meter) feed(id endpoint.ID, f feed) {
	if f.callers == 0 {
		f.callers = 4
	}
	one := func(cell, total, denied int) {
		word := uint64(total) + uint64(denied)*oneDenied
		m.counts[id].word.Add(word)
		if t := m.trial.Load(); t != nil && t.at[id] != nil {
			t.at[id][cell].Add(word)
		}
	}
	for c := range f.callers {
		one(c, f.total, f.denied)
	}
	one(63, f.greedy, f.refused)
}

// The judge alone: parts of a second, a share of 50 %, 100 requests, 2 callers,
// a watch of 20 s. Each case has the parts before the change and those after it.
func TestTrial(t *testing.T) {
	well, bad := feed{total: 10}, feed{total: 10, denied: 9}
	repeat := func(n int, f feed) (all []feed) {
		for range n {
			all = append(all, f)
		}
		return all
	}
	many := func(parts ...[]feed) (all []feed) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	cases := []struct {
		name          string
		before, after []feed
		late          int // the part after which the process stands still for a minute; 0 is none
		want          int // the part after the change at whose end it is guilty; 0 is never
	}{
		{"callers are turned away", repeat(5, well), repeat(10, bad), 0, 5},
		{"just over the share", repeat(5, well), repeat(10, feed{total: 100, denied: 51}), 0, 5},
		{"just the share", repeat(5, well), repeat(10, feed{total: 100, denied: 50}), 0, 0},
		{"nobody came before", nil, repeat(10, bad), 0, 5},
		{"as bad before", repeat(5, bad), repeat(10, bad), 0, 0},
		{"just the share before", repeat(5, feed{total: 10, denied: 5}), repeat(10, bad), 0, 5},
		{"bad before, but longer ago", many(repeat(5, bad), repeat(5, well)), repeat(10, bad), 0, 5},
		{"too few requests", repeat(5, well), repeat(20, feed{total: 1, denied: 1}), 0, 0},
		{"99 requests, and then one more", repeat(5, well),
			many(repeat(4, feed{total: 24, denied: 24, callers: 1}), []feed{{total: 1, denied: 1, callers: 2},
				{total: 1, denied: 1, callers: 1}, {total: 1, denied: 1, callers: 2}}), 0, 7},
		{"a pause of a part", repeat(5, well), many(repeat(3, bad), repeat(1, well), repeat(5, bad)), 0, 9},
		{"nobody comes in a part", repeat(5, well), many(repeat(3, bad), repeat(1, feed{}), repeat(1, bad)), 0, 5},
		{"nobody comes at all", repeat(5, well), repeat(20, feed{}), 0, 0},
		{"bad later within the watch", repeat(5, well), many(repeat(10, well), repeat(6, bad)), 0, 15},
		{"bad after the watch", repeat(5, well), many(repeat(17, well), repeat(10, bad)), 0, 0},
		{"one caller alone", repeat(5, well), repeat(10, feed{total: 100, denied: 99, callers: 1}), 0, 0},
		{"one greedy caller among others", repeat(5, well),
			repeat(10, feed{total: 10, denied: 1, greedy: 1000, refused: 990}), 0, 0},
		{"a greedy caller, and the others too", repeat(5, well),
			repeat(10, feed{total: 10, denied: 6, greedy: 1000, refused: 990}), 0, 5},
		{"a process that stood still", repeat(5, well), repeat(10, bad), 3, 9},
	}
	for _, c := range cases {
		m := newMeter(table(t, "GET /a", "GET /b"))
		s := Settings{Share: 50, For: 5 * time.Second, MinRequests: 100, MinCallers: 2, Watch: 20 * time.Second}
		b := newBench(s, m, 0)
		at := time.Duration(0)
		look := func(f feed, changed bool) []guilty {
			at += s.Part()
			m.feed(1, f)
			m.feed(2, bad) // whose rules nobody changed
			return b.look(at, changed)
		}
		for _, f := range c.before {
			if found := look(f, false); len(found) > 0 {
				t.Errorf("%s: guilty before the change", c.name)
			}
		}
		before := b.before()
		look(bad, true) // the part of the change belongs to neither
		b.try(change{
			from:    16,
			to:      17,
			blamed:  map[endpoint.ID][]int64{1: {17}},
			tighter: map[endpoint.ID]bool{1: true},
			before:  before,
			at:      at,
		})
		got := 0
		for i, f := range c.after {
			found := look(f, false)
			if len(found) > 0 && got == 0 {
				got = i + 1
			}
			if len(found) > 1 || len(found) == 1 && found[0].endpoint != 1 {
				t.Errorf("%s: guilty are %+v, want endpoint 1 alone", c.name, found)
			}
			if i+1 == c.late {
				at += time.Minute
				b.trials[1].until += time.Minute
			}
		}
		if got != c.want {
			t.Errorf("%s: guilty after part %d, want %d", c.name, got, c.want)
		}
	}
}

// Of several endpoints the one that turns most away is named.
func TestWorstFirst(t *testing.T) {
	m := newMeter(table(t, "GET /a", "GET /b", "GET /c"))
	s := Settings{Share: 50, For: 5 * time.Second, MinRequests: 1, MinCallers: 1, Watch: time.Minute}
	b := newBench(s, m, 0)
	b.try(change{
		from:    1,
		to:      2,
		blamed:  map[endpoint.ID][]int64{0: {2}, 1: {2}, 2: {2}, 3: {2}},
		tighter: map[endpoint.ID]bool{0: true, 1: true, 2: true, 3: true},
		before:  b.before(),
	})
	var found []guilty
	for i := range 5 {
		m.feed(0, feed{total: 10, denied: 9})
		m.feed(1, feed{total: 20, denied: 11})
		m.feed(2, feed{total: 100, denied: 9})
		m.feed(3, feed{total: 10, denied: 9})
		found = b.look(time.Duration(i+1)*time.Second, false)
	}
	var order []string
	for _, g := range found {
		order = append(order, fmt.Sprint(g.endpoint))
	}
	if got := strings.Join(order, " "); got != "1 0 3" {
		t.Errorf("guilty are %s, want 1 0 3", got)
	}
}

// Two changes of one endpoint: it is compared with how it was before the first,
// and a third that has nothing to do with it forbids to go back.
func TestBlame(t *testing.T) {
	m := newMeter(table(t, "GET /a", "GET /b"))
	s := Settings{Share: 50, For: 5 * time.Second, MinRequests: 1, MinCallers: 1, Watch: time.Minute}
	b := newBench(s, m, 0)
	for i := range 5 {
		m.feed(1, feed{total: 10})
		b.look(time.Duration(i)*time.Second, false)
	}
	b.try(change{
		from:    16,
		to:      17,
		blamed:  map[endpoint.ID][]int64{1: {17}},
		tighter: map[endpoint.ID]bool{1: true},
		before:  b.before(),
	})
	for i := range 5 {
		m.feed(1, feed{total: 10, denied: 10})
		b.look(time.Duration(5+i)*time.Second, false)
	}
	b.try(change{
		from:    17,
		to:      19,
		blamed:  map[endpoint.ID][]int64{1: {18, 19}, 2: {19}},
		tighter: map[endpoint.ID]bool{1: true, 2: true},
		before:  b.before(),
	})
	tried := b.trials[1]
	if tried.first != 16 || tried.before != (Count{200, 0}) || !tried.onlyBlame(19) || tried.onlyBlame(20) {
		t.Errorf("trial = %+v, want one from 16 on, with the requests before it", tried)
	}
	if tried.above != 0 || tried.count != (Count{}) {
		t.Errorf("trial = %+v, want it to begin anew with the second change", tried)
	}
	if other := b.trials[2]; other.first != 17 || other.onlyBlame(19) {
		t.Errorf("trial of the other endpoint = %+v, want not all versions since 17 to be to blame", other)
	}
}

// The counters go past 2^32 requests.
func TestCounterOverflows(t *testing.T) {
	for _, before := range []uint64{0, 1<<32 - 2, 1<<64 - 1, 1<<64 - 1<<32} {
		if got := since(before, before+7+5*oneDenied); got != (Count{7, 5}) {
			t.Errorf("since(%d, 7 requests and 5 denied later) = %+v", before, got)
		}
	}
}
