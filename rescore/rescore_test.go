package rescore_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	agl "agentlightning"
	"agentlightning/rescore"
	"agentlightning/semconv"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// TestMain is also the program that the tests of commands start.
func TestMain(m *testing.M) {
	if how := os.Getenv("AGL_TEST_SCORER"); how != "" {
		program(how)
		return
	}
	goleak.VerifyTestMain(m)
}

// program scores by the length of the answer.
func program(how string) {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var a rescore.Attempt
		switch err := json.Unmarshal(in.Bytes(), &a); {
		case err != nil:
			fmt.Fprintln(os.Stderr, "no attempt:", err)
			os.Exit(3)
		case how == "broken" || how == "sometimes" && strings.Contains(a.Answer, "3"):
			fmt.Fprintln(os.Stderr, "Traceback: grader is out of order")
			os.Exit(3)
		case how == "silent":
			select {} // until it is stopped
		}
		fmt.Printf("{\"reward\":%d,\"note\":\"pid %d\"}\n", len(a.Answer), os.Getpid())
	}
}

type bundle struct {
	store store.Store
	ids   []string
}

// setup stores n finished rollouts of two tasks; rollout i has reward i and says
// "answer i".
func setup(t *testing.T, n int) *bundle {
	t.Helper()
	s := engine.New(memory.New(), engine.Config{})
	t.Cleanup(func() { _ = s.Close() })
	b := &bundle{store: s}
	for i := range n {
		b.ids = append(b.ids, b.add(t, fmt.Sprintf(`"task %d"`, i%2), agl.AttemptSucceeded, i))
	}
	return b
}

func (b *bundle) add(t *testing.T, input string, status agl.AttemptStatus, i int) string {
	t.Helper()
	ctx := t.Context()
	r, err := b.store.StartRollout(ctx, store.StartRequest{EnqueueRequest: store.EnqueueRequest{Input: []byte(input), Mode: agl.ModeTrain}})
	if err != nil {
		t.Fatal(err)
	}
	call := agl.SpanCore{Name: semconv.SpanModelCall, Attributes: agl.Attributes{
		{Key: semconv.PromptKey(0, "role"), Value: "user"},
		{Key: semconv.PromptKey(0, "content"), Value: input},
		{Key: semconv.CompletionKey(0, "role"), Value: "assistant"},
		{Key: semconv.CompletionKey(0, "content"), Value: fmt.Sprintf("answer %d", i)},
		{Key: semconv.PromptTokenIDs, Value: []int64{1}},
		{Key: semconv.ResponseTokenIDs, Value: []int64{2, 3}},
	}}
	reward := agl.SpanCore{Name: semconv.SpanAnnotation, Attributes: agl.Attributes{
		{Key: semconv.RewardName(0), Value: "primary"}, {Key: semconv.RewardValue(0), Value: float64(i)},
	}}
	if _, err := b.store.AddSpans(ctx, []agl.Span{
		call.Span(r.RolloutID, r.Attempt.AttemptID, 1, 1), reward.Span(r.RolloutID, r.Attempt.AttemptID, 2, 2),
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.store.UpdateAttempt(ctx, r.RolloutID, r.Attempt.AttemptID, store.AttemptUpdate{Status: store.To(status)}); err != nil {
		t.Fatal(err)
	}
	return r.RolloutID
}

func (b *bundle) each(ctx context.Context, visit func(*agl.AttemptedRollout) error) error {
	page, err := b.store.QueryRollouts(ctx, store.RolloutQuery{Paging: store.Paging{SortBy: "start_time"}})
	for i := range page.Items {
		err = errors.Join(err, visit(&page.Items[i]))
	}
	return err
}

func (b *bundle) config(scorer rescore.Scorer) rescore.Config {
	return rescore.Config{Store: b.store, Scorer: scorer, Set: "new", Each: b.each, Concurrency: 3}
}

// rewards are the final rewards of a set, in the order of ids; NaN for none.
func (b *bundle) rewards(t *testing.T, set string) []float64 {
	t.Helper()
	out := make([]float64, len(b.ids))
	for i, id := range b.ids {
		page, err := b.store.QuerySpans(t.Context(), store.SpanQuery{RolloutID: id, Paging: store.Paging{SortBy: "sequence_id"}})
		if err != nil {
			t.Fatal(err)
		}
		r, err := agl.FinalReward(agl.InRewardSet(page.Items, set))
		if err != nil {
			t.Fatal(err)
		}
		if out[i] = math.NaN(); r != nil {
			out[i] = *r
		}
	}
	return out
}

// double counts its calls and gives twice the old reward.
func double(calls *atomic.Int64) rescore.Func {
	return rescore.Func{Name: "double", Of: func(_ context.Context, a *rescore.Attempt) (float64, error) {
		calls.Add(1)
		return 2 * *a.Reward, nil
	}}
}

func TestRunKeepsASetBesideTheOldOne(t *testing.T) {
	t.Parallel()
	b := setup(t, 5)
	b.add(t, `"failed"`, agl.AttemptFailed, 9)
	if _, err := b.store.EnqueueRollouts(t.Context(), []store.EnqueueRequest{{Input: []byte("1")}}); err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int64
	c := b.config(double(&calls))
	var last rescore.Progress
	c.OnProgress = func(p rescore.Progress) { last = p }
	got, err := rescore.Run(t.Context(), c)
	if err != nil || got.Chosen != 7 || got.Scored != 5 || got.Left != 0 || fmt.Sprint(got.Skipped) != "map[did not succeed:1 has not ended:1]" {
		t.Fatalf("Run = %+v, %v", got, err)
	}
	if *got.MeanOld != 2 || *got.MeanNew != 4 || math.Abs(*got.Correlation-1) > 1e-12 || got.Compared != 5 {
		t.Errorf("means %v and %v, correlation %v of %d; want 2, 4, 1 of 5", *got.MeanOld, *got.MeanNew, *got.Correlation, got.Compared)
	}
	if last.Done != 5 || last.Of != 5 || last.Scored != 5 {
		t.Errorf("last progress %+v", last)
	}
	if old := fmt.Sprint(b.rewards(t, "")); old != "[0 1 2 3 4]" {
		t.Errorf("rewards of agents are now %v", old)
	}
	if made := fmt.Sprint(b.rewards(t, "new")); made != "[0 2 4 6 8]" {
		t.Errorf("rewards of the set = %v", made)
	}
	// Again: nothing is scored twice.
	again, err := rescore.Run(t.Context(), c)
	if err != nil || again.Already != 5 || again.Scored != 0 || calls.Load() != 5 {
		t.Errorf("a second run: %+v, %v; the scorer was called %d times, want 5", again, err, calls.Load())
	}
	// A set of the set: the base is what scorers see.
	c.Set, c.Base = "newer", "new"
	if _, err := rescore.Run(t.Context(), c); err != nil || fmt.Sprint(b.rewards(t, "newer")) != "[0 4 8 12 16]" {
		t.Errorf("rewards made of another set = %v, %v", b.rewards(t, "newer"), err)
	}
}

func TestRunRefusesAnotherScorerInTheSameSet(t *testing.T) {
	t.Parallel()
	b := setup(t, 3)
	var calls atomic.Int64
	if _, err := rescore.Run(t.Context(), b.config(double(&calls))); err != nil {
		t.Fatal(err)
	}
	b.ids = append(b.ids, b.add(t, `"one more"`, agl.AttemptSucceeded, 7))
	other := rescore.Func{Name: "other", Of: func(context.Context, *rescore.Attempt) (float64, error) {
		t.Error("something was scored before the conflict was found")
		return 0, nil
	}}
	got, err := rescore.Run(t.Context(), b.config(other))
	if !errors.Is(err, rescore.ErrOtherScorer) || !strings.Contains(err.Error(), "function double") || got.Scored != 0 {
		t.Errorf("Run = %+v, %v, want %v that names the scorer", got, err, rescore.ErrOtherScorer)
	}
}

func TestDryRunStoresNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, 4)
	var calls atomic.Int64
	c := b.config(double(&calls))
	c.DryRun = true
	got, err := rescore.Run(t.Context(), c)
	if err != nil || got.Scored != 4 || *got.MeanNew != 3 || calls.Load() != 4 {
		t.Errorf("Run = %+v, %v", got, err)
	}
	if r := b.rewards(t, "new"); slices.ContainsFunc(r, func(v float64) bool { return !math.IsNaN(v) }) {
		t.Errorf("a dry run stored %v", r)
	}
}

// What was scored before the work was stopped is kept, and the rest is done the
// next time.
func TestRunGoesOnWhereItWasInterrupted(t *testing.T) {
	t.Parallel()
	b := setup(t, 12)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var calls atomic.Int64
	scorer := double(&calls)
	work := scorer.Of
	scorer.Of = func(ctx context.Context, a *rescore.Attempt) (float64, error) {
		if calls.Load() >= 4 {
			stop()
			<-ctx.Done()
			return 0, ctx.Err()
		}
		return work(ctx, a)
	}
	c := b.config(scorer)
	c.Concurrency = 1
	got, err := rescore.Run(ctx, c)
	if !errors.Is(err, context.Canceled) || got.Scored != 4 || got.Left != 8 || len(got.Failed) != 0 {
		t.Fatalf("Run = %+v, %v, want 4 scored and 8 left", got, err)
	}
	scorer.Of = work
	got, err = rescore.Run(t.Context(), b.config(scorer))
	if err != nil || got.Already != 4 || got.Scored != 8 || calls.Load() != 12 {
		t.Errorf("the second run = %+v, %v after %d calls; want 8 more, 12 calls in all", got, err, calls.Load())
	}
}

func TestFailuresAreCountedByReasonAndTriedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, 6)
	broken := true
	scorer := rescore.Func{Name: "f", Of: func(_ context.Context, a *rescore.Attempt) (float64, error) {
		if broken && *a.Reward > 3 {
			return math.NaN(), nil
		}
		if broken && *a.Reward == 0 {
			return 0, errors.New("division by zero")
		}
		return *a.Reward, nil
	}}
	got, err := rescore.Run(t.Context(), b.config(scorer))
	if err != nil || got.Scored != 3 || got.Failed["reward not finite"] != 2 || got.Failed["f failed"] != 1 {
		t.Fatalf("Run = %+v, %v", got, err)
	}
	if why := got.Examples["f failed"]; !strings.Contains(why, b.ids[0]) || !strings.Contains(why, "division by zero") {
		t.Errorf("example of a failure = %q, want one that names the rollout and the error", why)
	}
	broken = false
	if got, err = rescore.Run(t.Context(), b.config(scorer)); err != nil || got.Scored != 3 || got.Already != 3 {
		t.Errorf("the next run = %+v, %v, want the other 3", got, err)
	}
	broken = true
	c := b.config(rescore.Func{Name: "f", Of: func(context.Context, *rescore.Attempt) (float64, error) { return 0, errors.New("down") }})
	c.Set, c.StopAfter, c.Concurrency = "third", 2, 1
	if got, err = rescore.Run(t.Context(), c); !errors.Is(err, rescore.ErrTooManyFailures) || got.Failed["f failed"] != 2 || got.Left != 4 {
		t.Errorf("with everything down: %+v, %v, want an end after 2", got, err)
	}
}

func TestCallsGetRewardsOfTheirOwn(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	got, err := rescore.Run(t.Context(), b.config(&calls{}))
	if err != nil || got.Scored != 1 {
		t.Fatalf("Run = %+v, %v", got, err)
	}
	page, err := b.store.QuerySpans(t.Context(), store.SpanQuery{RolloutID: b.ids[0], Paging: store.Paging{SortBy: "sequence_id"}})
	if err != nil || len(page.Items) != 4 {
		t.Fatalf("%d spans, %v, want 4", len(page.Items), err)
	}
	linked := agl.InRewardSet(page.Items, "new")[2]
	if key, _ := linked.Attributes.String(semconv.LinkKeyMatch(0)); key != "span_id" {
		t.Errorf("the reward of a call is not linked: %v", linked.Attributes)
	}
	if r := b.rewards(t, "new"); r[0] != 1 {
		t.Errorf("final reward = %v, want 1", r)
	}
	c := b.config(&calls{unknown: true})
	c.Set = "other"
	if got, err := rescore.Run(t.Context(), c); err != nil || got.Failed["reward of an unknown call"] != 1 {
		t.Errorf("a reward of a call that there is not: %+v, %v", got, err)
	}
}

type calls struct{ unknown bool }

func (c *calls) String() string { return "calls" }
func (c *calls) Digest() string { return "calls" }
func (c *calls) Score(_ context.Context, attempts []rescore.Attempt) []rescore.Score {
	s := rescore.Single(1)
	s.Calls = map[string]float64{attempts[0].Calls[0].SpanID: 0.5}
	if c.unknown {
		s.Calls["nobody"] = 1
	}
	return []rescore.Score{s}
}

func TestConfigNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	var n atomic.Int64
	for field, spoil := range map[string]func(*rescore.Config){
		"Store": func(c *rescore.Config) { c.Store = nil }, "Scorer": func(c *rescore.Config) { c.Scorer = nil },
		"Each": func(c *rescore.Config) { c.Each = nil }, "Set": func(c *rescore.Config) { c.Set = agl.DefaultRewardSet },
		"Base": func(c *rescore.Config) { c.Base = c.Set }, "Concurrency": func(c *rescore.Config) { c.Concurrency = -1 },
		"reward set": func(c *rescore.Config) { c.Set = "a b" },
	} {
		c := b.config(double(&n))
		spoil(&c)
		if _, err := rescore.Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("Run with a bad %s = %v", field, err)
		}
	}
}

func TestParseScore(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"0.5": "[{primary 0.5}]", ` {"reward":1} `: "[{primary 1}]",
		`{"reward":1,"rewards":{"z":2,"a":3,"primary":9},"note":"n"}`: "[{primary 1} {a 3} {z 2}]",
	} {
		if got := rescore.ParseScore([]byte(text)); got.Err != nil || fmt.Sprint(got.Rewards) != want {
			t.Errorf("ParseScore(%s) = %v, %v, want %s", text, got.Rewards, got.Err, want)
		}
	}
	for text, want := range map[string]string{
		"": "no answer", "null": "number or an object", "good": "number or an object", `{"note":"x"}`: "no reward",
		`{"score":1}`: `unknown field "score"`, `{"error":"no key"}`: "no key", `{"reward":"1"}`: "cannot be read",
	} {
		if got := rescore.ParseScore([]byte(text)); got.Err == nil || !strings.Contains(got.Err.Error(), want) {
			t.Errorf("ParseScore(%s) = %v, want an error with %q", text, got.Err, want)
		}
	}
}

func command(t *testing.T, how string, lines bool) *rescore.Command {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	env, err := exec.LookPath("env")
	if err != nil {
		t.Skip("there is no program env to set a variable with")
	}
	return &rescore.Command{Args: []string{env, "AGL_TEST_SCORER=" + how, self}, Lines: lines}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	for _, lines := range []bool{false, true} {
		b := setup(t, 8)
		c := command(t, "length", lines)
		cfg := b.config(c)
		cfg.Concurrency = 2
		got, err := rescore.Run(t.Context(), cfg)
		if err := errors.Join(err, c.Close()); err != nil || got.Scored != 8 || *got.MeanNew != 8 {
			t.Errorf("lines %v: %+v, %v, want 8 rewards of 8", lines, got, err)
		}
		programs := map[string]bool{}
		for _, id := range b.ids {
			page, err := b.store.QuerySpans(t.Context(), store.SpanQuery{RolloutID: id})
			if err != nil {
				t.Fatal(err)
			}
			note, _ := page.Items[2].Attributes.String(semconv.RescoreNote)
			programs[note] = true
		}
		if n := len(programs); lines && n > 2 || !lines && n != 8 {
			t.Errorf("lines %v: %d programs were started", lines, n)
		}
	}
}

func TestCommandFails(t *testing.T) {
	t.Parallel()
	for _, lines := range []bool{false, true} {
		b := setup(t, 5)
		c := command(t, "sometimes", lines)
		got, err := rescore.Run(t.Context(), b.config(c))
		if err := errors.Join(err, c.Close()); err != nil || got.Scored != 4 || got.Failed["the command failed"] != 1 ||
			!strings.Contains(got.Examples["the command failed"], "grader is out of order") {
			t.Errorf("lines %v: %+v, %v, want one failure with what was written to stderr", lines, got, err)
		}
		c = command(t, "silent", lines)
		c.Timeout = 50 * time.Millisecond
		scores := c.Score(t.Context(), make([]rescore.Attempt, 1))
		if err := c.Close(); scores[0].Err == nil || !strings.Contains(scores[0].Err.Error(), "within 50ms") || err != nil {
			t.Errorf("lines %v: a silent command: %v, %v", lines, scores[0].Err, err)
		}
	}
	missing := &rescore.Command{Args: []string{"/no/such/program"}}
	if got := missing.Score(t.Context(), make([]rescore.Attempt, 1)); got[0].Err == nil {
		t.Error("a program that there is not gave a score")
	}
}
