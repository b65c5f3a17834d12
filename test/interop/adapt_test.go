package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/adapter"
)

// adapting is a list of spans with the adapter that reads it.
type adapting struct {
	Adapter string         `json:"adapter"`
	Options map[string]any `json:"options"`
	Spans   []agl.Span     `json:"spans"`
}

// adaptCases is how many lists of spans are compared for each adapter. Their
// seed is fixed, so that a failure is one tomorrow.
const adaptCases = 1500

// TestAdaptersAgree gives random spans to the adapters of both sides. They must
// make the same of them, or both refuse.
func TestAdaptersAgree(t *testing.T) {
	t.Parallel()
	needPython(t)
	for _, kind := range []string{"tracer", "proxy", "messages"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			g := spanMaker{rand.New(rand.NewPCG(7, uint64(len(kind))))}
			cases := make([]adapting, adaptCases)
			for i := range cases {
				cases[i] = g.adapting(kind)
			}
			path := filepath.Join(t.TempDir(), "cases.json")
			raw, err := json.Marshal(cases)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, raw, 0o600); err != nil {
				t.Fatal(err)
			}
			var results []struct {
				Output json.RawMessage
				Error  string
			}
			call(t, "adapting", map[string]any{"path": path}, &results)
			if len(results) != len(cases) {
				t.Fatalf("%d results for %d cases", len(results), len(cases))
			}
			refused, made := 0, 0
			for i, want := range results {
				got, err := cases[i].run()
				if err == nil && strings.HasPrefix(want.Error, "TypeError") && strings.Contains(want.Error, "'NoneType'") {
					continue // a time is missing that does not matter to us: we do not look below the span that is moved
				}
				if (err != nil) != (want.Error != "") {
					t.Errorf("case %d: ours %v, theirs %q\n%s", i, err, want.Error, pretty(cases[i]))
					continue
				}
				if err != nil {
					refused++
					continue
				}
				text, err := json.Marshal(got)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(exactly(t, want.Output), exactly(t, text)); diff != "" {
					t.Errorf("case %d (-theirs +ours):\n%s\n%s", i, diff, pretty(cases[i]))
				}
				if len(text) > len("[]") {
					made++
				}
			}
			t.Logf("%d cases: %d gave something, both refused %d", len(cases), made, refused)
			if made < adaptCases/8 {
				t.Errorf("only %d of %d cases gave anything", made, len(cases))
			}
		})
	}
}

func pretty(c adapting) string {
	text, err := json.MarshalIndent(c, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (c *adapting) run() (any, error) {
	switch c.Adapter {
	case "proxy":
		return adapter.ProxyTriplets(c.Spans)
	case "messages":
		return adapter.Messages(c.Spans)
	}
	o := adapter.TracerOptions{
		CallMatch:            c.Options["llm_call_match"].(string),
		NoRepair:             !c.Options["repair_hierarchy"].(bool),
		IncludeCallsInReward: !c.Options["exclude_llm_call_in_reward"].(bool),
		SkipEmpty:            c.Options["_skip_empty_token_spans"].(bool),
	}
	o.AgentMatch, _ = c.Options["agent_match"].(string)
	if c.Options["reward_match"] == "first_sibling" {
		o.RewardMatch = adapter.FirstSibling
	}
	return adapter.TracerTriplets(c.Spans, o)
}

// exactly reads JSON so that 1 and 1.0 differ, but for rewards, which are floats
// however they are spelled.
func exactly(t *testing.T, raw []byte) any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	list, _ := v.([]any)
	for _, e := range list {
		if triplet, ok := e.(map[string]any); ok {
			if n, ok := triplet["reward"].(json.Number); ok {
				triplet["reward"], _ = n.Float64()
			}
		}
	}
	return v
}

// spanMaker makes lists of spans in which everything that the adapters look at
// turns up, right and wrong.
type spanMaker struct{ *rand.Rand }

func pick[T any](g spanMaker, from ...T) T { return from[g.IntN(len(from))] }

func (g spanMaker) chance(percent int) bool { return g.IntN(100) < percent }

func (g spanMaker) adapting(kind string) adapting {
	c := adapting{Adapter: kind, Options: map[string]any{}, Spans: []agl.Span{}}
	if kind == "tracer" {
		c.Options = map[string]any{
			"llm_call_match":             pick(g, `openai\.chat\.completion`, `openai\.chat\.completion`, `completion$`, `^tool`),
			"agent_match":                pick[any](g, nil, nil, "plan", "^coder$", "a"),
			"repair_hierarchy":           g.chance(70),
			"exclude_llm_call_in_reward": g.chance(70),
			"_skip_empty_token_spans":    g.chance(20),
			"reward_match":               pick(g, "first_occurrence", "first_sibling"),
		}
	}
	n := 1 + g.IntN(9)
	for i := range n {
		s := g.span(kind, i)
		g.within(&s, c.Spans)
		c.Spans = append(c.Spans, s)
	}
	return c
}

// within keeps a span from enclosing the one above it: Python's repair of the
// tree then loses both, and ours leaves them where they are.
func (g spanMaker) within(s *agl.Span, before []agl.Span) {
	for i := range before {
		p := &before[i]
		if s.ParentID == nil || *s.ParentID != p.SpanID || p.StartTime == nil || p.EndTime == nil || s.StartTime == nil || s.EndTime == nil {
			continue
		}
		*s.StartTime = max(*s.StartTime, *p.StartTime)
		*s.EndTime = max(*s.EndTime, *s.StartTime)
		if *s.StartTime == *p.StartTime && *s.EndTime >= *p.EndTime {
			*s.StartTime += 0.5
			*s.EndTime += 0.5
		}
	}
}

func (g spanMaker) span(kind string, i int) agl.Span {
	s := agl.Span{
		RolloutID: "ro", AttemptID: "at", SequenceID: int64(g.IntN(8)), TraceID: "t", SpanID: fmt.Sprintf("s%d", i),
		Name:   pick(g, "agent", "tool.x", "agentlightning.annotation", "agentlightning.operation", "langchain.Chain.x"),
		Status: agl.TraceStatus{StatusCode: pick(g, agl.StatusOK, agl.StatusError, agl.StatusUnset)},
	}
	if g.chance(50) {
		s.Name = pick(g, "openai.chat.completion", "openai.chat.completion", "x.openai.chat.completions.create")
		if kind == "proxy" {
			s.Name = pick(g, "raw_gen_ai_request", "raw_gen_ai_request", "litellm_request")
		}
	}
	if g.chance(3) && i > 0 && kind != "proxy" { // there, Python mixes up the rewards of spans of one id, which no store has
		s.SpanID = "s0"
	}
	if i > 0 && g.chance(75) {
		s.ParentID = new(fmt.Sprintf("s%d", g.IntN(i)))
	}
	if g.chance(6) { // one parent that is nowhere: the order of several is not defined
		s.ParentID = new("ghost")
	}
	if g.chance(1) { // one that comes later, or never, or a circle
		s.ParentID = new(fmt.Sprintf("s%d", i+1))
	}
	start := float64(g.IntN(20))
	end := start + float64(g.IntN(12))/2
	s.StartTime, s.EndTime = &start, &end
	if g.chance(2) {
		*pick(g, &s.StartTime, &s.EndTime) = nil
	}
	for range g.IntN(4) {
		g.set(&s, g.common())
	}
	specific := g.call
	if kind == "proxy" {
		specific = g.proxied
	}
	for range 2 + g.IntN(9) {
		g.set(&s, specific())
	}
	if s.Attributes == nil {
		s.Attributes = agl.Attributes{}
	}
	return s
}

type pair struct {
	key   string
	value any
}

func (g spanMaker) set(s *agl.Span, pairs []pair) {
	for _, p := range pairs {
		s.Attributes.Set(p.key, p.value)
	}
}

// common are rewards and agents.
func (g spanMaker) common() []pair {
	value := pick[any](g, 0.5, 1.0, int64(1), -2.0, true, 0.0)
	switch g.IntN(16) {
	case 0, 1, 2:
		return []pair{{"agentlightning.reward.0.name", "primary"}, {"agentlightning.reward.0.value", value}}
	case 3:
		return []pair{
			{"agentlightning.reward.1.name", "other"},
			{"agentlightning.reward.1.value", 9.0},
			{"agentlightning.reward.0.name", "primary"},
			{"agentlightning.reward.0.value", value},
		}
	case 4:
		return []pair{{"agentops.task.output", pick(g, `{"type":"reward","value":0.25}`, `{"type":"reward","value":null}`, `{"type":"x"}`, `text`, ``)}}
	case 5:
		return []pair{{"agentops.entity.output", `{"type": "reward", "value": 3}`}}
	case 6:
		return []pair{{"reward", 0.75}}
	case 7:
		return []pair{{"agentlightning.operation.name", pick(g, "agentlightning.reward", "x")}}
	case 8:
		return []pair{{"agent.name", pick(g, "planner", "coder", "")}}
	case 9:
		return []pair{{"agentops.span.kind", pick(g, "agent", "tool")}, {"operation.name", pick(g, "plan", "coder")}}
	case 10:
		return []pair{{pick(g, "recipient_agent_type", "langchain.chain.type", "executor.id", "lc_name"), pick(g, "planner", "coder")}}
	case 11:
		return []pair{{"type", pick(g, "agent", "x")}, {"agentlightning.operation.input.name", "coder"}}
	case 12:
		return []pair{{"gen_ai.response.id", pick(g, "r1", "r2", "r3", "")}}
	case 13:
		return []pair{{"agentlightning.operation.output.id", pick[any](g, "r1", "r4", int64(5))}}
	case 14:
		if g.chance(15) {
			return []pair{{pick(g, "agentlightning.reward", "agentlightning.rewards_total", "agentlightning.reward.0.name"), "x"}}
		}
	}
	return nil
}

func (g spanMaker) ids() any {
	list := make([]int64, g.IntN(4))
	for i := range list {
		list[i] = int64(g.IntN(50))
	}
	return pick[any](g, list, list, list, []bool{true, false}, []float64{1, 2.5}, "[1, 2]", int64(3), []string{"1"})
}

// call are attributes of model calls.
func (g spanMaker) call() []pair {
	i := g.IntN(3)
	role := pick(g, "user", "user", "user", "system", "developer", "assistant", "assistant")
	if g.chance(4) {
		role = pick(g, "tool", "function")
	}
	at := func(format string) string { return fmt.Sprintf(format, i) }
	text := pick[any](g, "hi", "hi", "", `[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"a.png"}}]`,
		` [{"type":"image_url","image_url":{"url":"b.png"}},{"type":"image_url","image_url":"c.png"},3]`, `{"type":"image_url"}`, `[1`)
	if g.chance(2) {
		text = int64(7)
	}
	switch g.IntN(24) {
	case 0, 1, 2:
		return []pair{{pick(g, "prompt_token_ids", "prompt_token_ids", "agentlightning.operation.output.prompt_token_ids"), g.ids()}}
	case 3, 4, 5:
		return []pair{{pick(g, "response_token_ids", "response_token_ids", "agentlightning.operation.output.response_token_ids.0",
			"agentlightning.operation.output.choices.0.token_ids", "agentlightning.operation.output.choices.0.provider_specific_fields.token_ids"), g.ids()}}
	case 6, 7, 8:
		return []pair{{at("gen_ai.prompt.%d.role"), role}, {at("gen_ai.prompt.%d.content"), text}}
	case 9, 10:
		return []pair{{at("gen_ai.completion.%d.role"), pick(g, "assistant", "assistant", "user")}, {at("gen_ai.completion.%d.content"), text}}
	case 11:
		return []pair{{at("gen_ai.prompt.%d.tool_call_id"), "call_1"}}
	case 12:
		return []pair{
			{at("gen_ai.prompt.%d.role"), "assistant"},
			{at("gen_ai.prompt.%d.tool_calls.0.id"), "call_1"},
			{at("gen_ai.prompt.%d.tool_calls.0.name"), "add"},
			{at("gen_ai.prompt.%d.tool_calls.0.arguments"), `{"a":1}`},
		}
	case 13:
		return []pair{{at("gen_ai.completion.%d.finish_reason"), "stop"}}
	case 14:
		return []pair{{pick(g, "gen_ai.request.model", "gen_ai.response.model"), "m"}, {"gen_ai.request.temperature", pick[any](g, 0.5, int64(1))}}
	case 15:
		return []pair{{at("gen_ai.request.functions.%d.name"), "add"}, {at("gen_ai.request.functions.%d.parameters"), pick(g, `{"type": "object", "n": 1.0}`, "{}")}}
	case 16:
		return []pair{{at("agentlightning.operation.input.messages.%d.content"), text}}
	case 17:
		return []pair{{"agentlightning.operation.input.model", "m"}, {"agentlightning.operation.output.usage", int64(3)}}
	case 18:
		return []pair{{at("agentlightning.operation.output.choices.%d.message.content"), "yes"}}
	case 19:
		return []pair{{"logprobs.content", pick[any](g, `[{"token": "a", "logprob": -0.5}]`, `null`, `{}`, int64(3), []string{"x"})}}
	case 20:
		tool := []pair{{"tool.name", "add"}, {"tool.parameters", "{}"}, {"tool.call.id", "call_1"}, {"tool.call.type", "function"}}
		if g.chance(4) {
			return tool[:2]
		}
		return tool
	case 21:
		if g.chance(12) {
			return []pair{{pick(g, "gen_ai.prompt", "gen_ai.completion", "gen_ai.request", "logprobs.content", "tool.name", "gen_ai.prompt.filter"), "x"}}
		}
	case 22:
		return []pair{{"gen_ai.response.id", pick(g, "r1", "r2", "r3", "r4", "r5")}}
	}
	return nil
}

// proxied are attributes of LiteLLM's spans.
func (g spanMaker) proxied() []pair {
	ids := pick[any](g, "[1, 2, 3]", "[4]", "[]", "(1, 2)", "[True, 2]", "[1, 'a']", "[1.0]", "nan", "None", []int64{5, 6}, []bool{true}, "[1, 2", "{1, 2}", " [7]", "-1", "[-1]", "[1_0]", "[01]")
	switch g.IntN(9) {
	case 0, 1:
		return []pair{{"llm.hosted_vllm.prompt_token_ids", ids}}
	case 2:
		return []pair{{"llm.hosted_vllm.response_token_ids", pick[any](g, "[[1, 2]]", "[[3], [4]]", "[]", "[[]]", "[3]", "['x']", []int64{1})}}
	case 3, 4:
		return []pair{{"llm.hosted_vllm.choices", pick(g, `[{'token_ids': [8, 9], 'text': 'it\'s "x"\n'}]`, `[{'token_ids': None}]`, `[{"a": 1}]`, `[]`, `{'token_ids': [1]}`, `[{'token_ids': [1], 'x': {1, 2}, 'y': (3,), 'z': b'1'}]`)}}
	case 5:
		return []pair{{"prompt_token_ids", ids}, {"response_token_ids", pick[any](g, "[1]", []int64{2}, "[]")}}
	case 6:
		return []pair{{"llm.hosted_vllm.id", pick[any](g, "r1", "r2", "", int64(3))}}
	case 7:
		return []pair{{"gen_ai.response.id", pick[any](g, "r1", "r2", "", int64(3))}}
	}
	return slices.Clip(g.common())
}
