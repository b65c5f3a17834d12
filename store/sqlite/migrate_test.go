package sqlite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/store/engine"
)

// TestOldVersions opens a database that each older schema left behind, and this
// one, and finds in it what was put in. The files are written once, when their
// version is made, with -update.
func TestOldVersions(t *testing.T) {
	t.Parallel()
	all, err := migrations()
	if err != nil {
		t.Fatal(err)
	}
	newest := filepath.Join("testdata", all[len(all)-1].file()+".sqlite")
	if *rewrite {
		writeFixture(t, newest)
	}
	if _, err := os.Stat(newest); err != nil {
		t.Errorf("the newest schema has no file: %v; run this test with -update", err)
	}
	files, err := filepath.Glob(filepath.Join("testdata", "*.sqlite"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in testdata: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "agl.db")
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			b := openTest(t, Config{Path: path})
			golden := strings.TrimSuffix(file, ".sqlite") + ".json"
			got := dump(t, b)
			if *rewrite && file == newest {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("content (-want +got):\n%s", diff)
			}
			var next int64
			var popped []string
			err = b.Update(t.Context(), func(tx engine.Tx) (err error) {
				if next, err = tx.TakeSequenceIDs("ro-2", 1); err != nil {
					return err
				}
				popped, err = tx.Pop(5)
				return err
			})
			if err != nil || next != 4 || len(popped) != 1 || popped[0] != "ro-3" {
				t.Errorf("next sequence id, queue = %d, %q, %v, want 4, [ro-3]", next, popped, err)
			}
		})
	}
}

// TestMaintenanceOfOldVersions runs every command for databases on each older
// schema. Looking and copying change nothing; the others bring it up to date.
func TestMaintenanceOfOldVersions(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "*.sqlite"))
	if err != nil || len(files) < 4 {
		t.Fatalf("files in testdata: %v, %v", files, err)
	}
	for i, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "agl.db")
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			check := func(path string, schema int64) {
				t.Helper()
				r, err := Check(t.Context(), path)
				if err != nil || len(r.Problems) > 0 || r.Schema != schema || r.Counts.TotalRollouts < 3 || r.Queued != 1 {
					t.Errorf("Check = %+v, %v, want its rollouts, one queued, of schema %d", r, err, schema)
				}
			}
			check(path, int64(i+1))
			to := filepath.Join(t.TempDir(), "copy.db")
			if err := Backup(t.Context(), path, to); err != nil {
				t.Errorf("Backup = %v", err)
			}
			check(to, int64(i+1))
			if _, _, err := Vacuum(t.Context(), Config{Path: path}); err != nil {
				t.Errorf("Vacuum = %v", err)
			}
			check(path, int64(len(files)))
			b, err := OpenExisting(t.Context(), Config{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			s := engine.New(b, engine.Config{})
			defer s.Close()
			if seen, err := s.Prunable(t.Context(), 1000); err != nil || seen.Rollouts != 1 {
				t.Errorf("Prunable = %+v, %v, want one rollout", seen, err)
			}
		})
	}
}

func (m migration) file() string {
	return "schema-" + strings.Repeat("0", 3-len(digits(m.version))) + digits(m.version)
}

// writeFixture makes a database with one of everything.
func writeFixture(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	b, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Update(t.Context(), oneOfEverything); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path + ".lock"); err != nil {
		t.Fatal(err)
	}
}

func oneOfEverything(tx engine.Tx) error {
	ten, id, llm := 10.0, "rs-1", agl.LLM{Endpoint: "http://127.0.0.1:1/v1", Model: "small"}
	rollouts := []agl.Rollout{
		{
			RolloutID: "ro-1", Status: agl.RolloutSucceeded, Mode: agl.ModeTrain, StartTime: 1, EndTime: &ten, ResourcesID: &id,
			Input: []byte(`{"question": "6*7",  "n":1.0}`), Metadata: []byte(`{}`), Config: agl.RolloutConfig{MaxAttempts: 1},
		},
		{
			RolloutID: "ro-2", Status: agl.RolloutRunning, StartTime: 2, Input: []byte("null"),
			Config: agl.RolloutConfig{MaxAttempts: 3, TimeoutSeconds: &ten, RetryCondition: []agl.AttemptStatus{agl.AttemptTimeout}},
		},
		{RolloutID: "ro-3", Status: agl.RolloutQueuing, StartTime: 3, Input: []byte(`"later"`), Config: agl.RolloutConfig{MaxAttempts: 1}},
	}
	span := agl.SpanCore{Name: "step", Attributes: agl.Attributes{{Key: "x", Value: 1.0}}}.Span("ro-2", "at-2", 3, 2.5)
	span.TraceID, span.SpanID, span.Context = "t", "s", nil
	steps := []func() error{
		func() error { return tx.InsertRollouts(rollouts) },
		func() error { return tx.Push([]string{"ro-3"}) },
		func() error {
			return tx.InsertRollouts([]agl.Rollout{{
				RolloutID: "ro-4", Status: agl.RolloutQueuing, StartTime: 4, Input: []byte("4"), Config: agl.RolloutConfig{MaxAttempts: 1},
				Control: &agl.Control{Config: []byte(`{"timeout_seconds":7}`), LastAttemptID: &id, Version: 2, UpdatedAt: 5},
			}})
		},
		func() error { return tx.AppendCompletion("ro-1") },
		func() error {
			return tx.InsertAttempts([]agl.Attempt{
				{RolloutID: "ro-1", AttemptID: "at-1", SequenceID: 1, StartTime: 1, EndTime: &ten, Status: agl.AttemptSucceeded},
				{RolloutID: "ro-2", AttemptID: "at-2", SequenceID: 1, StartTime: 2, Status: agl.AttemptRunning, WorkerID: &id},
			})
		},
		func() error { _, err := tx.InsertSpans(encode(span)); return err },
		func() error { return tx.RaiseSequenceID("ro-2", 3) },
		func() error {
			return tx.PutResources(agl.ResourcesUpdate{
				ResourcesID: "rs-1", CreateTime: 1, UpdateTime: 1, Version: 1,
				Resources: agl.NamedResources{{Name: "main", Resource: llm}},
			})
		},
		func() error {
			return tx.PutWorkers([]agl.Worker{{WorkerID: "w-1", Status: agl.WorkerBusy, LastBusyTime: &ten}})
		},
		func() error {
			return tx.InsertRun(agl.Run{RunID: "run-1", Algorithm: "grpo", Seed: 7, Status: agl.RunRunning, StartTime: 1})
		},
		func() error {
			return tx.PutStepMetrics("run-1", []agl.StepMetrics{{Step: 1, Time: 1, Values: map[string]float64{"loss": 0.5}}})
		},
		func() error {
			return tx.PutCheckpoint("run-1", agl.Checkpoint{Step: 1, Time: 1, Path: "a", Score: &ten})
		},
		func() error {
			lines := []agl.LogLine{
				{Time: 1, Level: agl.LogInfo, Message: "gone", Attributes: []byte(`{}`)},
				{Time: 2, Level: agl.LogWarn, Message: "slow", Attributes: []byte(`{"step":1,"x":1.0}`)},
				{Time: 3, Level: agl.LogError, Message: "no disk", Attributes: []byte(`{}`)},
			}
			return tx.AppendLogLines("run-1", lines, engine.LogBounds{Lines: 2, Bytes: 1000})
		},
		func() error {
			return tx.PutModels([]agl.Model{{Name: "small", Endpoint: "http://127.0.0.1:1/v1", KeyGiven: true}})
		},
		func() error { return tx.PutAnswer("key", []byte("answer"), 1e12) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// TestMigrationIsWhole breaks a migration in the middle: nothing of it stays,
// and it is tried again the next time.
func TestMigrationIsWhole(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agl.db")
	c, err := newConn(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := claim(c, path); err != nil {
		t.Fatal(err)
	}
	broken := migration{1, "broken", "CREATE TABLE half (x); INSERT INTO nowhere VALUES (1);"}
	if err := broken.apply(c); err == nil {
		t.Error("a broken migration succeeded")
	}
	if n, err := c.number(foreignTables); err != nil || n != 0 {
		t.Errorf("tables left by a broken migration = %d, %v, want none", n, err)
	}
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	b := openTest(t, Config{Path: path})
	if err := b.Update(t.Context(), oneOfEverything); err != nil {
		t.Error(err)
	}
}
