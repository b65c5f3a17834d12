package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/examples/internal/lesson"
	"agentlightning/store"
	"agentlightning/store/memory"

	"agentlightning/examples/smollm/compose"
	"agentlightning/examples/smollm/engine"
)

func needModel(t *testing.T) {
	t.Helper()
	if os.Getenv(folderVariable) == "" {
		t.Skip("AGL_SMOLLM is not set: run AGL_SMOLLM=$(bash setup.sh) go test ./...")
	}
}

// The spans that the proxy makes of calls hold exactly the ids that the engine
// read and sampled, with their log-probabilities, whichever way the agent asks.
func TestProxyHasExactIDs(t *testing.T) {
	needModel(t)
	o := options{threads: 1, context: 256}
	b, err := o.start(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	site, err := lesson.OpenSite(t.Context(), 0, memory.New(), []agl.Model{{Name: name, Endpoint: b.url}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := site.Close(); err != nil {
			t.Error(err)
		}
		if err := b.close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	const seed, limit = 7, 10
	question := "Tell a story about a 🦊 in the Café."
	prompt, err := b.engine.Prompt([]engine.Message{{Role: "user", Content: question}})
	if err != nil {
		t.Fatal(err)
	}
	for kind, tt := range map[string]struct{ path, body string }{
		"whole":    {"/v1/chat/completions", `{"model":%q,"messages":[{"role":"user","content":%q}],"seed":7,"max_tokens":10}`},
		"streamed": {"/v1/chat/completions", `{"model":%q,"messages":[{"role":"user","content":%q}],"seed":7,"max_tokens":10,"stream":true}`},
		"greedy":   {"/v1/chat/completions", `{"model":%q,"messages":[{"role":"user","content":%q}],"temperature":0,"max_tokens":10}`},
		"Messages": {"/v1/messages", `{"model":%q,"messages":[{"role":"user","content":%q}],"temperature":0,"max_tokens":10,"stream":true}`},
	} {
		t.Run(kind, func(t *testing.T) {
			input, err := json.Marshal(kind)
			if err != nil {
				t.Fatal(err)
			}
			r, err := site.Store.StartRollout(t.Context(), store.StartRequest{EnqueueRequest: store.EnqueueRequest{Input: input}})
			if err != nil {
				t.Fatal(err)
			}
			url := fmt.Sprintf("%s/rollout/%s/attempt/%s%s", site.URL, r.RolloutID, r.Attempt.AttemptID, tt.path)
			answer, err := http.Post(url, "application/json", strings.NewReader(fmt.Sprintf(tt.body, name, question)))
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			text, err := io.ReadAll(answer.Body)
			if err != nil || answer.StatusCode != http.StatusOK {
				t.Fatalf("%s, %v: %s", answer.Status, err, text)
			}
			page, err := site.Store.QuerySpans(t.Context(), store.SpanQuery{RolloutID: r.RolloutID})
			if err != nil {
				t.Fatal(err)
			}
			calls, err := adapter.Calls(page.Items)
			if err != nil || len(calls) != 1 || !calls[0].Usable() {
				t.Fatalf("%d calls, %v: %+v", len(calls), err, calls)
			}
			ask := engine.Request{Prompt: prompt, MaxTokens: limit}
			if kind == "whole" || kind == "streamed" {
				ask.Temperature, ask.Seed = 1, seed
			}
			var want []engine.Token
			if _, err := b.engine.Generate(t.Context(), ask, func(tok engine.Token) error { want = append(want, tok); return nil }); err != nil {
				t.Fatal(err)
			}
			c := calls[0]
			if !slices.EqualFunc(c.PromptIDs, prompt, func(a int32, b int64) bool { return int64(a) == b }) {
				t.Errorf("prompt ids are %v, the engine read %v", c.PromptIDs, prompt)
			}
			if len(c.ResponseIDs) != len(want) || len(c.Logprobs) != len(want) {
				t.Fatalf("%d ids and %d log-probabilities, the engine sampled %d tokens", len(c.ResponseIDs), len(c.Logprobs), len(want))
			}
			for i, tok := range want {
				// The engine computes again, now with the prompt in memory; that
				// changes the last digits.
				if int64(c.ResponseIDs[i]) != tok.ID || math.Abs(float64(c.Logprobs[i])-tok.Logprob) > 0.05 {
					t.Errorf("token %d is %d with %g, the engine sampled %d with %g", i, c.ResponseIDs[i], c.Logprobs[i], tok.ID, tok.Logprob)
				}
			}
		})
	}
}

// A short search, from beginning to end.
func TestOptimize(t *testing.T) {
	needModel(t)
	file := filepath.Join(t.TempDir(), "report.json")
	var out bytes.Buffer
	err := run(t.Context(), []string{"optimize", "--threads", "1", "--budget", "80", "--val", "10", "--test", "10", "--report", file}, &out)
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var f figures
	if err := json.Unmarshal(raw, &f); err != nil {
		t.Fatal(err)
	}
	if f.Spent == 0 || f.Spent > 80 || f.Proposed == 0 || f.Calls != f.Spent+2*(10+10) || f.After.Validation < f.Before.Validation {
		t.Errorf("figures are %+v\n%s", f, &out)
	}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := run(t.Context(), []string{"help"}, &out); err != nil || !strings.Contains(out.String(), "optimize") {
		t.Errorf("help: %v, %q", err, &out)
	}
	for _, args := range [][]string{nil, {"x"}, {"serve", "x"}, {"optimize", "--val", "31"}} {
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}

// Seeds divide the texts differently, and no town is in two parts.
func TestDivide(t *testing.T) {
	t.Parallel()
	var orders []string
	for seed := range int64(2) {
		s := study{figures: figures{Seed: seed}}
		if err := s.divide(); err != nil {
			t.Fatal(err)
		}
		seen := map[string]int{}
		for part, tasks := range [][]json.RawMessage{s.train, s.val, s.test} {
			if want := []int{trainSize, valSize, testSize}[part]; len(tasks) != want {
				t.Errorf("part %d has %d tasks, want %d", part, len(tasks), want)
			}
			for _, raw := range tasks {
				var task compose.Task
				if err := json.Unmarshal(raw, &task); err != nil || !strings.Contains(task.Text, task.Town) {
					t.Fatalf("%v: %s", err, raw)
				}
				if other, ok := seen[task.Town]; ok && other != part {
					t.Errorf("%s is in two parts", task.Town)
				}
				seen[task.Town] = part
			}
		}
		orders = append(orders, string(s.test[0]))
	}
	if orders[0] == orders[1] {
		t.Error("two seeds divide alike")
	}
}
