package cli_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"agentlightning/learner/openai/openaitest"
)

// A file has a service tune the agent's model on the best of what it did.
func TestTrainFineTunes(t *testing.T) {
	t.Setenv("SERVICE_OF_TEST_API_KEY", "secret")
	short := func(messages []openaitest.Message) string {
		if len(messages[len(messages)-1].Content) < len("word three") {
			return "yes"
		}
		return "no"
	}
	service := openaitest.New(openaitest.Config{
		Key: "secret", Base: map[string]openaitest.Model{"small": short},
		Train: func(_ string, conversations [][]openaitest.Message, _ int) (openaitest.Model, error) {
			for _, c := range conversations {
				if c[len(c)-1].Content != "yes" {
					return nil, fmt.Errorf("trained on %q, which was not rewarded", c[len(c)-1].Content)
				}
			}
			return func([]openaitest.Message) string { return "yes" }, nil
		},
	})
	upstream := httptest.NewServer(service)
	defer upstream.Close()
	path := wordRecipe(t, newWordModels(t), fmt.Sprintf(`algorithm:
  use: finetune
  iterations: 1
  tuner: {model: small, base_url: %q, api_key_env: SERVICE_OF_TEST_API_KEY, poll_every: 5ms}
  base: {endpoint: %[1]q, target: small, api_key_env: SERVICE_OF_TEST_API_KEY}
  select: {min_reward: 1}
`, upstream.URL+"/v1"))
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var kept []string // the model is the service's
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "models:") && !strings.HasPrefix(line, "  - ") && !strings.HasPrefix(line, "llm:") {
			kept = append(kept, line)
		}
	}
	if err := os.WriteFile(path, []byte(strings.Join(kept, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	status, out, errs := run(t, "train", path, "--log-level", "error")
	if status != 0 || !strings.Contains(out, "did it learn: yes, validation reward 0.8333 at step 0, 1 at step 1") {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
}
