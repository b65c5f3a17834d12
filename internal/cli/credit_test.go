package cli_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/semconv"
	"agentlightning/store"
)

// finishedRollout stores a rollout of a group, with two calls of which the
// second was cut, and a reward; nil reward means that it failed.
func finishedRollout(t *testing.T, st store.Store, group string, member int, reward *float64) string {
	t.Helper()
	ctx := t.Context()
	meta := json.RawMessage(fmt.Sprintf(`{"agl.run_id":"run-1","agl.step":3,"agl.group":%q,"agl.member":%d}`, group, member))
	rollouts, err := st.EnqueueRollouts(ctx, []store.EnqueueRequest{{Input: json.RawMessage(`"task"`), Metadata: meta}})
	if err != nil {
		t.Fatal(err)
	}
	claimed, err := st.DequeueRollouts(ctx, store.DequeueRequest{Limit: 1})
	if err != nil || len(claimed) != 1 || claimed[0].RolloutID != rollouts[0].RolloutID {
		t.Fatalf("dequeue = %v, %v", claimed, err)
	}
	id, attempt := claimed[0].RolloutID, claimed[0].Attempt.AttemptID
	said := "wrong"
	if reward != nil && *reward > 0 {
		said = "right"
	}
	call := func(tokens ...int64) agl.SpanCore {
		return agl.SpanCore{Name: semconv.SpanModelCall, Attributes: agl.Attributes{
			{Key: semconv.PromptKey(0, "role"), Value: "user"},
			{Key: semconv.PromptKey(0, "content"), Value: "ask"},
			{Key: semconv.CompletionKey(0, "role"), Value: "assistant"},
			{Key: semconv.CompletionKey(0, "content"), Value: said + string(rune('a'+len(tokens)))},
			{Key: semconv.PromptTokenIDs, Value: []int64{1}},
			{Key: semconv.ResponseTokenIDs, Value: tokens},
			{Key: semconv.GenAIAgentName, Value: "solver"},
		}}
	}
	cores := []agl.SpanCore{call(2, 3), call(4), {Name: semconv.SpanModelCall, Attributes: agl.Attributes{{Key: semconv.CallProblem, Value: semconv.ProblemCancelled}}}}
	status := agl.AttemptFailed
	if reward != nil {
		status = agl.AttemptSucceeded
		cores = append(cores, agl.SpanCore{Name: semconv.SpanAnnotation, Attributes: agl.Attributes{
			{Key: semconv.RewardName(0), Value: semconv.PrimaryReward}, {Key: semconv.RewardValue(0), Value: *reward},
		}})
	}
	var spans []agl.Span
	for i, c := range cores {
		c.Status.StatusCode = agl.StatusOK
		spans = append(spans, c.Span(id, attempt, int64(i+1), agl.Seconds(time.Now())))
	}
	if _, err := st.AddSpans(ctx, spans); err != nil {
		t.Fatal(err)
	}
	if _, err := st.UpdateAttempt(ctx, id, attempt, store.AttemptUpdate{Status: store.To(status)}); err != nil {
		t.Fatal(err)
	}
	return id
}

func TestCreditPreview(t *testing.T) {
	t.Parallel()
	url := serve(t, "--db", "memory:")
	client := connect(t, url)
	won := finishedRollout(t, client, "0", 0, new(1.0))
	lost := finishedRollout(t, client, "0", 1, new(0.0))
	crashed := finishedRollout(t, client, "0", 2, nil)
	other := finishedRollout(t, client, "1", 0, new(1.0))

	status, out, errs := run(t, "credit", "preview", won, "--server", url, "--rule", "identical", "--rule", "discounted:0.5", "--without-std", "--json")
	if status != 0 {
		t.Fatalf("preview ended with %d: %s", status, errs)
	}
	type rule struct {
		Rule      string   `json:"rule"`
		Credit    *float64 `json:"credit"`
		Used      bool     `json:"used"`
		Advantage float64  `json:"advantage"`
	}
	type line struct {
		Rollout    string  `json:"rollout_id"`
		Call       int     `json:"call"`
		Agent      string  `json:"agent"`
		Problem    string  `json:"problem"`
		Rules      []rule  `json:"rules"`
		Difference float64 `json:"difference"`
	}
	lines := map[string]line{}
	for text := range strings.Lines(out) {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		lines[fmt.Sprint(l.Rollout, l.Call)] = l
	}
	if len(lines) != 9 {
		t.Errorf("%d calls, want those of the three rollouts of the group:\n%s", len(lines), out)
	}
	// Identical: 1 and 0, mean 0.5. Discounted: 0.5 and 1 against 0 and 0, whose
	// rollouts have 0.75 and 0, mean 0.375.
	for key, want := range map[string][2]float64{won + "0": {.5, .125}, won + "1": {.5, .625}, lost + "0": {-.5, -.375}, lost + "1": {-.5, -.375}} {
		l := lines[key]
		if l.Agent != "solver" || len(l.Rules) != 2 || !l.Rules[0].Used {
			t.Errorf("%s: %+v, want two rules and the agent", key, l)
			continue
		}
		for n := range want {
			if math.Abs(l.Rules[n].Advantage-want[n]) > 1e-12 {
				t.Errorf("%s: %s gives %v, want %v", key, l.Rules[n].Rule, l.Rules[n].Advantage, want[n])
			}
		}
		if math.Abs(l.Difference-(want[1]-want[0])) > 1e-12 {
			t.Errorf("%s: difference %v, want %v", key, l.Difference, want[1]-want[0])
		}
	}
	if l := lines[won+"2"]; l.Problem != "cancelled" || l.Rules[0].Used || l.Rules[0].Credit != nil {
		t.Errorf("a call that was broken off: %+v, want nothing for it", l)
	}
	if l := lines[crashed+"0"]; l.Rules[0].Used {
		t.Errorf("a rollout that failed: %+v, want nothing for it", l)
	}

	status, out, errs = run(t, "credit", "preview", won, "--server", url, "--rule", "cel:index == 0 ? dyn(reward) : null")
	if status != 0 {
		t.Fatalf("preview ended with %d: %s", status, errs)
	}
	for _, want := range []string{
		"run run-1, step 3, group 0", "2 of 3 rollouts count; 1 failed", "CREDIT", "ADVANTAGE", "cancelled", "+0.7071", "not trained on", "(failed)",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("table does not say %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, other) {
		t.Errorf("table shows a rollout of another group:\n%s", out)
	}
	if status, out, _ = run(t, "credit", "preview", won, other, "--server", url, "--alone", "--on-failure", "zero"); status != 0 || strings.Contains(out, lost) {
		t.Errorf("--alone shows the group (status %d):\n%s", status, out)
	}
}

func TestCreditPreviewRefuses(t *testing.T) {
	t.Parallel()
	url := serve(t, "--db", "memory:")
	client := connect(t, url)
	queued, err := client.EnqueueRollouts(t.Context(), []store.EnqueueRequest{{Input: json.RawMessage(`1`)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		status int
		want   string
		args   []string
	}{
		{2, "give a rollout id", nil},
		{2, "there is no rule of that name", []string{"ro-1", "--rule", "best"}},
		{2, "undeclared reference", []string{"ro-1", "--rule", "cel:rewrad"}},
		{2, "3 rules", []string{"ro-1", "--rule", "identical", "--rule", "identical", "--rule", "identical"}},
		{2, `estimator "best"`, []string{"ro-1", "--estimator", "best"}},
		{2, `on failure "maybe"`, []string{"ro-1", "--on-failure", "maybe"}},
		{2, "give one of them", []string{"ro-1", "--db", "sqlite:x.db", "--server", url}},
		{1, "there is no database", []string{"ro-1", "--db", "sqlite:" + t.TempDir() + "/none.db"}},
		{1, "ro-none", []string{"ro-none", "--server", url}},
		{1, "is queuing: credit is given when it has ended", []string{queued[0].RolloutID, "--server", url}},
	} {
		status, _, errs := run(t, append([]string{"credit", "preview"}, tt.args...)...)
		if status != tt.status || !strings.Contains(errs, tt.want) {
			t.Errorf("preview %q: status %d, %s; want %d and %q", tt.args, status, errs, tt.status, tt.want)
		}
	}
}
