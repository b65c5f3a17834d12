package cli_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentlightning/gateway"
)

// TestController runs a rollout of the 1.0 protocol by a command, with the
// settings in a file of release 1.0 and on the command line.
func TestController(t *testing.T) {
	t.Parallel()
	programsRun(t)
	const secret = "s3cret"
	url := serve(t, "--db", "memory:", "--auth-token", secret)
	dir := t.TempDir()
	settings := filepath.Join(dir, "controller.yaml")
	text := "runner_type: k8s\nagl_server: {url: 'http://127.0.0.1:1', agent_url: null, key: ''}\n" +
		"k8s_runner: {namespace: default, ttl_after_finished: 1200, max_jobs_per_minute: 100, poll_interval: 5}\n" +
		"local_runner: {maximum_size: 3, poll_interval: 0.05}\n"
	if err := os.WriteFile(settings, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	client := &gateway.Client{BaseURL: url, Token: secret}
	class := "greeter"
	made, err := client.CreateRollouts(t.Context(), gateway.RolloutCreate{
		Input:  json.RawMessage(`{"who":"é"}`),
		Config: &gateway.RolloutConfig{Local: &gateway.LocalConfig{AgentClass: &class, EnvMap: map[string]string{"WHO": "input.who"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var out, errs syncBuffer
	done := startCommand(ctx, []string{
		"controller", "--config", settings, "runner_type=local", "agl_server.url=" + url, "agl_server.key=" + secret,
		"--agent", `greeter=test "$WHO" = é && test "$AGL_KEY" = ` + secret, "--state-dir", filepath.Join(dir, "state"),
	}, &out, &errs)
	page, err := client.Terminal(t.Context(), 0, 1, 30*time.Second)
	stop()
	status := <-done
	if err != nil || len(page.Items) != 1 || page.Items[0].RolloutID != made[0].RolloutID || page.Items[0].State != gateway.Succeeded {
		t.Errorf("ended are %+v, %v, want %s to succeed", page.Items, err, made[0].RolloutID)
	}
	if status != 0 || !strings.Contains(out.String(), "runs rollouts of "+url+", 3 at once") {
		t.Errorf("agl controller = %d\n%s%s", status, out.String(), errs.String())
	}
}

func TestControllerRefusals(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"runner_type k8s: this controller runs processes": {"runner_type=k8s"},
		"unknown runner_type: docker":                     {"runner_type=docker"},
		`"agl_server.ulr" is not a key of this command`:   {"agl_server.ulr=x"},
		"--size 0": {"local_runner.maximum_size=0"},
		"must be a number of seconds or a duration": {"local_runner.poll_interval=0"},
		"--agent x: must be NAME=COMMAND":           {"--agent", "x"},
	} {
		status, _, stderr := run(t, append([]string{"controller"}, args...)...)
		if status != 2 || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("agl controller %q = %d %q, want 2 and %q in one line", args, status, stderr, want)
		}
	}
	status, stdout, _ := run(t, "controller", "--print-config", "agl_server.key=s3cret", "local_runner.poll_interval=0.5")
	if status != 0 || strings.Contains(stdout, "s3cret") || !strings.Contains(stdout, "500ms") {
		t.Errorf("agl controller --print-config = %d\n%s", status, stdout)
	}
}
