package metrics

import "github.com/headgate-io/headgate"

// stageBuckets are seconds: from a tenth of a microsecond, which a stage in memory takes, to what a store may take.
var stageBuckets = []float64{1e-7, 2.5e-7, 5e-7, 1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 1e-4, 2.5e-4, 1e-3, 2.5e-3, 5e-3,
	1e-2, 2.5e-2, 0.1, 1}

// observeStages notes how long the stages of a decision took, of those that it reached.
func (m *Meter) observeStages(s *headgate.Stages) {
	m.stages.WithLabelValues("endpoint").Observe(s.Endpoint.Seconds())
	for stage, took := range map[string]float64{
		"identity": s.Identity.Seconds(),
		"policy":   s.Policy.Seconds(),
		"bucket":   s.Bucket.Seconds(),
	} {
		if took > 0 {
			m.stages.WithLabelValues(stage).Observe(took)
		}
	}
}
