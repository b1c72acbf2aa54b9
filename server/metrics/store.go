package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// StoreStatus is how the store of shared buckets is.
type StoreStatus struct {
	Answers   bool
	Since     time.Time // when it began to answer, or ceased to
	Replicas  int       // gateways on it, as last heard; 0 if it never answered
	Divisor   int       // by how many split limits are divided; 0 for no part yet
	Strangers int       // of the replicas, those that name buckets in another way

	Calls  map[float64]uint64 // by seconds that they took at most
	Count  uint64             // of calls
	Sum    time.Duration      // that they took together
	Failed uint64             // of them
}

var (
	descStoreUp        = describe("store_up", "1 if the store of shared buckets answers, else 0.")
	descStoreSince     = describe("store_state_since_timestamp_seconds", "When the store of shared buckets began to answer, or ceased to, as Unix time.")
	descStoreReplicas  = describe("store_replicas", "Gateways that share buckets, as last heard; 0 if the store never answered.")
	descStoreDivisor   = describe("store_split_divisor", "By how many gateways split limits are divided; 0 while this one has no part yet.")
	descStoreStrangers = describe("store_strangers", "Gateways on the store that name buckets under another secret, so share none with this one.")
	descStoreCalls     = describe("store_call_seconds", "Time that scripts on the store of shared buckets took.")
	descStoreFailures  = describe("store_call_failures_total", "Scripts on the store of shared buckets that got no answer.")
)

// storeGauges tells of the store; without one there are no series.
type storeGauges struct{ status func() StoreStatus }

func (g *storeGauges) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descStoreUp, descStoreSince, descStoreReplicas, descStoreDivisor, descStoreStrangers, descStoreCalls, descStoreFailures} {
		out <- d
	}
}

func (g *storeGauges) Collect(out chan<- prometheus.Metric) {
	if g.status == nil {
		return
	}
	s := g.status()
	gauge := func(d *prometheus.Desc, v float64) { out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	gauge(descStoreUp, truth(s.Answers))
	gauge(descStoreSince, float64(s.Since.UnixMilli())/1000)
	gauge(descStoreReplicas, float64(s.Replicas))
	gauge(descStoreDivisor, float64(s.Divisor))
	gauge(descStoreStrangers, float64(s.Strangers))
	out <- prometheus.MustNewConstHistogram(descStoreCalls, s.Count, s.Sum.Seconds(), s.Calls)
	out <- prometheus.MustNewConstMetric(descStoreFailures, prometheus.CounterValue, float64(s.Failed))
}
