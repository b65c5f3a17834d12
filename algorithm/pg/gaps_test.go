package pg_test

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/algorithm/pg"
	"agentlightning/learner"
	"agentlightning/rl"
	"agentlightning/semconv"
	"agentlightning/store"
)

// teller is a policy whose learner tells of tokens: of each a number that follows
// from the token and its place in the row, so that a test knows it without rows.
type teller struct {
	*arms
	shape func([]float32) []float32
}

func told(place int, token int64) float64 { return -0.125*float64(place) - 0.5*float64(token) - 0.0625 }

func (l *teller) Update(ctx context.Context, b learner.Batch) (learner.Metrics, error) {
	for i, row := range b.Rows {
		logprobs := make([]float32, len(row.IDs))
		for t, id := range row.IDs {
			if row.Mask[t] != 0 {
				logprobs[t] = float32(told(t, int64(id)))
			}
		}
		if l.shape != nil {
			logprobs = l.shape(logprobs)
		}
		if b.Trained != nil {
			b.Trained(i, logprobs)
		}
	}
	return l.arms.Update(ctx, b)
}

// gapSpans are the spans that steps left in attempts, by rollout.
func gapSpans(t *testing.T, s store.Store, run string) (spans map[string][]agl.Span, calls map[string][]agl.Span) {
	t.Helper()
	page, err := s.QueryRollouts(t.Context(), store.RolloutQuery{})
	if err != nil {
		t.Fatal(err)
	}
	spans, calls = map[string][]agl.Span{}, map[string][]agl.Span{}
	latest := agl.LatestAttempt
	for _, r := range page.Items {
		found, err := s.QuerySpans(t.Context(), store.SpanQuery{RolloutID: r.RolloutID, AttemptID: &latest, Paging: store.Paging{SortBy: "sequence_id"}})
		if err != nil {
			t.Fatal(err)
		}
		for _, span := range found.Items {
			switch span.Name {
			case semconv.SpanModelCall:
				calls[r.RolloutID] = append(calls[r.RolloutID], span)
			case semconv.SpanTrained:
				if got, _ := span.Attributes.String(semconv.TrainedRun); got != run {
					t.Errorf("a span of the run %q, want %q", got, run)
				}
				spans[r.RolloutID] = append(spans[r.RolloutID], span)
			}
		}
	}
	return spans, calls
}

func floats(t *testing.T, s *agl.Span, key string) []float64 {
	t.Helper()
	v, _ := s.Attributes.Get(key)
	out, ok := v.([]float64)
	if !ok {
		t.Fatalf("%s is %v, want numbers", key, v)
	}
	return out
}

func number(t *testing.T, s *agl.Span, key string) float64 {
	t.Helper()
	v, ok := s.Attributes.Float(key)
	if !ok {
		t.Fatalf("%s is missing", key)
	}
	return v
}

// What the learner told of each token is stored at the token of the call that
// sampled it, wherever rows have put it, with the gap to the sampling policy.
// The numbers are computed again from the ids of the calls alone.
func TestGapsOfTokens(t *testing.T) {
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
			said("", []int64{p, r, r, 0, 1}, []int64{r}, logprob),      // goes on in the row
			said("", []int64{p, r, 1 - r}, []int64{r, 1 - r}, logprob), // begins another
			rewarded([]string{semconv.PrimaryReward}, []float64{right}),
		}
	}
	b.work.start(t)
	c := config(b, "")
	c.Learner, c.Steps, c.Epochs = &teller{arms: b.policy}, 1, 2
	var last pg.Step
	c.OnStep = func(s pg.Step) { last = s }
	if err := train(t, c, b.env); err != nil {
		t.Fatal(err)
	}
	runs, err := b.store.Runs(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	spans, calls := gapSpans(t, b.store, runs[0].RunID)
	trained := map[string]bool{}
	for _, row := range b.policy.batches[0].Rows {
		trained[row.Rollout] = true
	}
	if len(spans) != len(trained) || len(spans) == 0 {
		t.Fatalf("%d rollouts have log-probabilities, want the %d that were trained on", len(spans), len(trained))
	}
	var all, sum, furthest float64
	for id, list := range spans {
		if len(list) != 1 || !trained[id] {
			t.Fatalf("rollout %s has %d spans", id, len(list))
		}
		s := &list[0]
		var tokens, gap, largest float64
		var where string
		for i := range calls[id] {
			call := &calls[id][i]
			prompt, _ := call.Attributes.Ints(semconv.PromptTokenIDs)
			answer, _ := call.Attributes.Ints(semconv.ResponseTokenIDs)
			sampled := floats(t, call, semconv.ResponseLogprobs)
			var want []float64
			for j, token := range answer {
				v := told(len(prompt)+j, token)
				want = append(want, v)
				tokens++
				gap += sampled[j] - v
				if math.Abs(sampled[j]-v) > math.Abs(largest) {
					largest, where = sampled[j]-v, call.SpanID
				}
			}
			if of, _ := s.Attributes.String(semconv.TrainedSpanID(i)); of != call.SpanID {
				t.Errorf("list %d is of call %s, want %s", i, of, call.SpanID)
			}
			if diff := cmp.Diff(want, floats(t, s, semconv.TrainedLogprobs(i))); diff != "" {
				t.Errorf("call %d (-want +got):\n%s", i, diff)
			}
			if _, ok := s.Attributes.Get(semconv.TrainedPositions(i)); ok {
				t.Errorf("call %d has positions, though all its tokens are there", i)
			}
		}
		near := func(key string, want float64) {
			if got := number(t, s, key); math.Abs(got-want) > 1e-6 {
				t.Errorf("%s = %v, want %v", key, got, want)
			}
		}
		near(semconv.TrainedStep, 1)
		near(semconv.TrainedTokens, tokens)
		near(semconv.TrainedOmitted, 0)
		near(semconv.TrainedGap, gap)
		near(semconv.TrainedLargest, largest)
		if got, _ := s.Attributes.String(semconv.TrainedCall); got != where {
			t.Errorf("the largest is in %s, want %s", got, where)
		}
		if s.TraceID != calls[id][2].TraceID && s.TraceID != calls[id][1].TraceID && s.TraceID != calls[id][0].TraceID {
			t.Errorf("trace %s is none of the calls'", s.TraceID)
		}
		all, sum, furthest = all+tokens, sum+gap, max(furthest, math.Abs(largest))
	}
	for name, want := range map[string]float64{"tokens": all, "mean": sum / all, "max": furthest} {
		if got := last.Metrics["logprob_gap/"+name]; math.Abs(got-want) > 1e-6 {
			t.Errorf("logprob_gap/%s = %v, want %v", name, got, want)
		}
	}
}

// Tokens that are left out of training are left out here, and the others keep
// their places.
func TestGapsKeepPlaces(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.work.talk = func(task, token int32, _ float64) []agl.SpanCore {
		right := 0.0
		if token == task {
			right = 1
		}
		call := said("", []int64{int64(task)}, []int64{0, 1, 0}, -0.5)
		call.Attributes.Set(semconv.ResponseLogprobs, []float64{-0.5, -9, -0.5}) // the second is rejected
		return []agl.SpanCore{call, rewarded([]string{semconv.PrimaryReward}, []float64{right})}
	}
	b.work.start(t)
	c := config(b, "")
	c.Steps = 1
	c.Learner = &scored{teller{arms: b.policy}}
	c.Method.Correction = rl.Correction{Reject: rl.Rejection{Over: rl.OverToken, Estimator: rl.K2, High: 2}}
	if err := train(t, c, b.env); err != nil {
		t.Fatal(err)
	}
	runs, err := b.store.Runs(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	spans, _ := gapSpans(t, b.store, runs[0].RunID)
	if len(spans) == 0 {
		t.Fatal("nothing was kept")
	}
	for _, list := range spans {
		s := &list[0]
		positions, _ := s.Attributes.Ints(semconv.TrainedPositions(0))
		if diff := cmp.Diff([]int64{0, 2}, positions); diff != "" {
			t.Errorf("positions (-want +got):\n%s", diff)
		}
		want := []float64{told(1, 0), told(3, 0)}
		if diff := cmp.Diff(want, floats(t, s, semconv.TrainedLogprobs(0))); diff != "" {
			t.Errorf("log-probabilities (-want +got):\n%s", diff)
		}
		// The gap is to what was captured, not to what the correction put in its place.
		if got, want := number(t, s, semconv.TrainedGap), -1-want[0]-want[1]; math.Abs(got-want) > 1e-6 {
			t.Errorf("gap = %v, want %v", got, want)
		}
	}
}

// Long answers and attempts that are trained on again and again do not fill the
// store: what is beyond the bounds is counted.
func TestGapsAreBounded(t *testing.T) {
	t.Parallel()
	const most, long = 8192, 9000
	b := setup(t)
	b.work.talk = func(task, token int32, _ float64) []agl.SpanCore {
		right := 0.0
		if token == task {
			right = 1
		}
		answer := make([]int64, long)
		answer[0] = int64(token)
		out := []agl.SpanCore{said("", []int64{int64(task)}, answer, -0.5), rewarded([]string{semconv.PrimaryReward}, []float64{right})}
		if token == 1 { // it was trained on often
			for range 8 {
				out = append(out, agl.SpanCore{Name: semconv.SpanTrained})
			}
		}
		return out
	}
	b.work.start(t)
	c := config(b, "")
	c.Learner, c.Steps, c.Tasks, c.GroupSize, c.ValidateEvery = &teller{arms: b.policy}, 1, 1, 8, 0
	if err := train(t, c, b.env); err != nil {
		t.Fatal(err)
	}
	page, err := b.store.QueryRollouts(t.Context(), store.RolloutQuery{})
	if err != nil {
		t.Fatal(err)
	}
	latest, name, seen := agl.LatestAttempt, semconv.SpanTrained, 0
	for _, r := range page.Items {
		found, err := b.store.QuerySpans(t.Context(), store.SpanQuery{RolloutID: r.RolloutID, AttemptID: &latest, Name: &name})
		if err != nil {
			t.Fatal(err)
		}
		switch len(found.Items) {
		case 0: // of a validation
		case 1:
			s := &found.Items[0]
			seen++
			if got := len(floats(t, s, semconv.TrainedLogprobs(0))); got != most {
				t.Errorf("%d tokens are listed, want %d", got, most)
			}
			if n, omitted := number(t, s, semconv.TrainedTokens), number(t, s, semconv.TrainedOmitted); n != long || omitted != long-most {
				t.Errorf("%v tokens, %v omitted, want %d and %d", n, omitted, long, long-most)
			}
		case 8:
		default:
			t.Errorf("rollout %s has %d spans, want no more than it had", r.RolloutID, len(found.Items))
		}
	}
	if seen == 0 {
		t.Error("nothing was kept")
	}
}

// scored is a teller that scores every token with -0.5.
type scored struct{ teller }

func (*scored) Score(_ context.Context, rows []learner.Row) ([][]float32, error) {
	out := make([][]float32, len(rows))
	for i, row := range rows {
		out[i] = make([]float32, len(row.IDs))
		for t, m := range row.Mask {
			if m != 0 {
				out[i][t] = -0.5
			}
		}
	}
	return out, nil
}

// What a learner does not tell of is not made up, and what makes no sense ends
// the step.
func TestGapsOfOtherLearners(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		learner func(*arms) learner.Learner
		says    string
	}{
		"tells nothing": {func(a *arms) learner.Learner { return a }, ""},
		"too few": {func(a *arms) learner.Learner {
			return &teller{arms: a, shape: func(v []float32) []float32 { return v[1:] }}
		}, "update: the learner told 1 log-probabilities of row 0, which has 2 tokens"},
		"no number": {func(a *arms) learner.Learner {
			return &teller{arms: a, shape: func(v []float32) []float32 { v[1] = float32(math.NaN()); return v }}
		}, "update: the learner told of row 0 that token 1 has the log-probability NaN: must be finite"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.work.start(t)
			c := config(b, "")
			c.Learner, c.Steps = tt.learner(b.policy), 1
			var last pg.Step
			c.OnStep = func(s pg.Step) { last = s }
			err := train(t, c, b.env)
			if tt.says != "" {
				if err == nil || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("error %v, want one that says %q", err, tt.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, ok := last.Metrics["logprob_gap/tokens"]; !ok || got != 0 {
				t.Errorf("logprob_gap/tokens = %v, want 0", got)
			}
			runs, err := b.store.Runs(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			if spans, _ := gapSpans(t, b.store, runs[0].RunID); len(spans) > 0 {
				t.Errorf("%d rollouts have log-probabilities that nobody told", len(spans))
			}
		})
	}
}
