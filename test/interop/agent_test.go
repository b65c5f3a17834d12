package interop

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/semconv"
)

// TestAgentsOfResources has the runner of Python run agents whose model is a
// resource that names our server: functions, which are given the address of
// their attempt, and classes, which ask for it.
func TestAgentsOfResources(t *testing.T) {
	t.Parallel()
	needPython(t)
	for _, tt := range []struct {
		agent, suffix, mode string
		watched             bool // by the tracer that watches clients of models
	}{
		{"given llm", "/v1", "stream", false},
		{"given llm", "", "whole", true},
		{"routes", "", "stream", true},
		{"routes", "/v1/", "helper", false},
	} {
		name := tt.agent + tt.suffix + " " + tt.mode
		if tt.watched {
			name += " watched"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newVLLM(t, accountant)
			s := serve(t, "sqlite:"+filepath.Join(t.TempDir(), "agl.db"), "--model", "agent="+m.url, "--litellm-spans")
			_, err := s.client.AddResources(t.Context(), agl.NamedResources{{Name: "llm", Resource: agl.ProxyLLM{
				Endpoint: s.url + tt.suffix, Model: "agent", APIKey: new("none"), SamplingParameters: json.RawMessage(`{"temperature":0.5}`),
			}}})
			if err != nil {
				t.Fatal(err)
			}
			var tasks []task
			for _, dialect := range served {
				input, err := json.Marshal(map[string]any{"dialect": dialect, "mode": tt.mode, "questions": questions})
				if err != nil {
					t.Fatal(err)
				}
				tasks = append(tasks, task{input: string(input)})
			}
			ids := s.enqueue(t, tasks...)
			var got ran
			call(t, "running", map[string]any{"url": s.url, "agent": tt.agent, "executions": len(ids), "watched": tt.watched}, &got)
			said := m.until(t, 4*len(ids)) // one rollout after the other
			for i, id := range ids {
				if r := s.rollout(t, id); r.Status != agl.RolloutSucceeded {
					t.Errorf("rollout %s of %s is %s", id, tasks[i].input, r.Status)
				}
				seenOnce(t, s, id, said[4*i:4*i+4], tt.mode != "whole", tt.watched)
			}
		})
	}
}

// seenOnce looks at the calls of a rollout, each of which counts once whoever
// else recorded it.
func seenOnce(t *testing.T, s *server, id string, said []generation, streamed, watched bool) {
	t.Helper()
	spans := s.spans(t, id)
	var proxied, companions []agl.Span
	others := map[string]int{}
	for _, span := range spans {
		if _, ours := span.Attributes.Get(semconv.CallBackend); ours {
			proxied = append(proxied, span)
		} else if span.Name == "raw_gen_ai_request" {
			companions = append(companions, span)
		} else {
			others[span.Name]++
		}
	}
	delete(others, annotation)                  // the reward
	delete(others, "anthropic.messages.create") // which that client records by itself
	if len(proxied) != len(said) || len(companions) != len(said) || len(others) > 0 && !watched {
		t.Fatalf("%d spans of the proxy with %d companions, want %d; and others: %v", len(proxied), len(companions), len(said), others)
	}
	calls, err := adapter.Calls(spans)
	if err != nil || len(calls) != len(said) {
		t.Fatalf("Calls = %d, %v, want %d", len(calls), err, len(said))
	}
	for i, g := range said {
		checkSpan(t, proxied[i], g, streamed)
		if c := calls[i]; !c.Usable() || c.SpanID != proxied[i].SpanID || (c.Reward != nil) != (i == len(said)-1) {
			t.Errorf("call %d is %+v, want that of the proxy, and the reward with the last", i, c)
		}
	}
	var want []triplet
	for _, g := range said {
		want = append(want, g.triplet())
	}
	want[len(want)-1].Reward = new(0.75)
	var python struct{ Triplets, Proxied []triplet }
	// The reader of messages gives up on what the watching tracer writes of tools
	// that Anthropic's client was given.
	call(t, "reading", map[string]any{"url": s.url, "rollout": id, "messages": false}, &python)
	if diff := cmp.Diff(want, python.Proxied); diff != "" {
		t.Errorf("triplets of %s as Python's adapter for proxies reads them (-model +reader):\n%s", id, diff)
	}
	if watched && streamed {
		return // what the other tracer recorded of a stream has no ids, and the default adapter prefers it
	}
	if diff := cmp.Diff(want, python.Triplets); diff != "" {
		t.Errorf("triplets of %s as the default adapter of Python reads them (-model +reader):\n%s", id, diff)
	}
}

// TestPictures shows the model a picture in every dialect. The model must see
// it, and readers must find its address.
func TestPictures(t *testing.T) {
	t.Parallel()
	needPython(t)
	m := newVLLM(t, echo)
	s := serve(t, "sqlite:"+filepath.Join(t.TempDir(), "agl.db"), "--model", "agent="+m.url, "--auth-token", secret)
	at := s.admitted(t)
	const kind, data = "image/png", "iVBORw0KGgo="
	address := "data:" + kind + ";base64," + data
	var steps []step
	call(t, "looking", map[string]any{"url": at.url, "key": at.token, "kind": kind, "data": data}, &steps)
	if len(steps) != 3 {
		t.Fatalf("%d steps, want one in each of three dialects", len(steps))
	}
	for i, step := range steps {
		if want := "It is What is this?<" + address + ">"; step.Text != want {
			t.Errorf("step %d: the model saw %q, want %q", i, step.Text, want)
		}
	}
	type seen struct {
		Prompt struct {
			ImageURLs []string `json:"image_urls"`
		}
	}
	var python struct{ Triplets []seen }
	call(t, "reading", map[string]any{"url": s.withToken(), "rollout": at.RolloutID}, &python)
	ours, err := adapter.TracerTriplets(s.spans(t, at.RolloutID), adapter.TracerOptions{})
	if err != nil || len(ours) != 3 || len(python.Triplets) != 3 {
		t.Fatalf("%d triplets of ours (%v) and %d of Python, want 3", len(ours), err, len(python.Triplets))
	}
	for i := range ours {
		var own seen
		if err := json.Unmarshal(ours[i].Prompt, &own.Prompt); err != nil {
			t.Fatal(err)
		}
		for reader, got := range map[string]seen{"our adapter": own, "the default adapter of Python": python.Triplets[i]} {
			if diff := cmp.Diff([]string{address}, got.Prompt.ImageURLs); diff != "" {
				t.Errorf("pictures of call %d as %s reads them (-want +got):\n%s", i, reader, diff)
			}
		}
	}
}
