package pg_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/adapter/credit"
	"agentlightning/algorithm/pg"
	"agentlightning/learner"
	"agentlightning/semconv"
)

func said(agent string, prompt, response []int64, logprob float64) agl.SpanCore {
	logprobs := make([]float64, len(response))
	for i := range logprobs {
		logprobs[i] = logprob
	}
	return agl.SpanCore{Name: semconv.SpanModelCall, Status: agl.TraceStatus{StatusCode: agl.StatusOK}, Attributes: agl.Attributes{
		{Key: semconv.GenAIAgentName, Value: agent},
		{Key: semconv.PromptTokenIDs, Value: prompt},
		{Key: semconv.ResponseTokenIDs, Value: response},
		{Key: semconv.ResponseLogprobs, Value: logprobs},
	}}
}

func rewarded(names []string, values []float64) agl.SpanCore {
	core := agl.SpanCore{Name: semconv.SpanAnnotation, Status: agl.TraceStatus{StatusCode: agl.StatusOK}}
	for i, name := range names {
		core.Attributes = append(core.Attributes, agl.Attributes{
			{Key: semconv.RewardName(i), Value: name}, {Key: semconv.RewardValue(i), Value: values[i]},
		}...)
	}
	return core
}

// two agents work on each task: the planner says the task, the coder a token that
// is sampled. Each has a part of the reward; the planner's is 10 more for task 1,
// so that a baseline over both would be of no use to either.
func two(task, token int32, logprob float64) []agl.SpanCore {
	right := 0.0
	if token == task {
		right = 1
	}
	return []agl.SpanCore{
		said("planner", []int64{int64(1 - task)}, []int64{int64(token)}, logprob),
		said("coder", []int64{int64(task)}, []int64{int64(token)}, logprob),
		rewarded([]string{semconv.PrimaryReward, "plan", "code"}, []float64{right, 10 + 4*right, right}),
	}
}

// Several agents in one rollout: each role is compared with its own.
func TestRolesHaveTheirOwnBaselines(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.work.talk = two
	b.work.start(t)
	c := config(b, "")
	rule, err := credit.Parse("role:planner@plan;coder@code")
	if err != nil {
		t.Fatal(err)
	}
	c.Steps, c.Method.Credit, c.Method.Advantages.WithoutStd = 1, rule, true
	if err := train(t, c, b.env); err != nil {
		t.Fatal(err)
	}
	rows := b.policy.batches[0].Rows
	if len(rows)%16 != 0 || len(rows) == 0 {
		t.Fatalf("%d rows, want one of each agent in groups of 8", len(rows))
	}
	byRollout := map[string][]float32{}
	for _, row := range rows {
		byRollout[row.Rollout] = append(byRollout[row.Rollout], row.Advantages[1])
	}
	for id, a := range byRollout {
		if len(a) != 2 || math.Abs(float64(a[0]-4*a[1])) > 1e-4 || math.Abs(float64(a[1])) > 1 {
			t.Errorf("rollout %s: advantages %v, want those of the planner 4 times those of the coder, whatever its 10 are", id, a)
		}
	}
}

// Only the agent that the rule names is trained.
func TestOneRoleIsTrained(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.work.talk = two
	b.work.start(t)
	c := config(b, "")
	rule, err := credit.Parse("role:coder")
	if err != nil {
		t.Fatal(err)
	}
	c.Method.Credit = rule
	var steps []pg.Step
	c.OnStep = func(s pg.Step) { steps = append(steps, s) }
	if err := train(t, c, b.env); err != nil {
		t.Fatal(err)
	}
	if got := right(b.policy); got < 0.8 {
		t.Errorf("probability of the right token = %.3f after training, want more than 0.8: what the planner says teaches the contrary", got)
	}
	for _, batch := range b.policy.batches {
		seen := map[string]bool{}
		for _, row := range batch.Rows {
			if seen[row.Rollout] {
				t.Fatalf("rollout %s has more than the row of the coder", row.Rollout)
			}
			seen[row.Rollout] = true
		}
	}
	if got := steps[1].Metrics["calls_uncredited"]; got == 0 {
		t.Errorf("metrics %v do not count the planner's calls as left out", steps[1].Metrics)
	}
}

// Calls that continue one another are one row, in which what the agent was told
// in between is not trained on.
func TestCallsAreMergedByPrefix(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.work.talk = func(task, token int32, logprob float64) []agl.SpanCore {
		right := 0.0
		if token == task {
			right = 1
		}
		p, r := int64(task), int64(token)
		return []agl.SpanCore{
			said("", []int64{p}, []int64{r, r}, logprob),
			said("", []int64{p, r, r, 0, 1}, []int64{r}, logprob),  // goes on
			said("", []int64{p, r, 1 - r}, []int64{r, r}, logprob), // does not
			rewarded([]string{semconv.PrimaryReward}, []float64{right}),
		}
	}
	b.work.start(t)
	c := config(b, "")
	c.Steps = 1
	var last pg.Step
	c.OnStep = func(s pg.Step) { last = s }
	if err := train(t, c, b.env); err != nil {
		t.Fatal(err)
	}
	rows := b.policy.batches[0].Rows
	if len(rows) == 0 || len(rows)%2 != 0 {
		t.Fatalf("%d rows, want two a rollout", len(rows))
	}
	for i, row := range rows {
		want := []float32{0, 1, 1, 0, 0, 1}
		if i%2 == 1 {
			want = []float32{0, 0, 0, 1, 1}
		}
		if diff := cmp.Diff(want, row.Mask); diff != "" {
			t.Fatalf("row %d: mask (-want +got):\n%s", i, diff)
		}
	}
	if got := last.Metrics["prefix_mismatches"]; got != 32 {
		t.Errorf("prefix_mismatches = %v, want 32: one a rollout", got)
	}
}

// The validation is split by where its tasks are from.
func TestValidationBySource(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.policy.logits = [2][2]float64{{30, 0}, {30, 0}} // always right for task 0, never for task 1
	b.work.decode = func(input json.RawMessage) (int32, error) {
		var task struct {
			N int32 `json:"n"`
		}
		err := json.Unmarshal(input, &task)
		return task.N, err
	}
	b.work.start(t)
	b.env.Train = []json.RawMessage{json.RawMessage(`{"n":0}`)}
	b.env.Val = []json.RawMessage{
		json.RawMessage(`{"n":0,"data_source":"easy"}`), json.RawMessage(`{"n":1,"data_source":"hard"}`),
		json.RawMessage(`{"n":0,"data_source":"hard"}`), json.RawMessage(`{"n":0}`),
	}
	c := config(b, "")
	c.Steps = 1
	var first pg.Step
	c.OnStep = func(s pg.Step) {
		if s.Number == 0 {
			first = s
		}
	}
	if err := train(t, c, b.env); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]float64{"easy": 1, "hard": 0.5}, first.Sources); diff != "" {
		t.Errorf("validation by source (-want +got):\n%s", diff)
	}
	if *first.Accuracy != 0.75 || first.Metrics["val/hard/reward"] != 0.5 || first.Metrics["val/hard/n_rollouts"] != 2 {
		t.Errorf("accuracy %v, metrics %v", *first.Accuracy, first.Metrics)
	}
}

// scripted is a policy that gets worse after some updates.
type scripted struct {
	*arms
	after int
}

func (s *scripted) Update(ctx context.Context, b learner.Batch) (learner.Metrics, error) {
	m, err := s.arms.Update(ctx, b)
	s.mu.Lock()
	defer s.mu.Unlock()
	if good := int(s.version) <= s.after; good {
		s.logits = [2][2]float64{{float64(5 * s.version), 0}, {0, float64(5 * s.version)}}
	} else {
		s.logits = [2][2]float64{{-3, 0}, {0, -3}}
	}
	return m, err
}

// A run whose validations do not get better ends, also when it was interrupted on
// the way, and goes back to its best weights, which are still there.
func TestEarlyStopAndBest(t *testing.T) {
	t.Parallel()
	for _, interrupted := range []bool{false, true} {
		b := setup(t)
		b.work.start(t)
		dir := t.TempDir()
		c := config(b, dir)
		c.Learner = &scripted{b.policy, 3}
		c.Steps, c.ValidateEvery = 40, 1
		c.EarlyStop, c.RestoreBest = pg.EarlyStop{Patience: 4, MinGain: 0.01}, true
		c.Method.Advantages.KeepConstant = true
		last, published := 0, []int{}
		c.Publish = func(_ context.Context, step int) (agl.NamedResources, error) {
			published = append(published, step)
			return nil, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		best, bestScore := 0, -1.0
		c.OnStep = func(s pg.Step) {
			last = s.Number
			if *s.Accuracy > bestScore {
				best, bestScore = s.Number, *s.Accuracy
			}
			if interrupted && s.Number == best+2 {
				cancel()
			}
		}
		a, err := pg.New(c)
		if err != nil {
			t.Fatal(err)
		}
		err = a.Run(ctx, b.env)
		cancel()
		if interrupted {
			runs, failed := b.store.Runs(t.Context(), 1)
			if failed != nil || err == nil {
				t.Fatalf("Run = %v; Runs: %v", err, failed)
			}
			b.env.RunID, interrupted = runs[0].RunID, false
			err = train(t, c, b.env)
		}
		if err != nil {
			t.Fatal(err)
		}
		if last != best+4 {
			t.Errorf("the run ended after step %d, want 4 validations after the best, step %d", last, best)
		}
		if got := right(b.policy); got < 0.99 {
			t.Errorf("probability of the right token = %.3f in the end, want the best weights back", got)
		}
		if n := len(published); n < 2 || published[n-1] != best {
			t.Errorf("published after steps %v, want the best, %d, last", published, best)
		}
		runs, err := b.store.Runs(t.Context(), 1)
		if err != nil || runs[0].Status != agl.RunSucceeded {
			t.Errorf("run = %+v, %v, want it succeeded", runs, err)
		}
		kept, err := b.store.LatestCheckpoint(t.Context(), runs[0].RunID)
		if err != nil || kept.Step != last || kept.Path != filepath.Join(dir, runs[0].RunID, fmt.Sprintf("step-%06d", best)) {
			t.Errorf("latest checkpoint = %+v, %v, want that of step %d with the weights of step %d", kept, err, last, best)
		}
		folders, err := filepath.Glob(filepath.Join(dir, "*", "step-*"))
		if err != nil || len(folders) != 3 {
			t.Errorf("checkpoints %v, %v, want the best and the newest two", folders, err)
		}
		for _, f := range folders {
			if _, err := os.Stat(filepath.Join(f, "logits.json")); err != nil {
				t.Error(err)
			}
		}
	}
}

// What a run would not look at is refused, before or when it meets its tasks.
func TestRunRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, tt := range []struct {
		want   string
		change func(*pg.Config)
	}{
		{"Publish takes their place", func(c *pg.Config) {
			c.Resources = agl.NamedResources{{Name: "m", Resource: agl.ProxyLLM{}}}
			c.Publish = func(context.Context, int) (agl.NamedResources, error) { return nil, nil }
		}},
		{"nothing to publish", func(c *pg.Config) { c.PublishEvery = 1 }},
		{"PublishEvery: -1", func(c *pg.Config) { c.PublishEvery = -1 }},
		{"EarlyStop.Patience: -1", func(c *pg.Config) { c.EarlyStop.Patience = -1 }},
		{"EarlyStop.MinGain", func(c *pg.Config) { c.EarlyStop.MinGain = math.NaN() }},
		{"without Patience", func(c *pg.Config) { c.EarlyStop.MinGain = 1 }},
		{"without ValidateEvery", func(c *pg.Config) { c.EarlyStop.Patience, c.ValidateEvery = 2, 0 }},
		{"without Checkpoints", func(c *pg.Config) { c.RestoreBest = true }},
		{"must not be negative", func(c *pg.Config) { c.Async.Groups = -1 }},
		{"nothing is ever stale", func(c *pg.Config) { c.Async.MaxStaleness = 1 }},
		{"must exceed Tasks, 4", func(c *pg.Config) { c.Async.Groups = 4 }},
		{"Async: Method.Refill", func(c *pg.Config) { c.Async.Groups, c.Method.Refill = 8, 1 }},
		{"cannot do entropy", func(c *pg.Config) { c.Learner, c.Method.Loss.Entropy = &picky{b.policy}, 0.1 }},
	} {
		c := config(b, "")
		tt.change(&c)
		if _, err := pg.New(c); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("New = %v, want an error that says %q", err, tt.want)
		}
	}
	b.env.Val = nil
	if err := train(t, config(b, ""), b.env); err == nil || !strings.Contains(err.Error(), "ValidateEvery: 4: there are no validation tasks") {
		t.Errorf("Run = %v, want ValidateEvery refused", err)
	}
	c := config(b, t.TempDir())
	c.ValidateEvery, c.RestoreBest = 0, true
	if err := train(t, c, b.env); err == nil || !strings.Contains(err.Error(), "RestoreBest") {
		t.Errorf("Run = %v, want RestoreBest refused", err)
	}
}
