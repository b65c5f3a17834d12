package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/gateway"
	"agentlightning/internal/cli"
	"agentlightning/store"
)

// release1Key is the token of the servers of these tests.
const release1Key = "s3cret"

// needRelease1 returns the interpreter that has release 1.0, or skips the test
// for want of one.
func needRelease1(t *testing.T) string {
	t.Helper()
	interpreter := os.Getenv("AGL_TEST_PYTHON_1_0")
	if interpreter == "" {
		t.Skip("AGL_TEST_PYTHON_1_0 is not set: run AGL_TEST_PYTHON_1_0=$(bash test/interop/setup.sh release1/requirements.txt) go test ./test/interop")
	}
	programs, err := filepath.Glob("release1/*.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range programs {
		if _, err := os.Stat(name); err != nil { // so that a changed program makes a cached result void
			t.Fatal(err)
		}
	}
	return interpreter
}

// release1 returns a command of the interpreter that finds the modules of
// release1/. What it writes is shown when the test fails.
func release1(ctx context.Context, t *testing.T, interpreter string, arguments ...string) (*exec.Cmd, *buffer) {
	t.Helper()
	programs, err := filepath.Abs("release1")
	if err != nil {
		t.Fatal(err)
	}
	log := &buffer{}
	cmd := exec.CommandContext(ctx, interpreter, arguments...)
	cmd.Dir = t.TempDir() // where the controller leaves a folder of its own
	cmd.Env = append(os.Environ(), "PYTHONPATH="+programs, "PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=127.0.0.1,localhost")
	cmd.Stdout, cmd.Stderr = log, log
	t.Cleanup(func() {
		if t.Failed() {
			lines := strings.Split(log.String(), "\n")
			t.Logf("python %s wrote last:\n%s", strings.Join(arguments, " "), strings.Join(lines[max(0, len(lines)-100):], "\n"))
		}
	})
	return cmd, log
}

// runRelease1 runs a program of release1/ and decodes what its main returned. It
// may be used from any goroutine of a test.
func runRelease1(t *testing.T, interpreter, program string, arguments map[string]any, result any) error {
	request, err := json.Marshal(map[string]any{"program": program, "arguments": arguments})
	if err != nil {
		return err
	}
	run, err := filepath.Abs(filepath.Join("release1", "run.py"))
	if err != nil {
		return err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	ctx, cancel := context.WithTimeout(t.Context(), callLimit)
	defer cancel()
	cmd, _ := release1(ctx, t, interpreter, run)
	cmd.Stdin = bytes.NewReader(request)
	cmd.ExtraFiles = []*os.File{write}
	err = cmd.Start()
	_ = write.Close() // the program has its own
	if err != nil {
		return err
	}
	answer, err := io.ReadAll(read)
	if ended := cmd.Wait(); ended != nil {
		return fmt.Errorf("%s.main(%v): %w", program, arguments, errors.Join(ended, context.Cause(ctx)))
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(answer, result)
}

// control starts the controller of release 1.0, which runs agents as processes,
// and returns what ends it.
func control(t *testing.T, interpreter, url string, settings ...string) (stop func()) {
	t.Helper()
	arguments := append([]string{
		"-m", "agentlightning.controller", "runner_type=local", "agl_server.url=" + url, "agl_server.key=" + release1Key, "local_runner.poll_interval=0.2",
	}, settings...)
	cmd, _ := release1(context.WithoutCancel(t.Context()), t, interpreter, arguments...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("stop the controller: %v", err)
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("the controller ended with %v", err)
			}
		case <-time.After(30 * time.Second):
			_ = cmd.Process.Kill()
			t.Errorf("the controller did not end: %v", <-ended)
		}
	}
	t.Cleanup(stop)
	return stop
}

// eachRelease1Backend runs a test against `agl serve` on every backend.
func eachRelease1Backend(t *testing.T, test func(t *testing.T, python string, s *server, c *gateway.Client), flags ...string) {
	t.Helper()
	python := needRelease1(t)
	for _, backend := range []string{"memory", "sqlite"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			db := "memory:"
			if backend == "sqlite" {
				db = "sqlite:" + filepath.Join(t.TempDir(), "agl.db")
			}
			s := serve(t, db, append([]string{"--auth-token", release1Key, "--controlled-model", "policy"}, flags...)...)
			test(t, python, s, &gateway.Client{BaseURL: s.url, Token: release1Key})
		})
	}
}

func register(t *testing.T, c *gateway.Client, endpoint string) {
	t.Helper()
	if err := c.PutModels(t.Context(), agl.Model{Name: "policy", Endpoint: endpoint}); err != nil {
		t.Fatal(err)
	}
}

// ended waits until rollouts have ended, and returns them.
func ended(t *testing.T, c *gateway.Client, ids ...string) map[string]gateway.Rollout {
	t.Helper()
	out := map[string]gateway.Rollout{}
	limit := time.Now().Add(callLimit)
	for after := int64(0); len(out) < len(ids); {
		page, err := c.Terminal(t.Context(), after, 0, time.Until(limit))
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range page.Items {
			if slices.Contains(ids, item.RolloutID) {
				detail, err := c.Rollout(t.Context(), item.RolloutID)
				if err != nil {
					t.Fatal(err)
				}
				out[item.RolloutID] = detail.Rollout
			}
		}
		if page.NextAfter == after && time.Now().After(limit) {
			t.Fatalf("after %s only %d of %d rollouts have ended", callLimit, len(out), len(ids))
		}
		after = page.NextAfter
	}
	return out
}

// TestRelease1Controller has the controller of release 1.0 run its agents, good
// ones and bad ones, against our server.
func TestRelease1Controller(t *testing.T) {
	t.Parallel()
	eachRelease1Backend(t, func(t *testing.T, python string, s *server, c *gateway.Client) {
		controllerOutcomes(t, python, c, control, true)
		// Runners of release 0.3 were offered nothing, and see everything.
		if r := s.rollout(t, "solver"); r.Status != "succeeded" || r.Attempt == nil || r.Attempt.Status != "succeeded" {
			t.Errorf("the other protocol has %+v", r)
		}
		if spans := s.spans(t, "solver"); len(spans) != 4 {
			t.Errorf("the other protocol has %d spans, want 4", len(spans))
		}
	})
}

// TestOurController has ours do the same: the classes of release 1.0, against our
// server and against the one of release 1.0.
func TestOurController(t *testing.T) {
	t.Parallel()
	eachRelease1Backend(t, func(t *testing.T, python string, _ *server, c *gateway.Client) {
		controllerOutcomes(t, python, c, ownControl, true)
	})
	t.Run("the server of release 1.0", func(t *testing.T) {
		t.Parallel()
		python := needRelease1(t)
		c := serveRelease1(t, python)
		own := serve(t, "memory:")
		own.until(t, "the server of release 1.0 is there", func(ctx context.Context) (bool, error) { return c.Health(ctx) == nil, nil })
		controllerOutcomes(t, python, c, ownControl, false)
	})
}

// ownControl starts our controller as control starts the one of release 1.0.
func ownControl(t *testing.T, interpreter, url string, settings ...string) (stop func()) {
	t.Helper()
	programs, err := filepath.Abs("release1")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	python := filepath.Join(dir, "python")
	script := fmt.Sprintf("#!/bin/sh\nexport PYTHONPATH='%s' PYTHONDONTWRITEBYTECODE=1 NO_PROXY=127.0.0.1,localhost\nexec '%s' \"$@\"\n", programs, interpreter)
	if err := os.WriteFile(python, []byte(script), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	arguments := append([]string{
		"controller", "runner_type=local", "agl_server.url=" + url, "agl_server.key=" + release1Key, "local_runner.poll_interval=0.2",
		"--python", python, "--dir", dir, "--state-dir", filepath.Join(dir, "state"),
	}, settings...)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var log buffer
	status := make(chan int, 1)
	go func() { status <- cli.Run(ctx, arguments, &log, &log) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if got := <-status; got != 0 {
			t.Errorf("agl controller ended with %d: %s", got, log.String())
		}
	})
	t.Cleanup(stop)
	return stop
}

// controllerOutcomes has a controller run the agents of release 1.0. Streams are
// left out where the server refuses them.
func controllerOutcomes(t *testing.T, python string, c *gateway.Client, control func(t *testing.T, interpreter, url string, settings ...string) (stop func()), streams bool) {
	t.Helper()
	model := newVLLM(t, func(c conversation) reply { return reply{text: "It is 42, after " + c.said()} })
	register(t, c, model.url)
	local := func(class string, env map[string]string) *gateway.RolloutConfig {
		return &gateway.RolloutConfig{TimeoutSeconds: 30, Local: &gateway.LocalConfig{AgentClass: &class, EnvMap: env}}
	}
	env := map[string]string{"QUESTION": "input.question", "RESULT": "input.list.0", "LITERAL": "as it is", "WHOLE": "input"}
	sleep := local("agents:Sleep", nil)
	sleep.TimeoutSeconds = 1
	input := json.RawMessage(`{"question":"6*7?","list":[42],"é":1.0}`)
	reqs := []gateway.RolloutCreate{
		{RolloutID: "solver", Config: local("agents:Solver", env)},
		{RolloutID: "validation", Config: local("agents.Solver", env), IsTrain: new(false)},
		{RolloutID: "streamer", Config: local("agents:Streamer", env)},
		{RolloutID: "crash", Config: local("agents:Crash", nil)},
		{RolloutID: "leave", Config: local("agents:Leave", nil)},
		{RolloutID: "unknown", Config: local("agents:Nobody", nil)},
		{RolloutID: "classless", Config: &gateway.RolloutConfig{TimeoutSeconds: 30}},
		{RolloutID: "pathless", Config: local("agents:Solver", map[string]string{"X": "input.nothing"})},
		{RolloutID: "sleep", Config: sleep},
	}
	ids := make([]string, len(reqs))
	for i := range reqs {
		reqs[i].Input, ids[i] = input, reqs[i].RolloutID
	}
	if _, err := c.CreateRollouts(t.Context(), reqs...); err != nil {
		t.Fatal(err)
	}
	stop := control(t, python, c.BaseURL)
	got := ended(t, c, ids...)
	stop()
	type outcome struct {
		State   gateway.State
		Message string
		Attempt string
		Version int64
	}
	want := map[string]outcome{
		"solver":     {gateway.Succeeded, "", "0", 3},
		"validation": {gateway.Succeeded, "", "0", 3},
		"streamer":   {gateway.Succeeded, "", "0", 3},
		"crash":      {gateway.Failed, "subprocess exited with code 1", "0", 3},
		"leave":      {gateway.Failed, "subprocess exited with code 3", "0", 3},
		"unknown":    {gateway.Failed, "subprocess exited with code 1", "0", 3},
		"classless":  {gateway.Failed, "local subprocess spawn failed: invalid rollout config: missing config.local.agent_class", "", 2},
		"pathless":   {gateway.Failed, "local subprocess spawn failed: local.env_map path not found: input.nothing", "", 2},
		"sleep":      {gateway.Failed, "local subprocess timed out", "0", 3},
	}
	calls := map[string]int{"solver": 2, "streamer": 1}
	if !streams { // the call of the agent is refused
		want["streamer"], calls["streamer"] = want["crash"], 0
	}
	outcomes := map[string]outcome{}
	for id, r := range got {
		outcomes[id] = outcome{r.Status.State, orEmpty(r.Status.ErrorMessage), orEmpty(r.Status.LastAttemptID), r.Status.Version}
	}
	if diff := cmp.Diff(want, outcomes); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}

	done := model.until(t, 2*calls["solver"]+calls["streamer"])
	for _, id := range []string{"solver", "validation"} {
		events, err := c.Events(t.Context(), id, gateway.EventQuery{})
		if err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for _, e := range events {
			kinds = append(kinds, e.EventType)
		}
		if diff := cmp.Diff([]string{"model_request", "model_request", "note", "reward"}, kinds); diff != "" {
			t.Fatalf("events of %s (-want +got):\n%s", id, diff)
		}
		if got, want := string(events[2].Data), `{"said":"It is 42, after 6*7?","literal":"as it is","whole":"{\"question\": \"6*7?\", \"list\": [42], \"é\": 1.0}"}`; got != want {
			t.Errorf("note of %s is %s, want %s", id, got, want)
		}
		if got, want := string(events[3].Data), `{"value":1.0,"source":"agent"}`; got != want {
			t.Errorf("reward of %s is %s, want %s", id, got, want)
		}
	}
	for _, id := range []string{"solver", "streamer"} {
		requests := "model_request"
		triplets, err := c.Events(t.Context(), id, gateway.EventQuery{Triplets: true, Type: &requests})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range triplets {
			var data struct {
				Prompt   []int64   `json:"prompt_token_ids"`
				Response []int64   `json:"response_token_ids"`
				Logprobs []float64 `json:"response_log_probs"`
			}
			if err := json.Unmarshal(e.Data, &data); err != nil {
				t.Fatal(err)
			}
			exact := slices.ContainsFunc(done, func(g generation) bool {
				return slices.Equal(g.prompt, data.Prompt) && slices.Equal(g.sampled, data.Response) && slices.Equal(g.logprobs, data.Logprobs)
			})
			if !exact {
				t.Errorf("%s: the ids and log-probabilities %s are not those of a generation", id, e.Data)
			}
		}
		if len(triplets) != calls[id] {
			t.Errorf("%s has %d triplets, want %d", id, len(triplets), calls[id])
		}
	}
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// TestRelease1ControllerStops: what still runs is ended, and said to have failed.
func TestRelease1ControllerStops(t *testing.T) {
	t.Parallel()
	eachRelease1Backend(t, func(t *testing.T, python string, s *server, c *gateway.Client) {
		class := "agents:Sleep"
		_, err := c.CreateRollouts(t.Context(), gateway.RolloutCreate{
			RolloutID: "sleep", Config: &gateway.RolloutConfig{TimeoutSeconds: 600, Local: &gateway.LocalConfig{AgentClass: &class}},
		})
		if err != nil {
			t.Fatal(err)
		}
		stop := control(t, python, s.url)
		s.until(t, "the agent to run", func(context.Context) (bool, error) { return len(s.spans(t, "sleep")) > 0, nil })
		stop()
		r := ended(t, c, "sleep")["sleep"]
		if r.Status.State != gateway.Failed || orEmpty(r.Status.ErrorMessage) != "local controller shutdown" {
			t.Errorf("the rollout is %+v", r.Status)
		}
	})
}

// TestRelease1Trainer runs the trainer's side of a step, hooks included, while
// the controller runs the agents.
func TestRelease1Trainer(t *testing.T) {
	t.Parallel()
	eachRelease1Backend(t, func(t *testing.T, python string, s *server, _ *gateway.Client) {
		model := newVLLM(t, func(conversation) reply { return reply{text: "It is 42"} })
		control(t, python, s.url)
		var got struct {
			Completed [][]struct {
				State       string            `json:"rollout_state"`
				FinalReward *float64          `json:"final_reward"`
				Error       *string           `json:"error_message"`
				Metadata    map[string]any    `json:"metadata"`
				RunningAt   *float64          `json:"running_at"`
				Triplets    []release1Triplet `json:"triplets"`
				Events      []map[string]any  `json:"events"`
			}
			Hooks [][]any
			Left  int
		}
		err := runRelease1(t, python, "training", map[string]any{
			"url": s.url, "key": release1Key, "model": "policy", "endpoint": model.url,
			"questions": [][]any{{"6*7?", 42}, {"6*8?", 48}}, "agents": []string{"agents:Solver", "agents:Crash"},
		}, &got)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Completed) != 2 || len(got.Completed[0]) != 4 || len(got.Completed[1]) != 4 || len(got.Hooks) != 8 {
			t.Fatalf("completed %d, hooks %v, want two steps of four", len(got.Completed), got.Hooks)
		}
		if got.Left != 0 {
			t.Errorf("%d rollouts are left, want none: the trainer deletes what it read", got.Left)
		}
		done := model.until(t, 8)
		for i, r := range got.Completed[0] {
			if r.State != "succeeded" || r.FinalReward == nil || *r.FinalReward != 0.5 || r.Metadata["from"] != "hook" || len(r.Triplets) != 2 || len(r.Events) != 5 {
				t.Errorf("rollout %d is %+v, want it to succeed with the hook's reward, two triplets and five events", i, r)
				continue
			}
			for _, triplet := range r.Triplets {
				if !slices.ContainsFunc(done, func(g generation) bool {
					return slices.Equal(g.prompt, triplet.Prompt.TokenIDs) && slices.Equal(g.sampled, triplet.Response.TokenIDs) && slices.Equal(g.logprobs, triplet.Response.LogProbs)
				}) {
					t.Errorf("rollout %d: %+v is not what the model sampled", i, triplet)
				}
			}
			if last := r.Triplets[1].Reward; last == nil || *last != 0.5 {
				t.Errorf("rollout %d: the reward of the last turn is %v, want 0.5", i, last)
			}
		}
		for i, r := range got.Completed[1] {
			if r.State != "failed" || r.FinalReward == nil || *r.FinalReward != -1 || r.Error == nil || *r.Error != "subprocess exited with code 1" {
				t.Errorf("crashed rollout %d is %+v", i, r)
			}
		}
		for i, h := range got.Hooks {
			want := any([]any{"succeeded", []any{"0"}, []any{"model_request", "model_request", "note", "reward"}})
			if i >= 4 {
				want = []any{"failed", "subprocess exited with code 1"}
			}
			if diff := cmp.Diff(want, any(h)); diff != "" {
				t.Errorf("hook %d (-want +got):\n%s", i, diff)
			}
		}
	})
}

// release1Triplet is a turn as the trainer of release 1.0 has it.
type release1Triplet struct {
	Prompt struct {
		TokenIDs []int64 `json:"token_ids"`
	}
	Response struct {
		TokenIDs []int64   `json:"token_ids"`
		LogProbs []float64 `json:"log_probs"`
	}
	Reward *float64
}

// TestRelease1Pause: the official client of OpenAI, whose key is the server's,
// survives a pause of the trainer.
func TestRelease1Pause(t *testing.T) {
	t.Parallel()
	eachRelease1Backend(t, func(t *testing.T, python string, s *server, c *gateway.Client) {
		model := newVLLM(t, func(conversation) reply { return reply{text: "Yes"} })
		register(t, c, model.url)
		if _, err := c.CreateRollouts(t.Context(), gateway.RolloutCreate{RolloutID: "r"}); err != nil {
			t.Fatal(err)
		}
		var got struct {
			Before  string
			Paused  map[string]any
			Refused struct {
				Status  int
				Headers map[string]string
				Body    string
			}
			Early        int
			Answers      []string
			Resumed      map[string]any
			Unauthorised int
		}
		if err := runRelease1(t, python, "pausing", map[string]any{"url": s.url, "key": release1Key, "rollout": "r"}, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]any{"paused": true, "retry_after_seconds": 1.0, "reason": "weights", "inflight": 0.0}, got.Paused); diff != "" {
			t.Errorf("paused (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]any{"paused": false, "retry_after_seconds": 1.0, "reason": nil, "inflight": 0.0}, got.Resumed); diff != "" {
			t.Errorf("resumed (-want +got):\n%s", diff)
		}
		if r := got.Refused; r.Status != 429 || r.Headers["retry-after"] != "1" || r.Headers["x-agl-paused"] != "true" || r.Body != `{"error": "gateway paused", "reason": "weights"}` {
			t.Errorf("refused with %+v", r)
		}
		if got.Early != 0 || len(got.Answers) != 1 || got.Unauthorised != 401 {
			t.Errorf("answers %v, %d of them during the pause; without a key %d", got.Answers, got.Early, got.Unauthorised)
		}
		if done := model.until(t, 2); len(done) == 2 && len(got.Answers) == 1 {
			same := strings.NewReplacer(done[0].id, "ID", done[1].id, "ID")
			if same.Replace(got.Before) != same.Replace(got.Answers[0]) {
				t.Errorf("the answer after the pause is %s, before it was %s", got.Answers[0], got.Before)
			}
		}
		requests := "model_request"
		events, err := c.Events(t.Context(), "r", gateway.EventQuery{Type: &requests})
		if err != nil || len(events) != 2 {
			t.Errorf("%d model requests, %v, want the two that were answered", len(events), err)
		}
	})
}

// TestRelease1Completions reads the log of completions while rollouts end.
func TestRelease1Completions(t *testing.T) {
	t.Parallel()
	eachRelease1Backend(t, func(t *testing.T, python string, s *server, c *gateway.Client) {
		var got struct {
			Items    []gateway.TerminalItem
			After    int64
			Requests int
		}
		done := make(chan error, 1)
		go func() {
			done <- runRelease1(t, python, "reading", map[string]any{"url": s.url, "key": release1Key, "until": 6}, &got)
		}()
		want := []gateway.TerminalItem{}
		for i := range 5 {
			id := fmt.Sprintf("r-%d", i)
			_, err := c.CreateRollouts(t.Context(), gateway.RolloutCreate{RolloutID: id, Input: json.RawMessage(`{"data_id":` + strconv.Itoa(i+1) + `}`)})
			if err == nil {
				_, err = c.PatchRollout(t.Context(), id, gateway.StatusPatch{State: gateway.Failed})
			}
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, gateway.TerminalItem{RolloutID: id, State: gateway.Failed, DataID: strconv.Itoa(i + 1), IsTrain: true})
		}
		// A rollout of the other protocol is in the log, too.
		at := s.claimed(t)
		_, err := s.client.UpdateAttempt(t.Context(), at["rollout_id"], at["attempt_id"], store.AttemptUpdate{Status: store.To(agl.AttemptSucceeded)})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, gateway.TerminalItem{RolloutID: at["rollout_id"], State: gateway.Succeeded, IsTrain: true})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.Items); diff != "" || got.After != 6 {
			t.Errorf("log up to %d (-want +got):\n%s", got.After, diff)
		}
	})
}

// TestRelease1Server: our client speaks to the server of release 1.0 as to ours.
func TestRelease1Server(t *testing.T) {
	t.Parallel()
	c := serveRelease1(t, needRelease1(t))
	own := serve(t, "memory:", "--auth-token", release1Key, "--controlled-model", "policy")
	own.until(t, "the server of release 1.0 is there", func(ctx context.Context) (bool, error) { return c.Health(ctx) == nil, nil })
	model := newVLLM(t, func(conversation) reply { return reply{text: "Yes"} })
	theirs, ours := lifeOf(t, c, model.url), lifeOf(t, &gateway.Client{BaseURL: own.url, Token: release1Key}, model.url)
	if diff := cmp.Diff(theirs, ours); diff != "" {
		t.Errorf("answers of the two servers (-theirs +ours):\n%s", diff)
	}
	if len(theirs) < 15 {
		t.Errorf("only %d answers", len(theirs))
	}
}

// serveRelease1 starts the server of release 1.0; it may take a while to answer.
func serveRelease1(t *testing.T, python string) *gateway.Client {
	t.Helper()
	port := freePort(t)
	cmd, _ := release1(context.WithoutCancel(t.Context()), t, python,
		"-m", "agentlightning.server", "host=127.0.0.1", "port="+port, "key="+release1Key, "default_proxy.model_name=policy")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	return &gateway.Client{BaseURL: "http://127.0.0.1:" + port, Token: release1Key}
}

// lifeOf takes a rollout through its life and returns what the client got to
// know, without times.
func lifeOf(t *testing.T, c *gateway.Client, endpoint string) []string {
	t.Helper()
	ctx := t.Context()
	var got []string
	times := regexp.MustCompile(`"(created_at|updated_at|timestamp|latency_ms)":[0-9.e+-]+|chatcmpl-[^"]*`)
	note := func(v any, err error) {
		t.Helper()
		text, failed := json.Marshal(v)
		if failed != nil {
			t.Fatal(failed)
		}
		if err != nil {
			text = []byte(err.Error())
		}
		got = append(got, times.ReplaceAllString(string(text), "…"))
	}
	note(nil, c.DeleteModels(ctx, ""))
	note(nil, c.PutModels(ctx, agl.Model{Name: "policy", Endpoint: endpoint}))
	class, attempt := "m:C", new("0")
	made, err := c.CreateRollouts(ctx, gateway.RolloutCreate{
		RolloutID: "r", Input: json.RawMessage(`{"q":1.0}`), Metadata: json.RawMessage(`{"batch_idx":1}`),
		Config: &gateway.RolloutConfig{TimeoutSeconds: 7, Local: &gateway.LocalConfig{AgentClass: &class}},
	})
	note(made, err)
	listed, err := c.Rollouts(ctx, 0, gateway.Queuing)
	note(listed, err)
	_, err = c.Rollouts(ctx, 0)
	note(nil, err)
	_, err = c.PatchRollout(ctx, "r", gateway.StatusPatch{State: gateway.Succeeded})
	note(nil, err)
	r, err := c.PatchRollout(ctx, "r", gateway.StatusPatch{State: gateway.Running, LastAttemptID: &attempt})
	note(r, err)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.OpenAIBaseURL("r", "0", "val")+"/chat/completions",
		strings.NewReader(`{"messages":[{"role":"user","content":"Are you there?"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.Token)
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	note(res.StatusCode, nil)
	e, err := c.PostEvent(ctx, "r", "0", "reward", json.RawMessage(`{"value":1,"note":"é"}`))
	note(e, err)
	_, err = c.PostEvent(ctx, "nobody", "0", "reward", nil)
	note(nil, err)
	for _, q := range []gateway.EventQuery{{}, {Triplets: true}, {Type: new("reward")}, {Triplets: true, WithoutRoutedExperts: true}} {
		events, err := c.Events(ctx, "r", q)
		note(events, err)
	}
	r, err = c.PatchRollout(ctx, "r", gateway.StatusPatch{State: gateway.Succeeded})
	note(r, err)
	detail, err := c.Rollout(ctx, "r")
	note(detail, err)
	page, err := c.Terminal(ctx, 0, 0, 0)
	note(page, err)
	after := int64(2)
	state, err := c.Pause(ctx, gateway.PauseRequest{RetryAfterSeconds: &after, Reason: new("weights")})
	note(state, err)
	state, err = c.ProxyState(ctx, 0)
	note(state, err)
	state, err = c.Resume(ctx, "")
	note(state, err)
	note(nil, c.DeleteRollout(ctx, "r"))
	_, err = c.Rollout(ctx, "r")
	note(nil, err)
	return got
}
