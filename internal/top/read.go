package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	agl "agentlightning"
	"agentlightning/gateway"
	"agentlightning/store"
	"agentlightning/storehttp"
)

const (
	mostRuns     = 20   // newest runs that are looked at
	mostWorkers  = 1000 // workers that are looked at
	mostFailures = 200  // newest failed rollouts whose reasons are counted

	// silence is after how many seconds without a sign of life a worker is silent.
	silence = 60
	// patience is how long one look at a server may take.
	patience = 15 * time.Second
)

// Reader looks at one server again and again. It is safe for concurrent use;
// one look is taken at a time.
type Reader struct {
	client      *storehttp.Client
	http        *http.Client
	base, token string

	mu       sync.Mutex
	closed   bool
	runs     map[string]*figures
	failures *failures
	calls    counted
	tokens   map[[2]string]counted // of answers, by model and endpoint
}

// figures are what is known of the metrics of a run.
type figures struct {
	status agl.RunStatus
	step   int // -1 before the first
	last   map[string]float64
}

// failures are the reasons of the newest failed rollouts.
type failures struct {
	failed  int64 // how many there were when they were read
	total   int
	reasons []Reason
}

// counted is a counter at a moment.
type counted struct {
	n  float64
	at time.Time
}

// rate is how much the counter grew a second since before; nil when nobody knows,
// or when it is lower, as on a server that was started anew.
func (c counted) rate(before counted) *float64 {
	since := c.at.Sub(before.at).Seconds()
	if before.at.IsZero() || since <= 0 || c.n < before.n {
		return nil
	}
	return new((c.n - before.n) / since)
}

// NewReader returns a reader of the server at an address, which it does not
// call. An empty token sends none.
func NewReader(server, token string) (*Reader, error) {
	client, err := storehttp.NewClient(server, storehttp.WithToken(token), storehttp.WithRetryWindow(0))
	if err != nil {
		return nil, err
	}
	if u, err := url.Parse(server); err == nil && token == "" {
		token, _ = u.User.Password() // the client reads it from there too
	}
	return &Reader{
		client: client, http: &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()},
		base: client.URL(), token: token, runs: map[string]*figures{},
	}, nil
}

// Server returns the address that is looked at.
func (r *Reader) Server() string { return r.base }

// Close waits for the look that is being taken.
func (r *Reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.http.CloseIdleConnections()
	return r.client.Close()
}

// refusedError is an answer that is no success.
type refusedError struct {
	status int
	path   string
	detail string
}

func (e *refusedError) Error() string {
	if e.detail != "" {
		return fmt.Sprintf("GET %s: %s (%d)", e.path, e.detail, e.status)
	}
	return fmt.Sprintf("GET %s: %d %s", e.path, e.status, http.StatusText(e.status))
}

// Read takes one look. It fails when the server is away, refuses the token or
// is none of ours; what a server cannot do is noted in the state.
func (r *Reader) Read(ctx context.Context) (*State, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, store.ErrClosed
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s := &State{Now: agl.Seconds(time.Now())}
	for _, part := range []struct {
		name string
		read func(context.Context, *State) error
	}{
		{"queue", r.readQueue},
		{"runs", r.readRuns},
		{"workers", r.readWorkers},
		{"models", r.readModels},
		{"backends", r.readBackends},
		{"calls", r.readCalls},
		{"failures", r.readFailures},
	} {
		err := part.read(ctx, s)
		var refused *refusedError
		switch {
		case err == nil:
		case !errors.As(err, &refused) || refused.status == http.StatusUnauthorized:
			return nil, err
		case part.name == "queue" && refused.status == http.StatusNotFound:
			return nil, fmt.Errorf("%w: this is not a server of 'agl serve'", err)
		default:
			s.Missing = append(s.Missing, fmt.Sprintf("%s: %v", part.name, err))
		}
	}
	return s, nil
}

// open asks for a path; the caller closes the body.
func (r *Reader) open(ctx context.Context, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.base+path, nil)
	if err != nil {
		return nil, err
	}
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	res, err := r.http.Do(req)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		return nil, fmt.Errorf("the server at %s cannot be reached: %w", r.base, err)
	}
	if res.StatusCode == http.StatusOK {
		return res.Body, nil
	}
	defer res.Body.Close()
	refused := &refusedError{status: res.StatusCode, path: path}
	var body struct {
		Detail string `json:"detail"`
	}
	if text, err := io.ReadAll(io.LimitReader(res.Body, 64<<10)); err == nil && json.Unmarshal(text, &body) == nil {
		refused.detail = body.Detail
	}
	return nil, refused
}

func (r *Reader) get(ctx context.Context, path string, out any) error {
	body, err := r.open(ctx, path)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(out); err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	return nil
}

func (r *Reader) readQueue(ctx context.Context, s *State) error {
	var o storehttp.Overview
	if err := r.get(ctx, storehttp.Prefix+"/overview", &o); err != nil {
		return err
	}
	s.Now = o.Time
	s.Queue = &Queue{
		Waiting: o.Queue.Length, Longest: o.Queue.Seconds,
		Active:    o.Rollouts[agl.RolloutPreparing] + o.Rollouts[agl.RolloutRunning],
		Succeeded: o.Rollouts[agl.RolloutSucceeded], Failed: o.Rollouts[agl.RolloutFailed],
		Cancelled: o.Rollouts[agl.RolloutCancelled],
	}
	return nil
}

// Metrics that say how good an agent is, the most telling one first: on what it
// trains on, and on other tasks.
var (
	rewards     = []string{"training/reward", "reward", "reward_mean", "score", "best_score"}
	validations = []string{"val/reward", "validation_reward", "accuracy", "validation_accuracy", "validation_score", "validation"}
)

func (r *Reader) readRuns(ctx context.Context, s *State) error {
	var runs []agl.Run
	if err := r.get(ctx, fmt.Sprintf("%s/runs?limit=%d", storehttp.Prefix, mostRuns), &runs); err != nil {
		return err
	}
	known := map[string]*figures{}
	for i := range runs {
		run := &runs[i]
		f, err := r.figures(ctx, run)
		if err != nil {
			return err
		}
		known[run.RunID] = f
		shown := Run{ID: run.RunID, Algorithm: run.Algorithm, Status: run.Status, Step: f.step, Error: run.Error, Seconds: s.Now - run.StartTime}
		if run.EndTime != nil {
			shown.Seconds = *run.EndTime - run.StartTime
		}
		shown.Reward, shown.Validation = f.first(rewards), f.first(validations)
		s.Runs = append(s.Runs, shown)
	}
	r.runs = known // and no longer those that have left the list
	// What runs comes first; both halves stay in the order of the server.
	slices.SortStableFunc(s.Runs, func(a, b Run) int { return rank(a.Status != agl.RunRunning) - rank(b.Status != agl.RunRunning) })
	return nil
}

func rank(later bool) int {
	if later {
		return 1
	}
	return 0
}

// figures reads what a run has recorded since the last look.
func (r *Reader) figures(ctx context.Context, run *agl.Run) (*figures, error) {
	f := r.runs[run.RunID]
	switch {
	case f == nil:
		f = &figures{step: -1, last: map[string]float64{}}
	case run.Status != agl.RunRunning && f.status == run.Status:
		return f, nil
	}
	// The last step once more: it may have got further values since.
	metrics, err := r.client.StepMetrics(ctx, run.RunID, max(f.step-1, -1))
	if err != nil {
		return nil, fmt.Errorf("metrics of run %s: %w", run.RunID, err)
	}
	for _, m := range metrics {
		f.step = max(f.step, m.Step)
		maps.Copy(f.last, m.Values)
	}
	f.status = run.Status
	return f, nil
}

func (f *figures) first(names []string) *float64 {
	for _, name := range names {
		if v, ok := f.last[name]; ok {
			return &v
		}
	}
	return nil
}

func (r *Reader) readWorkers(ctx context.Context, s *State) error {
	var page struct {
		Items []agl.Worker
		Total int
	}
	if err := r.get(ctx, fmt.Sprintf("%s/workers?limit=%d", storehttp.Prefix, mostWorkers), &page); err != nil {
		return err
	}
	s.WorkersTotal = page.Total
	for i := range page.Items {
		w := &page.Items[i]
		shown := Worker{ID: w.WorkerID, State: string(w.Status)}
		heard := 0.0
		for _, at := range []*float64{w.LastHeartbeatTime, w.LastDequeueTime, w.LastBusyTime, w.LastIdleTime} {
			if at != nil {
				heard = max(heard, *at)
			}
		}
		if heard > 0 {
			shown.Heard = new(max(s.Now-heard, 0))
		}
		if w.CurrentRolloutID != nil {
			shown.Rollout = *w.CurrentRolloutID
		}
		if shown.Heard == nil || *shown.Heard >= silence {
			shown.State, shown.Lost = workerSilent, w.Status == agl.WorkerBusy
		}
		s.Workers = append(s.Workers, shown)
	}
	slices.SortStableFunc(s.Workers, func(a, b Worker) int { return order(a) - order(b) })
	return nil
}

// order puts workers that died at work first, and those that left last.
func order(w Worker) int {
	switch {
	case w.Lost:
		return 0
	case w.State == string(agl.WorkerBusy):
		return 1
	case w.State == workerSilent:
		return 3
	}
	return 2
}

func (r *Reader) readModels(ctx context.Context, s *State) error {
	var models []agl.Model
	if err := r.get(ctx, storehttp.Prefix+"/models", &models); err != nil {
		return err
	}
	s.Models = []Model{}
	for i := range models {
		s.Models = append(s.Models, Model{Name: models[i].Name, Endpoint: models[i].Endpoint, Version: models[i].Version, Health: modelUnknown})
	}
	var pause gateway.PauseState
	if err := r.get(ctx, "/proxy/state", &pause); err != nil {
		return err
	}
	if pause.Paused {
		s.Paused = "paused"
		if pause.Reason != nil && *pause.Reason != "" {
			s.Paused += ": " + *pause.Reason
		}
	}
	return nil
}

// readBackends tells how the backends of the models fare.
func (r *Reader) readBackends(ctx context.Context, s *State) error {
	var report storehttp.BackendReport
	if err := r.get(ctx, storehttp.Prefix+"/backends", &report); err != nil {
		return err
	}
	at := time.Now()
	tokens := make(map[[2]string]counted, len(report.Backends))
	for i := range report.Backends {
		b := &report.Backends[i]
		key := [2]string{b.Model, b.Endpoint}
		now := counted{float64(b.AnswerTokens), at}
		tokens[key] = now
		for k := range s.Models {
			if m := &s.Models[k]; m.Name == b.Model && m.Endpoint == b.Endpoint {
				m.Health, m.Open, m.Waiting = health(b.Condition), int(b.Open), int(b.Waiting)
				m.Tokens = now.rate(r.tokens[key])
			}
		}
	}
	r.tokens = tokens
	return nil
}

// health is a condition in the words of people.
func health(condition string) string {
	switch condition {
	case "fine":
		return modelOK
	case "unseen":
		return modelUnknown
	}
	return strings.ReplaceAll(condition, "_", " ")
}

func (r *Reader) readCalls(ctx context.Context, s *State) error {
	body, err := r.open(ctx, "/metrics")
	if err != nil {
		return err
	}
	defer body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(body)
	if err != nil {
		return fmt.Errorf("GET /metrics: %w", err)
	}
	at := time.Now()
	calls := &Calls{}
	for _, metric := range families["agl_proxy_calls_total"].GetMetric() {
		n := metric.GetCounter().GetValue()
		calls.Total += n
		for _, l := range metric.GetLabel() {
			if l.GetName() == "outcome" && l.GetValue() != "ok" {
				calls.NotOK += n
			}
		}
	}
	now := counted{calls.Total, at}
	calls.Rate = now.rate(r.calls)
	r.calls = now
	s.Calls = calls
	return nil
}

// readFailures counts the reasons again only when there are other failures.
func (r *Reader) readFailures(ctx context.Context, s *State) error {
	if s.Queue == nil {
		return nil // it has been said why
	}
	if f := r.failures; f == nil || f.failed != s.Queue.Failed {
		var page struct {
			Items []struct {
				Attempt *struct{ Status string }
				Digest  struct{ Problem string }
			}
			Total int
		}
		if err := r.get(ctx, fmt.Sprintf("%s/browse/rollouts?status_in=failed&limit=%d", storehttp.Prefix, mostFailures), &page); err != nil {
			return err
		}
		counts := map[string]int{}
		for _, item := range page.Items {
			why := item.Digest.Problem
			switch {
			case why != "":
			case item.Attempt != nil:
				why = "attempt " + item.Attempt.Status
			default:
				why = "never attempted"
			}
			counts[strings.ReplaceAll(why, "_", " ")]++
		}
		found := &failures{failed: s.Queue.Failed, total: page.Total}
		for _, why := range slices.Sorted(maps.Keys(counts)) {
			found.reasons = append(found.reasons, Reason{why, counts[why]})
		}
		slices.SortStableFunc(found.reasons, func(a, b Reason) int { return b.Count - a.Count })
		r.failures = found
	}
	s.Failures, s.FailuresTotal = r.failures.reasons, r.failures.total
	return nil
}
