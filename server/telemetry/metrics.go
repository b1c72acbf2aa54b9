package telemetry

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// The series. Quotas are configured, and faults are few: no label is a client's.
var (
	takenDesc = prometheus.NewDesc("headgate_telemetry_reports_total",
		"Reports that were taken and answered.", nil, nil)
	refusedDesc = prometheus.NewDesc("headgate_telemetry_refused_total", "Reports that were not taken, by reason.",
		[]string{"reason"}, nil)
	evictedDesc = prometheus.NewDesc("headgate_telemetry_evicted_total",
		"Clients that were forgotten to make room for others.", nil, nil)
	clientsDesc = prometheus.NewDesc("headgate_telemetry_clients", "Clients that reported within the window.",
		[]string{"quota"}, nil)
	refusingDesc = prometheus.NewDesc("headgate_telemetry_refused_clients",
		"Of them, clients that were refused within the window.", []string{"quota"}, nil)
	queueDesc = prometheus.NewDesc("headgate_telemetry_queue", "Requests that wait in the queues of all clients.",
		[]string{"quota"}, nil)
	sentDesc = prometheus.NewDesc("headgate_telemetry_window_requests",
		"Requests of all clients within the window, by what became of them.", []string{"quota", "result"}, nil)
	reloadsDesc = prometheus.NewDesc("headgate_telemetry_config_reloads_total",
		"Reloads of the settings, by what came of them.", []string{"outcome"}, nil)
	reloadedDesc = prometheus.NewDesc("headgate_telemetry_config_reload_ok",
		"0 while the newest reload of the settings has failed.", nil, nil)
	capacityDesc = prometheus.NewDesc("headgate_telemetry_capacity",
		"Requests a second that the quota allows, configured or measured; 0 if unknown.", []string{"quota"}, nil)
)

// collector reads an Aggregator when it is scraped.
type collector struct{ of *Server }

func (c collector) Describe(d chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{takenDesc, refusedDesc, evictedDesc, clientsDesc, refusingDesc, queueDesc,
		sentDesc, capacityDesc, reloadsDesc, reloadedDesc} {
		d <- desc
	}
}

func (c collector) Collect(m chan<- prometheus.Metric) {
	if c.of.o.Aggregator == nil {
		return
	}
	s := c.of.o.Aggregator.Status(c.of.o.Now())
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		m <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		m <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count(takenDesc, s.Taken)
	count(evictedDesc, s.Evicted)
	for reason, n := range s.Refused {
		count(refusedDesc, n, reason)
	}
	count(reloadsDesc, c.of.reloads[0].Load(), "failed")
	count(reloadsDesc, c.of.reloads[1].Load(), "ok")
	ok := 1.0
	if c.of.reloadFailed.Load() {
		ok = 0
	}
	gauge(reloadedDesc, ok)
	for _, q := range s.Quotas {
		gauge(clientsDesc, float64(q.Active), q.Name)
		gauge(refusingDesc, float64(q.Refusing), q.Name)
		gauge(queueDesc, float64(q.Queue), q.Name)
		gauge(sentDesc, float64(q.Sent), q.Name, "sent")
		gauge(sentDesc, float64(q.Accepted), q.Name, "accepted")
		gauge(sentDesc, float64(q.Refused), q.Name, "refused")
		gauge(capacityDesc, q.Capacity, q.Name)
	}
}

func (s *Server) metrics() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{s})
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}
