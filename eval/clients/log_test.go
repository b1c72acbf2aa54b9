package main

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate-io/headgate/eval/harness"
	"github.com/headgate-io/headgate/pace"
	"github.com/headgate-io/headgate/server/replay"
)

// What stands in for the paper's log, at the load that the paper has figures of: -62.7, -70.1 and -93.2 % of UB's
// 429s, and 276 reports. The bands are around what it comes to here, and the paper's picture is the same.
func TestTheStandInForTheLog(t *testing.T) {
	s := scenarios()[2]
	ub := usual(s, 800, "UB")
	band{538, 20}.holds(t, "UB in seconds", ub.seconds)
	band{676, 80}.holds(t, "429s of UB", ub.refused)
	for name, want := range map[string]struct{ longer, fewer band }{
		"WB": {band{35.5, 8}, band{-55.8, 8}}, "ATB": {band{18.6, 6}, band{-77.4, 4}},
		"AATB, reference": {band{38, 9}, band{-94, 1.5}},
		"AP":              {band{3.9, 3}, band{-90.7, 2}}, "XATB": {band{3.8, 2}, band{-93.8, 1.5}},
		"HATB": {band{-0.4, 0.7}, band{-93.6, 1.5}},
	} {
		got := usual(s, 800, name)
		want.longer.holds(t, "duration of "+name, over(got.seconds, ub.seconds))
		want.fewer.holds(t, "429s of "+name, over(got.refused, ub.refused))
	}
	band{338, 25}.holds(t, "reports of AATB", usual(s, 800, "AATB, reference").messages)
	for i, requests := range loads[1:] { // UB has most errors at every load, and reports grow with it
		if ub := usual(s, requests, "UB"); ub.refused <= max(usual(s, requests, "WB").refused,
			usual(s, requests, "ATB").refused, usual(s, requests, "AATB, reference").refused) {
			t.Errorf("%d requests: UB has %.0f 429s, want the most", requests, ub.refused)
		}
		if few, many := usual(s, loads[i], "AATB, reference").messages,
			usual(s, requests, "AATB, reference").messages; few >= many {
			t.Errorf("%.0f reports at %d requests and %.0f at %d, want more", few, loads[i], many, requests)
		}
	}
}

// A real access log, of a web site: its 27 callers with most requests, as many as the paper's log
// has users at 800. They have 688 requests in a night, and here in 372 s, at the rate of the paper's.
// Their bursts are shorter than its users', and the order is the same.
func TestAnAccessLog(t *testing.T) {
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Open(filepath.Join(root, "server/replay/testdata/apache_logs.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	r, err := replay.New("", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Arrivals = &replay.Arrivals{Least: 11, Over: 372 * time.Second}
	if err := r.Read(t.Context(), "apache_logs.gz", log); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if _, _, err := r.Arrivals.Write(&text); err != nil {
		t.Fatal(err)
	}
	w, err := readWorkload(&text)
	if err != nil {
		t.Fatal(err)
	}
	requests := 0
	for _, arrivals := range w {
		requests += len(arrivals)
	}
	if len(w) != 27 || requests != 688 {
		t.Fatalf("%d callers with %d requests, want 27 with 688", len(w), requests)
	}
	s := scenario{"the log", func(*rand.Rand, int) workload { return w }, pace.Papers()[0]}
	ub := usual(s, 0, "UB")
	for name, want := range map[string]struct{ longer, fewer band }{
		"WB": {band{11.4, 4}, band{-23.6, 5}}, "ATB": {band{35, 6}, band{-80.5, 3}},
		"AATB, reference": {band{41.4, 7}, band{-92.9, 1.5}},
		"AP":              {band{6.1, 4}, band{-88.5, 3}}, "XATB": {band{3.9, 2}, band{-94.8, 1.5}},
		"HATB": {band{-0.6, 0.8}, band{-92.1, 1.5}},
	} {
		got := usual(s, 0, name)
		want.longer.holds(t, "duration of "+name, over(got.seconds, ub.seconds))
		want.fewer.holds(t, "429s of "+name, over(got.refused, ub.refused))
	}
	band{318, 30}.holds(t, "reports of AATB", usual(s, 0, "AATB, reference").messages)
}
