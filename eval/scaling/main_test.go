package main

import (
	"math"
	"strings"
	"testing"
	"time"
)

// What an API receives from several gateways stays within what is published, in a short form of the
// measurement: also while the store is killed.
func TestWithinThePromise(t *testing.T) {
	killed := allFaults[1]
	killed.lasts = 500 * time.Millisecond
	p := plan{
		limit: 100, over: 3, span: time.Second, replicas: []int{2},
		scopes: []string{"lease", "sync", "strict", "gossip"}, traffics: traffics[1:2],
		naive: true, faults: []fault{killed},
	}
	found, err := p.all(testWriter{t})
	if err != nil {
		t.Fatal(err)
	}
	if err := found.beyond(); err != nil {
		t.Error(err)
	}
	if len(found.Cells) != 5 {
		t.Errorf("%d cells, want one for each scope, and the naive script's", len(found.Cells))
	}
	for _, c := range found.Cells {
		if c.Used < 0.1 {
			t.Errorf("%v: want some of the limit used, three times as much is sent", c)
		}
	}
	if len(found.Faults) != 1 || len(found.Faults[0].Outcomes) != len(answers) || found.Faults[0].Back < 0 {
		t.Errorf("the faults are %v, want one with an outcome for each of %d rules, and the store back",
			found.Faults, len(answers))
	}
	text := p.page(found, time.Unix(0, 0))
	for _, want := range []string{"`lease` | 2 |", "`sync` | 2 |", "`gossip` | 2 |", "naive script | 2 |",
		"store killed for 2 s | `strict`, `share` |"} {
		if !strings.Contains(text, "| "+want) {
			t.Errorf("the page is\n%s\nwant a row that begins with %s", text, want)
		}
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(text []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(text)))
	return len(text), nil
}

// A measurement that finds a promise broken fails, and says which.
func TestBeyondItsBound(t *testing.T) {
	found := findings{
		Cells: []Cell{{Limiter: "`strict`", Excess: 3, Bound: 3}, {Limiter: "naive script", Excess: 300, Bound: -1}},
		Faults: []Fault{{
			Name:     "gateway joins",
			Outcomes: []Outcome{{Rule: "`split`", Excess: 2, Bound: 2}, {Rule: "`open`", Excess: 300, Bound: -1}},
		}},
	}
	if err := found.beyond(); err != nil {
		t.Errorf("beyond() = %v, want nil: all is within its bound", err)
	}
	found.Cells[0].Excess++
	found.Faults[0].Outcomes[0].Excess++
	err := found.beyond()
	if err == nil || !strings.Contains(err.Error(), "`strict`") ||
		!strings.Contains(err.Error(), "gateway joins, `split`: 3 of 2") {
		t.Errorf("beyond() = %v, want an error that names both", err)
	}
}

func TestBoundOfAFault(t *testing.T) {
	strict, share, open, leased, synced, split := answers[0], answers[1], answers[2], answers[3], answers[4], answers[5]
	once, briefly := []stay{{time.Minute, time.Minute}}, []stay{{240 * time.Millisecond, 250 * time.Millisecond}}
	const inTheStore = faultLimit * (100 - leaseFree) / 100
	const ahead = faultLimit / 10 // of the store, what drains in 100 ms
	for _, c := range []struct {
		what   fault
		a      answer
		losses int64
		away   absence
		want   int64
	}{
		{fault{loses: true}, strict, 1, absence{once, 1}, 4 * tries},
		{fault{loses: true, forgets: true}, strict, 1, absence{once, 0}, 4 * tries},
		{fault{loses: true, forgets: true}, strict, 1, absence{briefly, 0}, 76 + 4*tries},
		{fault{forgets: true}, strict, 0, absence{}, faultLimit},
		{fault{loses: true}, share, 1, absence{once, 0.25}, faultLimit + 1 + 25 + 1 + 4*tries},
		{fault{loses: true}, share, 1, absence{briefly, 0}, 25 + 1 + 1 + 4*tries},
		{fault{loses: true, forgets: true}, share, 1, absence{once, 0}, faultLimit + 1 + 1 + 4*tries},
		{fault{loses: true, forgets: true}, share, 1, absence{briefly, 0}, 25 + 1 + 1 + 76 + 4*tries},
		{fault{forgets: true}, share, 0, absence{}, faultLimit + 1},
		{fault{loses: true, forgets: true}, leased, 2, absence{append(once, once...), 0},
			2*(inTheStore+1) + 1 + 8*tries},
		{fault{loses: true}, synced, 1, absence{once, 0}, faultLimit + 1 + 1 + 4*tries},
		{fault{loses: true, forgets: true}, synced, 1, absence{once, 0}, faultLimit + 1 + 1 + 4*tries + 4*ahead},
		{fault{forgets: true}, synced, 0, absence{}, faultLimit + 1 + 4*ahead},
		{fault{joins: true}, synced, 0, absence{}, 1 + ahead},
		{fault{leaves: true}, synced, 0, absence{}, 1 + ahead},
		{fault{}, synced, 0, absence{}, 1},
		{fault{loses: true}, open, 1, absence{once, 0}, -1},
		{fault{}, open, 0, absence{}, 0},
		{fault{loses: true, forgets: true}, split, 1, absence{once, 1}, 0},
		{fault{leaves: true}, split, 0, absence{}, faultLimit / 4},
	} {
		if got := c.what.bound(c.a, 4, c.losses, c.away); got != c.want {
			t.Errorf("bound(%v, 4 gateways, %d losses, %v) of %+v = %d, want %d", c.a, c.losses, c.away,
				c.what, got, c.want)
		}
	}
}

func TestWatcher(t *testing.T) {
	began := time.Unix(1_795_000_000, 0)
	at := func(ms int, lost, all int) sight {
		return sight{began.Add(time.Duration(ms) * time.Millisecond), lost, all}
	}
	w := watcher{seen: []sight{at(0, 0, 2), at(10, 1, 2), at(30, 2, 2), at(100, 2, 2), at(120, 0, 2), at(130, 0, 0),
		at(140, 0, 2)}}
	if got := w.first(began.Add(5*time.Millisecond), allLost); got != 25*time.Millisecond {
		t.Errorf("all have lost it after %v, want 25ms", got)
	}
	if got := w.first(began.Add(30*time.Millisecond), noneLost); got != 90*time.Millisecond {
		t.Errorf("none has lost it after %v, want 90ms", got)
	}
	if got := w.first(began.Add(150*time.Millisecond), allLost); got >= 0 {
		t.Errorf("all have lost it after %v, want never", got)
	}
	// One of two from 0 to 30 and from 100 to 120, at most, and whatever it was while nobody said
	// anything; both from 10 to 120.
	if got := w.absence(); len(got.together) != 1 ||
		got.together[0] != (stay{70 * time.Millisecond, 110 * time.Millisecond}) || math.Abs(got.apart-0.045) > 1e-9 {
		t.Errorf("absence() = %v, want 70ms to 110ms together, and 45 ms apart", got)
	}
}

// TestTrafficAtTheEdges moves what comes too early to the next time at which requests are sent.
func TestTrafficAtTheEdges(t *testing.T) {
	second := time.Unix(1_795_000_000, 0)
	for _, c := range []struct{ at, want time.Duration }{
		{0, 0}, {99 * time.Millisecond, 99 * time.Millisecond}, {100 * time.Millisecond, 900 * time.Millisecond},
		{500 * time.Millisecond, 900 * time.Millisecond},
		{900 * time.Millisecond, 900 * time.Millisecond}, {999 * time.Millisecond, 999 * time.Millisecond},
	} {
		if got := traffics[2].when(second.Add(c.at)).Sub(second); got != c.want {
			t.Errorf("when(%v after a full second) = %v after it, want %v", c.at, got, c.want)
		}
	}
}
