package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/pace"
)

type band struct{ middle, width float64 }

func (b band) holds(t *testing.T, what string, got float64) {
	t.Helper()
	if !(math.Abs(got-b.middle) <= b.width) {
		t.Errorf("%s is %+.1f, want %+.1f ± %.1f", what, got, b.middle, b.width)
	}
}

// usual is a cell of the experiment, 30 runs of it, which are made once for all tests. "AATB, reference" is the
// paper's code; without a profile in its name an algorithm is Corrected.
func usual(s scenario, requests int, name string) cell {
	key := fmt.Sprint(s.name, requests, name)
	cells.Lock()
	defer cells.Unlock()
	got, made := cells.of[key]
	if !made {
		of, profile, _ := strings.Cut(name, ", ")
		switch profile {
		case "reference":
			got = measure(s, requests, 30, contenderIn(s, of, pace.Reference), environment{})
		case "published":
			got = measure(s, requests, 30, contenderIn(s, of, pace.Published), environment{})
		default:
			got = measure(s, requests, 30, contenderNamed(s, name), environment{})
		}
		cells.of[key] = got
	}
	return got
}

var cells = struct {
	sync.Mutex
	of map[string]cell
}{of: make(map[string]cell)}

// The paper's percentages are ratios of means over runs of the same workloads. The
// bands are three standard deviations of 30-run batches around what its description
// gives, and hold the paper's own figures but for those that docs/clients.md names.
func TestThePaperReproduces(t *testing.T) {
	type bands struct{ longer, fewer band } // percent against UB
	for _, c := range []struct {
		scenario, requests int
		seconds, errors    band // of UB
		others             map[string]bands
		messages           band // of AATB
	}{
		{0, 500, band{323, 20}, band{260, 45}, map[string]bands{
			"WB": {band{12, 8}, band{-47, 18}}, "ATB": {band{11, 6}, band{-65, 8}},
			"AATB": {band{16, 6}, band{-95.7, 1}},
			"AP":   {band{3, 4}, band{-92, 3}}, "AP of 30 to 90 s": {band{5.5, 4}, band{-96.5, 1.5}},
			"HATB": {band{-0.5, 1}, band{-98.4, 0.7}},
		}, band{48, 6}},
		{0, 800, band{535, 15}, band{760, 70}, map[string]bands{
			"WB": {band{8, 5}, band{-26, 9}}, "ATB": {band{14, 9}, band{-75.5, 3}},
			"AATB": {band{13.5, 4}, band{-97.4, 0.5}},
			"AP":   {band{1, 3}, band{-89, 3}}, "AP of 30 to 90 s": {band{2.7, 2.5}, band{-96, 1.5}},
			"HATB": {band{-0.5, 1}, band{-99.3, 0.3}},
		}, band{83, 5}},
		{1, 500, band{311, 6}, band{82, 60}, map[string]bands{
			"WB": {band{23, 6}, band{-88, 14}}, "ATB": {band{16.5, 7}, band{-87, 5}},
			"AATB": {band{17.5, 6}, band{-76.5, 10}},
			"AP":   {band{5, 4}, band{-88, 6}}, "AP of 30 to 90 s": {band{10, 4}, band{-92, 5}},
			"HATB": {band{-1.2, 1}, band{-70, 30}},
		}, band{530, 16}},
		{1, 800, band{534, 5}, band{2070, 90}, map[string]bands{
			"WB": {band{16.5, 4}, band{-23, 5}}, "ATB": {band{22.7, 4}, band{-90.5, 1}},
			"AATB": {band{20, 4}, band{-91.8, 1.7}},
			"AP":   {band{5, 3}, band{-83, 3}}, "AP of 30 to 90 s": {band{7.9, 3}, band{-90, 2}},
			"HATB": {band{-1.3, 0.8}, band{-95.7, 0.5}},
		}, band{1085, 60}},
	} {
		s := scenarios()[c.scenario]
		t.Run(fmt.Sprint(s.name, ", ", c.requests), func(t *testing.T) {
			ub, best := usual(s, c.requests, "UB"), usual(s, c.requests, "oracle")
			c.seconds.holds(t, "UB in seconds", ub.seconds)
			c.errors.holds(t, "429s of UB", ub.refused)
			for name, want := range c.others {
				got := usual(s, c.requests, name)
				want.longer.holds(t, "duration of "+name, over(got.seconds, ub.seconds))
				want.fewer.holds(t, "429s of "+name, over(got.refused, ub.refused))
				if got.seconds < best.seconds || got.unfinished > 0 {
					t.Errorf(
						"%s takes %.1f s and leaves %d requests, want all served and not before the optimum of "+
							"%.1f s", name, got.seconds, got.unfinished, best.seconds)
				}
			}
			c.messages.holds(t, "reports of AATB", usual(s, c.requests, "AATB, reference").messages)
		})
	}
}

// What the readings of the paper are, where its text, its listings and its code differ: as in another
// simulation of each.
// That WB counts attempts, as the text has it, is far from what the paper measured.
func TestProfiles(t *testing.T) {
	for _, c := range []struct {
		scenario, requests int
		of                 map[string]struct{ longer, fewer band }
	}{
		{0, 500, map[string]struct{ longer, fewer band }{
			"WB, published":  {band{12.7, 8}, band{-75.7, 18}},
			"ATB, published": {band{8.3, 6}, band{-63.8, 8}}, "ATB, reference": {band{8.4, 6}, band{-63.6, 8}},
			"AATB, published": {band{31.4, 8}, band{-95.5, 1}}, "AATB, reference": {band{18.5, 6}, band{-95.7, 1}},
		}},
		{0, 800, map[string]struct{ longer, fewer band }{
			"WB, published":  {band{8.6, 5}, band{-56.1, 9}},
			"ATB, published": {band{13.3, 9}, band{-76.2, 3}}, "ATB, reference": {band{13.7, 9}, band{-76.4, 3}},
			"AATB, published": {band{18.8, 8}, band{-97.2, 0.7}}, // "AATB, reference": TestAATBOverManyRuns
		}},
		{1, 500, map[string]struct{ longer, fewer band }{
			"WB, published":  {band{23.2, 6}, band{-96.8, 14}},
			"ATB, published": {band{18.2, 7}, band{-88.5, 5}}, "ATB, reference": {band{15.3, 7}, band{-88, 5}},
			"AATB, published": {band{19.8, 6}, band{-73.7, 10}}, "AATB, reference": {band{18.3, 6}, band{-77.6, 10}},
		}},
		{1, 800, map[string]struct{ longer, fewer band }{
			"WB, published":  {band{17, 4}, band{-71.6, 5}},
			"ATB, published": {band{28.7, 4}, band{-90.4, 1}}, "ATB, reference": {band{22.7, 4}, band{-90.4, 1}},
			"AATB, published": {band{22.1, 4}, band{-92.3, 1.7}}, "AATB, reference": {band{19.3, 4}, band{-91.2, 1.7}},
		}},
	} {
		s := scenarios()[c.scenario]
		ub := usual(s, c.requests, "UB")
		for name, want := range c.of {
			got := usual(s, c.requests, name)
			where := fmt.Sprint(s.name, ", ", c.requests, ": ", name)
			want.longer.holds(t, where+": duration", over(got.seconds, ub.seconds))
			want.fewer.holds(t, where+": 429s", over(got.refused, ub.refused))
		}
	}
}

// The one cell whose 30 runs say too little: the duration of AATB with 5 clients and 800 requests. A batch of 30
// differs from the next by 1.9 points, and so leaves its band nearly as often as not; what many batches come to does
// not. It is at the upper end of the band, which another simulation gave (13.5), and as near to the +19.8 % that the
// paper measured as one batch is to another. Of 1,920 runs it is +17.5 % for the code, and +17.3 % for Corrected.
func TestAATBOverManyRuns(t *testing.T) {
	const batches, paper = 16, 19.8
	s := scenarios()[0]
	ub := batchesOf(s, contenderNamed(s, "UB"), batches)
	for name, profile := range map[string]pace.Profile{"reference": pace.Reference, "corrected": pace.Corrected} {
		all := batchesOf(s, contenderIn(s, "AATB", profile), batches)
		longer, squares, refused, unhindered := 0.0, 0.0, 0.0, 0.0
		for i := range all {
			longer += over(all[i].seconds, ub[i].seconds) / batches
			refused, unhindered = refused+all[i].refused, unhindered+ub[i].refused
		}
		for i := range all {
			squares += math.Pow(over(all[i].seconds, ub[i].seconds)-longer, 2) / (batches - 1)
		}
		band{13.5, 4}.holds(t, name+": duration", longer)
		band{-97.4, 0.5}.holds(t, name+": 429s", over(refused, unhindered))
		if scatter := math.Sqrt(squares); math.Abs(paper-longer) > 3*scatter || scatter > 3 {
			t.Errorf("%s: %+.1f %%, batches differ by %.1f, want the paper's %+.1f %% within three times that, and 3 "+
				"at most", name, longer, scatter, paper)
		}
	}
}

// batchesOf are cells of 30 runs each, of 800 requests, all of other workloads.
func batchesOf(s scenario, c contender, batches int) (cells []cell) {
	for i := range batches {
		cells = append(cells, measure(s, 800, 30, c, environment{firstSeed: uint64(30 * i)}))
	}
	return cells
}

// A server that reserves, and clients that obey it: fewer refusals than anything in the
// paper, in the time of the optimum.
func TestHATB(t *testing.T) {
	for i, fewer := range []float64{-99, -95} {
		s := scenarios()[i]
		ub, best, got := usual(s, 800, "UB"), usual(s, 800, "oracle"), usual(s, 800, "HATB")
		if e, d := over(got.refused, ub.refused), over(got.seconds, ub.seconds); e > fewer || d > 0.5 ||
			got.seconds > best.seconds+2 || got.unfinished > 0 {
			t.Errorf("%s: 429s %+.1f %%, duration %+.2f %% (%.1f s, optimum %.1f s), want %.0f %% or less, at most "+
				"+0.5 %% and 2 s over the optimum", s.name, e, d, got.seconds, best.seconds, fewer)
		}
	}
	s := scenarios()[1]
	if got := usual(s, 500, "HATB"); got.refused > 40 {
		t.Errorf("%s, 500 requests: %.0f 429s, want at most 40", s.name, got.refused)
	}
}

// With nothing but telemetry: about the refusals of the server's own times, in the time of UB, and
// little more to say than AATB has. It holds nobody back where there is room.
func TestXATB(t *testing.T) {
	for i, want := range []struct{ longer, messages [5]band }{
		{[5]band{{3, 2}, {5.6, 2}, {7.2, 2}, {6.9, 2}, {6.8, 2}},
			[5]band{{81, 10}, {89, 10}, {100, 10}, {112, 10}, {128, 10}}},
		{[5]band{{0, 0.5}, {-0.3, 1}, {0.4, 1}, {0.2, 1}, {0, 1}},
			[5]band{{324, 25}, {409, 40}, {636, 60}, {895, 80}, {1183, 90}}},
	} {
		s := scenarios()[i]
		for n, requests := range loads {
			ub, got := usual(s, requests, "UB"), usual(s, requests, "XATB")
			want.longer[n].holds(t, fmt.Sprint(s.name, ", ", requests, ": duration of XATB"),
				over(got.seconds, ub.seconds))
			want.messages[n].holds(t, fmt.Sprint(s.name, ", ", requests, ": reports of XATB"), got.messages)
		}
		fewer := []band{{-98.5, 0.7}, {-95.1, 1.5}}[i]
		fewer.holds(t, s.name+": 429s of XATB", over(usual(s, 800, "XATB").refused, usual(s, 800, "UB").refused))
	}
}

// 100 clients that do nothing but obey Retry-After meet far fewer refusals if the server
// spaces the times.
func TestSpacedTimesServeObedientClients(t *testing.T) {
	s := scenarios()[1]
	truth := usual(s, 800, "obeys, truth")
	for _, name := range []string{"obeys, spaced", "obeys, reserved"} {
		got := usual(s, 800, name)
		if e := over(got.refused, truth.refused); e > -60 || got.unfinished > 0 {
			t.Errorf("%s: 429s %+.1f %% of those of a server that tells everybody the truth, want -60 %% or less", name,
				e)
		}
	}
}

// What has to hold in every batch of 30 runs, from 600 requests on.
func TestOrder(t *testing.T) {
	for i, s := range scenarios()[:2] {
		for _, requests := range []int{600, 700, 800} {
			got := map[string]cell{}
			for _, name := range []string{"UB", "WB", "ATB", "AATB", "AP", "HATB", "oracle"} {
				got[name] = usual(s, requests, name)
				if got[name].unfinished > 0 {
					t.Errorf("%s, %d: %s leaves %d requests", s.name, requests, name, got[name].unfinished)
				}
			}
			falls := func(what string, values ...float64) {
				t.Helper()
				for k := 1; k < len(values); k++ {
					if values[k] >= values[k-1] {
						t.Errorf("%s, %d: %s are %.1f, want each less than the one before", s.name,
							requests, what, values)
						return
					}
				}
			}
			refused := func(name string) float64 { return got[name].refused }
			if i == 0 {
				falls("429s of UB, WB, ATB, AATB and HATB", refused("UB"), refused("WB"), refused("ATB"),
					refused("AATB"), refused("HATB"))
			} else {
				falls("429s of UB, WB, ATB or AATB, and HATB", refused("UB"), refused("WB"),
					max(refused("ATB"), refused("AATB")), refused("HATB"))
			}
			ub := got["UB"].seconds
			if o, h, least := got["oracle"].seconds, got["HATB"].seconds,
				min(got["ATB"].seconds, got["AATB"].seconds); o > h || h > o+2 || h > ub*1.005 || ub >= least ||
				requests == 800 && got["AP"].seconds >= least {
				t.Errorf("%s, %d: seconds of the optimum %.1f, HATB %.1f, UB %.1f, AP %.1f, ATB or AATB %.1f, want "+
					"them in this order, and HATB within 2 s of the optimum", s.name, requests, o, h, ub,
					got["AP"].seconds, least)
			}
			if service := func(name string) float64 {
				return got[name].service
			}; service("UB") <= max(service("WB"), service("ATB"), service("AATB")) {
				t.Errorf("%s, %d: service time of UB %.2f s, WB %.2f, ATB %.2f, AATB %.2f, want that of UB the longest",
					s.name, requests, service("UB"), service("WB"), service("ATB"), service("AATB"))
			}
		}
	}
}

// Clients report seldom: fewer than 88 times in all where there are five of them, at every load,
// and the more often the more clients and the more load there are.
func TestReportsAreFew(t *testing.T) {
	few, many := scenarios()[0], scenarios()[1]
	last := 0.0
	for _, requests := range loads {
		n := usual(few, requests, "AATB, reference").messages
		if n >= 88 || n <= last {
			t.Errorf("%s, %d: %.0f reports, want fewer than 88 and more than the %.0f of the load before", few.name,
				requests, n, last)
		}
		last = n
	}
	if n := usual(many, 800, "AATB, reference").messages; n <= last {
		t.Errorf("%s, 800: %.0f reports, want more than the %.0f of 5 clients", many.name, n, last)
	}
}

// At 400 requests of 5 clients only UB and ATB end within 300 s, at 500 nobody does, as in
// the paper. With 100 clients at 400 requests UB and AATB end as the requests do, 300 s and
// the 10 s over which clients begin; ATB ends after them, and WB long after.
func TestWhoEndsWithinFiveMinutes(t *testing.T) {
	for _, c := range []struct {
		scenario, requests int
		within             time.Duration
		ends               map[string]bool
	}{
		{0, 400, 300 * time.Second, map[string]bool{
			"UB":              true,
			"ATB":             true,
			"WB":              false,
			"AATB, reference": false,
			"HATB":            true,
			"oracle":          true,
		}},
		{0, 500, 300 * time.Second, map[string]bool{"UB": false, "ATB": false, "WB": false, "AATB": false}},
		{1, 400, 303 * time.Second, map[string]bool{"UB": true, "AATB": true, "ATB": false, "WB": false, "HATB": true,
			"oracle": true}},
		{1, 500, 303 * time.Second, map[string]bool{"UB": false, "ATB": false, "WB": false, "AATB": false}},
	} {
		s := scenarios()[c.scenario]
		for name, ends := range c.ends {
			got := usual(s, c.requests, name).seconds
			if ends != (got < c.within.Seconds()) {
				t.Errorf("%s, %d: %s takes %.1f s, want it to end within %v: %v", s.name, c.requests, name, got,
					c.within, ends)
			}
		}
	}
}

// What WB gains with 100 clients at 500 requests it loses at 800.
func TestWindowsFailUnderLoad(t *testing.T) {
	s := scenarios()[1]
	gain := func(requests int) float64 {
		return -over(usual(s, requests, "WB").refused, usual(s, requests, "UB").refused)
	}
	if light, heavy := gain(500), gain(800); light < 74 || heavy > 28 {
		t.Errorf("WB has %.0f %% fewer 429s at 500 requests and %.0f %% at 800, want 74 or more, and 28 or less", light,
			heavy)
	}
}

// What a limiter admits is no more than its quota, whatever it says to whom: Lindley's
// recursion over every admission of a run with replicas' worth of slot tables.
func TestSlotsAdmitNoMoreInTheSimulation(t *testing.T) {
	s := scenarios()[1]
	for _, says := range []speech{silent, truth, spaced, reserved} {
		for seed := range uint64(5) {
			w := s.workload(rand.New(rand.NewPCG(seed, 800)), 800)
			l := newLimiter(10, perMinute).saying(says)
			l.replicas(3)
			run := setting{workload: w, limiter: l, algorithm: all(pace.HATB{})}
			r := simulate(run, rand.New(rand.NewPCG(seed, 1)))
			level, last, gap := time.Duration(0), time.Duration(0), l.gap()
			for _, at := range l.admitted {
				level = max(0, level-(at-last)) + gap
				if last = at; level > 10*gap+time.Microsecond {
					t.Fatalf("says %d: more is admitted than the quota allows, at %v", says, at)
				}
			}
			if r.unfinished > 0 || len(l.admitted) != 800 {
				t.Errorf("says %d: %d served and %d not, want 800", says, len(l.admitted), r.unfinished)
			}
		}
	}
}
