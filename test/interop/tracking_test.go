package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/internal/cli"
	"agentlightning/internal/proc"
	"agentlightning/store"
	"agentlightning/tracking"
)

// needTracking returns the interpreter that has TensorBoard and MLflow, or skips
// the test for want of one.
func needTracking(t *testing.T) string {
	t.Helper()
	interpreter := os.Getenv("AGL_TEST_PYTHON_TRACKING")
	if interpreter == "" {
		t.Skip("AGL_TEST_PYTHON_TRACKING is not set: run AGL_TEST_PYTHON_TRACKING=$(bash test/interop/setup.sh tracking/requirements.txt) go test ./test/interop")
	}
	if _, err := os.Stat("tracking/read.py"); err != nil { // so that a changed program makes a cached result void
		t.Fatal(err)
	}
	return interpreter
}

// readTracking runs the program that says what a tracker has.
func readTracking(t *testing.T, interpreter string, out any, arguments ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, interpreter, append([]string{"tracking/read.py"}, arguments...)...)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=127.0.0.1,localhost", "MLFLOW_DISABLE_TELEMETRY=true")
	var errs buffer
	cmd.Stderr = &errs
	text, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		t.Fatalf("read.py %v: %v\n%s%s", arguments, err, text, errs.String())
	}
}

// recordedRun is a run in the store of a server, of so many steps, that goes on
// or has failed.
func recordedRun(t *testing.T, s *server, steps int, failure error) *tracking.Run {
	t.Helper()
	ctx := t.Context()
	config := map[string]any{"steps": steps, "learning_rate": map[string]any{"peak": 0.05}, "note": "a|b\nc", "long": strings.Repeat("x", 7000)}
	run, err := algorithm.Begin(ctx, algorithm.Env{Store: s.client}, "pg", config, 7)
	if err != nil {
		t.Fatal(err)
	}
	for step := range steps {
		err := run.Record(ctx, step, map[string]float64{
			"reward": 1 / float64(step+3), "accuracy": float64(step) / float64(steps), "loss": -1e-7 * float64(step), "val/math problems/reward": 0.5,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if failure != nil {
		_ = run.Finish(ctx, failure) // it gives the failure back
	}
	r, err := tracking.Read(ctx, s.client, run.RunID)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// runAGL runs a command that must succeed.
func runAGL(t *testing.T, args ...string) {
	t.Helper()
	var out buffer
	if status := cli.Run(t.Context(), args, &out, &out); status != 0 {
		t.Fatalf("agl %v ended with status %d: %s", args, status, out.String())
	}
}

// TestTensorBoard lets TensorBoard's own reader read what agl runs export wrote.
func TestTensorBoard(t *testing.T) {
	t.Parallel()
	interpreter := needTracking(t)
	s := serve(t, "sqlite:"+filepath.Join(t.TempDir(), "agl.db"))
	r := recordedRun(t, s, 50, nil)
	dir := t.TempDir()
	runAGL(t, "runs", "export", r.RunID, "--form", "tensorboard", "--to", dir, "--server", s.url)
	var got struct {
		Scalars map[string][][3]float64 `json:"scalars"`
		Texts   map[string]string       `json:"texts"`
		Plugins map[string]string       `json:"plugins"`
	}
	readTracking(t, interpreter, &got, "tensorboard", filepath.Join(dir, r.RunID))
	if len(got.Scalars) != len(r.Names()) {
		t.Errorf("TensorBoard has %d scalars of %v", len(got.Scalars), r.Names())
	}
	for _, name := range r.Names() {
		if len(got.Scalars[name]) != len(r.Metrics) {
			t.Fatalf("%s: %d values, want %d", name, len(got.Scalars[name]), len(r.Metrics))
		}
		for i, m := range r.Metrics {
			want := [3]float64{float64(m.Step), m.Time, float64(float32(m.Values[name]))}
			if got.Scalars[name][i] != want {
				t.Fatalf("%s: step, time and value %v, want %v", name, got.Scalars[name][i], want)
			}
		}
	}
	if text := got.Texts["run/text_summary"]; got.Plugins["run/text_summary"] != "text" || !strings.Contains(text, "| learning_rate.peak | 0.05 |") || !strings.Contains(text, `a\|b c`) {
		t.Errorf("texts %.300q, plugins %v", got.Texts, got.Plugins)
	}
}

// startMLflow runs the real server and returns its address.
func startMLflow(t *testing.T, interpreter string) string {
	t.Helper()
	dir := t.TempDir()
	log := &watched{pattern: regexp.MustCompile(`running on (http://[0-9.:]+)`), found: make(chan string, 1)}
	group := &proc.Group{}
	server, err := group.Start(proc.Spec{
		Command: []string{
			interpreter, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", "0", "--workers", "1",
			"--backend-store-uri", "sqlite:///" + filepath.Join(dir, "mlflow.db"), "--artifacts-destination", filepath.Join(dir, "artifacts"),
		},
		Dir: dir, Stderr: log,
		Env: append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=127.0.0.1,localhost", "MLFLOW_DISABLE_TELEMETRY=true", "DO_NOT_TRACK=true"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Stop(10 * time.Second)
		if err := group.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("mlflow server wrote:\n%s", log.String())
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), callLimit)
	defer cancel()
	select {
	case url := <-log.found:
		return url
	case <-server.Done():
		t.Fatalf("MLflow ended before it served: %v", server.Wait())
	case <-ctx.Done():
		t.Fatalf("MLflow does not serve after %v", callLimit)
	}
	return ""
}

// watched is a log that tells of the first match of a pattern in it.
type watched struct {
	buffer
	pattern *regexp.Regexp
	found   chan string
	told    bool
}

func (w *watched) Write(p []byte) (int, error) {
	n, err := w.buffer.Write(p)
	if match := w.pattern.FindStringSubmatch(w.String()); match != nil && !w.told {
		w.told = true
		w.found <- match[1]
	}
	return n, err
}

// TestMLflow exports to the real server a run that is under way, then again when
// it has gone on, and asks MLflow's own client what it has.
func TestMLflow(t *testing.T) {
	t.Parallel()
	interpreter := needTracking(t)
	s := serve(t, "sqlite:"+filepath.Join(t.TempDir(), "agl.db"))
	url := startMLflow(t, interpreter)
	export := func(r *tracking.Run) {
		runAGL(t, "runs", "export", r.RunID, "--form", "mlflow", "--mlflow", url, "--experiment", "interop", "--server", s.url)
	}
	r := recordedRun(t, s, 300, nil) // more values than one call takes
	export(r)
	run, err := algorithm.Begin(t.Context(), algorithm.Env{Store: s.client, RunID: r.RunID}, "pg", map[string]any{"steps": 301}, 7)
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Record(t.Context(), 300, map[string]float64{"reward": 2}); err != nil {
		t.Fatal(err)
	}
	if err := run.Finish(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	export(r)
	failed := recordedRun(t, s, 1, errors.New("the learner broke"))
	export(failed)
	if r, err = tracking.Read(t.Context(), s.client, r.RunID); err != nil {
		t.Fatal(err)
	}

	type onServer struct {
		Name    string                  `json:"name"`
		Status  string                  `json:"status"`
		Start   int64                   `json:"start"`
		End     *int64                  `json:"end"`
		Params  map[string]string       `json:"params"`
		Tags    map[string]string       `json:"tags"`
		Metrics map[string][][3]float64 `json:"metrics"`
	}
	var got []onServer
	readTracking(t, interpreter, &got, "mlflow", url, "interop")
	byName := map[string]onServer{}
	for _, one := range got {
		byName[one.Name] = one
	}
	if len(got) != 2 || byName[failed.RunID].Status != "FAILED" || byName[failed.RunID].Tags["agl.error"] != "the learner broke" {
		t.Errorf("MLflow has %d runs, the failed one: %v", len(got), byName[failed.RunID].Tags)
	}
	one := byName[r.RunID]
	if one.Status != "FINISHED" || one.Start != int64(r.StartTime*1000) || one.End == nil || *one.End != int64(*r.EndTime*1000) {
		t.Errorf("status %s from %v to %v, want FINISHED from %v to %v", one.Status, one.Start, one.End, r.StartTime, *r.EndTime)
	}
	if one.Params["learning_rate.peak"] != "0.05" || one.Params["seed"] != "7" || one.Params["algorithm"] != "pg" || len(one.Params["long"]) != 6000 {
		t.Errorf("params %.400v", one.Params)
	}
	if one.Tags["agl.run_id"] != r.RunID || one.Tags["agl.exported_step"] != "300" {
		t.Errorf("tags %v", one.Tags)
	}
	for _, name := range r.Names() {
		var want [][3]float64
		for _, m := range r.Metrics {
			if v, ok := m.Values[name]; ok {
				want = append(want, [3]float64{float64(m.Step), float64(int64(m.Time * 1000)), v})
			}
		}
		if err := sameHistory(one.Metrics[name], want); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.client.UpdateRun(t.Context(), r.RunID, store.RunUpdate{Status: store.To(agl.RunInterrupted)}); err != nil {
		t.Fatal(err)
	}
	export(r)
	got = nil
	readTracking(t, interpreter, &got, "mlflow", url, "interop")
	for _, again := range got {
		if again.Name == r.RunID && (again.Status != "KILLED" || len(again.Metrics["training/reward"]) != 301) {
			t.Errorf("a third export left it %s with %d rewards", again.Status, len(again.Metrics["training/reward"]))
		}
	}
}

// sameHistory compares the values of a metric, in any order of the server.
func sameHistory(got, want [][3]float64) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d values, want %d", len(got), len(want))
	}
	byStep := map[float64][3]float64{}
	for _, v := range got {
		byStep[v[0]] = v
	}
	for _, w := range want {
		if v := byStep[w[0]]; v[1] != w[1] || math.Abs(v[2]-w[2]) > 1e-15*math.Abs(w[2]) {
			return fmt.Errorf("step, time and value %v, want %v", v, w)
		}
	}
	return nil
}
