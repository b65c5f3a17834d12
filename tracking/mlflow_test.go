package tracking_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"agentlightning/tracking"
)

// fakeMLflow keeps what it is told of one experiment, with the limits of the real
// server; that one is asked in test/interop.
type fakeMLflow struct {
	mu         sync.Mutex
	experiment bool
	runs       int
	tags       map[string]string
	params     map[string]string
	metrics    []string
	status     string
	calls      []string
	failAt     int // call that breaks; 0 for none
}

func (f *fakeMLflow) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	path := strings.TrimPrefix(r.URL.Path, "/api/2.0/mlflow/")
	f.calls = append(f.calls, path)
	var in struct {
		Tags, Params []struct{ Key, Value string }
		Metrics      []struct {
			Key   string
			Value float64
			Step  int
		}
		Status string
	}
	body, err := io.ReadAll(r.Body)
	if err == nil && len(body) > 0 {
		err = json.Unmarshal(body, &in)
	}
	fail := func(status int, code, message string) {
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"error_code":%q,"message":%q}`, code, message)
	}
	switch {
	case err != nil || r.Header.Get("Authorization") != "Bearer t":
		fail(http.StatusUnauthorized, "UNAUTHENTICATED", "who are you?")
	case len(in.Metrics) > 1000 || len(in.Params) > 100:
		fail(http.StatusBadRequest, "INVALID_PARAMETER_VALUE", "too many")
	case len(f.calls) == f.failAt:
		fail(http.StatusInternalServerError, "INTERNAL_ERROR", "disk full")
	case path == "experiments/get-by-name" && !f.experiment:
		fail(http.StatusNotFound, "RESOURCE_DOES_NOT_EXIST", "no experiment")
	case path == "experiments/get-by-name":
		fmt.Fprint(w, `{"experiment":{"experiment_id":"7","lifecycle_stage":"active"}}`)
	case path == "experiments/create":
		f.experiment = true
		fmt.Fprint(w, `{"experiment_id":"7"}`)
	case path == "runs/search" && f.runs == 0:
		fmt.Fprint(w, `{}`)
	case path == "runs/search":
		fmt.Fprintf(w, `{"runs":[{"info":{"run_id":"m1"},"data":{"tags":[{"key":"agl.exported_step","value":%q}]}}]}`, f.tags["agl.exported_step"])
	default:
		if path == "runs/create" {
			f.runs++
			f.tags, f.params = map[string]string{}, map[string]string{}
		}
		for _, t := range in.Tags {
			f.tags[t.Key] = t.Value
		}
		for _, p := range in.Params {
			f.params[p.Key] = p.Value
		}
		for _, m := range in.Metrics {
			f.metrics = append(f.metrics, fmt.Sprintf("%s=%v@%d", m.Key, m.Value, m.Step))
		}
		if path == "runs/update" {
			f.status = in.Status
		}
		fmt.Fprint(w, `{"run":{"info":{"run_id":"m1"}}}`)
	}
}

func TestMLflowGoesOnWithARun(t *testing.T) {
	t.Parallel()
	fake := &fakeMLflow{}
	server := httptest.NewServer(fake)
	defer server.Close()
	to := &tracking.MLflow{URL: server.URL + "/", Token: "t", Client: server.Client()}
	steps := make([]map[string]float64, 700) // more values than one call takes
	for i := range steps {
		steps[i] = map[string]float64{"reward": float64(i)} // and the number of the step
	}
	r := made(t, newStore(t), 5, map[string]any{"seed": 1, "long": strings.Repeat("ä", 4000)}, steps...)
	first := *r
	first.Metrics = r.Metrics[:600]
	got, err := to.Export(t.Context(), &first)
	if err != nil || got.Continued || got.RunID != "m1" || got.Metrics != 1200 || fmt.Sprint(got.Cut) != "[long]" {
		t.Fatalf("Export = %+v, %v", got, err)
	}
	if fake.params["seed"] != "5" || fake.params["config.seed"] != "1" || len(fake.params["long"]) > 6000 || fake.tags["agl.run_id"] != r.RunID || fake.status != "FINISHED" {
		t.Errorf("the server has %.200s, %v, %s", fmt.Sprint(fake.params), fake.tags, fake.status)
	}
	got, err = to.Export(t.Context(), r)
	if err != nil || !got.Continued || got.Metrics != 200 || fake.runs != 1 {
		t.Errorf("the second export = %+v, %v, %d runs", got, err, fake.runs)
	}
	seen := map[string]bool{}
	for _, m := range fake.metrics {
		if seen[m] {
			t.Fatalf("%s was sent twice", m)
		}
		seen[m] = true
	}
	if len(seen) != 1400 || !seen["training/reward=699@699"] {
		t.Errorf("%d values on the server, want 1400", len(seen))
	}
}

func TestMLflowErrors(t *testing.T) {
	t.Parallel()
	r := made(t, newStore(t), 1, struct{}{}, map[string]float64{"reward": 1})
	fake := &fakeMLflow{failAt: 6}
	server := httptest.NewServer(fake)
	defer server.Close()
	to := &tracking.MLflow{URL: server.URL, Token: "t", Client: server.Client()}
	if _, err := to.Export(t.Context(), r); err == nil || !strings.Contains(err.Error(), "metrics up to step 0") || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("Export to a server that breaks = %v after %v", err, fake.calls)
	}
	to.Token = "wrong"
	if _, err := to.Export(t.Context(), r); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("Export with a wrong token = %v", err)
	}
	server.Close()
	if _, err := to.Export(t.Context(), r); err == nil || !strings.Contains(err.Error(), server.URL) {
		t.Errorf("Export to nobody = %v", err)
	}
}
