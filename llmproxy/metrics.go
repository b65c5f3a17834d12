package llmproxy

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts calls; it does nothing when nobody asked for it.
type metrics struct {
	calls   *prometheus.CounterVec
	seconds *prometheus.HistogramVec
}

// backendMetrics tells how busy each backend is when it is asked.
type backendMetrics struct {
	models *models

	open, waiting, resting *prometheus.Desc
}

func newBackendMetrics(m *models) *backendMetrics {
	labels := []string{"model", "backend"}
	return &backendMetrics{
		models:  m,
		open:    prometheus.NewDesc("agl_proxy_backend_open_calls", "Calls that a backend serves.", labels, nil),
		waiting: prometheus.NewDesc("agl_proxy_backend_waiting_calls", "Calls that wait for a backend whose limits are reached.", labels, nil),
		resting: prometheus.NewDesc("agl_proxy_backend_resting", "1 while a backend that could not be reached is avoided.", labels, nil),
	}
}

// Describe implements [prometheus.Collector].
func (b *backendMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- b.open
	to <- b.waiting
	to <- b.resting
}

// Collect implements [prometheus.Collector].
func (b *backendMetrics) Collect(to chan<- prometheus.Metric) {
	t := b.models.now.Load()
	if t == nil {
		return
	}
	gauge := func(d *prometheus.Desc, value float64, at *backend) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, at.Name, at.Endpoint)
	}
	for _, name := range t.names {
		for _, at := range t.groups[name].backends {
			waiting := at.limits.waits()
			gauge(b.open, float64(max(at.load.Load()-waiting, 0)), at)
			gauge(b.waiting, float64(waiting), at)
			resting := 0.0
			if at.rests(time.Now()) {
				resting = 1
			}
			gauge(b.resting, resting, at)
		}
	}
}

func newMetrics(to prometheus.Registerer, backends *models) (*metrics, error) {
	if to == nil {
		return nil, nil
	}
	m := &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "agl_proxy_calls_total",
			Help: "Model calls by outcome: ok, or the name of the problem.",
		}, []string{"model", "outcome"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "agl_proxy_call_seconds",
			Help:    "Time from the request to the end of the answer.",
			Buckets: prometheus.ExponentialBuckets(0.002, 2, 18),
		}, []string{"model"}),
	}
	return m, errors.Join(to.Register(m.calls), to.Register(m.seconds), to.Register(newBackendMetrics(backends)))
}

// count counts a call that has ended. Names that are not registered share one
// label, so that callers cannot make labels up.
func (m *metrics) count(c *call, took time.Duration) {
	if m == nil {
		return
	}
	model, outcome := "unknown", "ok"
	if c.backend != nil {
		model = c.backend.Name
	}
	if c.problem != "" {
		outcome = c.problem
	}
	m.calls.WithLabelValues(model, outcome).Inc()
	m.seconds.WithLabelValues(model).Observe(took.Seconds())
}
