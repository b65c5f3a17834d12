package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/semconv"
	"agentlightning/store"
	"agentlightning/storehttp"
)

// TestTrainFollows trains on what an agent in use reports to a server: the
// command asks for nothing, offers its model, and publishes what it learnt.
func TestTrainFollows(t *testing.T) {
	t.Parallel()
	url := serve(t, "--db", "memory:")
	path := filepath.Join(t.TempDir(), "follow.yaml")
	text := fmt.Sprintf(`server: %s
seed: 5
learner: {use: native, dim: 16, layers: 1, heads: 1, hidden: 32, context: 32}
algorithm:
  use: follow
  steps: 2
  rollouts: 8
  learning_rate: 0.01
`, url)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, _, errs := run(t, "train", path, "algorithm.tasks=4"); status == 0 || !strings.Contains(errs, "Follow: Tasks") {
		t.Errorf("status %d: %s, want tasks refused", status, errs)
	}

	var out, errs syncBuffer
	done := startCommand(t.Context(), []string{"train", path}, &out, &errs)
	client, err := storehttp.NewClient(url)
	if err != nil {
		t.Fatal(err)
	}
	if err := awaitModel(t.Context(), client); err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	for i := range 16 {
		if err := inUse(t.Context(), client, url, i); err != nil {
			t.Fatal(err)
		}
	}
	if status := <-done; status != 0 {
		t.Fatalf("status %d: %s\n%s", status, out.String(), errs.String())
	}
	runs, err := client.Runs(t.Context(), 1)
	if err != nil || len(runs) != 1 || runs[0].Algorithm != "pg" || runs[0].Status != agl.RunSucceeded {
		t.Fatalf("runs = %+v, %v", runs, err)
	}
	steps, err := client.StepMetrics(t.Context(), runs[0].RunID, 0)
	if err != nil || len(steps) != 2 {
		t.Fatalf("steps = %+v, %v, want 2", steps, err)
	}
	for _, s := range steps {
		if s.Values["training/n_sample"] != 8 {
			t.Errorf("step %d was trained on %v rows, want 8", s.Step, s.Values["training/n_sample"])
		}
	}
	versions, err := client.QueryResources(t.Context(), store.ResourcesQuery{})
	if err != nil || len(versions.Items) != 3 {
		t.Errorf("%d versions of the model, %v, want one at the beginning and one a step", len(versions.Items), err)
	}
}

// awaitModel waits until the model is published.
func awaitModel(ctx context.Context, client store.Store) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := client.LatestResources(ctx); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("no model was published: %w", context.Cause(ctx))
		}
	}
}

// inUse is an agent in use: it starts a rollout by itself, calls the model, and
// says what the answer was worth.
func inUse(ctx context.Context, client store.Store, url string, i int) error {
	r, err := client.StartRollout(ctx, store.StartRequest{EnqueueRequest: store.EnqueueRequest{Input: json.RawMessage(fmt.Sprintf(`"question %d"`, i))}})
	if err != nil {
		return err
	}
	body := fmt.Sprintf(`{"model":"policy","seed":%d,"max_tokens":3,"messages":[{"role":"user","content":"%d"}]}`, i, i)
	at := url + "/rollout/" + r.RolloutID + "/attempt/" + r.Attempt.AttemptID + "/v1/chat/completions"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := (&http.Client{}).Do(req)
	if err != nil {
		return err
	}
	if err := res.Body.Close(); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("model call: %s", res.Status)
	}
	final := agl.SpanCore{Name: semconv.SpanAnnotation, Status: agl.TraceStatus{StatusCode: agl.StatusOK}, Attributes: agl.Attributes{
		{Key: semconv.RewardName(0), Value: semconv.PrimaryReward}, {Key: semconv.RewardValue(0), Value: float64(i % 2)},
	}}
	if _, err := client.AddSpans(ctx, []agl.Span{final.Span(r.RolloutID, r.Attempt.AttemptID, 1000, agl.Seconds(time.Now()))}); err != nil {
		return err
	}
	_, err = client.UpdateAttempt(ctx, r.RolloutID, r.Attempt.AttemptID, store.AttemptUpdate{Status: store.To(agl.AttemptSucceeded)})
	return err
}
