package tracking

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	agl "agentlightning"
)

// MLflow puts runs on an MLflow tracking server over its REST API (2.0).
type MLflow struct {
	// URL is the address of the server, such as http://127.0.0.1:5000; required.
	URL string
	// Experiment is the name of the experiment, which is made when it is not there;
	// empty means agent-lightning.
	Experiment string
	// Token, or User and Password, are what the server asks for; empty for none.
	Token, User, Password string
	// Client makes the calls; nil means one with a time limit of a minute.
	Client *http.Client
}

// Exported says what became of a run on the server.
type Exported struct {
	ExperimentID string
	RunID        string // that of MLflow
	Continued    bool   // the run was there, from an earlier export
	Metrics      int    // values sent now
	Cut          []string
}

// Tags that tie a run of MLflow to one of ours.
const (
	tagRun  = "agl.run_id"
	tagStep = "agl.exported_step" // up to which metrics were sent
)

// Limits of the REST API for one call and one value.
const (
	mostMetrics  = 1000
	mostParams   = 100
	longestParam = 6000
	longestTag   = 5000
)

// Export puts a run on the server. One that was exported before is gone on with:
// metrics of later steps are added and its status is set, so that a run that is
// under way can be exported again and again.
func (m *MLflow) Export(ctx context.Context, r *Run) (Exported, error) {
	var out Exported
	var err error
	if out.ExperimentID, err = m.experiment(ctx); err != nil {
		return out, err
	}
	after, err := m.run(ctx, r, &out)
	if err != nil {
		return out, err
	}
	if err := m.metrics(ctx, r, after, &out); err != nil {
		return out, err
	}
	update := map[string]any{"run_id": out.RunID, "status": mlflowStatus(r.Status)}
	if r.EndTime != nil {
		update["end_time"] = milliseconds(*r.EndTime)
	}
	return out, m.call(ctx, http.MethodPost, "runs/update", update, nil)
}

func milliseconds(seconds float64) int64 { return int64(seconds * 1000) }

func mlflowStatus(s agl.RunStatus) string {
	switch s {
	case agl.RunSucceeded:
		return "FINISHED"
	case agl.RunFailed:
		return "FAILED"
	case agl.RunInterrupted:
		return "KILLED"
	case agl.RunRunning:
		return "RUNNING"
	}
	return "RUNNING"
}

// experiment finds the experiment, or makes it.
func (m *MLflow) experiment(ctx context.Context) (string, error) {
	name := m.Experiment
	if name == "" {
		name = "agent-lightning"
	}
	var found struct {
		Experiment struct {
			ID    string `json:"experiment_id"`
			Stage string `json:"lifecycle_stage"`
		} `json:"experiment"`
	}
	err := m.call(ctx, http.MethodGet, "experiments/get-by-name?experiment_name="+url.QueryEscape(name), nil, &found)
	if e, ok := errors.AsType[*mlflowError](err); ok && e.Code == "RESOURCE_DOES_NOT_EXIST" {
		var made struct {
			ID string `json:"experiment_id"`
		}
		err = m.call(ctx, http.MethodPost, "experiments/create", map[string]any{"name": name}, &made)
		return made.ID, err
	}
	if err == nil && found.Experiment.Stage == "deleted" {
		err = fmt.Errorf("experiment %q is deleted on the server: restore it there or choose another name", name)
	}
	return found.Experiment.ID, err
}

type keyValue struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// run finds the run, or makes it with its configuration. It returns the step up
// to which metrics were sent.
func (m *MLflow) run(ctx context.Context, r *Run, out *Exported) (after int, err error) {
	var found struct {
		Runs []struct {
			Info struct {
				ID string `json:"run_id"`
			} `json:"info"`
			Data struct {
				Tags []keyValue `json:"tags"`
			} `json:"data"`
		} `json:"runs"`
	}
	err = m.call(ctx, http.MethodPost, "runs/search", map[string]any{
		"experiment_ids": []string{out.ExperimentID}, "max_results": 1,
		"filter": fmt.Sprintf("tags.`%s` = '%s'", tagRun, strings.ReplaceAll(r.RunID, "'", "")),
	}, &found)
	if err != nil {
		return 0, err
	}
	before := r.firstStep() - 1
	if len(found.Runs) > 0 {
		out.RunID, out.Continued = found.Runs[0].Info.ID, true
		for _, tag := range found.Runs[0].Data.Tags {
			if n, err := strconv.Atoi(tag.Value); tag.Key == tagStep && err == nil {
				return n, nil
			}
		}
		return before, nil
	}
	tags := []keyValue{{tagRun, r.RunID}, {"agl.algorithm", r.Algorithm}}
	for _, t := range []keyValue{{"mlflow.source.git.commit", r.CodeVersion}, {"agl.error", r.Error}} {
		if t.Value != "" {
			tags = append(tags, keyValue{t.Key, cutText(t.Value, longestTag)})
		}
	}
	var made struct {
		Run struct {
			Info struct {
				ID string `json:"run_id"`
			} `json:"info"`
		} `json:"run"`
	}
	err = m.call(ctx, http.MethodPost, "runs/create", map[string]any{
		"experiment_id": out.ExperimentID, "run_name": r.RunID, "start_time": milliseconds(r.StartTime), "tags": tags,
	}, &made)
	if err != nil {
		return 0, err
	}
	out.RunID = made.Run.Info.ID
	return before, m.params(ctx, r, out)
}

func (r *Run) firstStep() int {
	if len(r.Metrics) > 0 {
		return r.Metrics[0].Step
	}
	return 0
}

func (m *MLflow) params(ctx context.Context, r *Run, out *Exported) error {
	params := []keyValue{{"algorithm", r.Algorithm}, {"seed", strconv.FormatInt(r.Seed, 10)}}
	for _, p := range r.Params {
		if p.Key == "algorithm" || p.Key == "seed" {
			p.Key = "config." + p.Key
		}
		value := cutText(p.Value, longestParam)
		if value != p.Value {
			out.Cut = append(out.Cut, p.Key)
		}
		params = append(params, keyValue{p.Key, value})
	}
	for part := range slices.Chunk(params, mostParams) {
		if err := m.call(ctx, http.MethodPost, "runs/log-batch", map[string]any{"run_id": out.RunID, "params": part}, nil); err != nil {
			return fmt.Errorf("configuration: %w", err)
		}
	}
	return nil
}

// cutText bounds a text, in bytes.
func cutText(text string, n int) string {
	if len(text) <= n {
		return text
	}
	const mark = "…"
	cut := n - len(mark)
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + mark
}

type mlflowMetric struct {
	Key       string  `json:"key"`
	Value     float64 `json:"value"`
	Timestamp int64   `json:"timestamp"`
	Step      int     `json:"step"`
}

// metrics sends the steps after one, whole steps at a time, and notes how far it
// came in the same call.
func (m *MLflow) metrics(ctx context.Context, r *Run, after int, out *Exported) error {
	var batch []mlflowMetric
	last := after
	send := func() error {
		for part := range slices.Chunk(batch, mostMetrics-1) {
			body := map[string]any{"run_id": out.RunID, "metrics": part}
			if len(part) == len(batch) {
				body["tags"] = []keyValue{{tagStep, strconv.Itoa(last)}}
			}
			if err := m.call(ctx, http.MethodPost, "runs/log-batch", body, nil); err != nil {
				return fmt.Errorf("metrics up to step %d: %w", last, err)
			}
		}
		out.Metrics += len(batch)
		batch = nil
		return nil
	}
	for _, step := range r.Metrics {
		if step.Step <= after {
			continue
		}
		if len(batch)+len(step.Values) >= mostMetrics {
			if err := send(); err != nil {
				return err
			}
		}
		for _, name := range slices.Sorted(maps.Keys(step.Values)) {
			batch = append(batch, mlflowMetric{name, step.Values[name], milliseconds(step.Time), step.Step})
		}
		last = step.Step
	}
	if len(batch) == 0 {
		return nil
	}
	return send()
}

// mlflowError is an answer of the server that is no success.
type mlflowError struct {
	Status  int    `json:"-"`
	Code    string `json:"error_code"`
	Message string `json:"message"`
}

func (e *mlflowError) Error() string {
	return fmt.Sprintf("MLflow answered %d %s: %s", e.Status, e.Code, e.Message)
}

// maxMLflowAnswer bounds an answer, in bytes.
const maxMLflowAnswer = 16 << 20

func (m *MLflow) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(m.URL, "/")+"/api/2.0/mlflow/"+path, body)
	if err != nil {
		return fmt.Errorf("MLflow at %s: %w", m.URL, err)
	}
	req.Header.Set("Content-Type", "application/json")
	switch {
	case m.Token != "":
		req.Header.Set("Authorization", "Bearer "+m.Token)
	case m.User != "":
		req.SetBasicAuth(m.User, m.Password)
	}
	client := m.Client
	if client == nil {
		client = &http.Client{Timeout: time.Minute}
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("MLflow at %s: %w", m.URL, err)
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxMLflowAnswer))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return fmt.Errorf("MLflow at %s: %w", m.URL, err)
	}
	if resp.StatusCode != http.StatusOK {
		e := &mlflowError{Status: resp.StatusCode}
		if json.Unmarshal(answer, e) != nil || e.Message == "" {
			e.Message = cutText(string(bytes.TrimSpace(answer)), 300)
		}
		return e
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("MLflow at %s: answer to %s: %w", m.URL, path, err)
	}
	return nil
}
