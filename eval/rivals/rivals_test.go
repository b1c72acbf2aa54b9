package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/eval/rivals/peer"
)

// TestMain serves in the place of the tests, for those that measure servers.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-serve" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestEveryPartIsMeasured runs everything once, small, in this process, and reads the page.
func TestEveryPartIsMeasured(t *testing.T) {
	p := plan{rounds: 1, keys: 1 << 10, samples: 1, sample: time.Millisecond, large: 1 << 12}
	found := &findings{Peers: map[string][]Result{}}
	for _, which := range peer.All() {
		r, err := p.measurePeer(which)
		if err != nil {
			t.Fatalf("%s: %v", which.Name, err)
		}
		if r.Hot1 <= 0 || r.Hot2 <= 0 || r.Many1 <= 0 || r.Many2 <= 0 || r.Insert <= 0 || r.Live == 0 || r.GC <= 0 {
			t.Errorf("%s: %+v has a measure that is not above 0", which.Name, r)
		}
		found.Peers[which.Name] = []Result{r}
	}
	rules, err := p.measureRules()
	if err != nil {
		t.Fatal(err)
	}
	large, err := measureLarge(p.large)
	if err != nil {
		t.Fatal(err)
	}
	if found.HTTP, err = p.measureHTTP(twoBytes, io.Discard); err != nil {
		t.Fatal(err)
	}
	if found.API, err = p.measureHTTP(item, io.Discard); err != nil {
		t.Fatal(err)
	}
	found.Rules, found.Large = []Rules{rules}, &large
	if found.Sized, err = p.measureSized(); err != nil || found.Sized.Bytes <= 0 || found.Sized.Occupancy <= 0 {
		t.Fatal(found.Sized, err)
	}

	text := p.page(found, time.Unix(1_795_176_000, 0))
	for _, want := range []string{"Measured on 20 November 2026 by `make rivals`", "| go-limiter | yes |",
		"| httprate | no |", "three rules against one", "4096 slots", "| tollbooth |",
		"against one without a limiter"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q:\n%s", want, text)
		}
	}
	dec := xml.NewDecoder(bytes.NewReader(chart(found, p.keys).SVG()))
	for {
		if _, err := dec.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("the chart is no XML: %v", err)
		}
	}
}

// TestAPartIsPrintedAsJSON is how a measuring process talks to the one that started it.
func TestAPartIsPrintedAsJSON(t *testing.T) {
	args := []string{"-keys", "100", "-samples", "1", "-sample", "1ms", "-part"}
	var out bytes.Buffer
	if err := run(append(args, "go-limiter"), &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	var r Result
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || r.Live != 100 {
		t.Errorf("-part go-limiter prints %q, want a Result with 100 live keys (%v)", out.String(), err)
	}
	if err := run(append(args, "nobody"), io.Discard, io.Discard); err == nil {
		t.Error("-part nobody = nil error, want one")
	}
	if err := run([]string{"-serve", "nobody"}, io.Discard, io.Discard); err == nil {
		t.Error("-serve nobody = nil error, want one")
	}
}

func TestADenialIsNoMeasurement(t *testing.T) {
	left := 100
	decide := func(string) bool { left--; return left >= 0 }
	p := plan{samples: 1, sample: time.Millisecond}
	if _, err := p.perDecision([]peer.Decide{decide}, makeKeys(1)); err != errDenied {
		t.Errorf("perDecision of a limiter that denies = %v, want %v", err, errDenied)
	}
}

func TestRatiosAreTakenWithinARound(t *testing.T) {
	found := &findings{Peers: map[string][]Result{
		// the machine gets ten times slower every round
		ours:                     {{Hot1: 10}, {Hot1: 100}, {Hot1: 1000}},
		"go-limiter":             {{Hot1: 20}, {Hot1: 200}, {Hot1: 2000}},
		"x/time/rate + sync.Map": {{Hot1: 40}, {Hot1: 150}, {Hot1: 4000}},
		"httprate":               {{Hot1: 1}, {Hot1: 1}, {Hot1: 1}}, // not exact, so not the best
	}}
	if got := bestRatio(found, times[0]); got != 0.5 {
		t.Errorf("bestRatio = %v, want 0.5", got)
	}
}

func TestKeysAreDistinctAndEquallyLong(t *testing.T) {
	seen := map[string]bool{}
	keys := makeKeys(5000)
	for i := range 5000 {
		k := keys.at(i)
		if !strings.HasPrefix(k, "GET:/v1/order/") || seen[k] {
			t.Fatalf("key %d is %q, which is no key or was there before", i, k)
		}
		seen[k] = true
	}
	if keys.len() != 5000 {
		t.Errorf("there are %d keys, want 5000", keys.len())
	}
}
