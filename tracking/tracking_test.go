package tracking_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/semconv"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/tracking"
)

func newStore(t *testing.T) store.Store {
	t.Helper()
	s := engine.New(memory.New(), engine.Config{})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// made runs an algorithm that does as it is told and returns what was recorded.
func made(t *testing.T, s store.Store, seed int64, config any, steps ...map[string]float64) *tracking.Run {
	t.Helper()
	run, err := algorithm.Begin(t.Context(), algorithm.Env{Store: s}, "pg", config, seed)
	if err != nil {
		t.Fatal(err)
	}
	for i, values := range steps {
		if err := run.Record(t.Context(), i, values); err != nil {
			t.Fatal(err)
		}
		if err := run.Checkpoint(t.Context(), i, fmt.Sprintf("/kept/step-%d", i), nil, struct{}{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := run.Finish(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	r, err := tracking.Read(t.Context(), s, run.RunID)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRead(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	r := made(t, s, 7, map[string]any{"steps": 2, "learning_rate": map[string]any{"peak": 0.05, "kind": "cosine"}, "on": true, "list": []int{1, 2}},
		map[string]float64{"accuracy": 0.25, "reward": 0.5},
		map[string]float64{"accuracy": 0.75, "reward": 0.4},
		map[string]float64{"accuracy": 0.5, "loss": 3})
	want := []tracking.Param{{"learning_rate.kind", "cosine"}, {"learning_rate.peak", "0.05"}, {"list", "[1,2]"}, {"on", "true"}, {"steps", "2"}}
	if diff := cmp.Diff(want, r.Params); diff != "" {
		t.Errorf("Params (-want +got):\n%s", diff)
	}
	if r.CodeVersion == "" || r.Steps() != 2 || len(r.Checkpoints) != 3 || r.Checkpoints[1].Path != "/kept/step-1" || r.News() < r.StartTime {
		t.Errorf("Read = %+v", r)
	}
	if score, name, step, ok := r.Best(); !ok || score != 0.75 || name != "val/reward" || step != 1 {
		t.Errorf("Best = %v of %s at %d, %v", score, name, step, ok)
	}
	if f := r.Figure("training/reward"); *f != (tracking.Figure{Last: 0.4, LastStep: 1, Min: 0.4, MinStep: 1, Max: 0.5, MaxStep: 0}) {
		t.Errorf("Figure = %+v", *f)
	}
	if r.Figure("nothing") != nil {
		t.Error("a metric that there is not has a figure")
	}
	if _, err := tracking.Read(t.Context(), s, "run-none"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Read of an unknown run = %v", err)
	}
	// Runs of earlier versions recorded short names.
	old, err := s.CreateRun(t.Context(), agl.Run{Algorithm: "pg", Config: json.RawMessage(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.AddStepMetrics(t.Context(), old.RunID, agl.StepMetrics{Step: 1, Values: map[string]float64{"accuracy": 1, "loss": 2}}); err != nil {
		t.Fatal(err)
	}
	if r, err = tracking.Read(t.Context(), s, old.RunID); err != nil || fmt.Sprint(r.Names()) != "[actor/pg_loss val/reward]" {
		t.Errorf("names of an old run: %v, %v", r.Names(), err)
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	a := made(t, s, 1, map[string]any{"steps": 2, "lr": 0.1}, map[string]float64{"accuracy": 0.5})
	b := made(t, s, 2, map[string]any{"steps": 2, "lr": 0.2, "clip": 0.3}, map[string]float64{"accuracy": 0.75, "own": 1})
	c := tracking.Compare([]*tracking.Run{a, b})
	var differ []string
	for _, p := range c.Params {
		if !p.Same() {
			differ = append(differ, fmt.Sprintf("%s %v", p.Key, p.Values))
		}
	}
	if got := strings.Join(differ, "; "); got != "seed [1 2]; clip [ 0.3]; lr [0.1 0.2]" {
		t.Errorf("differences: %s", got)
	}
	for _, m := range c.Metrics {
		if m.Name == "training/own" && (m.Figures[0] != nil || m.Figures[1].Last != 1) {
			t.Errorf("a metric of one run only: %+v", m)
		}
	}
}

func TestJSONL(t *testing.T) {
	t.Parallel()
	r := made(t, newStore(t), 1, struct{}{}, map[string]float64{"reward": 0.5}, map[string]float64{"reward": 1})
	var out bytes.Buffer
	if err := tracking.WriteJSONL(&out, r); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for line := range strings.Lines(out.String()) {
		var l tracking.Line
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.RunID != r.RunID {
			t.Fatalf("%s: %v", line, err)
		}
		kinds = append(kinds, l.Kind)
		if l.Kind == "metrics" && l.Metrics.Step == 1 && l.Metrics.Values["training/reward"] != 1 {
			t.Errorf("metrics: %s", line)
		}
	}
	if got := fmt.Sprint(kinds); got != "[run metrics metrics checkpoint checkpoint]" {
		t.Errorf("lines: %s", got)
	}
}

func TestEventsAreReadAgain(t *testing.T) {
	t.Parallel()
	r := made(t, newStore(t), 1, map[string]any{"pipe": "a|b"}, map[string]float64{"reward": 0.1, "loss": 3}, map[string]float64{"reward": -1e30})
	var out bytes.Buffer
	if err := tracking.WriteEvents(&out, r); err != nil {
		t.Fatal(err)
	}
	whole := out.Bytes()
	events, err := tracking.ReadEvents(bytes.NewReader(whole))
	if err != nil || len(events) != 4 || events[0].FileVersion != "brain.Event:2" || events[0].Time != r.StartTime {
		t.Fatalf("ReadEvents = %+v, %v", events, err)
	}
	if text := events[1].Texts["run/text_summary"]; !strings.Contains(text, `| pipe | a\|b |`) || !strings.Contains(text, r.RunID) {
		t.Errorf("configuration: %q", text)
	}
	for i, m := range r.Metrics {
		e := events[2+i]
		if e.Step != int64(m.Step) || e.Time != m.Time || len(e.Scalars) != len(m.Values) {
			t.Errorf("event %+v of step %+v", e, m)
		}
		for name, v := range m.Values {
			if e.Scalars[name] != float32(v) {
				t.Errorf("%s = %v, want %v", name, e.Scalars[name], float32(v))
			}
		}
	}
	// A byte that is wrong anywhere is found, and so is an end within a record.
	for i := range whole {
		broken := bytes.Clone(whole)
		broken[i] ^= 0x10
		if _, err := tracking.ReadEvents(bytes.NewReader(broken)); err == nil {
			t.Fatalf("a wrong byte at %d was not found", i)
		}
	}
	if _, err := tracking.ReadEvents(bytes.NewReader(whole[:len(whole)-3])); err == nil {
		t.Error("an end within a record was not found")
	}
	if name := tracking.EventFileName(r); !strings.HasPrefix(name, "events.out.tfevents.") || !strings.HasSuffix(name, r.RunID) {
		t.Errorf("EventFileName = %s", name)
	}
}

// The first record of a file that TensorBoard's own writer (2.21) made at
// time 1, byte by byte.
func TestEventsOfTensorBoard(t *testing.T) {
	t.Parallel()
	const recorded = "GAAAAAAAAACjf0siCQAAAAAAAPA/Gg1icmFpbi5FdmVudDoyhr9Xeg=="
	file, err := base64.StdEncoding.DecodeString(recorded)
	if err != nil {
		t.Fatal(err)
	}
	events, err := tracking.ReadEvents(bytes.NewReader(file))
	if err != nil || len(events) != 1 || events[0].FileVersion != "brain.Event:2" {
		t.Fatalf("ReadEvents = %+v, %v", events, err)
	}
	var out bytes.Buffer
	if err := tracking.WriteEvents(&out, &tracking.Run{Run: agl.Run{StartTime: 1}}); err != nil || !bytes.HasPrefix(out.Bytes(), file) {
		t.Errorf("WriteEvents = % x, %v, want it to begin % x", out.Bytes(), err, file)
	}
}

func FuzzReadEvents(f *testing.F) {
	var out bytes.Buffer
	if err := tracking.WriteEvents(&out, &tracking.Run{Metrics: []agl.StepMetrics{{Step: 1, Values: map[string]float64{"a": 1}}}}); err != nil {
		f.Fatal(err)
	}
	f.Add(out.Bytes())
	f.Fuzz(func(t *testing.T, file []byte) {
		if _, err := tracking.ReadEvents(bytes.NewReader(file)); err != nil {
			return
		}
	})
}

func TestSamples(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	before := rolloutOf(t, s, `{"agl.run_id":"run-other","agl.step":1}`, 1)
	r := made(t, s, 1, struct{}{})
	first := rolloutOf(t, s, fmt.Sprintf(`{"agl.run_id":%q,"agl.step":1,"agl.group":"3","agl.member":2}`, r.RunID), 0.5)
	second := rolloutOf(t, s, fmt.Sprintf(`{"agl.run_id":%q,"agl.step":2}`, r.RunID), 1)
	rolloutOf(t, s, `{}`, 1)
	list := func(step int) (got []string) {
		err := r.Samples(t.Context(), s, step, "", func(one *tracking.Sample) error {
			got = append(got, fmt.Sprintf("%s step %d group %s member %d: %v", one.RolloutID, one.Step, one.Group, one.Member, *one.Reward))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	want := []string{second + " step 2 group  member 0: 1", first + " step 1 group 3 member 2: 0.5"}
	if diff := cmp.Diff(want, list(-1)); diff != "" {
		t.Errorf("samples (-want +got):\n%s\nnot %s", diff, before)
	}
	if diff := cmp.Diff(want[1:], list(1)); diff != "" {
		t.Errorf("samples of step 1 (-want +got):\n%s", diff)
	}
}

func rolloutOf(t *testing.T, s store.Store, metadata string, reward float64) string {
	t.Helper()
	r, err := s.StartRollout(t.Context(), store.StartRequest{EnqueueRequest: store.EnqueueRequest{Input: []byte("1"), Metadata: []byte(metadata)}})
	if err != nil {
		t.Fatal(err)
	}
	core := agl.SpanCore{Name: semconv.SpanAnnotation, Attributes: agl.Attributes{
		{Key: semconv.RewardName(0), Value: "primary"}, {Key: semconv.RewardValue(0), Value: reward},
	}}
	if _, err := s.AddSpans(t.Context(), []agl.Span{core.Span(r.RolloutID, r.Attempt.AttemptID, 1, 1)}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.UpdateAttempt(t.Context(), r.RolloutID, r.Attempt.AttemptID, store.AttemptUpdate{Status: store.To(agl.AttemptSucceeded)}); err != nil {
		t.Fatal(err)
	}
	return r.RolloutID
}
