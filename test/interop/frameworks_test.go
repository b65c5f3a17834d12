package interop

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/internal/cli"
	"agentlightning/semconv"
	"agentlightning/store"
)

// frameworks are agents as people write them with the frameworks of others. None
// of them knows of this project: they are given a task, a base URL and a key.
// Each answers the first question of the accountant with two tools.
var frameworks = []struct {
	name        string
	environment string // of packages; empty means that of name
	arguments   []string
	variables   []string
	// breaks are the places where the program changed the conversation on its
	// way, so that the calls are rows apart in training.
	breaks int
}{
	{name: "requests", environment: "langchain"},
	{name: "openai-agents"},
	{name: "openai-agents", arguments: []string{"--stream"}},
	{name: "openai-agents", variables: []string{"DIALECT=responses"}},
	{name: "openai-agents", arguments: []string{"--stream"}, variables: []string{"DIALECT=responses"}},
	// They write the arguments of calls anew.
	{name: "langchain", breaks: 1},
	{name: "langchain", arguments: []string{"--stream"}, breaks: 1},
	{name: "langgraph", environment: "langchain", breaks: 1},
	{name: "langgraph", environment: "langchain", arguments: []string{"--stream"}, breaks: 1},
	{name: "autogen"},
	{name: "autogen", arguments: []string{"--stream"}},
	// It drops what the model said beside its calls.
	{name: "crewai", variables: quiet, breaks: 1},
	{name: "crewai", variables: quiet, arguments: []string{"--stream"}, breaks: 1},
	{name: "anthropic", environment: "langchain", breaks: 1},
	{name: "anthropic", environment: "langchain", arguments: []string{"--stream"}, breaks: 1},
	// It also says "" where the model said nothing beside its calls.
	{name: "vercel", arguments: []string{"compatible"}, breaks: 2},
	{name: "vercel", arguments: []string{"compatible", "--stream"}, breaks: 2},
	{name: "vercel", arguments: []string{"chat"}, breaks: 2},
	{name: "vercel", arguments: []string{"responses", "--stream"}, breaks: 2},
	{name: "vercel", arguments: []string{"anthropic"}, breaks: 1},
	{name: "vercel", arguments: []string{"anthropic", "--stream"}, breaks: 1},
	{name: "vercel", arguments: []string{"compatible", "--otel"}, breaks: 2},
}

// quiet keeps a framework from reporting to its makers.
var quiet = []string{"CREWAI_DISABLE_TELEMETRY=true", "CREWAI_TRACING_ENABLED=false"}

// needFrameworks returns the interpreters by name, or skips the test.
func needFrameworks(t *testing.T) map[string]string {
	t.Helper()
	line := os.Getenv("AGL_TEST_FRAMEWORKS")
	if line == "" {
		t.Skip("AGL_TEST_FRAMEWORKS is not set: run AGL_TEST_FRAMEWORKS=$(bash test/interop/frameworks/setup.sh) go test ./test/interop")
	}
	out := map[string]string{}
	for entry := range strings.SplitSeq(line, ":") {
		name, interpreter, ok := strings.Cut(entry, "=")
		if !ok {
			t.Fatalf("AGL_TEST_FRAMEWORKS: %q is not NAME=INTERPRETER", entry)
		}
		out[name] = interpreter
	}
	return out
}

func TestFrameworks(t *testing.T) {
	t.Parallel()
	interpreters := needFrameworks(t)
	for _, f := range frameworks {
		environment := f.environment
		if environment == "" {
			environment = f.name
		}
		t.Run(strings.Join(append([]string{f.name}, append(f.arguments, f.variables...)...), " "), func(t *testing.T) {
			t.Parallel()
			interpreter := interpreters[environment]
			if interpreter == "" {
				t.Fatalf("AGL_TEST_FRAMEWORKS names no environment %q", environment)
			}
			m := newVLLM(t, accountant)
			s := serve(t, "sqlite:"+filepath.Join(t.TempDir(), "agl.db"), "--model", "agent="+m.url, "--auth-token", secret)
			flags := []string{"--reward", "stdout"}
			for _, v := range f.variables {
				flags = append(flags, "--env", v)
			}
			id := s.agent(t, questions[0], flags, append(agentOf(t, f.name, interpreter), f.arguments...)...)
			spans := s.rewarded(t, m, id, f.breaks)
			if slices.Contains(f.arguments, "--otel") {
				exported(t, spans)
			}
		})
	}
}

// rewarded checks that an agent called the model three times and earned 1: the
// calls yield triplets with the model's own ids, and training rows that break where
// the agent changed the conversation. It returns the spans.
func (s *server) rewarded(t *testing.T, m *vllm, id string, breaks int) []agl.Span {
	t.Helper()
	said := m.until(t, 3)
	if len(said) != 3 {
		t.Fatalf("the model was called %d times, want 3", len(said))
	}
	spans := s.spans(t, id)
	var want []triplet
	for _, g := range said {
		want = append(want, g.triplet())
	}
	want[2].Reward = new(1.0)
	got, err := adapter.TracerTriplets(spans, adapter.TracerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	compareTriplets(t, "our adapter", want, got)
	rows(t, spans, said, breaks)
	return spans
}

// exported looks for what a framework recorded itself of three calls that the
// proxy recorded too. Readers count each call once.
func exported(t *testing.T, spans []agl.Span) {
	t.Helper()
	own := 0
	for i := range spans {
		if operation, _ := spans[i].Attributes.String(semconv.GenAIOperation); operation == "chat" && spans[i].Name != semconv.SpanModelCall {
			own++
		}
	}
	talks, err := adapter.Conversations(spans)
	if err != nil {
		t.Fatal(err)
	}
	if own != 3 || len(talks) != 3 {
		t.Errorf("%d calls recorded by the framework, %d conversations; want 3 of each in %d spans", own, len(talks), len(spans))
	}
}

// TestTypeScriptRunner is a runner in another language, which knows the server's
// routes and nothing else.
func TestTypeScriptRunner(t *testing.T) {
	t.Parallel()
	node := needFrameworks(t)["vercel"]
	if node == "" {
		t.Fatal("AGL_TEST_FRAMEWORKS names no environment vercel")
	}
	programs, err := nodePrograms(t, node, "frameworks/vercel")
	if err != nil {
		t.Fatal(err)
	}
	m := newVLLM(t, accountant)
	s := serve(t, "sqlite:"+filepath.Join(t.TempDir(), "agl.db"), "--model", "agent="+m.url, "--auth-token", secret)
	queued, err := s.client.EnqueueRollouts(t.Context(), []store.EnqueueRequest{
		{Input: json.RawMessage(strconv.Quote(questions[0]))}, {Input: json.RawMessage(`{"no":"question"}`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), callLimit)
	defer cancel()
	if out, err := exec.CommandContext(ctx, node, filepath.Join(programs, "runner.mjs"), s.url, secret, "2").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for i, want := range []agl.RolloutStatus{agl.RolloutSucceeded, agl.RolloutFailed} {
		r, err := s.client.Rollout(ctx, queued[i].RolloutID)
		if err != nil || r.Status != want {
			t.Errorf("rollout %d is %s, %v; want %s", i, r.Status, err, want)
		}
	}
	var want []triplet
	for _, g := range m.until(t, 3) {
		want = append(want, g.triplet())
	}
	want[2].Reward = new(1.0)
	got, err := adapter.TracerTriplets(s.spans(t, queued[0].RolloutID), adapter.TracerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	compareTriplets(t, "our adapter", want, got)
}

// agentOf returns the command of the agent in a folder.
func agentOf(t *testing.T, name, interpreter string) []string {
	t.Helper()
	folder := filepath.Join("frameworks", name)
	if _, err := os.Stat(filepath.Join(folder, "agent.py")); err == nil {
		return []string{interpreter, filepath.Join(folder, "agent.py")}
	}
	programs, err := nodePrograms(t, interpreter, folder)
	if err != nil {
		t.Fatal(err)
	}
	return []string{interpreter, filepath.Join(programs, "agent.mjs")}
}

// agent has `agl runner` run a program for one rollout, and returns the rollout,
// which succeeded and whose reward is 1.
func (s *server) agent(t *testing.T, task any, flags []string, program ...string) string {
	t.Helper()
	input, err := json.Marshal(task)
	if err != nil {
		t.Fatal(err)
	}
	queued, err := s.client.EnqueueRollouts(t.Context(), []store.EnqueueRequest{{Input: input}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), callLimit)
	defer cancel()
	arguments := slices.Concat([]string{
		"runner", "--server", s.url, "--token", secret, "--max-rollouts", "1",
		"--env", "HOME=" + t.TempDir(), "--env", "NO_PROXY=127.0.0.1,localhost",
	}, flags, []string{"--"}, program)
	var stdout, stderr buffer
	if code := cli.Run(ctx, arguments, &stdout, &stderr); code != 0 {
		t.Errorf("agl runner ended with status %d", code)
	}
	id := queued[0].RolloutID
	r, err := s.client.Rollout(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	spans := s.spans(t, id)
	reward, err := adapter.Final(spans)
	if err != nil {
		t.Fatal(err)
	}
	if r.Status != agl.RolloutSucceeded || reward == nil || *reward != 1 {
		for i := range spans {
			if spans[i].Name != semconv.SpanModelCall {
				t.Logf("%s %v", spans[i].Name, spans[i].Attributes)
			}
		}
		t.Fatalf("%v: the rollout is %s, its reward %v; want succeeded and 1\n%s%s", program, r.Status, reward, stdout.String(), stderr.String())
	}
	return id
}
