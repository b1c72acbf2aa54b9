package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate-io/headgate/pace"
)

// Who is polite gives way to who is not, the paper's algorithms included. Where the server reserves by identity, who
// keeps to its times is served sooner than who does not.
func TestMixedClients(t *testing.T) {
	for i, s := range scenarios()[:2] {
		for n, m := range mixes {
			got := mixed(s, 20, m)
			part := got.second / got.first
			want := [][]band{ // how many times longer the second half waits
				{{3.4, 0.8}, {5.5, 1.5}, {3.2, 0.6}, {0.3, 0.15}, {0.42, 0.15}},
				{{4.6, 1}, {4, 1}, {3.6, 0.6}, {0.6, 0.15}, {0.58, 0.15}},
			}[i][n]
			want.holds(t, fmt.Sprintf("%s: the wait of %s against that of %s", s.name, m[1], m[0]), part)
			if got.unfinished > 0 {
				t.Errorf("%s, %v: %d requests are left", s.name, m, got.unfinished)
			}
		}
	}
}

// A client that shares by telemetry survives its loss and its lies, with the duration that it has with telemetry that
// works: the paper's code takes several times as long when nothing arrives, and when one refusal is made up.
func TestTelemetryThatFails(t *testing.T) {
	for i, s := range scenarios()[:2] {
		gated := s.paper.AATB(pace.Corrected)
		gated.Gate = true
		run := func(a pace.Algorithm, e environment) cell {
			return measure(s, 800, 10, contender{algorithm: a, telemetry: true}, e)
		}
		for _, c := range []struct {
			name  string
			a     pace.Algorithm
			times []struct {
				environment
				least, most float64 // times the duration with telemetry that works
			}
		}{
			{"AATB", s.paper.AATB(pace.Corrected), []struct {
				environment
				least, most float64
			}{{environment{loss: 0.1}, 0.9, 1.15}, {environment{loss: 0.5}, 0.9, 1.15},
				{environment{loss: 1}, 0.9, 1.15}}},
			{"AATB, gated", gated, []struct {
				environment
				least, most float64
			}{{environment{fakeRefusals: 1}, 0.9, 1.1}, {environment{fakeRefusals: 1000}, 0.9, 1.1},
				{environment{loss: 1}, 0.9, 1.15}}},
			{"XATB", pace.XATB{}, []struct {
				environment
				least, most float64
			}{{environment{loss: 0.1}, 0.9, 1.1}, {environment{loss: 0.5}, 0.9, 1.1}, {environment{loss: 1}, 0.9, 1.1},
				{environment{fakeRefusals: 1000}, 0.9, 1.1}}},
			{"the paper's code", s.paper.AATB(pace.Reference), []struct {
				environment
				least, most float64
			}{
				{environment{loss: 1}, 1.6, 6},
				{environment{fakeRefusals: 1}, []float64{4.5, 2}[i], []float64{7, 3.2}[i]},
			}},
		} {
			sound := run(c.a, environment{})
			for _, e := range c.times {
				got := run(c.a, e.environment)
				if times := got.seconds / sound.seconds; got.unfinished > 0 || times < e.least || times > e.most {
					t.Errorf("%s, %s, %.0f %% lost and %d refusals made up: %.2f times the duration and %d "+
						"unserved, want %.1f to %.1f times",
						s.name, c.name, 100*e.loss, e.fakeRefusals, times, got.unfinished, e.least, e.most)
				}
			}
		}
	}
}

// Most limiters charge what they refuse. There who asks again soon keeps everybody out: of five clients with
// exponential backoff each waits twice as long, and a hundred are never served. Who keeps to times, and who pauses, is.
func TestRefusedRequestsAreCharged(t *testing.T) {
	for i, s := range scenarios()[:2] {
		run := func(name string) cell {
			return measure(s, 800, 4, contenderNamed(s, name), environment{chargesRefused: true})
		}
		plain, ub := usual(s, 800, "UB"), run("UB")
		if i == 0 && (ub.unfinished > 0 || ub.seconds < 1.8*plain.seconds) || i == 1 && ub.unfinished < 4*80 {
			t.Errorf("%s: UB takes %.0f s and leaves %d of 3200 requests", s.name, ub.seconds, ub.unfinished)
		}
		most := map[string]float64{
			"HATB": []float64{1.1, 1.7}[i],
			"AP":   []float64{1.25, 2.3}[i],
			"ATB":  []float64{1.5, 2}[i],
		}
		for name, times := range most { // of UB where refused requests cost nothing
			if got := run(name); got.unfinished > 0 || got.seconds > times*plain.seconds {
				t.Errorf("%s: %s takes %.0f s and leaves %d requests, want at most %.1f times %.0f s", s.name, name,
					got.seconds, got.unfinished, times, plain.seconds)
			}
		}
	}
}

// Of AATB's interval: every report more costs 429s and saves time. Every 60 s in the place of 10 s it
// has a fifth of the reports, fewer 429s, and takes longer.
func TestReportsByInterval(t *testing.T) {
	for _, s := range scenarios()[:2] {
		var got [3]cell
		for i, interval := range []time.Duration{10, 30, 60} {
			a := s.paper.AATB(pace.Corrected)
			a.Interval = interval * time.Second
			got[i] = measure(s, 800, 15, contender{algorithm: a, telemetry: true}, environment{})
		}
		often, usually, seldom := got[0], got[1], got[2]
		if usually.messages > 0.45*often.messages || seldom.messages > 0.25*often.messages ||
			seldom.refused >= often.refused ||
			seldom.seconds < 1.1*often.seconds || usually.seconds > 1.2*often.seconds ||
			often.unfinished+seldom.unfinished > 0 {
			t.Errorf("%s: every 10, 30 and 60 s %+v, want fewer reports and 429s each time, and longer", s.name, got)
		}
	}
}

// On an unsteady network nobody knows when in a round trip the server decided. Who is early is refused, so HATB is not.
func TestUnsteadyNetwork(t *testing.T) {
	for i, s := range scenarios()[:2] {
		for _, e := range []environment{{shake: 20 * time.Millisecond}, {shake: 100 * time.Millisecond},
			{delay: 500 * time.Millisecond}} {
			got, best := measure(s, 800, 20, contenderNamed(s, "HATB"), e),
				measure(s, 800, 20, contenderNamed(s, "oracle"), environment{})
			if most := []float64{8, 100}[i]; got.refused > most || got.seconds > best.seconds+2 || got.unfinished > 0 {
				t.Errorf("%s, round trips of %v and a little (%v): %.1f 429s, %.1f s, %d left; want at most %.0f, "+
					"within 2 s of the optimum of %.1f s",
					s.name, e.delay, e.shake, got.refused, got.seconds, got.unfinished, most, best.seconds)
			}
		}
	}
}

// A pause of a minute after every refusal is what every proposal has to be better than.
func TestAPauseOfAMinute(t *testing.T) {
	for i, want := range []struct{ longer, fewer band }{{band{5.7, 2.5}, band{-97.1, 1}},
		{band{5.4, 3}, band{-89, 2}}} {
		s := scenarios()[i]
		ub, got := usual(s, 800, "UB"), usual(s, 800, "pause 60 s")
		want.longer.holds(t, s.name+": duration of a pause of a minute", over(got.seconds, ub.seconds))
		want.fewer.holds(t, s.name+": 429s of a pause of a minute", over(got.refused, ub.refused))
	}
}

// Requests at any moment, in the place of bursts: the gains at heavy load stay, and WB has none, as no client has so
// many requests in a minute.
func TestUniformArrivals(t *testing.T) {
	for i, s := range scenarios()[3:] {
		ub := usual(s, 800, "UB")
		for name, want := range map[string]struct{ longer, fewer band }{
			"WB":   {band{4, 4}, band{-3, 3}},
			"ATB":  {[]band{{12.5, 4}, {19.4, 4}}[i], []band{{-80, 3}, {-88, 2}}[i]},
			"HATB": {band{-1.3, 1.3}, []band{{-98.8, 0.7}, {-93, 1.5}}[i]},
		} {
			got := usual(s, 800, name)
			want.longer.holds(t, s.name+": duration of "+name, over(got.seconds, ub.seconds))
			want.fewer.holds(t, s.name+": 429s of "+name, over(got.refused, ub.refused))
		}
		if got := usual(s, 400, "UB"); got.refused > 0 {
			t.Errorf("%s, 400 requests: %.1f 429s, want none: the bucket holds them", s.name, got.refused)
		}
	}
}
