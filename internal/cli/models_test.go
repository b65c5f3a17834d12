package cli_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	agl "agentlightning"
	"agentlightning/learner/native"
	"agentlightning/semconv"
	"agentlightning/store"
)

func TestModelsCommands(t *testing.T) {
	t.Parallel()
	url := serve(t, "--db", "sqlite:"+filepath.Join(t.TempDir(), "agl.db"))
	ok := func(args ...string) string {
		t.Helper()
		status, stdout, stderr := run(t, append(append([]string{"models"}, args...), "--server", url)...)
		if status != 0 {
			t.Fatalf("agl models %s = %d: %s", args, status, stderr)
		}
		return stdout
	}
	list := func(args ...string) (found []agl.Model) {
		t.Helper()
		for line := range strings.Lines(ok(append([]string{"ls", "--json"}, args...)...)) {
			var m agl.Model
			if err := json.Unmarshal([]byte(line), &m); err != nil {
				t.Fatal(err)
			}
			found = append(found, m)
		}
		return found
	}
	if got := ok("add", "m=http://a:1/v1,version=3,weight=2", "m=http://b:1/v1", "n=http://a:1/v1"); got !=
		"added m at http://a:1/v1\nadded m at http://b:1/v1\nadded n at http://a:1/v1\n" {
		t.Errorf("add printed %q", got)
	}
	if got := list(); len(got) != 3 || got[0].Version != 3 || got[0].Weight != 2 {
		t.Errorf("models are %+v", got)
	}
	file := filepath.Join(t.TempDir(), "list.yaml")
	text := "model_list: [{model_name: y, litellm_params: {model: hosted_vllm/q, api_base: 'http://y:1/v1', api_key: top-secret, rpm: 9}}]"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := ok("add", "--json", "--file", file, "m=http://c:1/v1", "--replace"); strings.Contains(got, "top-secret") || !strings.Contains(got, `"key_given":true`) {
		t.Errorf("add --json printed %s", got)
	}
	if got := list("m"); len(got) != 1 || got[0].Endpoint != "http://c:1/v1" {
		t.Errorf("backends of m after --replace are %+v", got)
	}
	if got := list("y"); len(got) != 1 || got[0].RPM != 9 || got[0].APIKey != "" || !got[0].KeyGiven {
		t.Errorf("backends of y are %+v", got)
	}
	table := ok("ls")
	for _, want := range []string{"MODEL", "http://y:1/v1", "given", "rpm=9", "openai-compatible"} {
		if !strings.Contains(table, want) || strings.Contains(table, "top-secret") {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
	if got := ok("rm", "y", "--endpoint", "http://y:1/v1"); got != "withdrew y at http://y:1/v1\n" {
		t.Errorf("rm printed %q", got)
	}
	ok("rm", "--all")
	if got := list(); len(got) != 0 {
		t.Errorf("models after rm --all are %+v", got)
	}
	for _, tt := range []struct {
		args   string
		status int
		says   string
	}{
		{"add", 2, "no backend is named"},
		{"add m=nowhere", 2, "is not a URL"},
		{"add m=http://a/v1,api_key_env=HOME", 2, "must end in _API_KEY"},
		{"rm", 2, "pass --all"},
		{"rm m --all", 2, "takes no names"},
		{"rm unknown", 1, `model "unknown" is registered`},
	} {
		status, _, stderr := run(t, append(append([]string{"models"}, strings.Fields(tt.args)...), "--server", url)...)
		if status != tt.status || !strings.Contains(stderr, tt.says) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("agl models %s = %d %q, want %d and %q", tt.args, status, stderr, tt.status, tt.says)
		}
	}
}

func TestServeReadsAModelList(t *testing.T) {
	t.Setenv("CLI_TEST_KEY", "top-secret")
	file := filepath.Join(t.TempDir(), "list.yaml")
	text := "model_list: [{model_name: listed, litellm_params: {model: openai/q, api_base: 'http://127.0.0.1:1/v1', api_key: os.environ/CLI_TEST_KEY}}]"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	url := serve(t, "--db", "memory:", "--model-list", file, "--model", "flagged=http://127.0.0.1:1/v1,weight=2", "--public-url", "https://agl.example.com/")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v1/models", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var models struct{ Data []struct{ ID string } }
	if err := json.NewDecoder(res.Body).Decode(&models); err != nil || len(models.Data) != 2 || models.Data[0].ID != "listed" || models.Data[1].ID != "flagged" {
		t.Errorf("models are %+v, %v", models, err)
	}
	// They are listed, and withdrawn until the next start.
	if status, stdout, stderr := run(t, "models", "ls", "--server", url); status != 0 || !strings.Contains(stdout, "listed") || !strings.Contains(stdout, "weight=2") || strings.Contains(stdout, "top-secret") {
		t.Errorf("agl models ls = %d %q %q", status, stdout, stderr)
	}
	if status, _, stderr := run(t, "models", "add", "flagged=http://127.0.0.1:2/v1", "--replace", "--server", url); status != 0 {
		t.Error(stderr)
	}
	if status, _, stderr := run(t, "models", "rm", "listed", "--server", url); status != 0 {
		t.Error(stderr)
	}
	if status, stdout, _ := run(t, "models", "ls", "--json", "--server", url); status != 0 || strings.Count(stdout, "\n") != 1 || !strings.Contains(stdout, "127.0.0.1:2") {
		t.Errorf("after withdrawing, agl models ls = %d %q", status, stdout)
	}
	// Resources need not say where the proxy is.
	client := connect(t, url)
	update, err := client.AddResources(t.Context(), agl.NamedResources{{Name: "llm", Resource: agl.ProxyLLM{Model: "listed"}}})
	if err != nil || update.Resources[0].Resource.(agl.ProxyLLM).Endpoint != "https://agl.example.com/v1" {
		t.Errorf("resources are %+v, %v, want the proxy at the public address", update.Resources, err)
	}
	for _, args := range [][]string{{"--model-list", "no-such-file"}, {"--model", "m=x"}, {"--public-url", "agl"}, {"--pause-hold-timeout", "0s"}} {
		if status, _, stderr := run(t, append([]string{"serve", "--db", "memory:", "--port", "0"}, args...)...); status == 0 || !strings.Contains(stderr, args[0]) {
			t.Errorf("serve %s = %d %q, want a refusal that names the flag", args, status, stderr)
		}
	}
}

// A checkpoint of the built-in model is a backend like any other.
func TestServeTheBuiltInModel(t *testing.T) {
	t.Parallel()
	model, err := native.New(native.Config{Seed: 1, Dim: 32, Layers: 1, Heads: 1, Context: 64}, native.NewTokenizer([]string{"one", "two"}))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "checkpoint")
	if err := errors.Join(model.Save(t.Context(), dir), model.Close()); err != nil {
		t.Fatal(err)
	}
	url := serve(t, "--db", "memory:", "--model", "small=builtin:"+dir+",weight=2")
	client := connect(t, url)
	r, err := client.StartRollout(t.Context(), store.StartRequest{EnqueueRequest: store.EnqueueRequest{Input: json.RawMessage(`1`)}})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/rollout/"+r.RolloutID+"/attempt/"+r.Attempt.AttemptID+"/v1/chat/completions",
		strings.NewReader(`{"model":"small","max_tokens":5,"messages":[{"role":"user","content":"one two"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	page, err := client.QuerySpans(t.Context(), store.SpanQuery{RolloutID: r.RolloutID})
	if err != nil || res.StatusCode != http.StatusOK || len(page.Items) != 1 {
		t.Fatalf("answer is %d, %d spans, %v", res.StatusCode, len(page.Items), err)
	}
	ids, _ := page.Items[0].Attributes.Ints(semconv.ResponseTokenIDs)
	if problem, _ := page.Items[0].Attributes.String(semconv.CallProblem); problem != "" || len(ids) == 0 {
		t.Errorf("the call has ids %v, problem %q", ids, problem)
	}
	if status, _, stderr := run(t, "serve", "--db", "memory:", "--port", "0", "--model", "x=builtin:"+filepath.Join(dir, "none")); status == 0 || !strings.Contains(stderr, "open checkpoint") {
		t.Errorf("serve of a checkpoint that is not there = %d %q", status, stderr)
	}
}
