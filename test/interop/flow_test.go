package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	agl "agentlightning"
	"agentlightning/adapter"
)

// TestHTTPFlow runs a flow as workflow tools do: steps that are HTTP requests with
// JSON bodies, which may use what earlier steps answered. There is no SDK, and no
// runner: the flow asks for its attempt, calls the model, rewards and ends it.
func TestHTTPFlow(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("frameworks/http-flow/flow.json")
	if err != nil {
		t.Fatal(err)
	}
	var steps []struct {
		Name, URL string
		Body      json.RawMessage
	}
	if err := json.Unmarshal(raw, &steps); err != nil {
		t.Fatal(err)
	}
	m := newVLLM(t, func(conversation) reply { return reply{text: "42"} })
	s := serve(t, "sqlite:"+filepath.Join(t.TempDir(), "agl.db"), "--model", "agent="+m.url, "--auth-token", secret)
	answers := map[string]any{"server": s.url}
	fill := func(text string) string {
		var b strings.Builder
		if err := template.Must(template.New("").Option("missingkey=error").Parse(text)).Execute(&b, answers); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	for _, step := range steps {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, fill(step.URL), strings.NewReader(fill(string(step.Body))))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+secret)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode >= 300 {
			t.Fatalf("step %s: %s %s, %v", step.Name, resp.Status, body, err)
		}
		var answer any
		if err := json.NewDecoder(bytes.NewReader(body)).Decode(&answer); err != nil {
			t.Fatalf("step %s: %v", step.Name, err)
		}
		answers[step.Name] = answer
	}
	id := fmt.Sprint(answers["start"].(map[string]any)["rollout_id"])
	rollout, err := s.client.Rollout(t.Context(), id)
	if err != nil || rollout.Status != agl.RolloutSucceeded {
		t.Fatalf("the rollout is %+v, %v", rollout, err)
	}
	want := m.until(t, 1)[0].triplet()
	want.Reward = new(1.0)
	got, err := adapter.TracerTriplets(s.spans(t, id), adapter.TracerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	compareTriplets(t, "our adapter", []triplet{want}, got)
}
