package interop

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/emit"
	"agentlightning/semconv"
	"agentlightning/store"
	"agentlightning/tracer"
)

// step is what a client made of one answer of the model.
type step struct {
	ID, Text, Finish string
	Reasoning        string
	Calls            []struct{ ID, Name, Arguments string }
	Usage            []int64
	Types            []string
	TokenIDs         [][]int64 `json:"token_ids"`
}

// questions are the turns of the user. The first wants two tools at once, and a
// third for what they return.
var questions = []string{"What is (12+30)·(5+6)? Use the tools. 🧮", "And in words?"}

// accountant answers questions.
func accountant(c conversation) reply {
	var results []string
	for _, m := range slices.Backward(c.Messages) {
		if m.Role != "tool" {
			break
		}
		results = append([]string{string(m.Content)}, results...)
	}
	switch {
	case len(results) == 2:
		return reply{calls: []toolCall{called("call_3", "multiply", fmt.Sprintf(`{"a":%s, "b":%s}`, results[0], results[1]))}}
	case len(results) == 1:
		return reply{text: "It is **" + results[0] + "**.\n\n\tGrüße — 四百六十二 👍 \n"}
	case strings.HasSuffix(c.said(), questions[1]):
		return reply{text: "  four hundred\r\n\"sixty-two\", isn't it?\u2028\x1b \\"}
	case len(c.Tools) == 0:
		return reply{text: "About 460. "}
	}
	return reply{
		text:  "First  the sums:\n",
		calls: []toolCall{called("call_1", "add", `{"a": 12, "b": 30}`), called("call_2", "add", `{"a": 5, "b": 6}`)},
	}
}

// A spoken dialect, and how a client must understand the accountant in it.
type spoken struct {
	finish map[string]string // the word of the dialect for that of the model
	// events of a stream, each run of equal ones as one.
	events func(g generation) []string
}

var dialects = map[string]spoken{
	"chat":        {finish: map[string]string{"stop": "stop", "tool_calls": "tool_calls"}},
	"litellm":     {finish: map[string]string{"stop": "stop", "tool_calls": "tool_calls"}},
	"completions": {finish: map[string]string{"stop": "stop"}},
	"responses":   {finish: map[string]string{"stop": "completed", "tool_calls": "completed"}, events: responsesEvents},
	"messages":    {finish: map[string]string{"stop": "end_turn", "tool_calls": "tool_use"}, events: messagesEvents},
}

func responsesEvents(g generation) []string {
	events := []string{"response.created", "response.in_progress"}
	if g.said.reasoning != "" {
		events = append(events, "response.output_item.added", "response.content_part.added", "response.reasoning_text.delta",
			"response.reasoning_text.done", "response.content_part.done", "response.output_item.done")
	}
	if g.said.text != "" {
		events = append(events, "response.output_item.added", "response.content_part.added", "response.output_text.delta",
			"response.output_text.done", "response.content_part.done", "response.output_item.done")
	}
	for range g.said.calls {
		events = append(events, "response.output_item.added", "response.function_call_arguments.delta",
			"response.function_call_arguments.done", "response.output_item.done")
	}
	return append(events, "response.completed")
}

func messagesEvents(g generation) []string {
	events := []string{"message_start"}
	block := []string{"content_block_start", "content_block_delta", "content_block_stop"}
	if g.said.reasoning != "" {
		events = append(events, block...)
	}
	if g.said.text != "" {
		events = append(events, block...)
	}
	for range g.said.calls {
		events = append(events, block...)
	}
	return append(events, "message_delta", "message_stop")
}

// TestPythonClients holds a conversation with each official client of Python,
// through an attempt's address and with the attempt's token, in every dialect
// and every way of taking an answer.
func TestPythonClients(t *testing.T) {
	t.Parallel()
	needPython(t)
	for _, dialect := range []string{"chat", "completions", "responses", "messages"} {
		for _, mode := range []string{"whole", "stream", "helper", "runner"} {
			if dialect == "completions" && mode == "helper" || dialect != "messages" && mode == "runner" {
				continue // the client has none
			}
			for _, awaited := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s awaited=%t", dialect, mode, awaited), func(t *testing.T) {
					t.Parallel()
					converse(t, talk{dialect: dialect, mode: mode, naming: "header", client: pythonClient(awaited)})
				})
			}
		}
	}
}

// TestTypeScriptClients does the same with the official clients for TypeScript.
// A runner is a client that calls the tools itself.
func TestTypeScriptClients(t *testing.T) {
	t.Parallel()
	needNode(t)
	needPython(t) // whose adapters read what was recorded
	for _, dialect := range []string{"chat", "completions", "responses", "messages"} {
		for _, mode := range []string{"whole", "stream", "helper", "runner"} {
			if dialect == "completions" && (mode == "helper" || mode == "runner") || dialect == "responses" && mode == "runner" {
				continue // the client has none
			}
			t.Run(dialect+" "+mode, func(t *testing.T) {
				t.Parallel()
				converse(t, talk{dialect: dialect, mode: mode, naming: "path", client: typeScriptClient()})
			})
		}
	}
}

// TestLiteLLM does the same with LiteLLM as a library. The provider decides what
// it speaks to the proxy; to the program it is always chat.
func TestLiteLLM(t *testing.T) {
	t.Parallel()
	needPython(t)
	for _, provider := range []string{"openai", "hosted_vllm", "anthropic"} {
		for _, mode := range []string{"whole", "stream", "helper"} {
			t.Run(provider+" "+mode, func(t *testing.T) {
				t.Parallel()
				converse(t, talk{dialect: "litellm", mode: mode, naming: "baggage", client: pythonClient(true), provider: provider})
			})
		}
	}
}

const secret = "s3cret"

// TestThoughts has the model think before it speaks. Clients must get the
// thoughts apart from the words, and give them back with what they have seen.
func TestThoughts(t *testing.T) {
	t.Parallel()
	needPython(t)
	for _, dialect := range served {
		for _, mode := range []string{"whole", "stream", "helper"} {
			if dialect == "chat" && mode == "helper" {
				continue // helpers put only those parts together that OpenAI has
			}
			for _, c := range []client{pythonClient(false), typeScriptClient()} {
				t.Run(dialect+" "+mode+" "+c.name, func(t *testing.T) {
					t.Parallel()
					converse(t, talk{dialect: dialect, mode: mode, naming: "header", client: c, thinks: true})
				})
			}
		}
	}
}

// talk is a conversation to be held.
type talk struct {
	client        client
	dialect, mode string
	provider      string // of LiteLLM
	naming        string // how the agent is named
	thinks        bool
}

// thoughtful thinks before it says what an accountant says.
func thoughtful(c conversation) reply {
	r := accountant(c)
	r.reasoning = "Hm… " + strings.Repeat("🤔 ", len(c.Messages)) + "\n\nSo:"
	return r
}

// converse has a client ask both questions, and looks at what it understood and
// at what is in the store.
func converse(t *testing.T, talk talk) {
	t.Helper()
	dialect, mode := talk.dialect, talk.mode
	script := accountant
	if talk.thinks {
		script = thoughtful
	}
	m := newVLLM(t, script)
	m.fragment = 11
	flags := []string{"--model", "agent=" + m.url, "--auth-token", secret}
	companions := mode != "helper"
	if companions {
		flags = append(flags, "--litellm-spans")
	}
	s := serve(t, "sqlite:"+filepath.Join(t.TempDir(), "agl.db"), flags...)
	at := s.admitted(t)
	arguments := map[string]any{"key": at.token, "model": "agent", "dialect": dialect, "mode": mode, "questions": questions, "thinks": talk.thinks}
	arguments["url"], arguments["headers"] = named(at.url, "accountant", talk.naming)
	if talk.provider != "" {
		arguments["provider"] = talk.provider
	}
	var steps []step
	talk.client.run(t, "conversing", arguments, &steps)
	breaks := 0
	switch {
	case dialect == "completions":
		breaks = 1 // the second prompt is one message in which the first answer is a part
	case dialect == "messages", talk.provider == "anthropic":
		breaks = 1 // clients keep the arguments of a call as an object, and one was written oddly
	}
	said := m.until(t, len(steps))
	understood(t, dialect, mode, steps, said)
	for _, g := range said {
		if key := g.asked.header.Get("Authorization") + g.asked.header.Get("X-Api-Key"); key != "" {
			t.Errorf("the backend was told the key %q", key)
		}
	}
	refused := 0
	if dialect == "messages" && mode == "runner" {
		// Each begins by asking the server to keep the conversation.
		refused = len(questions)
	}
	recorded(t, s, at, said, recordedAs{streamed: mode != "whole", companions: companions, refused: refused})
	rows(t, s.spans(t, at.RolloutID), said, breaks)
}

// rows joins the calls of a conversation to training rows. A conversation that
// every hand passed on as it is makes one.
func rows(t *testing.T, spans []agl.Span, said []generation, breaks int) {
	t.Helper()
	calls, err := adapter.Calls(spans)
	if err != nil {
		t.Fatal(err)
	}
	trajectories, mismatches := adapter.Trajectories(calls, adapter.TrajectoryConfig{})
	sampled, want := 0, 0
	for i := range trajectories {
		sampled += trajectories[i].Sampled()
	}
	for _, g := range said {
		want += len(g.sampled)
	}
	if len(trajectories) != 1+breaks || len(mismatches) != breaks || sampled != want {
		t.Errorf("%d training rows with %d tokens sampled, mismatches %+v; want %d rows with %d tokens", len(trajectories), sampled, mismatches, 1+breaks, want)
	}
}

// named says in one of its ways which agent calls: in a header of ours, in
// baggage as W3C has it, or in the path.
func named(url, agent, way string) (string, map[string]string) {
	switch way {
	case "header":
		return url, map[string]string{"X-Agl-Agent": agent}
	case "baggage":
		return url, map[string]string{"Baggage": "other=x,agl.agent=" + agent}
	}
	return url + "/agent/" + agent, map[string]string{}
}

// withToken returns the address as Python's client of the store takes it.
func (s *server) withToken() string { return strings.Replace(s.url, "://", "://agl:"+secret+"@", 1) }

// admission is an attempt, the base of its address, and its token.
type admission struct {
	store.Attempted
	url, token string
}

// admitted starts an attempt.
func (s *server) admitted(t *testing.T) admission {
	t.Helper()
	ids := s.claimed(t)
	at := admission{Attempted: store.Attempted{RolloutID: ids["rollout_id"], AttemptID: ids["attempt_id"]}}
	at.url = s.url + "/rollout/" + at.RolloutID + "/attempt/" + at.AttemptID
	var err error
	if at.token, err = s.client.AttemptToken(t.Context(), at.Attempted, 0); err != nil {
		t.Fatal(err)
	}
	return at
}

// understood compares what a client made of the answers with what the model said.
func understood(t *testing.T, dialect, mode string, steps []step, said []generation) {
	t.Helper()
	want := 4
	if dialect == "completions" {
		want = 2
	}
	if len(steps) != want || len(said) != want {
		t.Fatalf("the client took %d steps, and the model spoke %d times; want %d:\n%+v", len(steps), len(said), want, steps)
	}
	for i, g := range said {
		got := steps[i]
		if got.Text != g.said.text {
			t.Errorf("step %d is %q, the model said %q", i, got.Text, g.said.text)
		}
		if got.Reasoning != g.said.reasoning {
			t.Errorf("the thoughts of step %d are %q, the model's were %q", i, got.Reasoning, g.said.reasoning)
		}
		if want := dialects[dialect].finish[g.finishReason()]; got.Finish != want {
			t.Errorf("step %d finished as %q, want %q", i, got.Finish, want)
		}
		if got.ID == "" {
			t.Errorf("step %d has no id", i)
		}
		var calls, wanted [][]any
		for _, c := range got.Calls {
			calls = append(calls, []any{c.ID, c.Name, plain(t, json.RawMessage(c.Arguments))})
		}
		for _, c := range g.said.calls {
			wanted = append(wanted, []any{c.ID, c.Function.Name, plain(t, json.RawMessage(c.Function.Arguments))})
		}
		if diff := cmp.Diff(wanted, calls); diff != "" {
			t.Errorf("tool calls of step %d (-said +understood):\n%s", i, diff)
		}
		usage := []int64{int64(len(g.prompt)), int64(len(g.sampled))}
		if (dialect == "chat" || dialect == "litellm") && mode == "stream" {
			// Whoever did not ask for the usage is spared it.
			usage = nil
		}
		if diff := cmp.Diff(usage, got.Usage); diff != "" {
			t.Errorf("usage of step %d (-model +client):\n%s", i, diff)
		}
		if dialect == "chat" && (mode == "whole" || mode == "stream") {
			if diff := cmp.Diff([][]int64{g.prompt, g.sampled}, got.TokenIDs); diff != "" {
				t.Errorf("token ids that the client of step %d saw (-model +client):\n%s", i, diff)
			}
		}
		if events := dialects[dialect].events; events != nil && mode == "stream" {
			types := slices.Compact(slices.DeleteFunc(slices.Clone(got.Types), func(s string) bool { return s == "ping" }))
			if diff := cmp.Diff(events(g), types); diff != "" {
				t.Errorf("events of step %d (-want +got):\n%s", i, diff)
			}
		}
	}
}

// recordedAs says what else is to be found of the calls.
type recordedAs struct {
	streamed, companions bool
	refused              int // calls that did not get to the model
}

// recorded compares the spans of an attempt with what the model read and
// sampled: one span a call, with the very same ids; and has the adapters of
// both sides read them.
func recorded(t *testing.T, s *server, at admission, said []generation, as recordedAs) {
	t.Helper()
	s.reward(t, at, 0.75)
	spans := s.spans(t, at.RolloutID)
	names := map[string]int{}
	var own []agl.Span // of the calls
	for _, span := range spans {
		names[span.Name]++
		if _, answered := span.Attributes.Get(semconv.GenAIResponseID); answered && span.Name == semconv.SpanModelCall {
			own = append(own, span)
		}
	}
	want := map[string]int{semconv.SpanModelCall: len(said) + as.refused, annotation: 1}
	if as.companions {
		want["raw_gen_ai_request"] = len(said)
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Fatalf("spans of %d calls and a reward (-want +got):\n%s", len(said), diff)
	}
	calls, err := adapter.Calls(spans)
	if err != nil || len(calls) != len(said)+as.refused {
		t.Fatalf("Calls = %d, %v, want %d and %d refused", len(calls), err, len(said), as.refused)
	}
	calls = slices.DeleteFunc(calls, func(c adapter.Call) bool { return c.Problem == semconv.ProblemUpstreamError && c.ResponseID == "" })
	if len(calls) != len(said) || len(own) != len(said) {
		t.Fatalf("%d calls and %d spans have answers, want %d", len(calls), len(own), len(said))
	}
	var triplets []triplet
	for i, g := range said {
		checkSpan(t, own[i], g, as.streamed)
		if name, _ := own[i].Attributes.String(semconv.GenAIAgentName); name != "accountant" {
			t.Errorf("call %d is of the agent %q", i, name)
		}
		if !calls[i].Usable() {
			t.Errorf("call %d cannot be trained on: %s, %s", i, calls[i].Problem, calls[i].Detail)
		}
		triplets = append(triplets, g.triplet())
	}
	triplets[len(triplets)-1].Reward = new(0.75)
	ours, err := adapter.TracerTriplets(spans, adapter.TracerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	compareTriplets(t, "our adapter", triplets, ours)
	var python struct{ Triplets, Proxied json.RawMessage }
	call(t, "reading", map[string]any{"url": s.withToken(), "rollout": at.RolloutID}, &python)
	compareTriplets(t, "the default adapter of Python", triplets, python.Triplets)
	if as.companions {
		ours, err := adapter.ProxyTriplets(spans)
		if err != nil {
			t.Fatal(err)
		}
		compareTriplets(t, "our adapter for proxies", triplets, ours)
		compareTriplets(t, "the adapter for proxies of Python", triplets, python.Proxied)
	}
}

// reward gives the attempt a reward, as an agent in Go does.
func (s *server) reward(t *testing.T, at admission, value float64) {
	t.Helper()
	ctx, trace := tracer.New(tracer.Config{Sink: s.client}).Start(t.Context(), at.RolloutID, at.AttemptID)
	err := emit.Reward(ctx, value)
	if _, ended := trace.End(t.Context()); err != nil || ended != nil {
		t.Fatal(errors.Join(err, ended))
	}
}

func compareTriplets(t *testing.T, reader string, want []triplet, got any) {
	t.Helper()
	raw, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var triplets []triplet
	if err := json.Unmarshal(raw, &triplets); err != nil {
		t.Fatal(err)
	}
	// Calls that failed are calls to some readers, which have no ids.
	triplets = slices.DeleteFunc(triplets, func(t triplet) bool { return len(t.Prompt.TokenIDs) == 0 && t.Reward == nil })
	if diff := cmp.Diff(want, triplets); diff != "" {
		t.Errorf("triplets as %s reads them (-model +reader):\n%s", reader, diff)
	}
}

// checkSpan compares a span with the call that it is of.
func checkSpan(t *testing.T, span agl.Span, g generation, streamed bool) {
	t.Helper()
	want := map[string]any{
		semconv.GenAIRequestModel: "agent", semconv.GenAIResponseID: g.id, semconv.GenAIFinishReasons: []string{g.finishReason()},
		semconv.GenAIInputTokens: int64(len(g.prompt)), semconv.GenAIOutputTokens: int64(len(g.sampled)),
		semconv.GenAIStreaming: streamed,
		semconv.PromptTokenIDs: g.prompt, semconv.ResponseTokenIDs: g.sampled, semconv.ResponseLogprobs: g.logprobs,
		semconv.CallProblem: nil, semconv.CallStatus: int64(200), semconv.CompletionKey(0, "finish_reason"): g.finishReason(),
		semconv.CompletionKey(0, "content"): g.said.text,
	}
	if g.said.text == "" {
		delete(want, semconv.CompletionKey(0, "content")) // null and "" are the same to some engines
	}
	for i, m := range g.asked.Messages {
		want[semconv.PromptKey(i, "role")] = m.Role
	}
	for i, c := range g.said.calls {
		want[semconv.CompletionKey(0, semconv.ToolCallKey(i, "name"))] = c.Function.Name
		want[semconv.CompletionKey(0, semconv.ToolCallKey(i, "id"))] = c.ID
		want[semconv.CompletionKey(0, semconv.ToolCallKey(i, "arguments"))] = c.Function.Arguments
	}
	got := map[string]any{}
	for key := range want {
		got[key], _ = span.Attributes.Get(key)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("attributes of the span of call %s (-model +span):\n%s", g.id, diff)
	}
	if span.Name != semconv.SpanModelCall || span.Status.StatusCode != agl.StatusOK {
		t.Errorf("the span of call %s is %s with status %s, want %s and OK", g.id, span.Name, span.Status.StatusCode, semconv.SpanModelCall)
	}
}

// TestClientsAsk has clients ask what is no conversation. None of it is
// recorded: there is nothing in it to train on.
func TestClientsAsk(t *testing.T) {
	t.Parallel()
	needPython(t)
	for _, c := range []client{pythonClient(false), typeScriptClient()} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := newVLLM(t, accountant)
			s := serve(t, "sqlite:"+filepath.Join(t.TempDir(), "agl.db"), "--model", "agent="+m.url, "--model", "other="+m.url, "--auth-token", secret)
			at := s.admitted(t)
			var got struct {
				Models      []string
				Missing     string
				Count, Used int
				Vectors     [][]float32
			}
			c.run(t, "asking", map[string]any{"url": at.url, "key": at.token, "question": questions[0]}, &got)
			if diff := cmp.Diff([]string{"agent", "other"}, got.Models); diff != "" {
				t.Errorf("models (-want +got):\n%s", diff)
			}
			if !strings.Contains(got.Missing, "nobody") {
				t.Errorf("a model that is not there is answered %q, want its name", got.Missing)
			}
			if prompt := len(m.until(t, 1)[0].prompt); got.Count != prompt || got.Used != prompt {
				t.Errorf("the prompt was said to have %d tokens, then %d; the model read %d", got.Count, got.Used, prompt)
			}
			if diff := cmp.Diff([][]float32{embedding(questions[0]), embedding("und"), embedding(questions[0])}, got.Vectors); diff != "" {
				t.Errorf("embeddings (-want +got):\n%s", diff)
			}
			checkProblem(t, s.span(t, at), "", 200)
		})
	}
}
