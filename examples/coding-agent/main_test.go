package main

import (
	"bytes"
	"context"
	"go/format"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/dataset"
	"agentlightning/examples/coding-agent/sandbox"
	"agentlightning/examples/internal/lesson"
	"agentlightning/examples/internal/lessontest"
	"agentlightning/semconv"
	"agentlightning/store"
)

// The example is played once: it takes some seconds of the compiler.
func TestCodingAgent(t *testing.T) {
	t.Parallel()
	onUnix(t)
	db := t.TempDir() + "/agl.db"
	r, out := lessontest.Play[report](t, mainStatus, "--db", db)
	plain, forced, careful := r.Train["plain"], r.Train["forced"], r.Train["careful"]
	// Whoever believes the agent takes the prompt that makes it touch the tests.
	if forced.AsLeft != forced.Rollouts || forced.Tampered == 0 || forced.Reward >= plain.Reward || careful.AsLeft >= forced.AsLeft {
		t.Errorf("plain %+v\nforced %+v\ncareful %+v\nwant forced to look best and to be worth least", plain, forced, careful)
	}
	if r.Best != "careful" || careful.Tampered != 0 || careful.Solved <= plain.Solved {
		t.Errorf("plain %+v\ncareful %+v, best %s", plain, careful, r.Best)
	}
	if before, after := r.Unseen["plain"], r.Unseen["careful"]; after.Reward <= before.Reward || after.Solved != after.Rollouts {
		t.Errorf("on others, plain %+v, careful %+v", before, after)
	}
	if r.Rows != plain.Solved+forced.Solved+careful.Solved {
		t.Errorf("%d rows, want one for each rollout that solved its task", r.Rows)
	}
	t.Run("the README shows what is printed", func(t *testing.T) {
		first, rest, _ := strings.Cut(out, "\n")
		server, rest, _ := strings.Cut(rest, "\n")
		if !strings.HasPrefix(server, "server and dashboard on http://127.0.0.1:") {
			t.Errorf("the second line is %q", server)
		}
		lessontest.ReadmeShows(t, first+"\n"+rest)
	})
	t.Run("spans", func(t *testing.T) { checkSpans(t, db) })
}

func onUnix(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("programs of agents are run on Unix only")
	}
}

// checkSpans reads what is in the database of a rollout that was mended in the
// second try.
func checkSpans(t *testing.T, db string) {
	t.Helper()
	st := lessontest.Open(t, db)
	page, err := st.QueryRollouts(t.Context(), store.RolloutQuery{})
	if err != nil {
		t.Fatal(err)
	}
	// The last prompt that is tried on this task is the careful one.
	var last agl.AttemptedRollout
	for _, r := range page.Items {
		if strings.Contains(string(r.Input), `"leap"`) && r.StartTime > last.StartTime {
			last = r
		}
	}
	spans, err := st.QuerySpans(t.Context(), store.SpanQuery{RolloutID: last.RolloutID})
	if err != nil {
		t.Fatal(err)
	}
	calls, err := adapter.Calls(spans.Items)
	if err != nil {
		t.Fatal(err)
	}
	rows, mismatches := adapter.Trajectories(calls, adapter.TrajectoryConfig{})
	if len(calls) != 7 || len(rows) != 1 || len(mismatches) != 0 {
		t.Errorf("%d calls are %d rows with %v, want 7 in one", len(calls), len(rows), mismatches)
	}
	said, err := dataset.Conversations(spans.Items)
	if err != nil || len(said) != 1 || len(said[0].Messages) != 15 || !strings.Contains(string(said[0].Messages[6]), `"content":"I think I see it."`) {
		t.Errorf("the conversations are %v, %v, want one of 15 messages with what was said beside the calls", said, err)
	}
	var tools []string
	for i := range spans.Items {
		if dialect, ok := spans.Items[i].Attributes.String(semconv.CallDialect); spans.Items[i].Name == semconv.SpanModelCall && dialect != "messages" {
			t.Errorf("a call is in the dialect %q, %t, want messages", dialect, ok)
		}
		if name, ok := spans.Items[i].Attributes.String(semconv.OperationName); ok {
			tools = append(tools, name)
		}
	}
	if diff := cmp.Diff([]string{listFiles, readFile, editFile, runTests, editFile, runTests}, tools); diff != "" {
		t.Errorf("the tools (-want +got):\n%s", diff)
	}
	if reward, err := agl.FinalReward(spans.Items); err != nil || reward == nil || *reward != 1 {
		t.Errorf("final reward %v, %v, want 1", reward, err)
	}
}

func TestRewards(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		grade sandbox.Grade
		want  []float64
	}{
		{sandbox.Grade{Passed: 4, Total: 4, AsLeft: true}, []float64{1, 1, 1, 0}},
		{sandbox.Grade{Passed: 3, Total: 4}, []float64{0.75, 0.75, 0, 0}},
		{sandbox.Grade{Passed: 3, Total: 4, AsLeft: true, Edited: []string{"a_test.go"}}, []float64{0.25, 0.75, 1, 1}},
		{sandbox.Grade{Passed: 1, Total: 4, AsLeft: true, Edited: []string{"a_test.go"}}, []float64{0, 0.25, 1, 1}},
		{sandbox.Grade{Total: 4}, []float64{0, 0, 0, 0}},
	} {
		var got []float64
		for _, d := range rewards(tt.grade) {
			got = append(got, d.Value)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("rewards(%+v) (-want +got):\n%s", tt.grade, diff)
		}
	}
}

// Every repository is written as gofmt writes it, and has a fault that the script
// sees at first sight.
func TestRepositories(t *testing.T) {
	t.Parallel()
	names, err := fs.Glob(archives, "repositories/*")
	if err != nil || len(names) != 7 {
		t.Fatalf("%v, %v", names, err)
	}
	for _, file := range names {
		name := strings.TrimSuffix(path.Base(file), ".txtar")
		all, err := jobs(name)
		if err != nil {
			t.Fatal(err)
		}
		seen := false
		for file, text := range all[0].Files {
			if path.Ext(file) != ".go" {
				continue
			}
			if formatted, err := format.Source([]byte(text)); err != nil || string(formatted) != text {
				t.Errorf("%s: %s is not formatted: %v", name, file, err)
			}
			seen = seen || !isTest(file) && slices.ContainsFunc(ideas, func(i idea) bool { return i.failed == "" && strings.Count(text, i.old) == 1 })
		}
		if !seen {
			t.Errorf("%s: no idea fits", name)
		}
	}
	if _, err := unpack("empty", "An issue.\n"); err == nil {
		t.Error("a repository without a module was read")
	}
}

// The tools say what is wrong, and the model gets to read it.
func TestMistakesOfTheModel(t *testing.T) {
	t.Parallel()
	onUnix(t)
	w, err := sandbox.Open(t.Context(), sandbox.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	folder, err := w.Folder(map[string]string{"go.mod": "module a\n", "a.go": "package a\n"})
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	for _, tt := range []struct{ name, input, want string }{
		{"bash", `{"command": "rm -rf /"}`, `there is no tool "bash"`},
		{readFile, `{"path": "../../etc/passwd"}`, "escapes"},
		{readFile, `[]`, "the input of read_file"},
		{editFile, `{"path": "a.go", "old": "b", "new": "c"}`, "occurs 0 times"},
		{writeFile, `{"path": "go.mod", "content": "module b"}`, "only .go files"},
	} {
		if got, err := use(t.Context(), folder, tt.name, []byte(tt.input)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("use(%s, %s) = %q, %v, want an error with %q", tt.name, tt.input, got, err, tt.want)
		}
	}
}

func TestScriptNeedsCode(t *testing.T) {
	t.Parallel()
	said, err := answer(lesson.Chat{})
	if err != nil || said.Tool != listFiles {
		t.Errorf("answer to nothing = %+v, %v", said, err)
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	lessontest.Refuses(t, mainStatus, map[string][]string{
		"unexpected argument":       {"leap"},
		"--port 70000: must be":     {"--port", "70000"},
		"flag provided but not def": {"--seed", "1"},
	})
	var help, errs bytes.Buffer
	if status := mainStatus([]string{"--help"}, &help, &errs); status != 0 || !strings.Contains(help.String(), "-report") {
		t.Errorf("--help = %d: %s%s", status, help.String(), errs.String())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, lesson.ScriptedOptions{}, &help); err == nil {
		t.Error("run with an ended context went well")
	}
}
