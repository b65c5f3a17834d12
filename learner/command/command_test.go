package command_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/algorithm/sft"
	"agentlightning/learner"
	"agentlightning/learner/command"
	"agentlightning/learner/native"
	"agentlightning/rl"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

func open(t *testing.T, c command.Config) *command.Learner {
	t.Helper()
	l, err := command.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// sentence is a row of a sentence to be learnt by heart.
func sentence() learner.Row {
	tok := native.NewTokenizer(nil)
	row := learner.Row{IDs: append(tok.Encode("good morning"), native.EndToken)}
	for range row.IDs {
		row.Mask = append(row.Mask, 1)
	}
	return row
}

func batch() learner.Batch {
	return learner.Batch{Rows: []learner.Row{sentence()}, Options: learner.Options{
		Objective: learner.Imitation, LearningRate: 0.02, Epochs: 30, Seed: 4,
	}}
}

// The trainer is a process that trains the built-in model.
func TestTrains(t *testing.T) {
	t.Parallel()
	c := config(t, "native")
	var seen []float64
	c.OnMetrics = func(m learner.Metrics) { seen = append(seen, m["loss"]) }
	l := open(t, c)
	first, err := l.Update(t.Context(), batch())
	if err != nil {
		t.Fatal(err)
	}
	second, err := l.Update(t.Context(), batch())
	if err != nil {
		t.Fatal(err)
	}
	if first["loss"] < 2*second["loss"] || first["rows"] != 1 || first["tokens"] != float64(len(sentence().IDs)) {
		t.Errorf("metrics %v, then %v, want a loss that falls", first, second)
	}
	if len(seen) != 60 || seen[29] != first["loss"] || seen[59] != second["loss"] {
		t.Errorf("%d lines of metrics, want 60, the last of each update as returned", len(seen))
	}
	if l.Version() != 2 {
		t.Errorf("version %d, want 2", l.Version())
	}
	model, err := native.Open(l.Model().Path, native.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := model.Close(); err != nil {
			t.Error(err)
		}
	}()
	got, err := model.Generate(t.Context(), native.Request{Prompt: model.Tokenizer().Encode("good"), MaxTokens: 12})
	if err != nil {
		t.Fatal(err)
	}
	if text := model.Tokenizer().Decode(got.IDs()); text != " morning" {
		t.Errorf("the model says %q, want what it was trained on", text)
	}
	if log, err := os.ReadFile(filepath.Join(c.Dir, "update-000002", "stdout.log")); err != nil || !strings.Contains(string(log), "training 1 rows") {
		t.Errorf("log %q, %v", log, err)
	}
}

// Policy gradients reach the trainer as they are.
func TestPolicyGradient(t *testing.T) {
	t.Parallel()
	row := sentence()
	row.Logprobs, row.Advantages, row.Rollout = make([]float32, len(row.IDs)), make([]float32, len(row.IDs)), "ro-1"
	for i := range row.IDs {
		row.Logprobs[i], row.Advantages[i] = -5, 1
	}
	b := learner.Batch{Rows: []learner.Row{row}, Options: learner.Options{
		Objective: learner.PolicyGradient, LearningRate: 0.001, Epochs: 2, Loss: rl.Loss{Entropy: 0.01, Aggregation: rl.RolloutMean},
	}}
	l := open(t, config(t, "native"))
	m, err := l.Update(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	// The same in this process.
	same, err := openModel("")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := same.Close(); err != nil {
			t.Error(err)
		}
	}()
	b.Options.Epochs = 1
	want := learner.Metrics{}
	for range 2 {
		if want, err = same.Update(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	if m["loss"] != want["loss"] || m["entropy"] != want["entropy"] || m["ratio_mean"] != want["ratio_mean"] {
		t.Errorf("metrics %v, want %v", m, want)
	}
}

// What a trainer writes of the tokens of its rows is handed on: the same as the
// built-in model tells in this process when it makes the same update.
func TestLogprobs(t *testing.T) {
	t.Parallel()
	row := func(answer string) learner.Row {
		r := sentence()
		r.IDs = append(slices.Clone(r.IDs[:4]), []int32{int32(answer[0]), int32(answer[1])}...)
		n := len(r.IDs)
		r.Mask, r.Logprobs, r.Advantages = make([]float32, n), make([]float32, n), make([]float32, n)
		for i := 2; i < n; i++ {
			r.Mask[i], r.Logprobs[i], r.Advantages[i] = 1, -5, 1
		}
		return r
	}
	b := learner.Batch{Rows: []learner.Row{row("ab"), row("cd")}, Options: learner.Options{
		Objective: learner.PolicyGradient, LearningRate: 0.001,
	}}
	ask := func(l learner.Learner) (map[int][]float32, error) {
		told := map[int][]float32{}
		b := b
		b.Trained = func(row int, logprobs []float32) { told[row] = slices.Clone(logprobs) }
		_, err := l.Update(t.Context(), b)
		return told, err
	}
	same, err := openModel("")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := same.Close(); err != nil {
			t.Error(err)
		}
	}()
	want, err := ask(same)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ask(open(t, config(t, "native")))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || len(want) != 2 {
		t.Fatalf("told of rows %v, want %v", got, want)
	}
	for i := range want {
		for j := range want[i] {
			if math.Abs(float64(got[i][j]-want[i][j])) > 1e-4 {
				t.Errorf("row %d, token %d: %v, want %v", i, j, got[i][j], want[i][j])
			}
		}
	}
	for text, says := range map[string]string{
		`{"logprobs": []}`:                                           "line 1 of .*: row: must be set",
		`{"row": 2, "logprobs": []}`:                                 "row 2: must be from 0 to 1",
		`{"row": 0, "logprobs": [0]}`:                                "logprobs: 1 for row 0, which has 6 tokens",
		`{"row": 0, "logprobs": [null,null,-1,-1,null,-1]}`:          "token 4 of row 0 is trained on and has none",
		`{"row": 0, "logprobs": [null,null,-1,-1,0.5,-1]}`:           "token 4 of row 0 has 0.5: must be a natural logarithm",
		`{"row": 0, "logprobs": [9,9,0,-1,-1,-1]}` + "\n" + `{"row"`: "line 2 of .*: unexpected EOF",
		`{"row": 0, "logprobs": [9,9,0,-1,-1,-1]}` + "\n" + `{"row": 0, "logprobs": [9,9,0,-1,-1,-1]}`: "line 2 of .*: row 0: is there twice",
	} {
		c := config(t, "native")
		c.Env = append(c.Env, "TEST_LOGPROBS="+text)
		l := open(t, c)
		if _, err := ask(l); err == nil || !regexp.MustCompile(says).MatchString(err.Error()) {
			t.Errorf("%s: %v, want an error that says %q", text, err, says)
		}
		if l.Version() != 0 {
			t.Errorf("%s: the model of an update that failed is in hand", text)
		}
	}
}

// Each update's metrics are those of the step in the run, and a run that was
// killed goes on with the model of its checkpoint.
func TestRun(t *testing.T) {
	t.Parallel()
	c, checkpoints := config(t, "native"), t.TempDir()
	st := engine.New(memory.New(), engine.Config{})
	defer func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}()
	env := algorithm.Env{Store: st, Logger: slog.New(slog.DiscardHandler)}
	fit := func(ctx context.Context, onStep func(sft.Step)) error {
		l := open(t, c)
		a, err := sft.New(sft.Config{
			Learner: l, Steps: 3, LearningRate: learner.Schedule{Peak: 0.02}, Checkpoints: checkpoints, CheckpointEvery: 1, OnStep: onStep,
			Rows: func(int, *rand.Rand) []learner.Row { return []learner.Row{sentence()} },
		})
		if err != nil {
			return err
		}
		return a.Run(ctx, env)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	err := fit(ctx, func(s sft.Step) {
		if s.Number == 2 {
			stop()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("Run = %v, want that it was stopped", err)
	}
	runs, err := st.Runs(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	env.RunID = runs[0].RunID
	if err := fit(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	metrics, err := st.StepMetrics(t.Context(), env.RunID, 0)
	if err != nil || len(metrics) != 3 {
		t.Fatalf("metrics %v, %v, want three steps", metrics, err)
	}
	for _, m := range metrics {
		if m.Values["actor/grad_norm"] == 0 || m.Values["training/n_sample"] != 1 {
			t.Errorf("metrics %v, want what the trainer said", m.Values)
		}
	}
	if runs, err = st.Runs(t.Context(), 1); err != nil || runs[0].Status != agl.RunSucceeded {
		t.Errorf("run %+v, %v", runs, err)
	}
	if current, err := command.Current(c.Dir); err != nil || current.Version != 3 {
		t.Errorf("current %+v, %v, want the third", current, err)
	}
}

func TestStopped(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("processes are looked up in /proc")
	}
	for _, how := range []string{"context", "limit"} {
		c := config(t, "sleeps")
		ctx, cancel := context.WithCancelCause(t.Context())
		pid := 0
		c.OnMetrics = func(m learner.Metrics) {
			pid = int(m["grandchild"])
			if how == "context" {
				cancel(context.Canceled)
			}
		}
		want := "context canceled"
		if how == "limit" {
			c.Limit, want = 500*time.Millisecond, "its Limit"
		}
		l := open(t, c)
		_, err := l.Update(ctx, batch())
		cancel(nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: Update = %v, want %q", how, err, want)
		}
		if pid == 0 || alive(t, pid) {
			t.Errorf("%s: process %d, which the trainer started, is still there", how, pid)
		}
		if l.Version() != 0 {
			t.Errorf("%s: version %d, want that of before", how, l.Version())
		}
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{
		"fails":  "ended with exit status 3; its output is in ",
		"empty":  "left no model",
		"lies":   "named a model that is not there",
		"broken": "looks like JSON and is not",
	} {
		l := open(t, config(t, kind))
		_, err := l.Update(t.Context(), batch())
		if err == nil || !strings.Contains(err.Error(), want) || kind == "fails" && !strings.Contains(err.Error(), "CUDA out of memory") {
			t.Errorf("%s: Update = %v, want %q", kind, err, want)
		}
		if l.Version() != 0 {
			t.Errorf("%s: version %d, want that of before", kind, l.Version())
		}
	}
	c := config(t, "native")
	c.Command = []string{"no-such-trainer"}
	if _, err := open(t, c).Update(t.Context(), batch()); err == nil || !strings.Contains(err.Error(), "no-such-trainer") {
		t.Errorf("Update = %v, want that there is no such program", err)
	}
}

func TestServe(t *testing.T) {
	t.Parallel()
	c := config(t, "endpoint")
	var served []command.Model
	fail := error(nil)
	c.Serve = func(_ context.Context, m command.Model) error {
		served = append(served, m)
		return fail
	}
	l := open(t, c)
	if _, err := l.Update(t.Context(), batch()); err != nil {
		t.Fatal(err)
	}
	want := command.Model{Version: 1, Endpoint: "http://10.0.0.5:8000/v1", Target: "policy-2"}
	if len(served) != 1 || served[0] != want || l.Model() != want {
		t.Errorf("served %+v, in hand %+v, want %+v", served, l.Model(), want)
	}
	fail = errors.New("the engine does not start")
	if _, err := l.Update(t.Context(), batch()); !errors.Is(err, fail) {
		t.Errorf("Update = %v, want that it cannot be served", err)
	}
	if current, err := command.Current(c.Dir); err != nil || current != want || l.Model() != want {
		t.Errorf("in hand %+v, kept %+v, %v, want the model of before", l.Model(), current, err)
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv(command.EnvToken, "the server's own")
	c := config(t, "environment")
	c.ServerURL, c.Token = "http://127.0.0.1:4747", "scoped"
	c.Env = append(c.Env, "EXTRA=more")
	var log strings.Builder
	c.Log = &log
	if _, err := open(t, c).Update(t.Context(), batch()); err != nil {
		t.Fatal(err)
	}
	if got := log.String(); got != "http://127.0.0.1:4747|scoped|more\n" {
		t.Errorf("the trainer's environment has %q", got)
	}
	c.ServerURL, c.Token, c.Dir = "", "", t.TempDir()
	log.Reset()
	if _, err := open(t, c).Update(t.Context(), batch()); err != nil {
		t.Fatal(err)
	}
	if got := log.String(); got != "||more\n" {
		t.Errorf("the trainer's environment has %q, want no token", got)
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		want    string
		honours []string
		change  func(*learner.Batch)
	}{
		{"learning_rate", nil, func(b *learner.Batch) { b.Options.Epochs, b.Options.Seed = 1, 0 }},
		{"epochs", []string{"learning_rate", "seed"}, func(*learner.Batch) {}},
		{"minibatch", []string{"learning_rate", "seed", "epochs"}, func(b *learner.Batch) { b.Options.Minibatch = 2 }},
		{"loss.entropy", []string{"learning_rate", "seed", "epochs", "loss.clip"}, func(b *learner.Batch) {
			policyGradient(b)
			b.Options.Loss = rl.Loss{Clip: rl.Clip{Low: 0.2, High: 0.28}, Entropy: 0.1}
		}},
		{"critic", []string{"*"}, func(b *learner.Batch) {
			policyGradient(b)
			b.Options.Critic.LearningRate = 1
		}},
		{"loss.kl", []string{"*"}, func(b *learner.Batch) {
			policyGradient(b)
			b.Options.Loss.KL.Coefficient = 0.1
		}},
		{"correction", []string{"*"}, func(b *learner.Batch) {
			policyGradient(b)
			b.Rows[0].Correction = b.Rows[0].Logprobs
		}},
		{"not paired", []string{"*"}, func(b *learner.Batch) {
			b.Options.Objective, b.Options.Beta = learner.Preference, 0.1
			b.Rows = append(b.Rows, b.Rows[0])
			for i := range b.Rows {
				b.Rows[i].Reference = make([]float32, len(b.Rows[i].IDs))
			}
		}},
	} {
		c := config(t, "native")
		c.Honours = tt.honours
		b := batch()
		tt.change(&b)
		if _, err := open(t, c).Update(t.Context(), b); !errors.Is(err, learner.ErrInvalid) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Update = %v, want ErrInvalid that names %q", err, tt.want)
		}
		if entries, err := os.ReadDir(c.Dir); err != nil || len(entries) != 0 {
			t.Errorf("%s: the folder holds %v, %v, want that nothing was begun", tt.want, entries, err)
		}
	}
}

func policyGradient(b *learner.Batch) {
	b.Options.Objective = learner.PolicyGradient
	r := &b.Rows[0]
	zeros := make([]float32, len(r.IDs))
	r.Logprobs, r.Advantages, r.Reference, r.Returns, r.Values = zeros, zeros, zeros, zeros, zeros
}

func TestCheckpoints(t *testing.T) {
	t.Parallel()
	c := config(t, "native")
	l := open(t, c)
	dir := filepath.Join(t.TempDir(), "a", "step-1")
	if _, err := l.Update(t.Context(), batch()); err != nil {
		t.Fatal(err)
	}
	if err := l.Save(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	for range 3 { // prunes the first model
		if _, err := l.Update(t.Context(), batch()); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := filepath.Glob(filepath.Join(c.Dir, "update-*"))
	if err != nil || len(entries) != 2 {
		t.Errorf("%v are kept, %v, want the newest two", entries, err)
	}
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	other := config(t, "native") // another learner, as after a move to another machine
	back := open(t, other)
	if err := back.Load(t.Context(), moved); err != nil {
		t.Fatal(err)
	}
	if back.Version() != 1 {
		t.Errorf("version %d, want that of the checkpoint", back.Version())
	}
	if err := back.Save(t.Context(), dir); err != nil { // of a model in a checkpoint
		t.Fatal(err)
	}
	if err := os.RemoveAll(moved); err != nil {
		t.Fatal(err)
	}
	if err := back.Load(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if _, err := back.Update(t.Context(), batch()); err != nil || back.Version() != 2 {
		t.Errorf("Update = %v, version %d, want that it goes on from the checkpoint", err, back.Version())
	}
	if err := back.Load(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "no checkpoint") {
		t.Errorf("Load = %v, want that it is none", err)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		want   string
		change func(*command.Config)
	}{
		{"Command", func(c *command.Config) { c.Command = nil }},
		{"Dir", func(c *command.Config) { c.Dir = "" }},
		{"Limit", func(c *command.Config) { c.Limit = -1 }},
		{"Grace", func(c *command.Config) { c.Grace = -1 }},
		{"Keep", func(c *command.Config) { c.Keep = -1 }},
		{"Honours", func(c *command.Config) { c.Honours = []string{"beta"} }},
		{"Token", func(c *command.Config) { c.Token = "x" }},
		{"Env", func(c *command.Config) { c.Env = []string{"X"} }},
	} {
		c := config(t, "native")
		tt.change(&c)
		if _, err := command.Open(c); err == nil || !strings.Contains(err.Error(), "command: "+tt.want) {
			t.Errorf("Open = %v, want an error that names %s", err, tt.want)
		}
	}
}

// A trainer in a shell script.
func Example() {
	dir, err := os.MkdirTemp("", "learner-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	l, err := command.Open(command.Config{
		Command: []string{"/bin/sh", "-c", `mkdir "$AGL_TRAIN_OUTPUT" && cp "$AGL_TRAIN_ROWS" "$AGL_TRAIN_OUTPUT"/weights && echo '{"loss": 0.25}'`},
		Dir:     dir, Honours: []string{"learning_rate"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = l.Close() }()
	metrics, err := l.Update(context.Background(), learner.Batch{
		Rows:    []learner.Row{{IDs: []int32{5, 6, 7}, Mask: []float32{0, 1, 1}}},
		Options: learner.Options{Objective: learner.Imitation, LearningRate: 1e-5},
	})
	fmt.Println(metrics["loss"], metrics["tokens"], l.Version(), err)
	// Output: 0.25 2 1 <nil>
}
