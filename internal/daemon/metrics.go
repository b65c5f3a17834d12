package daemon

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"agentlightning/store/engine"
	"agentlightning/store/observed"
)

// Metrics are the numbers of one server. Those of the store are there when the
// engine and the backend tell of what they do, see OnChange and OnCommit.
type Metrics struct {
	registry *prometheus.Registry
	store    *observed.Metrics

	requests *prometheus.CounterVec
	latency  *prometheus.HistogramVec
	inFlight prometheus.Gauge

	commits prometheus.Histogram
	grouped prometheus.Histogram

	committed atomic.Int64                // commits, for the history
	file      atomic.Pointer[fileMetrics] // of the database; nil for none

	mu       sync.RWMutex
	outcomes map[outcomeKey]outcome
}

// NewMetrics returns the metrics of a server that is to be started.
func NewMetrics() (*Metrics, error) {
	labels := []string{"path", "method", "status"}
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		outcomes: map[outcomeKey]outcome{},
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "agl_http_total", Help: "Counter agl.http.total",
		}, labels),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "agl_http_latency", Help: "Histogram agl.http.latency", Buckets: observed.Buckets(),
		}, labels),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "agl_http_requests_in_flight", Help: "Requests that are being answered, those that wait for work too.",
		}),
		commits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "agl_db_commit_seconds", Help: "Seconds that a commit took until it was durable.", Buckets: observed.Buckets(),
		}),
		grouped: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "agl_db_commit_calls", Help: "Calls that shared one commit.", Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}),
	}
	var err error
	if m.store, err = observed.NewMetrics(m.registry); err != nil {
		return nil, err
	}
	for _, c := range []prometheus.Collector{
		m.requests, m.latency, m.inFlight, m.commits, m.grouped,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		err = errors.Join(err, m.registry.Register(c))
	}
	return m, err
}

// OnChange counts rollouts that ended; it is for the engine's configuration.
func (m *Metrics) OnChange(changes []engine.Change) { m.store.OnChange(changes) }

// OnCommit times the commits of a database; it is for the backend's configuration.
func (m *Metrics) OnCommit(calls int, took time.Duration) {
	m.committed.Add(1)
	m.commits.Observe(took.Seconds())
	m.grouped.Observe(float64(calls))
}

// WatchFile reports how large the SQLite database at a path is.
func (m *Metrics) WatchFile(path string) error {
	f := fileMetrics(path)
	m.file.Store(&f)
	return m.registry.Register(f)
}

// fileBytes is what the database takes on the disk, its log included; false when
// there is none.
func (m *Metrics) fileBytes() (total int64, ok bool) {
	f := m.file.Load()
	if f == nil {
		return 0, false
	}
	f.each(func(_ string, size int64) { total, ok = total+size, true })
	return total, ok
}

// request records an answer.
func (m *Metrics) request(path, method string, status int, took time.Duration) {
	switch method {
	case http.MethodGet, http.MethodPost, http.MethodDelete, http.MethodPut, http.MethodPatch, http.MethodHead, http.MethodOptions:
	default: // callers must not make labels up
		method = "OTHER"
	}
	o := m.outcome(outcomeKey{path, method, status})
	o.requests.Inc()
	o.latency.Observe(took.Seconds())
}

// outcomeKey is what requests are counted by; there are a few hundred at the most.
type outcomeKey struct {
	path, method string
	status       int
}

type outcome struct {
	requests prometheus.Counter
	latency  prometheus.Observer
}

// outcome finds the metrics of a key without making its labels each time.
func (m *Metrics) outcome(key outcomeKey) outcome {
	m.mu.RLock()
	o, ok := m.outcomes[key]
	m.mu.RUnlock()
	if ok {
		return o
	}
	code := strconv.Itoa(key.status)
	o = outcome{m.requests.WithLabelValues(key.path, key.method, code), m.latency.WithLabelValues(key.path, key.method, code)}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.outcomes[key] = o
	return o
}

// queued is a store whose queue can be looked at.
type queued interface {
	Queue(ctx context.Context) (engine.QueueState, error)
}

// queueMetrics looks at the queue whenever metrics are asked for.
type queueMetrics struct{ of queued }

// scrapeTimeout is how long metrics wait for the store.
const scrapeTimeout = 5 * time.Second

var (
	queueLength = prometheus.NewDesc("agl_queue_length", "Rollouts that wait to be claimed.", nil, nil)
	queueAge    = prometheus.NewDesc("agl_queue_age_seconds", "How long the rollout in front of the queue has waited.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (queueMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- queueLength
	to <- queueAge
}

// Collect implements [prometheus.Collector]. A store that does not answer leaves
// the two out; the rest is of all the more interest then.
func (q queueMetrics) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	state, err := q.of.Queue(ctx)
	if err != nil {
		return
	}
	to <- prometheus.MustNewConstMetric(queueLength, prometheus.GaugeValue, float64(state.Length))
	to <- prometheus.MustNewConstMetric(queueAge, prometheus.GaugeValue, state.Waiting.Seconds())
}

// fileMetrics looks at the files of a database whenever metrics are asked for.
type fileMetrics string

var fileBytes = prometheus.NewDesc("agl_db_file_bytes", "Size of the database and of its write-ahead log.", []string{"file"}, nil)

// Describe implements [prometheus.Collector].
func (fileMetrics) Describe(to chan<- *prometheus.Desc) { to <- fileBytes }

// Collect implements [prometheus.Collector].
func (f fileMetrics) Collect(to chan<- prometheus.Metric) {
	f.each(func(file string, size int64) {
		to <- prometheus.MustNewConstMetric(fileBytes, prometheus.GaugeValue, float64(size), file)
	})
}

// each tells of the files of the database. One that cannot be looked at is left out.
func (f fileMetrics) each(do func(file string, size int64)) {
	for file, suffix := range map[string]string{"database": "", "log": "-wal"} {
		if info, err := os.Stat(string(f) + suffix); err == nil {
			do(file, info.Size())
		}
	}
}
