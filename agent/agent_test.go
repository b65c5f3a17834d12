package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/agent"
)

type task struct {
	Question string `json:"question"`
	Limits   struct {
		Turns int `json:"turns"`
	} `json:"limits"`
}

var (
	proxy  = agl.NamedResource{Name: "policy", Resource: agl.ProxyLLM{Endpoint: "http://127.0.0.1:4747/v1/", Model: "m"}}
	direct = agl.NamedResource{Name: "judge", Resource: agl.LLM{Endpoint: "http://judge/v1", Model: "j"}}
	prompt = agl.NamedResource{Name: "instruction", Resource: agl.PromptTemplate{Template: "Hi {name}", Engine: "f-string"}}
)

func call(input string, mode agl.Mode, resources ...agl.NamedResource) *agent.Call {
	return &agent.Call{
		Rollout: agl.AttemptedRollout{
			Rollout: agl.Rollout{RolloutID: "ro-1", Input: json.RawMessage(input), Mode: mode},
			Attempt: &agl.Attempt{RolloutID: "ro-1", AttemptID: "at-1"},
		},
		Resources: resources,
	}
}

func TestWithLLM(t *testing.T) {
	t.Parallel()
	var got agl.LLM
	a := agent.WithLLM(func(_ context.Context, tk task, llm agl.LLM) (float64, error) {
		got = llm
		return float64(tk.Limits.Turns), nil
	})
	r, err := a.Run(t.Context(), call(`{"limits":{"turns":3}}`, "", prompt, proxy, direct))
	if err != nil || r.Reward == nil || *r.Reward != 3 {
		t.Errorf("Run() = %+v, %v", r, err)
	}
	want := agl.LLM{Endpoint: "http://127.0.0.1:4747/rollout/ro-1/attempt/at-1/v1", Model: "m"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the first model, routed (-want +got):\n%s", diff)
	}
}

func TestResourcesByName(t *testing.T) {
	t.Parallel()
	c := call(`{}`, "", proxy, direct, prompt)
	if llm, err := c.LLM("judge"); err != nil || llm.Model != "j" || llm.Endpoint != "http://judge/v1" {
		t.Errorf("LLM(judge) = %+v, %v", llm, err)
	}
	if p, err := c.Prompt("instruction"); err != nil || p.Template != "Hi {name}" {
		t.Errorf("Prompt(instruction) = %+v, %v", p, err)
	}
	_, err := c.LLM("other")
	want := `the agent needs a model named "other"; the rollout's resources hold policy (proxy_llm), judge (llm), instruction (prompt_template)`
	if err == nil || err.Error() != want {
		t.Errorf("LLM(other): %v\nwant: %s", err, want)
	}
	if _, err := c.Prompt("policy"); err == nil {
		t.Error("Prompt(policy) returns a model")
	}
}

func TestAgentLLM(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		resource agl.NamedResource
		agent    string
		want     string
	}{
		{proxy, "the planner", "http://127.0.0.1:4747/rollout/ro-1/attempt/at-1/agent/the%20planner/v1"},
		{proxy, "a/b", "http://127.0.0.1:4747/rollout/ro-1/attempt/at-1/agent/a%2Fb/v1"},
		{proxy, "", "http://127.0.0.1:4747/rollout/ro-1/attempt/at-1/v1"},
		{direct, "planner", direct.Resource.(agl.LLM).Endpoint},
	} {
		if llm, err := call(`{}`, "", tt.resource).AgentLLM(tt.agent, ""); err != nil || llm.Endpoint != tt.want {
			t.Errorf("AgentLLM(%q) = %q, %v, want %q", tt.agent, llm.Endpoint, err, tt.want)
		}
	}
	if _, err := call(`{}`, "").AgentLLM("a", "m"); err == nil {
		t.Error("AgentLLM without resources has no error")
	}
}

func TestOutputs(t *testing.T) {
	t.Parallel()
	spans, cores := []agl.Span{{Name: "s"}}, []agl.SpanCore{{Name: "c"}}
	tests := []struct {
		name  string
		agent agent.Agent
		want  agent.Result
	}{
		{"reward", agent.New(func(context.Context, task, *agent.Call) (float64, error) { return 0.5, nil }), agent.Reward(0.5)},
		{"spans", agent.New(func(context.Context, task, *agent.Call) ([]agl.Span, error) { return spans, nil }), agent.Result{Spans: spans}},
		{"cores", agent.WithPrompt(func(context.Context, task, agl.PromptTemplate) ([]agl.SpanCore, error) { return cores, nil }), agent.Result{Cores: cores}},
		{"result", agent.New(func(context.Context, task, *agent.Call) (agent.Result, error) { return agent.Result{}, nil }), agent.Result{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := tt.agent.Run(t.Context(), call(`{}`, "", prompt))
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("Run() error %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestTaskThatDoesNotFit(t *testing.T) {
	t.Parallel()
	a := agent.New(func(context.Context, task, *agent.Call) (float64, error) {
		t.Error("the agent is called")
		return 0, nil
	})
	for input, want := range map[string]string{
		`{"limits":{"turns":"three"}}`: `task of rollout ro-1: field "limits.turns": a JSON string does not fit int`,
		`7`:                            `task of rollout ro-1: the task itself: a JSON number does not fit agent_test.task`,
		`{`:                            `task of rollout ro-1: unexpected end of JSON input`,
	} {
		_, err := a.Run(t.Context(), call(input, ""))
		if _, ok := errors.AsType[*agent.TaskError](err); !ok || err.Error() != want {
			t.Errorf("Run(%s): %v\nwant: %s", input, err, want)
		}
	}
	// A task that the agent reads itself is not decoded.
	whole := agent.New(func(_ context.Context, raw json.RawMessage, _ *agent.Call) (float64, error) {
		return float64(len(raw)), nil
	})
	if r, err := whole.Run(t.Context(), call(`[1, 2]`, "")); err != nil || *r.Reward != 6 {
		t.Errorf("Run() = %+v, %v", r, err)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	plain := agent.New(func(context.Context, task, *agent.Call) (float64, error) { return 0, nil })
	both := agent.Requiring(agent.WithLLM(func(context.Context, task, agl.LLM) (float64, error) { return 0, nil }), agent.NeedPrompt("instruction"))
	modes := agent.ByMode{Train: both, Eval: plain}
	tests := []struct {
		name  string
		agent agent.Agent
		call  *agent.Call
		want  string // part of the error; empty means that it fits
	}{
		{"needs nothing", plain, call(`{}`, ""), ""},
		{"fits", both, call(`{}`, "", direct, prompt), ""},
		{"proxy is a model", both, call(`{}`, "", proxy, prompt), ""},
		{"both missing", both, call(`{}`, ""), `needs a model and a prompt template named "instruction"; the rollout's resources hold nothing`},
		{"one missing", both, call(`{}`, "", proxy), `needs a prompt template named "instruction"; the rollout's resources hold policy (proxy_llm)`},
		{"by mode, training", modes, call(`{}`, agl.ModeTrain), "needs a model"},
		{"by mode, validation", modes, call(`{}`, agl.ModeVal), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := agent.Check(tt.agent, tt.call)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("Check() = %v, want %q", err, tt.want)
			}
		})
	}
	id := "rs-1"
	c := call(`{}`, "")
	c.Rollout.ResourcesID = &id
	if err := agent.Check(both, c); err == nil || !strings.Contains(err.Error(), "resources rs-1 hold nothing") {
		t.Errorf("Check() = %v, want the id of the resources", err)
	}
}

func TestByMode(t *testing.T) {
	t.Parallel()
	say := func(v float64) agent.Agent {
		return agent.New(func(context.Context, task, *agent.Call) (float64, error) { return v, nil })
	}
	a := agent.ByMode{Train: say(1), Eval: say(2)}
	for mode, want := range map[agl.Mode]float64{agl.ModeTrain: 1, agl.ModeVal: 2, agl.ModeTest: 2, "": 2} {
		if r, err := a.Run(t.Context(), call(`{}`, mode)); err != nil || *r.Reward != want {
			t.Errorf("mode %q: %v, %v, want %v", mode, *r.Reward, err, want)
		}
	}
}
