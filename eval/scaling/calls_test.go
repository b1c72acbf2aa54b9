package main

import (
	"strings"
	"testing"
	"time"
)

// Leases with a free part ask the store for a tenth of what strict takes do, and use the limits; here, in a short form and beside other tests, a fifth.
func TestCallsOfLeases(t *testing.T) {
	cells, err := countCalls([]int64{1000}, []callScope{callScopes[1], callScopes[3]}, time.Second, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	strict, leased := cells[0], cells[1]
	if strict.Calls == 0 || leased.Calls*5 > strict.Calls {
		t.Errorf("%v\n%v\nwant a fifth of the calls at most", strict, leased)
	}
	if leased.Used < 0.5 {
		t.Errorf("%v: want most of the limits used", leased)
	}
	p, found := plan{}, findings{Calls: cells}
	if text := p.page(&found, time.Unix(0, 0)); strings.Count(text, "\n| 1000/s |") != 2 || strings.Count(text, "1000 per second a key") != 3 {
		t.Errorf("the page is\n%s\nwant a row for each cell, and for each goal", text)
	}
}
