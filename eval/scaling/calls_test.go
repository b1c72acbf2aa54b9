package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Leases with a free part ask the store for a tenth of what strict takes do, and use the limits;
// here, in a short form and beside other tests, a fifth.
func TestCallsOfLeases(t *testing.T) {
	var cells []CallCell
	var strict, leased CallCell
	for range 3 { // without a processor, the store is lost for much of a second, and denied is what is asked meanwhile
		var err error
		cells, err = countCalls([]int64{1000}, []callScope{callScopes[1], callScopes[3]}, time.Second, t.Logf)
		if err != nil {
			t.Fatal(err)
		}
		if strict, leased = cells[0], cells[1]; leased.Calls*5 <= strict.Calls && leased.Used >= 0.5 {
			break
		}
	}
	if strict.Calls == 0 || leased.Calls*5 > strict.Calls {
		t.Errorf("%v\n%v\nwant a fifth of the calls at most", strict, leased)
	}
	if leased.Used < 0.5 {
		t.Errorf("%v: want most of the limits used", leased)
	}
	p, found := plan{}, findings{Calls: cells}
	if text := p.page(&found, time.Unix(0, 0)); strings.Count(text, "\n| 1000/s |") != 2 ||
		strings.Count(text, "1000 per second a key") != 3 {
		t.Errorf("the page is\n%s\nwant a row for each cell, and for each goal", text)
	}
}

// What a lease needs at least, against numbers that were computed apart from it.
func TestLeastCalls(t *testing.T) {
	for limit, want := range map[int64]string{100: "0.064", 1000: "0.012"} {
		if got := fmt.Sprintf("%.3f", leastCalls(limit)); got != want {
			t.Errorf("leastCalls(%d) = %s, want %s", limit, got, want)
		}
	}
}
