package adapter_test

import (
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/rl"
	"agentlightning/semconv"
)

// proxied is a good call as the proxy records it.
func proxied(seq int64, prompt, response []int64, kv ...any) agl.Span {
	s := call(seq, append([]any{
		semconv.CallBackend, "http://b", semconv.PromptTokenIDs, prompt, semconv.ResponseTokenIDs, response,
		semconv.ResponseLogprobs, make([]float64, len(response)),
	}, kv...)...)
	s.SpanID = "call-" + string(rune('0'+seq))
	return s
}

func under(parent string, s agl.Span) agl.Span {
	s.ParentID = &parent
	return s
}

func TestExplain(t *testing.T) {
	t.Parallel()
	good := adapter.Circumstances{AttemptID: "at", Number: 1, Status: agl.AttemptSucceeded, Rollout: agl.RolloutSucceeded}
	but := func(change func(*adapter.Circumstances)) adapter.Circumstances {
		c := good
		change(&c)
		return c
	}
	a, b := []int64{1, 2}, []int64{3}
	one := []agl.Span{proxied(1, a, b), reward(9, 1)}
	tests := []struct {
		name    string
		spans   []agl.Span
		at      adapter.Circumstances
		how     adapter.ExplainConfig
		reasons []string // of the calls; "" is used
		attempt string   // reason of the attempt
		rows    int
	}{
		{"used", one, good, adapter.ExplainConfig{}, []string{""}, "", 1},
		{"no token ids", []agl.Span{call(1, semconv.CallBackend, "b", semconv.CallProblem, "token_ids_missing"), reward(2, 1)}, good, adapter.ExplainConfig{}, []string{"token_ids_missing"}, "", 0},
		{"ids incomplete", []agl.Span{proxied(1, a, nil), reward(2, 1)}, good, adapter.ExplainConfig{}, []string{"token_ids_incomplete"}, "", 0},
		{"a failed call beside a good one", []agl.Span{proxied(1, a, b), proxied(2, a, b, semconv.CallProblem, "cancelled"), reward(3, 1)}, good, adapter.ExplainConfig{}, []string{"", "cancelled"}, "", 1},
		{"a call for which there was no backend", []agl.Span{proxied(1, a, b), call(2, semconv.CallProblem, "upstream_error"), reward(3, 1)}, good, adapter.ExplainConfig{}, []string{"", "upstream_error"}, "", 1},
		{"no reward", one[:1], good, adapter.ExplainConfig{}, []string{"no_reward"}, "no_reward", 0},
		{"reward is no number", []agl.Span{one[0], reward(2, math.NaN())}, good, adapter.ExplainConfig{}, []string{"reward_not_finite"}, "reward_not_finite", 0},
		{"reward is infinite", []agl.Span{one[0], reward(2, math.Inf(-1))}, good, adapter.ExplainConfig{}, []string{"reward_not_finite"}, "reward_not_finite", 0},
		{
			"reward cannot be read",
			[]agl.Span{one[0], {Name: semconv.SpanAnnotation, SequenceID: 2, Attributes: attrs("agentlightning.reward.0.name", "x")}},
			good,
			adapter.ExplainConfig{},
			[]string{"reward_unreadable"},
			"reward_unreadable", 0,
		},
		{"zero is a reward", []agl.Span{one[0], reward(2, 0)}, good, adapter.ExplainConfig{}, []string{""}, "", 1},
		{"failed attempt", one, but(func(c *adapter.Circumstances) { c.Status, c.Rollout = agl.AttemptFailed, agl.RolloutFailed }), adapter.ExplainConfig{}, []string{"attempt_failed"}, "attempt_failed", 0},
		{"silent to the end", one, but(func(c *adapter.Circumstances) { c.Status, c.Rollout = agl.AttemptUnresponsive, agl.RolloutFailed }), adapter.ExplainConfig{}, []string{"attempt_failed"}, "attempt_failed", 0},
		{"a failure is kept", one, but(func(c *adapter.Circumstances) { c.Status, c.Rollout = agl.AttemptFailed, agl.RolloutFailed }), adapter.ExplainConfig{OnFailure: rl.KeepFailed}, []string{""}, "", 1},
		{"a failure without a reward", one[:1], but(func(c *adapter.Circumstances) { c.Status, c.Rollout = agl.AttemptFailed, agl.RolloutFailed }), adapter.ExplainConfig{OnFailure: rl.KeepFailed}, []string{"no_reward"}, "no_reward", 0},
		{"a failure is a zero", one[:1], but(func(c *adapter.Circumstances) { c.Status, c.Rollout = agl.AttemptTimeout, agl.RolloutFailed }), adapter.ExplainConfig{OnFailure: rl.ZeroFailed}, []string{""}, "", 1},
		{"without a reward it is worth 0", one[:1], good, adapter.ExplainConfig{OnFailure: rl.ZeroFailed}, []string{""}, "", 1},
		{"running is no failure", one, but(func(c *adapter.Circumstances) { c.Status, c.Rollout = agl.AttemptRunning, agl.RolloutRunning }), adapter.ExplainConfig{OnFailure: rl.ZeroFailed}, []string{"attempt_open"}, "attempt_open", 0},
		{"still running", one, but(func(c *adapter.Circumstances) { c.Status, c.Rollout = agl.AttemptRunning, agl.RolloutRunning }), adapter.ExplainConfig{}, []string{"attempt_open"}, "attempt_open", 0},
		{"superseded", one, but(func(c *adapter.Circumstances) { c.Superseded = true }), adapter.ExplainConfig{}, []string{"attempt_superseded"}, "attempt_superseded", 0},
		{"cancelled rollout", one, but(func(c *adapter.Circumstances) { c.Rollout = agl.RolloutCancelled }), adapter.ExplainConfig{}, []string{"rollout_not_success"}, "rollout_not_success", 0},
		{
			"its own problem comes before that of the attempt",
			[]agl.Span{call(1, semconv.CallProblem, "truncated")},
			good,
			adapter.ExplainConfig{},
			[]string{"truncated"},
			"no_reward", 0,
		},
		{
			"the agent's tracer saw it too",
			[]agl.Span{call(1, semconv.GenAIResponseID, "x"), proxied(2, a, b, semconv.GenAIResponseID, "x"), reward(3, 1)},
			good,
			adapter.ExplainConfig{},
			[]string{"duplicate", ""},
			"", 1,
		},
		{
			"another tracer saw it without an id",
			[]agl.Span{{Name: "ChatCompletion", SequenceID: 1, Attributes: attrs("openinference.span.kind", "LLM")}, proxied(2, a, b), reward(3, 1)},
			good,
			adapter.ExplainConfig{},
			[]string{"duplicate", ""},
			"", 1,
		},
		{
			"only another tracer saw it",
			[]agl.Span{{Name: "chat gpt-4o", SequenceID: 1, Attributes: attrs("gen_ai.operation.name", "chat")}, reward(3, 1)},
			good,
			adapter.ExplainConfig{},
			[]string{"token_ids_missing"},
			"", 0,
		},
		{
			"the companion of the proxy's span",
			[]agl.Span{
				proxied(1, a, b),
				under("call-1", agl.Span{Name: "raw_gen_ai_request", SequenceID: 1, Attributes: attrs("llm.hosted_vllm.prompt_token_ids", "[1, 2]", "llm.hosted_vllm.choices", "[{'token_ids': [3]}]")}),
				reward(3, 1),
			},
			good,
			adapter.ExplainConfig{},
			[]string{"", "duplicate"},
			"", 1,
		},
		{
			"LiteLLM's pair of spans",
			[]agl.Span{
				{Name: "litellm_request", SequenceID: 1, Attributes: attrs(semconv.GenAIResponseID, "x")},
				{Name: "raw_gen_ai_request", SequenceID: 1, Attributes: attrs("llm.hosted_vllm.id", "x", "llm.hosted_vllm.prompt_token_ids", "[1, 2]", "llm.hosted_vllm.choices", "[{'token_ids': [3]}]")},
				reward(3, 1),
			},
			good,
			adapter.ExplainConfig{LogprobsOptional: true},
			[]string{"duplicate", ""},
			"", 1,
		},
		{
			"agents that are not trained",
			[]agl.Span{
				{SpanID: "planner", Name: "planner.agent", SequenceID: 8, Attributes: attrs("agent.name", "planner")},
				under("planner", proxied(1, a, b)), proxied(2, []int64{8}, b, semconv.GenAIAgentName, "coder"), proxied(3, []int64{9}, b), reward(4, 1),
			},
			good,
			adapter.ExplainConfig{Agent: regexp.MustCompile("^cod")},
			[]string{"agent_filtered", "", "agent_filtered"},
			"", 1,
		},
		{
			"a row without log-probabilities",
			[]agl.Span{proxied(1, a, b), call(2, semconv.PromptTokenIDs, []int64{1, 2, 3, 4}, semconv.ResponseTokenIDs, []int64{5}), proxied(3, []int64{7}, b), reward(4, 1)},
			good,
			adapter.ExplainConfig{},
			[]string{"logprobs_missing", "logprobs_missing", ""},
			"", 1,
		},
		{
			"log-probabilities are computed again",
			[]agl.Span{call(1, ids...), reward(2, 1)},
			good,
			adapter.ExplainConfig{LogprobsOptional: true},
			[]string{""},
			"", 1,
		},
		{
			"limits",
			[]agl.Span{proxied(1, a, b), proxied(2, []int64{1, 2, 3, 4}, []int64{5}), proxied(3, []int64{7, 7, 7}, b), reward(4, 1)},
			good,
			adapter.ExplainConfig{TrajectoryConfig: adapter.TrajectoryConfig{Limits: adapter.Limits{Prompt: 2, Response: 2}}},
			[]string{"", "response_cut", "prompt_too_long"},
			"", 1,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var r adapter.Recording
			for i := range tt.spans { // a page of one each
				r.Add(tt.spans[i])
			}
			e := r.Explain(tt.at, tt.how)
			var got []string
			for _, c := range e.Calls {
				if c.Used != (c.Reason == "") || c.Reason != "" && c.Detail == "" && c.Reason != "token_ids_missing" && c.Reason != "cancelled" && c.Reason != "truncated" {
					t.Errorf("call %d: used %v, reason %q, detail %q", c.SequenceID, c.Used, c.Reason, c.Detail)
				}
				got = append(got, c.Reason)
			}
			if diff := cmp.Diff(tt.reasons, got); diff != "" {
				t.Errorf("reasons (-want +got):\n%s", diff)
			}
			if e.Reason != tt.attempt || e.Rows != tt.rows {
				t.Errorf("attempt: %q with %d rows, want %q with %d", e.Reason, e.Rows, tt.attempt, tt.rows)
			}
		})
	}
}

// What is called used is what the algorithm trains on: rows of usable calls.
func TestExplainedMismatch(t *testing.T) {
	t.Parallel()
	var r adapter.Recording
	r.Add(
		proxied(1, []int64{1, 2}, []int64{3, 4}), reward(2, 0.5),
		proxied(3, []int64{1, 2, 3, 4, 9}, []int64{5}),
		proxied(5, []int64{1, 2, 34, 9}, []int64{6}), reward(6, 1),
	)
	e := r.Explain(adapter.Circumstances{Status: agl.AttemptSucceeded, Rollout: agl.RolloutSucceeded}, adapter.ExplainConfig{})
	if e.Rows != 2 || e.Tokens != 4 || *e.Reward != 1 || e.Rewards != 2 {
		t.Errorf("%d rows, %d tokens, reward %v of %d, want 2, 4 and 1 of 2", e.Rows, e.Tokens, *e.Reward, e.Rewards)
	}
	for i, want := range []struct {
		row    int
		reward *float64
	}{{0, new(0.5)}, {0, nil}, {1, new(1.0)}} {
		if c := e.Calls[i]; !c.Used || c.Row == nil || *c.Row != want.row || !cmp.Equal(c.Reward, want.reward) {
			t.Errorf("call %d: %+v, want row %d and reward %v", i, c, want.row, want.reward)
		}
	}
	want := &adapter.ExplainedMismatch{With: "call-1", Sequence: 1, Position: 2, Want: 3, Got: 34, Where: adapter.InAnswer}
	if diff := cmp.Diff(want, e.Calls[2].Mismatch); diff != "" {
		t.Errorf("mismatch (-want +got):\n%s", diff)
	}
	if got, want := want.String(), "token 2 is 34 where the answer of call 1 has 3"; got != want {
		t.Errorf("String = %q, want %q", got, want)
	}
}

func TestAdvice(t *testing.T) {
	t.Parallel()
	rollout := agl.Rollout{RolloutID: "ro", Status: agl.RolloutSucceeded}
	explain := func(spans ...agl.Span) []adapter.ExplainedAttempt {
		var r adapter.Recording
		r.Add(spans...)
		return []adapter.ExplainedAttempt{r.Explain(adapter.Circumstances{AttemptID: "at", Status: agl.AttemptSucceeded, Rollout: agl.RolloutSucceeded}, adapter.ExplainConfig{})}
	}
	resources := agl.NamedResources{{Name: "main", Resource: agl.ProxyLLM{Endpoint: "http://h:1/v1", Model: "m"}}}
	tests := []struct {
		name      string
		resources agl.NamedResources
		attempts  []adapter.ExplainedAttempt
		want      []string // in the advice, in order
	}{
		{"never attempted", nil, nil, []string{"never attempted: is a runner running?"}},
		{"no call", resources, explain(reward(1, 1)), []string{"no model call was seen in attempt at, which has 1 span", "the agent was given http://h:1/rollout/ro/attempt/at/v1"}},
		{
			"no call of a plain model",
			agl.NamedResources{{Name: "gpt", Resource: agl.LLM{Endpoint: "https://api.openai.com/v1", Model: "m"}}},
			explain(),
			[]string{"which has 0 spans", `resource "gpt" is a plain llm at https://api.openai.com/v1`, "no_reward: return a reward"},
		},
		{"no call and no model", nil, explain(reward(1, 1)), []string{"no model call", "the address of the proxy for this attempt is http://p/v1"}},
		{
			"another tracer", resources, explain(agl.Span{Name: "x", Attributes: attrs("openinference.span.kind", "LLM")}, reward(2, 1)),
			[]string{"1 call recorded by OpenInference and not by the model proxy", "the agent was given http://h:1/"},
		},
		{"no ids of the backend", resources, explain(call(1, semconv.CallBackend, "b"), reward(2, 1)), []string{"1 call, token_ids_missing: the backend did not return token ids"}},
		{"all is well", resources, explain(proxied(1, []int64{1}, []int64{2}), reward(2, 1)), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := adapter.NewExplanation(rollout, adapter.HandedOut(tt.resources, "ro", "at"), tt.attempts, "http://p/v1")
			rest := strings.Join(e.Advice, "\n")
			for _, want := range tt.want {
				_, after, found := strings.Cut(rest, want)
				if !found {
					t.Fatalf("advice is %q, want %q in it, in order", e.Advice, want)
				}
				rest = after
			}
			if tt.want == nil && len(e.Advice) > 0 {
				t.Errorf("advice is %q, want none", e.Advice)
			}
		})
	}
}

func TestSums(t *testing.T) {
	t.Parallel()
	at := adapter.Circumstances{Status: agl.AttemptSucceeded, Rollout: agl.RolloutSucceeded}
	var good, bad adapter.Recording
	good.Add(proxied(1, []int64{1}, []int64{2}), proxied(2, []int64{7}, []int64{2, 3}), reward(3, 1))
	bad.Add(proxied(1, []int64{1}, []int64{2}, semconv.CallProblem, "truncated"))
	var sums adapter.Sums
	for _, r := range []*adapter.Recording{&good, &bad, {}} {
		e := adapter.NewExplanation(agl.Rollout{}, nil, []adapter.ExplainedAttempt{r.Explain(at, adapter.ExplainConfig{})}, "")
		sums.Add(e.Sums)
	}
	want := adapter.Sums{
		Rollouts: 3, Used: 1, WithoutCalls: 1, Attempts: 3, Calls: 3, CallsUsed: 2, Rows: 2, Tokens: 3, Mismatches: 1,
		Reasons: map[string]int{"truncated": 1}, AttemptReasons: map[string]int{"no_reward": 2},
	}
	if diff := cmp.Diff(want, sums); diff != "" {
		t.Errorf("sums (-want +got):\n%s", diff)
	}
}

func TestCallsOfImages(t *testing.T) {
	t.Parallel()
	s := proxied(1, []int64{1}, []int64{2},
		"gen_ai.prompt.10.content", `[{"type":"image_url","image_url":{"url":"c"}}]`,
		"gen_ai.prompt.2.content", ` [{"type":"text","text":"image_url"},{"type":"image_url","image_url":{"url":"a"}},{"type":"image_url","image_url":{"url":"b"}}]`,
		"gen_ai.prompt.3.content", "an image_url in a text", "gen_ai.prompt.4.content", `["image_url"`, "gen_ai.prompt.x.content", `[{"type":"image_url","image_url":{"url":"d"}}]`)
	calls, err := adapter.Calls([]agl.Span{s})
	if err != nil || len(calls) != 1 || !cmp.Equal(calls[0].Images, []string{"a", "b", "c"}) {
		t.Errorf("calls are %+v (%v), want the images a, b, c", calls, err)
	}
}
