package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/learner/native"
	"agentlightning/store"
	"agentlightning/storehttp"
)

func programsRun(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("windows: commands are refused as agents")
	}
}

// checkpoint writes a small built-in model and returns its folder.
func checkpoint(t *testing.T) string {
	t.Helper()
	model, err := native.New(native.Config{Seed: 1, Dim: 32, Layers: 1, Heads: 1, Context: 64}, native.NewTokenizer([]string{"one", "two"}))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "checkpoint")
	if err := errors.Join(model.Save(t.Context(), dir), model.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func enqueue(t *testing.T, client *storehttp.Client, config *agl.RolloutConfig, inputs ...string) []string {
	t.Helper()
	reqs := make([]store.EnqueueRequest, len(inputs))
	for i, input := range inputs {
		reqs[i] = store.EnqueueRequest{Input: json.RawMessage(input), Mode: agl.ModeTrain, Config: config}
	}
	queued, err := client.EnqueueRollouts(t.Context(), reqs)
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]string, len(queued))
	for i := range queued {
		ids[i] = queued[i].RolloutID
	}
	return ids
}

// TestShellScriptIsTrained: a shell script with curl calls the built-in model
// through the proxy and posts its reward, on a server with a token of which it
// gets that of its attempt; what comes of it is training data with token ids.
func TestShellScriptIsTrained(t *testing.T) {
	t.Parallel()
	programsRun(t)
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl: not installed")
	}
	const secret = "the-token-of-the-server"
	url := serve(t, "--db", "memory:", "--model", "small=builtin:"+checkpoint(t), "--auth-token", secret)
	client, err := storehttp.NewClient(url, storehttp.WithToken(secret))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	if _, err := client.AddResources(t.Context(), agl.NamedResources{{Name: "llm", Resource: agl.ProxyLLM{Model: "small"}}}); err != nil {
		t.Fatal(err)
	}
	id := enqueue(t, client, nil, `{"say":"one two"}`)[0]

	script := filepath.Join(t.TempDir(), "agent.sh")
	text := `set -eu
read -r task
say=${task#*say\":\"}; say=${say%%\"*}
post() { curl -sSf --noproxy '*' -H "Authorization: Bearer $AGL_KEY" -H 'Content-Type: application/json' "$@"; }
post "$OPENAI_BASE_URL/chat/completions" -d "{\"model\":\"$AGL_MODEL\",\"max_tokens\":4,\"messages\":[{\"role\":\"user\",\"content\":\"$say\"}]}"
post "$AGL_EVENT_URL" -d '{"event_type":"reward","data":{"value":0.75}}' >&2
test "$(curl -s --noproxy '*' -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $AGL_KEY" "${AGL_EVENT_URL%/api/*}/v1/agl/rollouts")" = 403
`
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	status, stdout, stderr := run(t, "runner", "--server", url, "--token", secret, "--max-rollouts", "1", "--reward", "event", "--", "sh", script)
	if status != 0 || !strings.Contains(stdout, id) || !strings.Contains(stdout, "1 attempt succeeded, 0 failed") {
		t.Fatalf("agl runner = %d\n%s%s", status, stdout, stderr)
	}
	status, stdout, stderr = run(t, "rollouts", "export", "--what", "triplets", "--server", url, "--token", secret)
	var triplet struct {
		Prompt, Response struct {
			TokenIDs []int64 `json:"token_ids"`
		}
		Reward *float64
	}
	if err := json.Unmarshal([]byte(stdout), &triplet); status != 0 || err != nil || len(triplet.Prompt.TokenIDs) == 0 ||
		len(triplet.Response.TokenIDs) == 0 || triplet.Reward == nil || *triplet.Reward != 0.75 {
		t.Errorf("the triplet is %s%s, %v, want one with token ids and the reward 0.75", stdout, stderr, err)
	}
	_, stdout, _ = run(t, "rollouts", "show", id, "--server", url, "--token", secret)
	wantParts(t, stdout, id, "succeeded", "reward 0.75", "stdout", `"object":"chat.completion"`, "stderr", "reward    0.75")
}

func TestRunnerReportsWhatHappened(t *testing.T) {
	t.Parallel()
	programsRun(t)
	url := serve(t, "--db", "memory:")
	client := connect(t, url)
	ids := enqueue(t, client, nil, `1`, `2`, `"x"`)
	status, stdout, stderr := run(t, "runner", "--server", url, "--max-rollouts", "3", "--workers", "2", "--reward", "stdout", "--worker-id", "me",
		"--env", "HALF=0.5", "--", "sh", "-c", `i=0; while [ $i -lt 60 ]; do echo "line $i"; i=$((i+1)); done; read n; case $n in 1) echo $HALF;; 2) echo 1;; *) printf "what \\033[31mis this\\n" >&2; exit 3;; esac`)
	if status != 0 || !strings.Contains(stdout, "2 attempts succeeded, 1 failed, mean reward 0.75 of 2") {
		t.Fatalf("agl runner = %d\n%s%s", status, stdout, stderr)
	}
	if !strings.Contains(stdout, "me takes rollouts from "+url+", 2 at once") || !strings.Contains(stdout, "failed: program \"sh\": exit status 3: what \uFFFD[31mis this") {
		t.Errorf("agl runner printed\n%s", stdout)
	}
	_, stdout, _ = run(t, "rollouts", "show", ids[2], "--server", url)
	wantParts(t, stdout, "failed", `"reason":"agent"`, "stdout, the last 50 lines; 10 more", "line 10", "line 59", "stderr", "what \uFFFD[31mis this")
}

// TestRunnerGivesBack: an interrupt ends the runner within seconds, with the
// status of an interrupt, and the rollout is queued again.
func TestRunnerGivesBack(t *testing.T) {
	t.Parallel()
	programsRun(t)
	url := serve(t, "--db", "memory:")
	client := connect(t, url)
	id := enqueue(t, client, nil, `1`)[0]
	started := filepath.Join(t.TempDir(), "started")
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out, errs syncBuffer
	done := startCommand(ctx, []string{"runner", "--server", url, "--grace", "200ms", "--", "sh", "-c", "echo $$ > " + started + ".new; mv " + started + ".new " + started + "; sleep 600"}, &out, &errs)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 4000 {
		if _, err := os.Stat(started); err == nil {
			break
		}
		<-tick.C
	}
	began := time.Now()
	interrupt()
	if status := <-done; status != 130 || time.Since(began) > 5*time.Second {
		t.Errorf("agl runner ended with %d after %v: %s%s, want 130 within 5 s", status, time.Since(began), out.String(), errs.String())
	}
	if r, err := client.Rollout(t.Context(), id); err != nil || r.Status != agl.RolloutRequeuing {
		t.Errorf("the rollout is %s, %v, want requeuing", r.Status, err)
	}
}

// TestRunnerIsToldToStop: a rollout that is cancelled, and one that takes longer
// than it may, end with all that their commands started.
func TestRunnerIsToldToStop(t *testing.T) {
	t.Parallel()
	programsRun(t)
	url := serve(t, "--db", "memory:")
	client := connect(t, url)
	limit := 1.0
	dir := t.TempDir()
	late := enqueue(t, client, &agl.RolloutConfig{TimeoutSeconds: &limit, MaxAttempts: 1}, `"late"`)[0]
	cancelled := enqueue(t, client, nil, `"cancelled"`)[0]
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out, errs syncBuffer
	done := startCommand(ctx, []string{
		"runner", "--server", url, "--workers", "2", "--max-rollouts", "2", "--env", "DIR=" + dir, "--",
		"sh", "-c", `file="$DIR/$AGL_ROLLOUT_ID"; trap 'rm "$file"; exit 0' TERM; : >"$file"; sleep 600 & wait`,
	}, &out, &errs)
	exists := func(id string) bool { _, err := os.Stat(filepath.Join(dir, id)); return err == nil }
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 4000 {
		if exists(cancelled) {
			break
		}
		<-tick.C
	}
	if _, err := client.UpdateRollout(t.Context(), cancelled, store.RolloutUpdate{Status: store.To(agl.RolloutCancelled)}); err != nil {
		t.Fatal(err)
	}
	if status := <-done; status != 0 { // both have ended
		t.Fatalf("agl runner = %d\n%s%s", status, out.String(), errs.String())
	}
	for id, want := range map[string]agl.RolloutStatus{late: agl.RolloutFailed, cancelled: agl.RolloutCancelled} {
		if r, err := client.Rollout(t.Context(), id); err != nil || r.Status != want {
			t.Errorf("rollout %s is %s, %v, want %s", id, r.Status, err, want)
		}
		if exists(id) {
			t.Errorf("the command of %s was not asked to stop", id)
		}
	}
	if r, err := client.Rollout(t.Context(), late); err != nil || r.Attempt.Status != agl.AttemptTimeout {
		t.Errorf("the late attempt is %s, %v, want timeout", r.Attempt.Status, err)
	}
}

func TestRunnerRefusals(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"there is no command":     {},
		"--workers 0":             {"--workers", "0", "--", "sh"},
		"--max-rollouts -1":       {"--max-rollouts", "-1", "--", "sh"},
		"--grace -1s":             {"--grace", "-1s", "--", "sh"},
		"Config.Reward \"often\"": {"--reward", "often", "--", "sh"},
		"no-such-program":         {"--", "no-such-program"},
		"--server x":              {"--server", "x", "--", "sh"},
	} {
		if runtime.GOOS == "windows" && strings.HasPrefix(want, "Config") || want == "no-such-program" && runtime.GOOS == "windows" {
			continue
		}
		status, _, stderr := run(t, append([]string{"runner"}, args...)...)
		if status != 2 || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("agl runner %q = %d %q, want 2 and %q in one line", args, status, stderr, want)
		}
	}
}
