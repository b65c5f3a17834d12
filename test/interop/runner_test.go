package interop

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/emit"
	"agentlightning/semconv"
)

// Names of spans as the Python emitters write them.
const (
	annotation = "agentlightning.annotation"
	message    = "agentlightning.message"
	object     = "agentlightning.object"
	exception  = "agentlightning.exception"
	operation  = "agentlightning.operation"
)

// ran is what running.main returns.
type ran struct {
	Hooks   map[string][]string
	Stepped *agl.AttemptedRollout
}

// A runnerCase is a task, and what must be in the store after it.
type runnerCase struct {
	name   string
	mode   agl.Mode
	config *agl.RolloutConfig

	attempts []agl.AttemptStatus // the last one is also the rollout's
	// spans that follow the mark that the agent leaves in every attempt.
	spans  []string
	reward *float64
	hooks  []string // of all attempts
}

var (
	ok     = []agl.AttemptStatus{agl.AttemptSucceeded}
	failed = []agl.AttemptStatus{agl.AttemptFailed}
)

// success is what hooks see of an attempt that went well.
func success(spans int) []string {
	return []string{"rollout start", "trace start", "trace end", fmt.Sprintf("rollout end, %d spans", spans)}
}

var runnerCases = []runnerCase{
	{name: "float", mode: agl.ModeTrain, attempts: ok, spans: []string{message, annotation}, reward: new(0.5), hooks: success(2)},
	{name: "int", mode: agl.ModeVal, attempts: ok, spans: []string{message, annotation}, reward: new(2.0), hooks: success(2)},
	{
		name: "emits", mode: agl.ModeTrain, attempts: ok, reward: new(0.75), hooks: success(12),
		spans: []string{message, object, object, object, annotation, "inner", operation, exception, annotation, annotation, message},
	},
	{name: "core", mode: agl.ModeTest, attempts: ok, spans: []string{message, annotation, object}, reward: new(0.5), hooks: success(2)},
	{name: "sdk spans", mode: agl.ModeTrain, attempts: ok, spans: []string{message, "inner", "outer"}, hooks: success(2)},
	{name: "spans", mode: agl.ModeTrain, attempts: ok, spans: []string{message, "own-5", "own-6"}, hooks: success(2)},
	{name: "empty", mode: agl.ModeTrain, attempts: ok, spans: []string{message}, hooks: success(0)},
	{name: "mode", attempts: ok, spans: []string{message}, hooks: success(2)},
	{name: "beat", mode: agl.ModeTrain, attempts: ok, spans: []string{message, annotation}, reward: new(1.0), hooks: success(2)},
	// What goes wrong in the agent ends the trace without its hook.
	{name: "fail", mode: agl.ModeTrain, attempts: failed, spans: []string{message}, hooks: []string{"rollout start", "trace start", "rollout end, 0 spans"}},
	{name: "text", mode: agl.ModeTrain, attempts: failed, spans: []string{message}, hooks: success(0)},
	{name: "mixed", mode: agl.ModeTrain, attempts: failed, spans: []string{message}, hooks: success(0)},
	{
		name: "retry", mode: agl.ModeTrain,
		config:   &agl.RolloutConfig{MaxAttempts: 2, RetryCondition: []agl.AttemptStatus{agl.AttemptFailed}},
		attempts: []agl.AttemptStatus{agl.AttemptFailed, agl.AttemptSucceeded},
		spans:    []string{message, annotation, message, annotation}, reward: new(1.0),
		hooks: append([]string{"rollout start", "trace start", "rollout end, 0 spans"}, success(2)...),
	},
}

// TestRunner runs agents with the Python runner, its OpenTelemetry tracer and hooks.
func TestRunner(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sync", "async"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			eachBackend(t, func(t *testing.T, s *server) {
				resourcesID := s.addResources(t)
				var tasks []task
				executions := 0
				for _, c := range runnerCases {
					tasks = append(tasks, task{input: fmt.Sprintf(`{"case":%q}`, c.name), mode: c.mode, config: c.config})
					executions += len(c.attempts)
				}
				ids := s.enqueue(t, tasks...)
				var got ran
				call(t, "running", map[string]any{"url": s.url, "agent": kind, "executions": executions}, &got)
				for i, c := range runnerCases {
					t.Run(c.name, func(t *testing.T) {
						c.check(t, s, kind, ids[i], resourcesID)
						if diff := cmp.Diff(c.hooks, got.Hooks[ids[i]]); diff != "" {
							t.Errorf("hooks (-want +got):\n%s", diff)
						}
					})
				}
				checkEmitted(t, s.spans(t, ids[2]))
				checkSteps(t, s, got, ids)
				w := s.worker(t, "Worker-0")
				var stats map[string]any
				if err := json.Unmarshal(w.HeartbeatStats, &stats); err != nil || stats["cpu_cores"] == nil || w.LastHeartbeatTime == nil {
					t.Errorf("heartbeat is %s at %v (%v), want the snapshot of the machine", w.HeartbeatStats, w.LastHeartbeatTime, err)
				}
				if w.Status != agl.WorkerIdle || w.CurrentRolloutID != nil {
					t.Errorf("worker is %+v, want it idle", w)
				}
			})
		})
	}
}

func (c runnerCase) check(t *testing.T, s *server, kind, id, resourcesID string) {
	t.Helper()
	r, attempts, spans := s.rollout(t, id), s.attempts(t, id), s.spans(t, id)
	last := c.attempts[len(c.attempts)-1]
	if string(r.Status) != string(last) || r.EndTime == nil || r.ResourcesID == nil || *r.ResourcesID != resourcesID {
		t.Errorf("rollout is %+v, want %s with an end and resources %s", r.Rollout, last, resourcesID)
	}
	var statuses []agl.AttemptStatus
	for i, a := range attempts {
		statuses = append(statuses, a.Status)
		if a.SequenceID != i+1 || a.EndTime == nil || a.WorkerID == nil || *a.WorkerID != "Worker-0" || a.LastHeartbeatTime == nil {
			t.Errorf("attempt %d is %+v, want an ended one of Worker-0 that spans kept alive", i, a)
		}
	}
	if diff := cmp.Diff(c.attempts, statuses); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
	var names []string
	for i, span := range spans {
		names = append(names, span.Name)
		if c.name != "spans" && span.SequenceID != int64(i)+1 {
			t.Errorf("span %d has sequence id %d, want them without gaps", i, span.SequenceID)
		}
	}
	if diff := cmp.Diff(append([]string{annotation}, c.spans...), names); diff != "" {
		t.Fatalf("spans (-want +got):\n%s", diff)
	}
	method := "validation_rollout"
	if c.mode == agl.ModeTrain {
		method = "training_rollout"
	}
	if kind == "async" {
		method += "_async"
	}
	if got, _ := spans[0].Attributes.Get("method"); got != method {
		t.Errorf("the agent ran %v, want %s", got, method)
	}
	if got, _ := spans[0].Attributes.Get("prompt"); got != "Answer {question}" {
		t.Errorf("the agent was given the prompt %v", got)
	}
	reward, err := adapter.Final(spans)
	if diff := cmp.Diff(c.reward, reward); diff != "" || err != nil {
		t.Errorf("final reward (-want +got):\n%s%v", diff, err)
	}
}

// checkEmitted reads what emits() in running.py emitted with the readers of this module.
func checkEmitted(t *testing.T, spans []agl.Span) {
	t.Helper()
	if len(spans) != 12 {
		return // reported already
	}
	text, found, err := emit.MessageOf(&spans[1])
	if text != "thinking" || !found || err != nil {
		t.Errorf("MessageOf = %q, %v, %v, want thinking", text, found, err)
	}
	for i, want := range []any{
		map[string]any{"answer": []any{int64(1), 2.0, nil}, "ü": true}, "plain", []byte{0, 0xff},
	} {
		got, found, err := emit.ObjectOf(&spans[2+i])
		if diff := cmp.Diff(want, got); diff != "" || !found || err != nil {
			t.Errorf("ObjectOf span %d: %v, %v (-want +got):\n%s", 2+i, found, err, diff)
		}
	}
	tags, err := emit.TagsOf(&spans[5])
	if diff := cmp.Diff([]string{"a", "b"}, tags); diff != "" || err != nil {
		t.Errorf("TagsOf: %v (-want +got):\n%s", err, diff)
	}
	links, err := emit.LinksOf(&spans[5])
	if diff := cmp.Diff([]emit.LinkMatch{{Key: "gen_ai.response.id", Value: "r-1"}}, links); diff != "" || err != nil {
		t.Errorf("LinksOf: %v (-want +got):\n%s", err, diff)
	}
	nested, err := emit.Unflatten(spans[5].Attributes, "nested")
	if diff := cmp.Diff(map[string]any{"list": []int64{1, 2}, "deep": map[string]any{"x": "y"}}, nested); diff != "" || err != nil {
		t.Errorf("Unflatten: %v (-want +got):\n%s", err, diff)
	}
	inner, op := spans[6], spans[7]
	if inner.ParentID == nil || *inner.ParentID != op.SpanID || inner.TraceID != op.TraceID || len(inner.Events) != 1 {
		t.Errorf("the span within the operation is %+v, want it below %s with an event", inner, op.SpanID)
	}
	if ids, _ := inner.Attributes.Get("ids"); !cmp.Equal(ids, []int64{1, 2, 3}) {
		t.Errorf("ids of the span within the operation are %v", ids)
	}
	if diff := cmp.Diff(agl.Attributes{
		{Key: "cost", Value: 1.5},
		{Key: "agentlightning.operation.name", Value: "search"},
		{Key: "agentlightning.operation.input.args.0", Value: "query"},
		{Key: "agentlightning.operation.input.top_k", Value: int64(3)},
		{Key: "agentlightning.operation.output.hits", Value: []string{"a"}},
	}, op.Attributes); diff != "" {
		t.Errorf("attributes of the operation (-want +got):\n%s", diff)
	}
	if kind, _ := spans[8].Attributes.Get("exception.type"); kind != "ValueError" {
		t.Errorf("the exception is a %v", kind)
	}
	rewards, err := agl.Rewards(&spans[9])
	if diff := cmp.Diff([]agl.RewardDimension{{Name: "correct", Value: 0.25}, {Name: "format", Value: 1}}, rewards); diff != "" || err != nil {
		t.Errorf("Rewards: %v (-want +got):\n%s", err, diff)
	}
	if value, err := agl.RewardValue(&spans[9]); err != nil || value == nil || *value != 0.25 {
		t.Errorf("RewardValue = %v, %v, want the primary one", value, err)
	}
}

// checkSteps looks at the two rollouts that did not come from the queue.
func checkSteps(t *testing.T, s *server, got ran, queued []string) {
	t.Helper()
	if got.Stepped == nil {
		t.Fatal("step returned nothing")
	}
	var stepped, broken []agl.AttemptedRollout
	for _, r := range s.rollouts(t) {
		switch {
		case slices.Contains(queued, r.RolloutID):
		case r.RolloutID == got.Stepped.RolloutID:
			stepped = append(stepped, r)
		default:
			broken = append(broken, r)
		}
	}
	if len(stepped) != 1 || len(broken) != 1 || broken[0].Status != agl.RolloutFailed || stepped[0].Status != agl.RolloutSucceeded {
		t.Fatalf("steps left %+v and %+v, want one that succeeded and one that failed", stepped, broken)
	}
	if diff := cmp.Diff(stepped[0], *got.Stepped); diff != "" {
		t.Errorf("what step returned (-stored +returned):\n%s", diff)
	}
	if prompt, _ := s.spans(t, stepped[0].RolloutID)[0].Attributes.Get("prompt"); prompt != "step" {
		t.Errorf("the step was given the prompt %v, want its own", prompt)
	}
}

// TestRunnersSideBySide lets several processes empty one queue.
func TestRunnersSideBySide(t *testing.T) {
	t.Parallel()
	const runners, each = 3, 40
	eachBackend(t, func(t *testing.T, s *server) {
		s.addResources(t)
		var tasks []task
		for i := range runners * each {
			tasks = append(tasks, task{input: fmt.Sprintf(`{"number":%d}`, i), mode: agl.ModeTrain})
		}
		ids := s.enqueue(t, tasks...)
		errs := make([]error, runners)
		var wg sync.WaitGroup
		for i := range runners {
			wg.Go(func() {
				var got ran
				errs[i] = python.driver.call(t, "running", map[string]any{"url": s.url, "agent": "quick", "executions": each, "worker": i}, &got)
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		done := map[string]int{}
		for i, id := range ids {
			attempts, spans := s.attempts(t, id), s.spans(t, id)
			if len(attempts) != 1 || attempts[0].Status != agl.AttemptSucceeded || s.rollout(t, id).Status != agl.RolloutSucceeded {
				t.Fatalf("rollout %d has attempts %+v, want one that succeeded", i, attempts)
			}
			worker := *attempts[0].WorkerID
			done[worker]++
			if len(spans) != 2 {
				t.Fatalf("rollout %d has %d spans, want the mark of one worker and a reward", i, len(spans))
			}
			mark, _, err := emit.MessageOf(&spans[0])
			if want := "worker " + strings.TrimPrefix(worker, "Worker-"); mark != want || err != nil {
				t.Errorf("rollout %d of %s has the message %q (%v), want %q", i, worker, mark, err, want)
			}
			if reward, err := adapter.Final(spans); err != nil || reward == nil || *reward != float64(i) {
				t.Errorf("rollout %d has the reward %v (%v), want %d", i, reward, err, i)
			}
		}
		if diff := cmp.Diff(map[string]int{"Worker-0": each, "Worker-1": each, "Worker-2": each}, done); diff != "" {
			t.Errorf("rollouts by worker (-want +got):\n%s", diff)
		}
		if got := s.statistics(t); got.TotalAttempts != runners*each || got.TotalSpans != 2*runners*each {
			t.Errorf("the store has %d attempts and %d spans, want %d and %d", got.TotalAttempts, got.TotalSpans, runners*each, 2*runners*each)
		}
	})
}

// TestRunnerAgentOps runs an agent with the tracer that Trainer takes by
// default. It watches the model's client, so that a call is recorded twice: by
// it, and by the proxy.
func TestRunnerAgentOps(t *testing.T) {
	t.Parallel()
	needPython(t)
	m := newVLLM(t, echo)
	eachBackend(t, func(t *testing.T, s *server) {
		s.addResources(t)
		ids := s.enqueue(t, task{input: `{"question":"one"}`}, task{input: `{"question":"two"}`})
		var got ran
		call(t, "running", map[string]any{"url": s.url, "agent": "caller", "executions": len(ids)}, &got)
		for i, id := range ids {
			spans := s.spans(t, id)
			var names []string
			for i := range spans {
				names = append(names, spans[i].Name)
			}
			// The session ends last, and everything goes out in one batch after it.
			if diff := cmp.Diff([]string{semconv.SpanModelCall, semconv.SpanModelCall, message, annotation, id + ".session"}, names); diff != "" {
				t.Fatalf("spans (-want +got):\n%s", diff)
			}
			proxied, watched, session := spans[0], spans[1], spans[4]
			if proxied.TraceID == watched.TraceID || watched.ParentID == nil || *watched.ParentID != session.SpanID {
				t.Errorf("calls are %+v and %+v, want one of the proxy and one below the session", proxied, watched)
			}
			for _, span := range spans[1:] {
				if owner, _ := span.Resource.Attributes.Get("agentlightning.rollout_id"); owner != id {
					t.Errorf("span %s is said to belong to %v, want %s", span.Name, owner, id)
				}
			}
			calls, err := adapter.Calls(spans)
			if err != nil || len(calls) != 1 {
				t.Fatalf("Calls = %+v, %v, want the call once", calls, err)
			}
			if c := calls[0]; !c.Usable() || c.SpanID != proxied.SpanID || c.Reward == nil || *c.Reward != 0.5 {
				t.Errorf("the call is %+v, want the proxy's, with the reward", c)
			}
			if text, _, err := emit.MessageOf(&spans[2]); err != nil || text != "It is "+[]string{"one", "two"}[i] {
				t.Errorf("the agent was answered %q (%v)", text, err)
			}
			// Python's own adapter, too, sees one call and not two.
			triplets, err := adapter.TracerTriplets(spans, adapter.TracerOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want := m.triplets(t, spans[:1])
			want[0].Reward = new(0.5)
			compareTriplets(t, "our adapter", want, triplets)
			sameInBoth(t, s, id)
		}
	}, "--model", "agent="+m.url)
}
