package cli_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentlightning/gateway"
)

// settingsOf returns what --print-config says of each setting: value and source.
func settingsOf(t *testing.T, args ...string) map[string][]string {
	t.Helper()
	status, out, stderr := run(t, append(args, "--print-config")...)
	if status != 0 {
		t.Fatalf("agl %s = %d, %s", strings.Join(args, " "), status, stderr)
	}
	found := map[string][]string{}
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		found[words[0]] = words[1:]
	}
	return found
}

func TestGatewayKeys(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "server.yaml")
	err := os.WriteFile(file, []byte("host: 127.0.0.2\nport: 8181\nkey: null\ndefault_proxy:\n  model_name: from/file\n"+
		"  include_log_probs: False\n  train:\n    temperature: 1\n  val:\n    temperature: 0.5\nsync: normal\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		args []string
		want map[string]string
	}{
		{"defaults", nil, map[string]string{
			"host": "127.0.0.1 default", "port": "8080 default", "controlled-model": "Qwen/Qwen2.5-7B-Instruct default",
			"train-temperature": "1 default", "val-temperature": "0.7 default", "train-logprobs": "true default", "routed-experts": "false default",
		}},
		{
			"arguments beside flags",
			[]string{"port=8080", "key=s3cret", "default_proxy.model_name=Qwen/Qwen3-8B", "--db", "memory:", "default_proxy.val.temperature=0"},
			map[string]string{
				"port": "8080 flag", "auth-token": "(hidden) flag", "controlled-model": "Qwen/Qwen3-8B flag", "db": "memory: flag", "val-temperature": "0 flag",
			},
		},
		{
			"YAML values",
			[]string{`key="0123"`, "host='127.0.0.1'", "default_proxy.include_log_probs=False", "default_proxy.include_routed_experts=true", "port=null"},
			map[string]string{"auth-token": "(hidden) flag", "host": "127.0.0.1 flag", "train-logprobs": "false flag", "routed-experts": "true flag", "port": "8080 default"},
		},
		{"a file, and an argument above it", []string{"--config", file, "default_proxy.model_name=above"}, map[string]string{
			"host": "127.0.0.2 " + file, "port": "8181 " + file, "auth-token": "default", "controlled-model": "above flag",
			"train-logprobs": "false " + file, "train-temperature": "1 " + file, "val-temperature": "0.5 " + file, "sync": "normal " + file,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := settingsOf(t, append([]string{"gateway"}, tt.args...)...)
			for name, want := range tt.want {
				if s := strings.Join(got[name], " "); s != want {
					t.Errorf("%s is %q, want %q", name, s, want)
				}
			}
		})
	}
}

func TestGatewayRefusesUnknownKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tt := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"prot=8080"}, 2, `"prot" is not a key of this command; the keys are default_proxy.include_log_probs`},
		{[]string{"+more=1"}, 2, `"+more" is not a key`},
		{[]string{"8080"}, 2, `argument "8080": must be key=value`},
		{[]string{"port=x"}, 2, `argument "port=x"`},
		{[]string{"default_proxy.train.temperature=warm"}, 2, `argument "default_proxy.train.temperature=warm"`},
		{[]string{"port=[1]"}, 2, "the value must be one word"},
		{[]string{"port=1", "--port", "2"}, 2, "--port is given already"},
		{[]string{"port=1", "port=2"}, 2, "--port is given already"},
		{[]string{"prot=1", "kye=2"}, 2, `"kye" is not a key`},
		{[]string{"host=0.0.0.0"}, 2, "host 0.0.0.0 is reachable by others"},
		{[]string{"default_proxy.val.temperature=-1", "port=0", "--db", "memory:"}, 1, "ValTemperature is -1"},
		{[]string{"--config", write("a.yaml", "default_proxy:\n  name: x\n")}, 1, `"default_proxy.name" is not a setting`},
		{[]string{"--config", write("b.yaml", "key: a\nauth-token: b\n")}, 1, `"auth-token" is there under two names`},
		{[]string{"--config", write("c.yaml", "port: [1")}, 1, "settings"},
	} {
		status, _, stderr := run(t, append([]string{"gateway"}, tt.args...)...)
		if status != tt.status || !strings.Contains(stderr, tt.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("agl gateway %s = %d %q, want %d and one line with %q", strings.Join(tt.args, " "), status, stderr, tt.status, tt.want)
		}
	}
}

// TestGatewayServes starts the command and makes a call with what it was told.
func TestGatewayServes(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 1)
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, r.ContentLength)
		_, _ = r.Body.Read(body)
		asked <- string(body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"choices":[]}`))
	}))
	t.Cleanup(model.Close)
	url := serveAs(t, "gateway", "port=0", "key=k", "--db", "memory:", "default_proxy.model_name=org/m", "--model", "org/m="+model.URL+"/v1",
		"default_proxy.train.temperature=0.25", "default_proxy.include_log_probs=false")
	client := &gateway.Client{BaseURL: url, Token: "k"}
	if _, err := client.CreateRollouts(t.Context(), gateway.RolloutCreate{RolloutID: "r"}); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, client.OpenAIBaseURL("r", "0", "train")+"/chat/completions", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", "k")
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if got, want := <-asked, `{"model":"org/m","temperature":0.25,"return_token_ids":true}`; got != want || res.StatusCode != http.StatusOK {
		t.Errorf("the call is %d, the model was asked %s, want %s", res.StatusCode, got, want)
	}
}
