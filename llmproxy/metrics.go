package llmproxy

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts calls; it does nothing when nobody asked for it.
type metrics struct {
	calls   *prometheus.CounterVec
	seconds *prometheus.HistogramVec
}

func newMetrics(to prometheus.Registerer) (*metrics, error) {
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
	return m, errors.Join(to.Register(m.calls), to.Register(m.seconds))
}

// count counts a call that has ended. Names that are not registered share one
// label, so that callers cannot make labels up.
func (m *metrics) count(c *call) {
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
	m.seconds.WithLabelValues(model).Observe(c.p.cfg.Now().Sub(c.start).Seconds())
}
