package observed

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
)

// Buckets are those of all latencies, in seconds, as the protocol has them.
func Buckets() []float64 {
	return []float64{
		1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4,
		0.001, 0.002, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2, 0.3, 0.5, 0.7,
		1, 2, 3, 5, 7, 10, 12, 15, 20, 25, 30, 40, 50, 60, 90, 120, 180, 240, 300,
	}
}

// Metrics counts and times what happens to a store. It is safe for concurrent use.
type Metrics struct {
	calls     *prometheus.CounterVec
	latency   *prometheus.HistogramVec
	rollouts  *prometheus.CounterVec
	durations *prometheus.HistogramVec

	succeeded [operations]outcome // looked up once, for nearly all calls succeed
}

type outcome struct {
	calls   prometheus.Counter
	latency prometheus.Observer
}

// NewMetrics registers agl_store_* and agl_rollouts_*.
func NewMetrics(to prometheus.Registerer) (*Metrics, error) {
	store := []string{"method", "store_pubmeth", "status"}
	rollout := []string{"status", "mode"}
	m := &Metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "agl_store_total", Help: "Counter agl.store.total",
		}, store),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "agl_store_latency", Help: "Histogram agl.store.latency", Buckets: Buckets(),
		}, store),
		rollouts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "agl_rollouts_total", Help: "Counter agl.rollouts.total",
		}, rollout),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "agl_rollouts_duration", Help: "Histogram agl.rollouts.duration", Buckets: Buckets(),
		}, rollout),
	}
	for _, c := range []prometheus.Collector{m.calls, m.latency, m.rollouts, m.durations} {
		if err := to.Register(c); err != nil {
			return nil, err
		}
	}
	for op := range m.succeeded {
		m.succeeded[op] = m.outcome(operation(op), "OK")
	}
	return m, nil
}

func (m *Metrics) outcome(op operation, status string) outcome {
	name := op.String()
	return outcome{m.calls.WithLabelValues(name, name, status), m.latency.WithLabelValues(name, name, status)}
}

// done records a call that has ended; it is deferred with the call's error.
func (m *Metrics) done(op operation, start time.Time, err *error) {
	o := &m.succeeded[op]
	if *err != nil {
		failed := m.outcome(op, status(*err))
		o = &failed
	}
	o.calls.Inc()
	o.latency.Observe(time.Since(start).Seconds())
}

// status names an error as the protocol does, by the exception that Python has
// for it.
func status(err error) string {
	switch {
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrInvalid), errors.Is(err, store.ErrConflict):
		return "ValueError"
	case errors.Is(err, store.ErrDenied):
		return "PermissionError"
	case errors.Is(err, context.Canceled):
		return "CancelledError"
	case errors.Is(err, context.DeadlineExceeded):
		return "TimeoutError"
	case errors.Is(err, store.ErrFull):
		return "OSError"
	}
	return "RuntimeError"
}

// OnChange records rollouts that ended; it is meant for [engine.Config].
func (m *Metrics) OnChange(changes []engine.Change) {
	for i := range changes {
		c := &changes[i]
		if !c.To.Terminal() {
			continue
		}
		mode := c.Mode
		if mode == "" {
			mode = agl.Mode("unknown")
		}
		m.rollouts.WithLabelValues(string(c.To), string(mode)).Inc()
		m.durations.WithLabelValues(string(c.To), string(mode)).Observe(c.Time - c.Started)
	}
}
