package adapter_test

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/semconv"
)

// attrs makes attributes of keys and values in turn.
func attrs(kv ...any) agl.Attributes {
	var a agl.Attributes
	for i := 0; i+1 < len(kv); i += 2 {
		a.Set(kv[i].(string), kv[i+1])
	}
	return a
}

func call(seq int64, kv ...any) agl.Span {
	return agl.Span{SpanID: "s", SequenceID: seq, Name: semconv.SpanModelCall, Status: agl.TraceStatus{StatusCode: agl.StatusOK}, Attributes: attrs(kv...)}
}

func reward(seq int64, value float64) agl.Span {
	return agl.Span{
		SpanID: "r", SequenceID: seq, Name: semconv.SpanAnnotation,
		Attributes: attrs("agentlightning.reward.0.name", "primary", "agentlightning.reward.0.value", value),
	}
}

var ids = []any{semconv.PromptTokenIDs, []int64{1, 2}, semconv.ResponseTokenIDs, []int64{3}}

func with(kv ...any) []any { return append(slices.Clone(ids), kv...) }

func TestCalls(t *testing.T) {
	t.Parallel()
	good := adapter.Call{SpanID: "s", SequenceID: 1, PromptIDs: []int32{1, 2}, ResponseIDs: []int32{3}}
	but := func(change func(*adapter.Call)) []adapter.Call {
		c := good
		change(&c)
		return []adapter.Call{c}
	}
	tests := []struct {
		name string
		span agl.Span
		want []adapter.Call
	}{
		{
			"everything", call(1, with(semconv.ResponseLogprobs, []float64{-0.5}, semconv.GenAIResponseID, "id", semconv.GenAIRequestModel, "m",
				semconv.CallVersion, int64(4), "gen_ai.completion.0.finish_reason", "stop")...),
			but(func(c *adapter.Call) {
				c.Logprobs, c.ResponseID, c.Model, c.Version, c.FinishReason = []float32{-0.5}, "id", "m", 4, "stop"
			}),
		},
		{
			"logprobs as the engine wrote them", call(1, with(semconv.LogprobsContent, `[{"token":"x","logprob":-1.5,"top_logprobs":[]}]`)...),
			but(func(c *adapter.Call) { c.Logprobs = []float32{-1.5} }),
		},
		{"logprobs of another number", call(1, with(semconv.ResponseLogprobs, []float64{-1, -2})...), but(func(*adapter.Call) {})},
		{"logprobs that are no JSON", call(1, with(semconv.LogprobsContent, "[")...), but(func(*adapter.Call) {})},
		{
			"a problem", call(1, with(semconv.CallProblem, semconv.ProblemTruncated, semconv.CallMessage, "cut")...),
			but(func(c *adapter.Call) { c.Problem, c.Detail = "truncated", "cut" }),
		},
		{"no ids", call(1), []adapter.Call{{SpanID: "s", SequenceID: 1, PromptIDs: []int32{}, ResponseIDs: []int32{}, Problem: "token_ids_missing", Detail: "the span has no token ids"}}},
		{
			"an empty answer", call(1, semconv.PromptTokenIDs, []int64{1, 2}, semconv.ResponseTokenIDs, []int64{}),
			but(func(c *adapter.Call) {
				c.ResponseIDs, c.Problem, c.Detail = []int32{}, "token_ids_incomplete", "the span has no token ids of the answer"
			}),
		},
		{
			"an id out of range", call(1, semconv.PromptTokenIDs, []int64{1, 2}, semconv.ResponseTokenIDs, []int64{math.MaxInt32 + 1}),
			but(func(c *adapter.Call) {
				c.ResponseIDs, c.Problem, c.Detail = nil, "token_ids_incomplete", "a token id is not between 0 and 2147483647"
			}),
		},
		{"another span", agl.Span{Name: "tool", Attributes: attrs(ids...)}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := adapter.Calls([]agl.Span{tt.span})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
}

// Spans that went through JSON, where a list of whole floats might turn up as
// one of integers, read the same.
func TestCallsAfterJSON(t *testing.T) {
	t.Parallel()
	span := call(1, with(semconv.ResponseLogprobs, []float64{-2})...)
	raw, err := json.Marshal([]agl.Span{span})
	if err != nil {
		t.Fatal(err)
	}
	var back []agl.Span
	if err := json.Unmarshal(raw, &back); err != nil {
		t.Fatal(err)
	}
	got, err := adapter.Calls(back)
	if err != nil || len(got) != 1 || !slices.Equal(got[0].Logprobs, []float32{-2}) || !got[0].Usable() {
		t.Errorf("calls are %+v (%v)", got, err)
	}
}

func TestFailedCallIsFlagged(t *testing.T) {
	t.Parallel()
	s := call(1, ids...)
	s.Status = agl.TraceStatus{StatusCode: agl.StatusError, Description: new("boom")}
	got, err := adapter.Calls([]agl.Span{s})
	if err != nil || len(got) != 1 || got[0].Problem != semconv.ProblemUpstreamError || got[0].Detail != "boom" {
		t.Errorf("calls are %+v (%v)", got, err)
	}
}

func TestCallsAreCountedOnce(t *testing.T) {
	t.Parallel()
	proxied := func(seq int64) agl.Span {
		return call(seq, with(semconv.GenAIResponseID, "same", semconv.CallBackend, "http://b")...)
	}
	traced := func(seq int64, id string) agl.Span { return call(seq, semconv.GenAIResponseID, id) }
	tests := []struct {
		name  string
		spans []agl.Span
		want  []int64
	}{
		{"the agent's tracer saw it, too", []agl.Span{traced(1, "same"), proxied(2)}, []int64{2}},
		{"a backend repeats its ids", []agl.Span{proxied(1), proxied(2)}, []int64{1, 2}},
		{"two tracers", []agl.Span{traced(1, "a"), traced(2, "a"), traced(3, "b")}, []int64{1, 3}},
		{"no ids at all", []agl.Span{call(1), call(2)}, []int64{1, 2}},
		{"by sequence id", []agl.Span{traced(3, "c"), traced(1, "a"), traced(2, "b")}, []int64{1, 2, 3}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			calls, err := adapter.Calls(tt.spans)
			if err != nil {
				t.Fatal(err)
			}
			var got []int64
			for _, c := range calls {
				got = append(got, c.SequenceID)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("sequence ids (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRewardsOfCalls(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		spans []agl.Span
		want  []*float64
		final *float64
	}{
		{"none", []agl.Span{call(1)}, []*float64{nil}, nil},
		{"one at the end", []agl.Span{call(1), call(2), reward(3, 1)}, []*float64{nil, new(1.0)}, new(1.0)},
		{"one each", []agl.Span{call(1), reward(2, 0.5), call(3), reward(4, 0)}, []*float64{new(0.5), new(0.0)}, new(0.0)},
		{"late ones go back", []agl.Span{call(1), call(2), reward(3, 1), reward(4, 2)}, []*float64{new(2.0), new(1.0)}, new(2.0)},
		{"in any order", []agl.Span{reward(2, 1), reward(4, 3), call(3), call(1)}, []*float64{new(1.0), new(3.0)}, new(3.0)},
		{"before every call", []agl.Span{reward(1, 1), call(2)}, []*float64{nil}, new(1.0)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			calls, err := adapter.Calls(tt.spans)
			if err != nil {
				t.Fatal(err)
			}
			var got []*float64
			for _, c := range calls {
				got = append(got, c.Reward)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("rewards (-want +got):\n%s", diff)
			}
			final, err := adapter.Final(tt.spans)
			if err != nil || !cmp.Equal(tt.final, final) {
				t.Errorf("Final = %v, %v, want %v", final, err, tt.final)
			}
		})
	}
	broken := agl.Span{Name: semconv.SpanAnnotation, Attributes: attrs("agentlightning.reward.0.name", "primary")}
	if _, err := adapter.Calls([]agl.Span{broken}); err == nil {
		t.Error("a reward without a value is no error")
	}
}

// The spans are the caller's.
func TestSpansAreLeftAlone(t *testing.T) {
	t.Parallel()
	spans := []agl.Span{reward(5, 1), call(2, ids...), call(1, ids...)}
	before, _ := json.Marshal(spans)
	for _, f := range []func() error{
		func() error { _, err := adapter.Calls(spans); return err },
		func() error { _, err := adapter.Final(spans); return err },
		func() error { _, err := adapter.ProxyTriplets(spans); return err },
		func() error { _, err := adapter.Messages(spans); return err },
	} {
		if err := f(); err != nil {
			t.Error(err)
		}
	}
	if after, _ := json.Marshal(spans); string(after) != string(before) {
		t.Errorf("spans were %s and are %s", before, after)
	}
}

func TestBadExpressions(t *testing.T) {
	t.Parallel()
	for _, o := range []adapter.TracerOptions{{CallMatch: "("}, {AgentMatch: "(?=x)"}} {
		if _, err := adapter.TracerTriplets([]agl.Span{call(1)}, o); err == nil {
			t.Errorf("TracerTriplets with %+v succeeds", o)
		}
	}
}
