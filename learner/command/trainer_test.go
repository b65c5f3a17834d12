package command_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentlightning/dataset"
	"agentlightning/learner"
	"agentlightning/learner/command"
	"agentlightning/learner/native"
)

// TestMain lets the test binary be the trainers that the tests start.
func TestMain(m *testing.M) {
	if kind := os.Getenv("TEST_TRAINER"); kind != "" {
		if err := train(kind); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// train is a trainer: it knows nothing of the process that started it but the
// files and variables.
func train(kind string) error {
	switch kind {
	case "fails":
		return fmt.Errorf("CUDA out of memory")
	case "empty":
		return nil
	case "lies":
		fmt.Println(`{"model": "/no/such/model"}`)
		return nil
	case "broken":
		fmt.Println(`{"loss": NaN}`)
		return os.MkdirAll(os.Getenv(command.EnvOutput)+"/x", 0o755)
	case "endpoint":
		fmt.Println(`{"endpoint": "http://10.0.0.5:8000/v1", "target": "policy-2"}`)
		return nil
	case "sleeps":
		// A grandchild that would stay if nobody saw to it.
		child := exec.Command("sleep", "600")
		child.Stdout = os.Stdout
		if err := child.Start(); err != nil {
			return err
		}
		fmt.Printf("{\"grandchild\": %d}\n", child.Process.Pid)
		return child.Wait()
	case "environment":
		fmt.Printf("%s|%s|%s\n", os.Getenv(command.EnvServer), os.Getenv(command.EnvToken), os.Getenv("EXTRA"))
		return os.MkdirAll(os.Getenv(command.EnvOutput)+"/x", 0o755)
	}
	var o command.Options
	text, err := os.ReadFile(os.Getenv(command.EnvOptions))
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	if err != nil {
		return err
	}
	rows, err := readRows()
	if err != nil {
		return err
	}
	model, err := openModel(os.Getenv(command.EnvModel))
	if err != nil {
		return err
	}
	defer func() { _ = model.Close() }() // saved before
	batch := learner.Batch{Options: learner.Options{
		Objective: o.Objective, LearningRate: o.LearningRate, Minibatch: o.Minibatch, MaxGradNorm: o.MaxGradNorm, Loss: o.Loss, Seed: o.Seed,
	}}
	for i := range rows {
		batch.Rows = append(batch.Rows, rows[i].Learner())
	}
	fmt.Printf("training %d rows\n", len(rows)) // for people
	if o.Objective == learner.PolicyGradient {
		if err := tellLogprobs(model, batch.Rows); err != nil {
			return err
		}
	}
	if text := os.Getenv("TEST_LOGPROBS"); text != "" {
		if err := os.WriteFile(os.Getenv(command.EnvLogprobs), []byte(text), 0o600); err != nil {
			return err
		}
	}
	for range o.Epochs {
		metrics, err := model.Update(context.Background(), batch)
		if err != nil {
			return err
		}
		line, err := json.Marshal(metrics)
		if err != nil {
			return err
		}
		fmt.Println(string(line))
	}
	return model.Save(context.Background(), os.Getenv(command.EnvOutput))
}

// tellLogprobs writes what the model thinks of the rows, the last row first.
func tellLogprobs(model *native.Model, rows []learner.Row) error {
	scores, err := model.Score(context.Background(), rows)
	if err != nil {
		return err
	}
	file, err := os.Create(os.Getenv(command.EnvLogprobs))
	if err != nil {
		return err
	}
	for i, row := range slices.Backward(rows) {
		logprobs := make([]*float32, len(row.IDs))
		for t, m := range row.Mask {
			if m != 0 {
				logprobs[t] = &scores[i][t]
			}
		}
		if err := json.NewEncoder(file).Encode(map[string]any{"row": i, "logprobs": logprobs}); err != nil {
			return err
		}
	}
	return file.Close()
}

// readRows reads both files, which must hold the same.
func readRows() ([]dataset.Row, error) {
	lines, err := os.Open(os.Getenv(command.EnvRows))
	if err != nil {
		return nil, err
	}
	defer func() { _ = lines.Close() }() // only read
	rows, err := dataset.ReadRows(lines, "rows")
	if err != nil {
		return nil, err
	}
	columns, err := os.Open(os.Getenv(command.EnvParquet))
	if err != nil {
		return nil, err
	}
	defer func() { _ = columns.Close() }() // only read
	info, err := columns.Stat()
	if err != nil {
		return nil, err
	}
	same, err := dataset.ReadParquet(columns, info.Size(), "parquet")
	if err != nil {
		return nil, err
	}
	if fmt.Sprint(rows) != fmt.Sprint(same) {
		return nil, fmt.Errorf("JSONL has %v, Parquet %v", rows, same)
	}
	return rows, nil
}

func openModel(path string) (*native.Model, error) {
	if path != "" {
		return native.Open(path, native.Config{})
	}
	return native.New(native.Config{Dim: 32, Layers: 1, Heads: 2, Hidden: 64, Context: 16, Seed: 1}, native.NewTokenizer(nil))
}

// alive reports whether a process runs.
func alive(t *testing.T, pid int) bool {
	t.Helper()
	state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(state), ") Z ")
}

func config(t *testing.T, kind string) command.Config {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return command.Config{
		Command: []string{self}, Dir: t.TempDir(), Honours: []string{"*"}, Env: []string{"TEST_TRAINER=" + kind}, Grace: time.Second,
	}
}
