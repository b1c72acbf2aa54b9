package metrics

import "github.com/prometheus/client_golang/prometheus"

// sources are what is read when the page is asked for. What has nothing to tell, as it is switched off, has no series.
type sources []interface{ write(out series) }

// described are all series of sources, as long as the program runs.
var described []*prometheus.Desc

func describe(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc("headgate_"+name, help, labels, nil)
	described = append(described, d)
	return d
}

// Describe implements prometheus.Collector.
func (sources) Describe(out chan<- *prometheus.Desc) {
	for _, d := range described {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (s sources) Collect(out chan<- prometheus.Metric) {
	for _, source := range s {
		source.write(out)
	}
}

// series is where values are written, with the values of their labels.
type series chan<- prometheus.Metric

func (s series) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (s series) count(d *prometheus.Desc, v uint64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}
