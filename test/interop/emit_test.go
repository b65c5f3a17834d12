package interop

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/emit"
	"agentlightning/tracer"
)

// read is what reading.main says of one span.
type read struct {
	Name    string
	Reward  *float64
	Rewards []agl.RewardDimension
	Message *string
	Object  any
	Type    string
	Tags    []string
	Links   []struct {
		Key   string `json:"key_match"`
		Value string `json:"value_match"`
	}
	Output any
}

// TestPythonReadsGo has the readers and adapters of Python read what an agent in
// Go emitted and what the proxy recorded.
func TestPythonReadsGo(t *testing.T) {
	t.Parallel()
	needPython(t)
	m := newVLLM(t, echo)
	eachBackend(t, func(t *testing.T, s *server) {
		at := s.claimed(t)
		work(t, s, at)
		var got struct {
			Spans    []read
			Final    *float64
			Triplets []triplet
			Messages []struct {
				Messages []struct{ Role, Content string }
				Tools    []struct {
					Type     string
					Function struct {
						Name, Description string
						Parameters        map[string]any
					}
				}
			}
		}
		call(t, "reading", map[string]any{"url": s.url, "rollout": at["rollout_id"]}, &got)
		byName := map[string][]read{}
		for _, r := range got.Spans {
			byName[r.Name] = append(byName[r.Name], r)
		}
		if n := len(byName[message]); n != 1 || byName[message][0].Message == nil || *byName[message][0].Message != "plänning" {
			t.Errorf("messages are %+v, want one", byName[message])
		}
		var objects []any
		var types []string
		for _, r := range byName[object] {
			objects, types = append(objects, r.Object), append(types, r.Type)
		}
		if diff := cmp.Diff([]any{
			map[string]any{"a": []any{1.0, nil}, "ü": "x"}, "text", 7.0, 2.5, true, map[string]any{"bytes": "AP8="}, nil,
		}, objects); diff != "" {
			t.Errorf("objects (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"dict", "str", "int", "float", "bool", "bytes", "NoneType"}, types); diff != "" {
			t.Errorf("types of objects (-want +got):\n%s", diff)
		}
		rewards := byName[annotation]
		if len(rewards) != 3 {
			t.Fatalf("annotations are %+v, want three", rewards)
		}
		if rewards[0].Reward == nil || *rewards[0].Reward != 0.25 || !cmp.Equal(rewards[0].Tags, []string{"a", "b"}) {
			t.Errorf("first reward is %+v, want 0.25 with tags", rewards[0])
		}
		if len(rewards[0].Links) != 1 || rewards[0].Links[0].Key != "gen_ai.response.id" || rewards[0].Links[0].Value != "r" {
			t.Errorf("links are %+v, want one", rewards[0].Links)
		}
		if diff := cmp.Diff([]agl.RewardDimension{{Name: "correct", Value: 1}, {Name: "format", Value: 0.5}}, rewards[1].Rewards); diff != "" {
			t.Errorf("rewards (-want +got):\n%s", diff)
		}
		if rewards[2].Reward != nil {
			t.Errorf("the annotation without a reward has %v", *rewards[2].Reward)
		}
		if got.Final == nil || *got.Final != 1 {
			t.Errorf("final reward is %v, want 1", got.Final)
		}
		if op := byName[operation]; len(op) != 1 || !cmp.Equal(op[0].Output, any(map[string]any{"hits": []any{"x"}})) {
			t.Errorf("operations are %+v, want one with its output", op)
		}
		if n := len(byName[exception]); n != 1 {
			t.Errorf("%d exceptions, want 1", n)
		}

		// Each call has the reward that followed it.
		want := m.triplets(t, s.spans(t, at["rollout_id"]))
		want[0].Reward, want[1].Reward = new(0.25), new(1.0)
		if diff := cmp.Diff(want, got.Triplets); diff != "" {
			t.Errorf("triplets (-want +got):\n%s", diff)
		}
		if len(got.Messages) != 2 || len(got.Messages[1].Messages) != 3 || got.Messages[1].Messages[2].Content != "It is two" || got.Messages[1].Messages[0].Role != "system" {
			t.Fatalf("conversations are %+v, want two", got.Messages)
		}
		if tools := got.Messages[1].Tools; len(tools) != 1 || tools[0].Function.Name != "add" || tools[0].Function.Parameters["type"] != "object" {
			t.Errorf("tools are %+v, want the one of the request", tools)
		}
		sameInBoth(t, s, at["rollout_id"])
	}, "--model", "agent="+m.url)
}

// sameInBoth compares what the adapters of both sides make of the same spans.
func sameInBoth(t *testing.T, s *server, rollout string) {
	t.Helper()
	var got struct {
		Final                       *float64
		Triplets, Proxied, Messages json.RawMessage
	}
	call(t, "reading", map[string]any{"url": s.url, "rollout": rollout}, &got)
	spans := s.spans(t, rollout)
	final, err := adapter.Final(spans)
	if diff := cmp.Diff(final, got.Final); diff != "" || err != nil {
		t.Errorf("final reward: %v (-Go +Python):\n%s", err, diff)
	}
	triplets, err := adapter.TracerTriplets(spans, adapter.TracerOptions{})
	if diff := cmp.Diff(plain(t, triplets), plain(t, got.Triplets)); diff != "" || err != nil {
		t.Errorf("triplets: %v (-Go +Python):\n%s", err, diff)
	}
	triplets, err = adapter.ProxyTriplets(spans)
	if diff := cmp.Diff(plain(t, triplets), plain(t, got.Proxied)); diff != "" || err != nil {
		t.Errorf("triplets of the proxy: %v (-Go +Python):\n%s", err, diff)
	}
	messages, err := adapter.Messages(spans)
	if diff := cmp.Diff(plain(t, messages), plain(t, got.Messages)); diff != "" || err != nil {
		t.Errorf("conversations: %v (-Go +Python):\n%s", err, diff)
	}
}

// plain returns a value as any JSON decoder has it.
func plain(t *testing.T, value any) any {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// work is an agent in Go.
func work(t *testing.T, s *server, at map[string]string) {
	t.Helper()
	ctx, trace := tracer.New(tracer.Config{Sink: s.client}).Start(t.Context(), at["rollout_id"], at["attempt_id"])
	emitted := []error{emit.Message(ctx, "plänning")}
	for _, value := range []any{map[string]any{"a": []any{1, nil}, "ü": "x"}, "text", 7, 2.5, true, []byte{0, 0xff}, nil} {
		emitted = append(emitted, emit.Object(ctx, value))
	}
	_, err := emit.Do(ctx, "search", func(context.Context) (map[string]any, error) {
		return map[string]any{"hits": []string{"x"}}, nil
	})
	emitted = append(emitted, err, emit.Exception(ctx, errors.New("wrong turn")))
	s.chat(t, at, `{"model":"agent","messages":[{"role":"user","content":"one"}]}`)
	emitted = append(emitted, emit.Reward(ctx, 0.25, emit.Tag("a", "b"), emit.Link("gen_ai.response.id", "r")))
	s.chat(t, at, `{"model":"agent","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"two"}],`+
		`"tools":[{"type":"function","function":{"name":"add","description":"adds","parameters":{"type":"object"}}}]}`)
	emitted = append(emitted,
		emit.Rewards(ctx, []agl.RewardDimension{{Name: "correct", Value: 1}, {Name: "format", Value: 0.5}}),
		emit.Annotation(ctx, map[string]any{"note": "done"}))
	_, err = trace.End(t.Context())
	if err := errors.Join(append(emitted, err)...); err != nil {
		t.Fatal(err)
	}
}

// chat calls a model through the proxy.
func (s *server) chat(t *testing.T, at map[string]string, body string) {
	t.Helper()
	url := s.url + "/rollout/" + at["rollout_id"] + "/attempt/" + at["attempt_id"] + "/v1/chat/completions"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if answer, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("the proxy answered %d %s (%v)", resp.StatusCode, answer, err)
	}
}
