package main

import (
	"strings"
	"testing"
	"time"
)

// A short run times every row, and what it finds makes a page.
func TestEveryStageIsTimed(t *testing.T) {
	p := plan{runs: 1, samples: 400, rules: 3000, keys: 1000, buckets: 1 << 10, load: 200}
	rows, err := p.measure()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		rowMatch, rowDirty, rowMiss, rowToken, rowTokenFirst, rowKey, rowKeys, rowPeer, rowHops, rowLookup, rowReload,
		rowHot, rowContended,
		rowMany, rowChurn, rowCheckPeer, rowCheckKey, rowCheckToken, rowHandler, rowWithout, rowWith, rowAdded,
	}
	if len(rows) != len(want) {
		t.Fatalf("measured %d rows, want %d", len(rows), len(want))
	}
	for i, r := range rows {
		if r.Name != want[i] || r.Samples < 3 {
			t.Errorf("row %d is %q with %d samples, want %q", i, r.Name, r.Samples, want[i])
		}
		if r.Name != rowAdded && (r.P50 > r.P95 || r.P95 > r.P99) {
			t.Errorf("%s: P50 %v, P95 %v, P99 %v, want them to rise", r.Name, r.P50, r.P95, r.P99)
		}
	}
	text := p.page([][]Row{rows, rows}, time.Now())
	for _, name := range want {
		if !strings.Contains(text, "| "+name+" |") {
			t.Errorf("the page lacks the row %q", name)
		}
	}
	for _, name := range want {
		if label := labels[name]; name != rowReload && (label == "" || len(label) > 28) {
			t.Errorf("the label of %q is %q, want one of at most 28 bytes", name, label)
		}
	}
	for name := range floors {
		if !strings.Contains(text, name) {
			t.Errorf("the floor of %q stands beside no row", name)
		}
	}
}

func TestRow(t *testing.T) {
	spent := make([]float64, 1000)
	for i := range spent {
		spent[i] = float64(999 - i)
	}
	if got, want := row("x", spent), (Row{Name: "x", P50: 500, P95: 950, P99: 990, Samples: 1000}); got != want {
		t.Errorf("row = %+v, want %+v", got, want)
	}
	if got := row("x", []float64{-3}); got.P50 != 0 {
		t.Errorf("a call faster than the clock took %v ns, want 0", got.P50)
	}
}
