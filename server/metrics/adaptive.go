package metrics

import "github.com/headgate-io/headgate/adaptive"

var (
	descMultiplier = describe("adaptive_multiplier",
		"The part of what rules say that is in force at an endpoint whose rates follow the API.", "endpoint")
	descAgreed = describe("adaptive_agreed_multiplier",
		"The same for buckets that gateways share, where others are heard.", "endpoint")
	descAtOnce = describe("adaptive_at_once_multiplier",
		"The same for limits on how many requests are under way, where these follow the API.", "endpoint")
	descWindows = describe("adaptive_windows_total",
		"Windows in which such an endpoint was judged, by what they came to.", "outcome")
)

// adapted tells of endpoints whose rates may be lowered, which the configuration names.
func (g *gauges) adapted(out series) {
	if g.options.Adaptive == nil {
		return
	}
	all := g.options.Adaptive()
	if len(all) == 0 {
		return
	}
	var windows [adaptive.Outcomes]uint64
	for i := range all {
		out.gauge(descMultiplier, float64(all[i].Multiplier)/adaptive.Whole, all[i].Endpoint)
		if all[i].Others > 0 {
			out.gauge(descAgreed, float64(all[i].Agreed)/adaptive.Whole, all[i].Endpoint)
		}
		if all[i].Settings.AtOnce {
			out.gauge(descAtOnce, float64(all[i].AtOnce)/adaptive.Whole, all[i].Endpoint)
		}
		for outcome, n := range all[i].Windows {
			windows[outcome] += n
		}
	}
	for outcome, n := range windows {
		out.count(descWindows, n, adaptive.Outcome(outcome).String())
	}
}
