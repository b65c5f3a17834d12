package runner_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/emit"
	"agentlightning/runner"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/storehttp"
)

// The recordings in testdata/vectors/runner say what the runner of the Python
// implementation sends to a server, in which order. Ours sends the same, with
// these differences, which steps evens out:
//
//   - several spans or sequence ids are one request of our bulk routes
//     (spans/batch, spans/next/batch) instead of many;
//   - spans of the tracer are written as the store's JSON, after sequence ids
//     were asked for, where Python exports them by OTLP (/v1/traces);
//   - a failed attempt carries its reason as metadata beside the status;
//   - a claim waits at the server, so an idle runner does not ask again and again;
//   - the first heartbeat comes at once.

type replayTask struct {
	Question string `json:"question"`
}

func replayAgent[R agent.Output](f func(ctx context.Context, c *agent.Call) (R, error)) agent.Agent {
	return agent.New(func(ctx context.Context, _ replayTask, c *agent.Call) (R, error) { return f(ctx, c) })
}

func returns[R agent.Output](r R, err error) agent.Agent {
	return replayAgent(func(context.Context, *agent.Call) (R, error) { return r, err })
}

// scenario is one recording with what our runner has to do for it.
type scenario struct {
	agent     agent.Agent
	enqueue   store.EnqueueRequest // its resources are filled in
	rollouts  int                  // to be done; default 1
	heartbeat time.Duration        // default none
	step      bool
	otlp      bool // the recorded runner exports spans by OTLP
	ends      agl.RolloutStatus
}

var replay = map[string]scenario{
	"float_reward":     {agent: returns(0.75, nil), ends: agl.RolloutSucceeded},
	"int_return":       {agent: returns(1.0, nil), ends: agl.RolloutSucceeded},
	"latest_resources": {agent: returns(0.75, nil), ends: agl.RolloutSucceeded},
	"exception":        {agent: returns(0.0, errors.New("boom")), ends: agl.RolloutFailed},
	"invalid_return":   {agent: returns(math.NaN(), nil), ends: agl.RolloutFailed}, // the compiler refuses a text
	"empty_list":       {agent: returns([]agl.SpanCore{}, nil), ends: agl.RolloutSucceeded},
	"core_fields": {agent: returns([]agl.SpanCore{
		{Name: "a", Status: agl.TraceStatus{StatusCode: agl.StatusOK}, Attributes: agl.Attributes{{Key: "k", Value: int64(1)}}},
		{Name: "b", Status: agl.TraceStatus{StatusCode: agl.StatusOK}, Attributes: agl.Attributes{{Key: "k", Value: int64(2)}}},
	}, nil), ends: agl.RolloutSucceeded},
	"none_emit": {otlp: true, ends: agl.RolloutSucceeded, agent: replayAgent(func(ctx context.Context, _ *agent.Call) (agent.Result, error) {
		return agent.Result{}, errors.Join(emit.Message(ctx, "hello"), emit.Reward(ctx, 0.5))
	})},
	"retry": {
		agent: replayAgent(func(_ context.Context, c *agent.Call) (float64, error) {
			if c.Rollout.Attempt.SequenceID == 1 {
				return 0, errors.New("first")
			}
			return 1, nil
		}),
		enqueue:  store.EnqueueRequest{Config: &agl.RolloutConfig{MaxAttempts: 2, RetryCondition: []agl.AttemptStatus{agl.AttemptFailed}}},
		rollouts: 2, ends: agl.RolloutSucceeded,
	},
	"heartbeat_thread": {
		agent: replayAgent(func(ctx context.Context, _ *agent.Call) (float64, error) {
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
			}
			return 1, nil
		}),
		heartbeat: 50 * time.Millisecond, ends: agl.RolloutSucceeded,
	},
	"step":           {agent: returns(0.25, nil), step: true, ends: agl.RolloutSucceeded},
	"step_exception": {agent: returns(0.0, errors.New("boom")), step: true, ends: agl.RolloutFailed},
	"llm_agent": {ends: agl.RolloutSucceeded, agent: agent.WithLLM(func(_ context.Context, _ replayTask, llm agl.LLM) (float64, error) {
		if !regexp.MustCompile(`^http://127.0.0.1:9000/rollout/ro-\w+/attempt/at-\w+/v1$`).MatchString(llm.Endpoint) {
			return 0, fmt.Errorf("endpoint %s is not that of the attempt", llm.Endpoint)
		}
		return 1, nil
	})},
}

// notReplayed says why the other recordings are not in the table.
var notReplayed = map[string]string{
	"agentops_openai":   "AgentOps patches Python's OpenAI client; storehttp replays its requests against the server",
	"apo_small":         "holds only what the algorithm sends, and no request of a runner",
	"baseline_dev":      "two rollouts among the algorithm's requests, see TestReplayBaseline",
	"no_resources_skip": "ours reports what Python leaves behind, see TestReplayWithoutResources",
	"cs_two_runners":    "two runners at once, see TestReplayTwoRunners",
	"stop_event_idle":   "there is nothing to do, see TestReplayIdle",
}

func TestReplay(t *testing.T) {
	t.Parallel()
	files, err := os.ReadDir(traces)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(file.Name(), ".json")
		s, ok := replay[name]
		if !ok {
			if notReplayed[name] == "" {
				t.Errorf("%s is not replayed and no reason is given", name)
			}
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec := load(t, name)
			w := newWire(t)
			s.run(t, w, rec)
			got, want := steps(t, w.seen(), s.otlp), steps(t, rec.Exchanges, s.otlp)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("requests (-recorded +ours):\n%s", diff)
			}
			if s.heartbeat > 0 {
				checkHeartbeat(t, rec.Exchanges, w.seen())
			}
		})
	}
}

const traces = "../testdata/vectors/runner/traces"

type exchange struct {
	Method      string          `json:"method"`
	Path        string          `json:"path"`
	Request     json.RawMessage `json:"request"`
	RequestOTLP json.RawMessage `json:"request_otlp"`
}

type recorded struct {
	Exchanges []exchange `json:"exchanges"`
	Hooks     []string   `json:"hooks"`
}

func load(t *testing.T, name string) recorded {
	t.Helper()
	data, err := os.ReadFile(traces + "/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var rec recorded
	if err := json.Unmarshal(data, &rec); err != nil {
		t.Fatal(err)
	}
	return rec
}

// wire is a store behind HTTP that notes the requests.
type wire struct {
	store  store.Store // on the server's side
	client *storehttp.Client

	claims chan struct{} // a token for each claim that arrives, as long as there is room

	mu        sync.Mutex
	exchanges []exchange
}

func newWire(t *testing.T) *wire {
	t.Helper()
	w := &wire{store: engine.New(memory.New(), engine.Config{}), claims: make(chan struct{}, 1)}
	handler := storehttp.NewHandler(w.store, storehttp.Config{})
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("%s %s: %v", r.Method, r.URL.Path, err)
		}
		w.mu.Lock()
		w.exchanges = append(w.exchanges, exchange{Method: r.Method, Path: r.URL.Path, Request: body})
		w.mu.Unlock()
		if strings.HasSuffix(r.URL.Path, "/dequeue") {
			select {
			case w.claims <- struct{}{}:
			default:
			}
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		handler.ServeHTTP(rw, r)
	}))
	t.Cleanup(func() {
		server.Close()
		w.store.Close()
	})
	var err error
	if w.client, err = storehttp.NewClient(server.URL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.client.Close() })
	return w
}

func (w *wire) seen() []exchange {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.exchanges)
}

func (s scenario) run(t *testing.T, w *wire, rec recorded) {
	t.Helper()
	var hooks []string
	note := func(name string) func(context.Context, *agent.Call) error {
		return func(context.Context, *agent.Call) error { hooks = append(hooks, name); return nil }
	}
	cfg := runner.Config{
		Store: w.client, Agent: s.agent, MaxRollouts: max(s.rollouts, 1), HeartbeatInterval: -1,
		WatchInterval: -1, Hooks: []agent.Hook{{
			OnRolloutStart: note("on_rollout_start"), OnTraceStart: note("on_trace_start"),
			OnTraceEnd: note("on_trace_end"), OnRolloutEnd: func(ctx context.Context, c *agent.Call, _ agent.Outcome) error {
				return note("on_rollout_end")(ctx, c)
			},
		}},
	}
	if s.heartbeat > 0 {
		cfg.HeartbeatInterval = s.heartbeat
	}
	r, err := runner.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	resources := agl.NamedResources{
		{Name: "main_prompt", Resource: agl.PromptTemplate{Template: "Q: {question}", Engine: "f-string"}},
		{Name: "main_llm", Resource: agl.ProxyLLM{Endpoint: "http://127.0.0.1:9000/v1", Model: "m"}},
	}
	if s.step {
		_, err := r.Step(t.Context(), runner.Task{Input: json.RawMessage(`{"question":"2+2"}`), Mode: agl.ModeVal, Resources: resources[:1]})
		if (err == nil) != (s.ends == agl.RolloutSucceeded) {
			t.Errorf("Step() = %v", err)
		}
	} else {
		if _, err := w.store.AddResources(t.Context(), resources); err != nil {
			t.Fatal(err)
		}
		s.enqueue.Input, s.enqueue.Mode = json.RawMessage(`{"question":"1+1"}`), agl.ModeTrain
		if _, err := w.store.EnqueueRollouts(t.Context(), []store.EnqueueRequest{s.enqueue}); err != nil {
			t.Fatal(err)
		}
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	page, err := w.store.QueryRollouts(t.Context(), store.RolloutQuery{})
	if err != nil || len(page.Items) != 1 || page.Items[0].Status != s.ends {
		t.Errorf("rollouts %+v, %v, want one that is %s", page.Items, err, s.ends)
	}
	if diff := cmp.Diff(rec.Hooks, hooks); rec.Hooks != nil && diff != "" {
		t.Errorf("hooks (-recorded +ours):\n%s", diff)
	}
}

var idPattern = regexp.MustCompile(`<[a-z]+-\d+>|\b(ro|at|rs)-[0-9a-f]+\b`)

// steps writes requests as lines that can be compared: ids numbered by their
// first appearance, bulk requests taken apart, heartbeats and repeated claims
// left out.
func steps(t *testing.T, exchanges []exchange, otlp bool) []string {
	t.Helper()
	var out []string
	ids := map[string]string{}
	rename := func(s string) string {
		return idPattern.ReplaceAllStringFunc(s, func(id string) string {
			if ids[id] == "" {
				ids[id] = fmt.Sprintf("<%d>", len(ids)+1)
			}
			return ids[id]
		})
	}
	add := func(format string, args ...any) {
		if line := rename(fmt.Sprintf(format, args...)); len(out) == 0 || out[len(out)-1] != line || !strings.Contains(line, "dequeue") {
			out = append(out, line)
		}
	}
	span := func(s wireSpan) {
		if otlp {
			add("span %s", s.Name)
			return
		}
		add("span %s #%d %s %s", s.Name, s.SequenceID, s.Attributes.AppendJSON(nil), s.AttemptID)
	}
	for _, e := range exchanges {
		path := strings.TrimPrefix(e.Path, "/v1/agl/")
		var b struct {
			wireSpan
			Limit    int        `json:"limit"`
			WorkerID string     `json:"worker_id"`
			Status   string     `json:"status"`
			Mode     string     `json:"mode"`
			Spans    []wireSpan `json:"spans"`
			Attempts []struct {
				AttemptID string `json:"attempt_id"`
			} `json:"attempts"`
		}
		if len(e.Request) > 0 && path != "spans" {
			if err := json.Unmarshal(e.Request, &b); err != nil {
				t.Fatalf("%s: %s: %v", path, e.Request, err)
			}
		}
		switch {
		case strings.HasPrefix(path, "workers/"):
		case path == "queues/rollouts/dequeue":
			add("dequeue %d by %s", b.Limit, b.WorkerID)
		case path == "spans/next":
			if !otlp {
				add("next %s", b.AttemptID)
			}
		case path == "spans/next/batch":
			for _, a := range b.Attempts {
				if !otlp {
					add("next %s", a.AttemptID)
				}
			}
		case path == "spans":
			var s wireSpan
			if err := json.Unmarshal(e.Request, &s); err != nil {
				t.Fatal(err)
			}
			span(s)
		case path == "spans/batch":
			for _, s := range b.Spans {
				span(s)
			}
		case e.Path == "/v1/traces":
			for _, name := range otlpName.FindAllSubmatch(e.RequestOTLP, -1) {
				add("span %s", name[1])
			}
		case b.Status != "":
			add("%s %s %s", e.Method, path, b.Status)
		default:
			add("%s %s", e.Method, path)
		}
	}
	return out
}

// otlpName finds the names of spans, and not those of scopes.
var otlpName = regexp.MustCompile(`"name":\s*"(agentlightning\.(?:message|annotation))"`)

type wireSpan struct {
	Name       string         `json:"name"`
	SequenceID int64          `json:"sequence_id"`
	AttemptID  string         `json:"attempt_id"`
	Attributes agl.Attributes `json:"attributes"`
}

// checkHeartbeat compares the members of the heartbeats.
func checkHeartbeat(t *testing.T, recorded, ours []exchange) {
	t.Helper()
	members := func(exchanges []exchange) (keys []string, n int) {
		for _, e := range exchanges {
			if !strings.Contains(e.Path, "/workers/") {
				continue
			}
			n++
			var b struct {
				Stats map[string]any `json:"heartbeat_stats"`
			}
			if err := json.Unmarshal(e.Request, &b); err != nil {
				t.Fatal(err)
			}
			keys = keys[:0]
			for key := range b.Stats {
				keys = append(keys, key)
			}
		}
		slices.Sort(keys)
		return keys, n
	}
	want, _ := members(recorded)
	got, n := members(ours)
	if n < 2 {
		t.Errorf("%d heartbeats, want some", n)
	}
	for _, key := range want { // where there is no /proc some are left out
		if !slices.Contains(got, key) && (slices.Contains(got, "mem_pct") || key == "timestamp" || key == "host" || key == "os") {
			t.Errorf("the heartbeat has no %s, only %v", key, got)
		}
	}
}

// TestReplayTwoRunners compares the requests of each rollout, since two runners
// mix theirs.
func TestReplayTwoRunners(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	if _, err := w.store.UpdateResources(t.Context(), "default", agl.NamedResources{}); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if _, err := w.store.EnqueueRollouts(t.Context(), []store.EnqueueRequest{{Input: json.RawMessage(`{"question":"?"}`)}}); err != nil {
			t.Fatal(err)
		}
	}
	var runners sync.WaitGroup
	both := make(chan struct{}, 2)
	together := replayAgent(func(ctx context.Context, _ *agent.Call) (float64, error) {
		both <- struct{}{} // neither runner gets all the work
		for len(both) < 2 {
			select {
			case <-time.After(time.Millisecond):
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
		return 1, nil
	})
	for i := range 2 {
		r, err := runner.New(runner.Config{
			Store: w.client, Agent: together, WorkerID: fmt.Sprintf("Worker-%d", i),
			MaxRollouts: 1, HeartbeatInterval: -1, WatchInterval: -1,
		})
		if err != nil {
			t.Fatal(err)
		}
		runners.Go(func() {
			if err := r.Run(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	runners.Wait()
	want := perAttempt(t, load(t, "cs_two_runners").Exchanges)
	got := perAttempt(t, w.seen())
	if len(got) != 2 {
		t.Fatalf("%d attempts were made, want 2", len(got))
	}
	for _, lines := range got {
		if !slices.Equal(lines, want[0]) {
			t.Errorf("requests of an attempt %q, recorded %q", lines, want[0])
		}
	}
}

// perAttempt lists, for each attempt, which requests named it.
func perAttempt(t *testing.T, exchanges []exchange) [][]string {
	t.Helper()
	var order []string
	byAttempt := map[string][]string{}
	attempt := regexp.MustCompile(`<attempt-\d+>|\bat-[0-9a-f]+\b`)
	for _, e := range exchanges {
		id := attempt.FindString(e.Path + string(e.Request))
		if id == "" {
			continue
		}
		if byAttempt[id] == nil {
			order = append(order, id)
		}
		path := regexp.MustCompile(`rollouts/.*`).ReplaceAllString(strings.TrimSuffix(e.Path, "/batch"), "attempt")
		byAttempt[id] = append(byAttempt[id], path)
	}
	out := make([][]string, len(order))
	for i, id := range order {
		out[i] = byAttempt[id]
	}
	return out
}

// TestReplayBaseline compares the runner's half of a conversation in which an
// algorithm enqueues two rollouts.
func TestReplayBaseline(t *testing.T) {
	t.Parallel()
	var recorded []exchange
	algorithm := regexp.MustCompile(`/search$|/enqueue$|/rollouts/<rollout-\d>$`)
	for _, e := range load(t, "baseline_dev").Exchanges {
		if !algorithm.MatchString(e.Path) && (e.Method != http.MethodPost || !strings.Contains(e.Path, "/resources/")) {
			recorded = append(recorded, e)
		}
	}
	w := newWire(t)
	if _, err := w.store.UpdateResources(t.Context(), "default", agl.NamedResources{
		{Name: "prompt_template", Resource: agl.PromptTemplate{Template: "Q: {question}", Engine: "f-string"}},
	}); err != nil {
		t.Fatal(err)
	}
	for i, mode := range []agl.Mode{agl.ModeTrain, agl.ModeVal} {
		input := json.RawMessage(fmt.Sprintf(`{"question":"%d"}`, i))
		if _, err := w.store.EnqueueRollouts(t.Context(), []store.EnqueueRequest{{Input: input, Mode: mode}}); err != nil {
			t.Fatal(err)
		}
	}
	r, err := runner.New(runner.Config{
		Store: w.client, WorkerID: "Worker-0", MaxRollouts: 2, HeartbeatInterval: -1, WatchInterval: -1,
		Agent: replayAgent(func(ctx context.Context, _ *agent.Call) (agent.Result, error) {
			return agent.Result{}, emit.Reward(ctx, 0.5)
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := steps(t, recorded, true)
	want = want[:len(want)-1] // Python asks once more before it is stopped
	if diff := cmp.Diff(want, steps(t, w.seen(), true)); diff != "" {
		t.Errorf("requests (-recorded +ours):\n%s", diff)
	}
}

// TestReplayWithoutResources compares what is sent when there are no resources
// at all. Python drops such a rollout, which stays preparing for ever; ours says
// that the attempt failed.
func TestReplayWithoutResources(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	enqueued, err := w.store.EnqueueRollouts(t.Context(), []store.EnqueueRequest{{Input: json.RawMessage(`{"question":"1+1"}`)}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := runner.New(runner.Config{
		Store: w.client, WorkerID: "Worker-0", MaxRollouts: 1, HeartbeatInterval: -1, WatchInterval: -1,
		Agent: agent.WithLLM(func(context.Context, replayTask, agl.LLM) (float64, error) { return 1, nil }),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := append(steps(t, load(t, "no_resources_skip").Exchanges, false),
		"POST rollouts/<1>/attempts/<2> failed")
	if diff := cmp.Diff(want, steps(t, w.seen(), false)); diff != "" {
		t.Errorf("requests (-recorded +ours):\n%s", diff)
	}
	if got, err := w.store.Rollout(t.Context(), enqueued[0].RolloutID); err != nil || got.Status != agl.RolloutFailed {
		t.Errorf("rollout %+v, %v, want it failed", got, err)
	}
}

func TestReplayIdle(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	r, err := runner.New(runner.Config{Store: w.client, Agent: returns(1.0, nil), HeartbeatInterval: -1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if got, want := steps(t, w.seen(), false), steps(t, load(t, "stop_event_idle").Exchanges, false); !slices.Equal(got, want) {
		t.Errorf("requests %q, recorded %q", got, want)
	}
}

// TestPromptStart measures what long polling is for: an idle runner behind HTTP
// starts within 20 ms of the enqueue.
func TestPromptStart(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	started := make(chan time.Time, 1)
	r, err := runner.New(runner.Config{
		Store: w.client, HeartbeatInterval: -1,
		Agent: replayAgent(func(context.Context, *agent.Call) (float64, error) { started <- time.Now(); return 1, nil }),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	best := time.Hour
	for range 10 {
		<-w.claims // the runner asks, and is going to wait
		began := time.Now()
		if _, err := w.store.EnqueueRollouts(t.Context(), []store.EnqueueRequest{{Input: json.RawMessage(`{}`)}}); err != nil {
			t.Fatal(err)
		}
		best = min(best, (<-started).Sub(began))
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if best > 20*time.Millisecond {
		t.Errorf("an idle runner started %v after the enqueue at the best of ten, want at most 20ms", best)
	}
	t.Logf("started %v after the enqueue", best)
}

func TestServerThatDeniesAccess(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"detail":"this server asks for a token"}`)
	}))
	defer server.Close()
	client, err := storehttp.NewClient(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	r, err := runner.New(runner.Config{Store: client, Agent: returns(1.0, nil)})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	err = r.Run(t.Context())
	if !errors.Is(err, store.ErrDenied) || !strings.Contains(err.Error(), "asks for a token") || time.Since(began) > 10*time.Second {
		t.Errorf("Run() = %v after %v, want the refusal at once", err, time.Since(began))
	}
}
