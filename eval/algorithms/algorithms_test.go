package main

import (
	"bytes"
	"os"
	"testing"
)

// TestPageSaysWhatIsMeasured: the table on the page is what the program prints, no number is above
// its bound, and the search is good enough to come close to each.
func TestPageSaysWhatIsMeasured(t *testing.T) {
	results, err := measure()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		for i, span := range spans {
			if r.most[i] > r.bound[i] {
				t.Errorf("%s admits %d in %v, want at most %d", r.name, r.most[i], span, r.bound[i])
			}
			if r.most[i] < r.bound[i]*9/10 {
				t.Errorf("%s: the search found %d in %v of a bound of %d: it is too weak", r.name, r.most[i],
					span, r.bound[i])
			}
		}
	}
	name, err := page()
	if err != nil {
		t.Fatal(err)
	}
	committed, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	renewed, err := replace(committed, table(results))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(committed, renewed) {
		t.Errorf("docs/algorithms.md is not what was measured; run make algorithms. Measured:\n%s", table(results))
	}
}

func TestReplaceWantsItsMarkers(t *testing.T) {
	if got, err := replace([]byte("a\n"+begins+"old\n"+ends+"b\n"), "new\n"); err != nil ||
		string(got) != "a\n"+begins+"new\n"+ends+"b\n" {
		t.Errorf("replace = %q, %v", got, err)
	}
	for _, page := range []string{"", begins, ends, ends + begins} {
		if _, err := replace([]byte(page), "new"); err == nil {
			t.Errorf("replace in %q succeeds", page)
		}
	}
}
