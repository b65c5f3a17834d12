package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/agent"
	"agentlightning/algorithm"
	"agentlightning/algorithm/baseline"
	"agentlightning/emit"
	"agentlightning/runner"
	"agentlightning/semconv"
)

// question is a task of training.py.
type question struct{ Question, Answer string }

// solver does in Go what answer() in training.py does.
var solver = agent.New(func(ctx context.Context, q question, c *agent.Call) (float64, error) {
	llm, err := c.LLM("")
	if err != nil {
		return 0, err
	}
	said, err := ask(ctx, llm, llm.Model+": "+q.Question)
	if err != nil {
		return 0, err
	}
	if err := emit.Message(ctx, said); err != nil || said != q.Answer {
		return 0, err
	}
	return 1, nil
})

// ask asks the model and returns what it said.
func ask(ctx context.Context, llm agl.LLM, text string) (string, error) {
	body, err := json.Marshal(map[string]any{"model": llm.Model, "messages": []map[string]string{{"role": "user", "content": text}}})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, llm.Endpoint+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	var answer struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.Unmarshal(raw, &answer); err != nil || resp.StatusCode != http.StatusOK || len(answer.Choices) == 0 {
		return "", fmt.Errorf("the model answered %d %s", resp.StatusCode, raw)
	}
	return answer.Choices[0].Message.Content, nil
}

// TestPythonAlgorithmGoRunners has Python's Baseline use an agent written in Go.
func TestPythonAlgorithmGoRunners(t *testing.T) {
	t.Parallel()
	needPython(t)
	m := newVLLM(t, calculator)
	eachBackend(t, func(t *testing.T, s *server) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		for i := range 2 {
			r, err := runner.New(runner.Config{Store: s.client, Agent: solver, WorkerID: fmt.Sprintf("Worker-%d", i)})
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				if err := r.Run(ctx); err != nil {
					t.Errorf("runner %d: %v", i, err)
				}
			})
		}
		var triplets map[string][]triplet
		call(t, "training", map[string]any{
			"algorithm": "baseline", "url": s.url, "strategy": "cs", "options": map[string]any{"role": "algorithm", "managed_store": false},
		}, &triplets)
		checkBaseline(t, s, m, triplets, semconv.SpanModelCall, message, annotation)
	}, "--model", "agent="+m.url)
}

// TestGoAlgorithmPythonRunners has the Baseline of this module use an agent
// written in Python.
func TestGoAlgorithmPythonRunners(t *testing.T) {
	t.Parallel()
	needPython(t)
	m := newVLLM(t, calculator)
	eachBackend(t, func(t *testing.T, s *server) {
		var wg sync.WaitGroup
		var failed error
		wg.Go(func() {
			var nothing map[string][]triplet
			failed = python.driver.call(t, "training", map[string]any{
				"algorithm": "baseline", "url": s.url, "max_rollouts": 4, "strategy": "cs",
				"options": map[string]any{"role": "runner", "n_runners": 2, "managed_store": false},
			}, &nothing)
		})
		var tasks []json.RawMessage
		for n := range 8 {
			tasks = append(tasks, fmt.Appendf(nil, `{"question":"%d+%d?","answer":"%d"}`, n, n, 2*n))
		}
		b := baseline.New(baseline.Config{})
		err := b.Run(t.Context(), algorithm.Env{
			Store: s.client, Train: tasks[:6], Val: tasks[6:], Logger: slog.New(slog.DiscardHandler),
			InitialResources: agl.NamedResources{{Name: "llm", Resource: agl.ProxyLLM{Endpoint: s.url + "/v1", Model: "agent"}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if failed != nil {
			t.Fatal(failed)
		}
		results := b.Report()
		if len(results) != 8 {
			t.Fatalf("%d results, want 8", len(results))
		}
		for _, r := range results {
			calls, err := adapter.Calls(r.Spans)
			if err != nil || r.Rollout.Status != agl.RolloutSucceeded || r.Reward == nil || *r.Reward != 1 || len(calls) != 1 || !calls[0].Usable() {
				t.Fatalf("result of %s task %d is %+v with calls %+v (%v), want a success with one call to train on", r.Mode, r.Index, r.Outcome, calls, err)
			}
			if text, _, err := emit.MessageOf(&r.Spans[0]); err != nil || !strings.Contains(text, "in process") {
				t.Errorf("the agent wrote %q (%v), want the message of the Python one", text, err)
			}
		}
	}, "--model", "agent="+m.url)
}
