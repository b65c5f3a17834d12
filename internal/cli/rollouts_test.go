package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/semconv"
	"agentlightning/store"
	"agentlightning/storehttp"
)

// world is a server with rollouts of every kind.
type world struct {
	url    string
	client *storehttp.Client
	// good succeeded with a reward after two calls, broken failed at its second
	// attempt, bare succeeded without a reward, waiting are queued.
	good, broken, bare string
	waiting            []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{url: serve(t, "--db", "sqlite:"+filepath.Join(t.TempDir(), "agl.db"))}
	w.client = connect(t, w.url)
	ctx := t.Context()
	if _, err := w.client.AddResources(ctx, agl.NamedResources{{Name: "main_llm", Resource: agl.ProxyLLM{Endpoint: w.url + "/v1", Model: "policy"}}}); err != nil {
		t.Fatal(err)
	}
	w.good = w.rollout(ctx, t, store.EnqueueRequest{Input: []byte(`{"q":"6*7"}`), Mode: agl.ModeTrain, Metadata: []byte(`{"agl.run_id":"run-1","agl.group":"g7"}`)}, agl.AttemptSucceeded,
		modelCall(1, []int64{1, 2}, []int64{3}), modelCall(2, []int64{1, 2, 3, 4}, []int64{5, 6}), rewarded(3, 0.5))
	w.broken = w.rollout(ctx, t, store.EnqueueRequest{Input: []byte(`1`), Mode: agl.ModeVal}, agl.AttemptFailed)
	second, err := w.client.StartAttempt(ctx, w.broken, new("worker-9"))
	if err != nil {
		t.Fatal(err)
	}
	w.finish(ctx, t, second, agl.AttemptFailed, modelCall(1, nil, nil), rewarded(2, 1))
	w.bare = w.rollout(ctx, t, store.EnqueueRequest{Input: []byte(`2`)}, agl.AttemptSucceeded)
	for i := range 3 {
		queued, err := w.client.EnqueueRollouts(ctx, []store.EnqueueRequest{{Input: fmt.Appendf(nil, `"later %d"`, i)}})
		if err != nil {
			t.Fatal(err)
		}
		w.waiting = append(w.waiting, queued[0].RolloutID)
	}
	return w
}

func modelCall(seq int64, prompt, response []int64) agl.SpanCore {
	a := agl.Attributes{{Key: semconv.CallBackend, Value: "http://b"}, {Key: semconv.GenAIRequestModel, Value: "policy"}}
	a.Set(semconv.PromptKey(0, "role"), "user")
	a.Set(semconv.PromptKey(0, "content"), "6*7?")
	a.Set(semconv.CompletionKey(0, "role"), "assistant")
	a.Set(semconv.CompletionKey(0, "content"), fmt.Sprintf("answer %d", seq))
	if prompt == nil {
		a.Set(semconv.CallProblem, semconv.ProblemTokenIDsMissing)
	} else {
		a.Set(semconv.PromptTokenIDs, prompt)
		a.Set(semconv.ResponseTokenIDs, response)
		a.Set(semconv.ResponseLogprobs, make([]float64, len(response)))
	}
	start, end := float64(seq), float64(seq)+0.5
	return agl.SpanCore{Name: semconv.SpanModelCall, Status: agl.TraceStatus{StatusCode: agl.StatusOK}, Attributes: a, StartTime: &start, EndTime: &end}
}

func rewarded(seq int64, value float64) agl.SpanCore {
	at := float64(seq)
	return agl.SpanCore{Name: semconv.SpanAnnotation, Status: agl.TraceStatus{StatusCode: agl.StatusOK}, Attributes: agl.Attributes{
		{Key: semconv.RewardName(0), Value: "primary"}, {Key: semconv.RewardValue(0), Value: value},
	}, StartTime: &at, EndTime: &at}
}

func (w *world) rollout(ctx context.Context, t *testing.T, r store.EnqueueRequest, end agl.AttemptStatus, spans ...agl.SpanCore) string {
	t.Helper()
	started, err := w.client.StartRollout(ctx, store.StartRequest{EnqueueRequest: r})
	if err != nil {
		t.Fatal(err)
	}
	w.finish(ctx, t, started, end, spans...)
	return started.RolloutID
}

func (w *world) finish(ctx context.Context, t *testing.T, r agl.AttemptedRollout, end agl.AttemptStatus, cores ...agl.SpanCore) {
	t.Helper()
	spans := make([]agl.Span, len(cores))
	for i := range cores {
		spans[i] = cores[i].Span(r.RolloutID, r.Attempt.AttemptID, int64(i+1), 1)
	}
	if _, err := w.client.AddSpans(ctx, spans); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.UpdateAttempt(ctx, r.RolloutID, r.Attempt.AttemptID, store.AttemptUpdate{Status: store.To(end)}); err != nil {
		t.Fatal(err)
	}
}

// agl runs a command against the server, which must end with a status.
func (w *world) agl(t *testing.T, status int, args ...string) (stdout, stderr string) {
	t.Helper()
	got, stdout, stderr := run(t, append(args, "--server", w.url)...)
	if got != status {
		t.Fatalf("agl %v = %d, %s%s, want %d", args, got, stdout, stderr, status)
	}
	return stdout, stderr
}

func wantParts(t *testing.T, text string, parts ...string) {
	t.Helper()
	rest := text
	for _, part := range parts {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Fatalf("%s\nwant %q in it, in this order: %q", text, part, parts)
		}
		rest = after
	}
}

// ids are the first fields of bare lines.
func ids(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		id, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		out = append(out, id)
	}
	return out
}

func TestRolloutsList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all := []string{w.waiting[2], w.waiting[1], w.waiting[0], w.bare, w.broken, w.good}
	for _, tt := range []struct {
		name string
		args []string
		want []string
	}{
		{"all", nil, all},
		{"limit", []string{"--limit", "2"}, all[:2]},
		{"no limit", []string{"--limit", "0"}, all},
		{"status", []string{"--status", "failed,succeeded"}, []string{w.bare, w.broken, w.good}},
		{"mode", []string{"--mode", "train,val"}, []string{w.broken, w.good}},
		{"mode and limit", []string{"--mode", "train,val", "--limit", "1"}, []string{w.broken}},
		{"run", []string{"--run", "run-1"}, []string{w.good}},
		{"worker", []string{"--worker", "worker-9"}, []string{w.broken}},
		{"id", []string{"--id", w.bare[3:]}, []string{w.bare}},
		{"since", []string{"--since", "1h"}, all},
		{"since never", []string{"--since", "1ns"}, nil},
	} {
		out, _ := w.agl(t, 0, append([]string{"rollouts", "ls"}, tt.args...)...)
		if got := ids(out); !cmp.Equal(tt.want, got) {
			t.Errorf("%s: rollouts are %v, want %v", tt.name, got, tt.want)
		}
	}
	out, _ := w.agl(t, 0, "rollouts", "ls", "--status", "succeeded", "--json")
	var row struct {
		RolloutID string `json:"rollout_id"`
	}
	if err := json.Unmarshal([]byte(strings.SplitN(out, "\n", 2)[0]), &row); err != nil || row.RolloutID != w.bare || strings.Count(out, "\n") != 2 {
		t.Errorf("rollouts ls --json = %s (%v), want two objects, the newest first", out, err)
	}
	out, _ = w.agl(t, 0, "rollouts", "ls", "--table", "--limit", "3")
	wantParts(t, out, "ROLLOUT", "STATUS", "TASK\n", w.waiting[2], "queuing", "\"later 0\"\n", "3 shown, up to 3 more")
	out, _ = w.agl(t, 0, "rollouts", "ls", "--table", "--status", "cancelled")
	wantParts(t, out, "no rollouts")
}

func TestRolloutsListIsPaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	reqs := make([]store.EnqueueRequest, 450)
	for i := range reqs {
		reqs[i].Input = []byte(`0`)
		if i%100 == 0 {
			reqs[i].Mode = agl.ModeTest
		}
	}
	if _, err := w.client.EnqueueRollouts(t.Context(), reqs); err != nil {
		t.Fatal(err)
	}
	out, _ := w.agl(t, 0, "rollouts", "ls", "--limit", "0")
	got := ids(out)
	slices.Sort(got)
	if n := len(slices.Compact(got)); n != 456 {
		t.Errorf("%d rollouts are listed, want 456, each once", n)
	}
	out, _ = w.agl(t, 0, "rollouts", "ls", "--mode", "test", "--limit", "0")
	if n := len(ids(out)); n != 5 {
		t.Errorf("%d rollouts of mode test are listed, want 5", n)
	}
	out, _ = w.agl(t, 0, "rollouts", "ls", "--limit", "250", "--table")
	wantParts(t, out, "250 shown, up to 206 more")
}

func TestRolloutsShow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	out, _ := w.agl(t, 0, "rollouts", "show", w.good)
	wantParts(t, out, w.good, "succeeded", `{"q":"6*7"}`, "run-1", "attempt 1", "1\topenai.chat.completion", "answer 1", "reward 0.5", "reward    0.5")
	out, _ = w.agl(t, 0, "rollouts", "show", w.good, "--table")
	wantParts(t, out, "  SPAN", "WHAT", "  1     openai.chat.completion", "answer 2")
	out, _ = w.agl(t, 0, "rollouts", "show", w.bare)
	wantParts(t, out, "no reward was recorded")
	out, _ = w.agl(t, 0, "rollouts", "show", w.broken, "--json")
	var all struct {
		Rollout  agl.Rollout
		Attempts []agl.Attempt
		Spans    []agl.Span
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil || all.Rollout.RolloutID != w.broken || len(all.Attempts) != 2 || len(all.Spans) != 2 {
		t.Errorf("rollouts show --json = %s (%v), want two attempts and two spans", out, err)
	}
	_, stderr := w.agl(t, 1, "rollouts", "show", "ro-none")
	wantParts(t, stderr, "ro-none")
}

func TestRolloutsExplain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	out, _ := w.agl(t, 0, "rollouts", "explain", w.good)
	wantParts(t, out, w.good, "2 of 2 calls trained on, in 1 row of 3 sampled tokens", "attempt 1", "reward 0.5",
		"1\tproxy\t-\tpolicy\t2\t1\t-\tyes\t0\t-\n", "2\tproxy\t-\tpolicy\t4\t2\t0.5\tyes\t0\t-\n")
	if strings.Contains(out, "→") {
		t.Errorf("there is advice although everything is trained on:\n%s", out)
	}
	out, _ = w.agl(t, 0, "rollouts", "explain", w.good, "--joining", "separate", "--prompt-limit", "3", "--table")
	wantParts(t, out, "1 of 2 calls", "CALL", "WHY\n", "yes", "no", "prompt_too_long: the first prompt of the row is longer than 3 tokens", "→ 1 call, prompt_too_long")
	out, _ = w.agl(t, 0, "rollouts", "explain", w.broken)
	wantParts(t, out, "0 of 1 call ", "attempt 1", "left out: attempt_superseded", "no model call among 0 spans",
		"attempt 2", "left out: attempt_failed", "token_ids_missing", "→ 1 call, token_ids_missing: the backend did not return token ids")
	out, _ = w.agl(t, 0, "rollouts", "explain", w.broken, "--on-failure", "keep")
	wantParts(t, out, "attempt 2", "reward 1\n", "token_ids_missing")
	if strings.Contains(out, "attempt_failed") {
		t.Errorf("a failure that is kept is left out:\n%s", out)
	}
	out, _ = w.agl(t, 0, "rollouts", "explain", w.bare)
	wantParts(t, out, "left out: no_reward", "→ no model call was seen", "→ the agent was given "+w.url+"/rollout/"+w.bare+"/attempt/", "→ no_reward")
	out, _ = w.agl(t, 0, "rollouts", "explain", w.waiting[0])
	wantParts(t, out, "→ the rollout is queuing and was never attempted: is a runner running?")

	out, _ = w.agl(t, 0, "rollouts", "explain", "--status", "succeeded,failed", "--table")
	wantParts(t, out, "ROLLOUT", "MOSTLY\n", w.bare, "no model call was seen", w.broken, "token_ids_missing (1)", w.good, "0.5",
		"3 rollouts, 1 of them with something to train on, 1 without a model call", "2 of 3 calls trained on, in 1 row of 3 sampled tokens", "1  token_ids_missing")
	out, _ = w.agl(t, 0, "rollouts", "explain", "--mode", "train,val")
	if want := []string{w.broken, w.good}; !cmp.Equal(ids(out), want) {
		t.Errorf("explained are %v, want %v", ids(out), want)
	}
	out, _ = w.agl(t, 0, "rollouts", "explain", w.broken, w.good, "--json")
	var got []adapter.Explanation
	for dec := json.NewDecoder(strings.NewReader(out)); dec.More(); {
		var e adapter.Explanation
		if err := dec.Decode(&e); err != nil {
			t.Fatal(err)
		}
		got = append(got, e)
	}
	if len(got) != 2 || got[0].RolloutID != w.broken || got[1].Sums.CallsUsed != 2 || len(got[1].Attempts[0].Calls) != 2 {
		t.Errorf("rollouts explain --json = %s, want both in the order asked for", out)
	}
	_, stderr := w.agl(t, 1, "rollouts", "explain", w.good, "ro-none")
	wantParts(t, stderr, "there is no rollout ro-none")
	_, stderr = w.agl(t, 0, "rollouts", "explain", "--run", "run-9")
	wantParts(t, stderr, "no rollout fits")
}

func TestRolloutsRetryAndCancel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	status := func(id string) agl.RolloutStatus {
		t.Helper()
		r, err := w.client.Rollout(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return r.Status
	}
	out, _ := w.agl(t, 0, "rollouts", "retry", "--status", "failed", "--dry-run")
	wantParts(t, out, w.broken+"\tfailed\twould be requeuing")
	if got := status(w.broken); got != agl.RolloutFailed {
		t.Errorf("after a dry run the rollout is %s", got)
	}
	out, _ = w.agl(t, 0, "rollouts", "retry", "--status", "failed")
	wantParts(t, out, w.broken+"\tfailed\tis now requeuing")
	out, stderr := w.agl(t, 1, "rollouts", "retry", w.good, w.waiting[0])
	wantParts(t, out, w.good+"\tsucceeded\tsucceeded; --force", w.waiting[0]+"\tqueuing\twaits for a runner already")
	wantParts(t, stderr, "1 rollout left as it was")
	out, _ = w.agl(t, 0, "rollouts", "retry", w.good, "--force")
	wantParts(t, out, "is now requeuing")

	// They are handed out again, behind those that waited.
	claimed, err := w.client.DequeueRollouts(t.Context(), store.DequeueRequest{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range claimed {
		got = append(got, r.RolloutID)
	}
	if want := append(slices.Clone(w.waiting), w.broken, w.good); !cmp.Equal(want, got) {
		t.Errorf("claimed are %v, want %v", got, want)
	}
	_, stderr = w.agl(t, 1, "rollouts", "retry", w.good)
	wantParts(t, stderr, "left as it was")

	out, _ = w.agl(t, 0, "rollouts", "cancel", w.good, w.good)
	wantParts(t, out, w.good+"\tpreparing\tis now cancelled", "preparing\tis now cancelled")
	out, _ = w.agl(t, 0, "rollouts", "cancel", w.good)
	wantParts(t, out, "is cancelled already")
	_, stderr = w.agl(t, 1, "rollouts", "cancel", w.bare)
	wantParts(t, stderr, "left as it was")
	out, _ = w.agl(t, 0, "rollouts", "cancel", "--status", "preparing,succeeded")
	for _, id := range append(slices.Clone(w.waiting), w.broken) {
		wantParts(t, out, id+"\tpreparing\tis now cancelled")
		if got := status(id); got != agl.RolloutCancelled {
			t.Errorf("%s is %s, want cancelled", id, got)
		}
	}
	if got := status(w.bare); got != agl.RolloutSucceeded {
		t.Errorf("the finished rollout is %s", got)
	}
	_, stderr = w.agl(t, 1, "rollouts", "cancel", "ro-none")
	wantParts(t, stderr, "there is no rollout ro-none")
	_, stderr = w.agl(t, 0, "rollouts", "retry", "--run", "run-9")
	wantParts(t, stderr, "no rollout fits")
}

func TestRolloutsExport(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lines := func(args ...string) []map[string]any {
		t.Helper()
		out, _ := w.agl(t, 0, append([]string{"rollouts", "export"}, args...)...)
		var all []map[string]any
		for line := range strings.Lines(out) {
			var m map[string]any
			if err := json.Unmarshal([]byte(line), &m); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			all = append(all, m)
		}
		return all
	}
	all := lines()
	if len(all) != 6 || len(all[5]["spans"].([]any)) != 3 || len(all[4]["attempts"].([]any)) != 2 {
		t.Errorf("export has %d lines, want the six rollouts with attempts and spans", len(all))
	}
	if got := lines("--what", "spans", w.good, w.broken); len(got) != 5 || got[0]["rollout_id"] != w.good {
		t.Errorf("spans are %v, want five", got)
	}
	attempt, err := w.client.LatestAttempt(t.Context(), w.good)
	if err != nil {
		t.Fatal(err)
	}
	spans := lines("--what", "spans", w.good)
	row := map[string]any{
		"rollout_id": w.good, "attempt_id": attempt.AttemptID, "group": "g7", "reward": 0.5,
		"prompt_ids": []any{1.0, 2.0}, "response_ids": []any{3.0, 4.0, 5.0, 6.0}, "response_mask": []any{1.0, 0.0, 1.0, 1.0},
		"response_logprobs": []any{0.0, 0.0, 0.0, 0.0}, "token_weight": 1.0 / 3, "span_ids": []any{spans[0]["span_id"], spans[1]["span_id"]},
	}
	if diff := cmp.Diff([]map[string]any{row}, lines("--what", "rows")); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if got := lines("--what", "rows", "--joining", "separate", "--response-limit", "1"); len(got) != 2 || got[1]["response_cut"] != true {
		t.Errorf("separate rows are %v, want two, the second cut", got)
	}
	triplets := lines("--what", "triplets")
	if len(triplets) != 2 || triplets[1]["reward"] != 0.5 || triplets[0]["rollout_id"] != w.good {
		t.Errorf("triplets are %v, want two of which the second is rewarded", triplets)
	}
	if got := lines("--what", "proxy-triplets"); len(got) != 0 {
		t.Errorf("triplets of LiteLLM's spans are %v, want none", got)
	}
	messages := lines("--what", "messages")
	if len(messages) != 2 || len(messages[0]["messages"].([]any)) != 2 || messages[0]["attempt_id"] != attempt.AttemptID {
		t.Errorf("messages are %v, want two conversations of two messages", messages)
	}
	if got := lines("--what", "conversations"); !cmp.Equal(got, messages) {
		t.Errorf("conversations are %v, want what the messages are: %v", got, messages)
	}
	if got := lines("--what", "messages", "--all"); len(got) != 3 {
		t.Errorf("messages with those of failures are %v, want three", got)
	}

	file := filepath.Join(t.TempDir(), "out.jsonl")
	out, _ := w.agl(t, 0, "rollouts", "export", "--to", file, "--status", "succeeded")
	wantParts(t, out, file+" holds 2 lines of 2 rollouts")
	if data, err := os.ReadFile(file); err != nil || strings.Count(string(data), "\n") != 2 {
		t.Errorf("the file holds %s (%v), want two lines", data, err)
	}
	_, stderr := w.agl(t, 2, "rollouts", "export", "--to", file)
	wantParts(t, stderr, "the file exists")
}

func TestResources(t *testing.T) {
	t.Parallel()
	url := serve(t, "--db", "memory:")
	w := &world{url: url, client: connect(t, url)}
	_, stderr := w.agl(t, 1, "resources", "show")
	wantParts(t, stderr, "no resources were published")
	_, stderr = w.agl(t, 1, "resources", "diff")
	wantParts(t, stderr, "not two versions to compare but 0")
	out, _ := w.agl(t, 0, "resources", "ls", "--table")
	wantParts(t, out, "no resources were published")

	add := func(template, key string) string {
		t.Helper()
		u, err := w.client.AddResources(t.Context(), agl.NamedResources{
			{Name: "main", Resource: agl.LLM{Endpoint: "http://x/v1", Model: "m", APIKey: &key, SamplingParameters: []byte(`{"temperature":0.5}`)}},
			{Name: "prompt", Resource: agl.PromptTemplate{Template: template, Engine: "jinja"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return u.ResourcesID
	}
	one := add("a\nb\nc\nd\ne\nf", "k1")
	two := add("a\nb\nc\nd\nE\nf", "k1")
	three := add("a\nb\nc\nd\nE\nf", "k2")

	out, _ = w.agl(t, 0, "resources", "ls")
	if want := []string{three, two, one}; !cmp.Equal(ids(out), want) {
		t.Errorf("versions are %v, want %v", ids(out), want)
	}
	out, _ = w.agl(t, 0, "resources", "ls", "--limit", "2", "--table")
	wantParts(t, out, "RESOURCES", "NAMES\n", three, "main (llm), prompt (prompt_template)", two, "2 of 3; see more with --limit")
	out, _ = w.agl(t, 0, "resources", "ls", "--id", one[3:], "--json")
	var u agl.ResourcesUpdate
	if err := json.Unmarshal([]byte(out), &u); err != nil || u.ResourcesID != one {
		t.Errorf("resources ls --json = %s (%v), want version %s", out, err, one)
	}
	out, _ = w.agl(t, 0, "resources", "show")
	wantParts(t, out, three, "version 1", "main", "endpoint: http://x/v1", "api_key: (hidden)", `{"temperature":0.5}`, "prompt", "engine: jinja", "    E\n")
	if strings.Contains(out, "k2") {
		t.Errorf("the key is shown:\n%s", out)
	}
	out, _ = w.agl(t, 0, "resources", "show", one, "--json")
	if err := json.Unmarshal([]byte(out), &u); err != nil || u.ResourcesID != one {
		t.Errorf("resources show --json = %s (%v)", out, err)
	}
	_, stderr = w.agl(t, 1, "resources", "show", "rs-none")
	wantParts(t, stderr, "there are no resources rs-none")

	out, _ = w.agl(t, 0, "resources", "diff", one, two)
	want := fmt.Sprintf("--- %s version 1\n+++ %s version 1\n\nprompt\n    b\n    c\n    d\n-   e\n+   E\n    f\n", one, two)
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("resources diff (-want +got):\n%s", diff)
	}
	out, _ = w.agl(t, 0, "resources", "diff")
	wantParts(t, out, "--- "+two, "+++ "+three, "main\n  (only the key differs)")
	out, _ = w.agl(t, 0, "resources", "diff", one)
	wantParts(t, out, "+++ "+three, "- ", "+ ")
	out, _ = w.agl(t, 0, "resources", "diff", one, one)
	wantParts(t, out, "they are the same")
	if _, err := w.client.AddResources(t.Context(), agl.NamedResources{{Name: "other", Resource: agl.PromptTemplate{Template: "x", Engine: "poml"}}}); err != nil {
		t.Fatal(err)
	}
	out, _ = w.agl(t, 0, "resources", "diff")
	wantParts(t, out, "main\n- resource_type: llm", "prompt\n- ", "other\n+ resource_type: prompt_template")
}
