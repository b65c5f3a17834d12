package modellist_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/internal/modellist"
)

func environ(name string) (string, bool) {
	value, ok := map[string]string{
		"MY_KEY": "k1", "OPENAI_API_KEY": "ok", "AZURE_API_KEY": "ak", "ANTHROPIC_API_KEY": "an", "BASE": "http://env:8000/v1",
	}[name]
	return value, ok
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text string
		want agl.Model
		fail string
	}{
		{text: "m=http://a:1/v1", want: agl.Model{Name: "m", Endpoint: "http://a:1/v1"}},
		{text: "a=http://a:1/v1?x=1&y='2'", want: agl.Model{Name: "a", Endpoint: "http://a:1/v1?x=1&y='2'"}},
		{
			text: "org/m=https://x.openai.azure.com,kind=azure,target=t,version=7,key_env=MY_KEY,api_version=2024-10-21,weight=2,retries=3,concurrency=4,rpm=5,tpm=6",
			want: agl.Model{
				Name: "org/m", Endpoint: "https://x.openai.azure.com", Kind: agl.BackendAzure, Target: "t", Version: 7, APIKey: "k1",
				APIVersion: "2024-10-21", Weight: 2, Retries: 3, Concurrency: 4, RPM: 5, TPM: 6,
			},
		},
		{text: "m=http://a/v1,api_key_env=M_API_KEY", want: agl.Model{Name: "m", Endpoint: "http://a/v1", APIKeyEnv: "M_API_KEY"}},
		{text: "m", fail: "must be NAME=BASE_URL"},
		{text: "=http://a/v1", fail: "must be NAME=BASE_URL"},
		{text: "m=", fail: "is not a URL"},
		{text: "m=localhost:80", fail: "is not a URL"},
		{text: "m=http://a/v1,wait=2", fail: `option "wait": there is none`},
		{text: "m=http://a/v1,weight", fail: "must be OPTION=VALUE"},
		{text: "m=http://a/v1,weight=two", fail: `option weight: "two" is not a whole number`},
		{text: "m=http://a/v1,weight=-2", fail: "weight -2 must not be negative"},
		{text: "m=http://a/v1,kind=cohere", fail: `kind "cohere" must be one of`},
		{text: "m=http://a/v1,key_env=NONE", fail: "the environment has no NONE"},
		{text: "m=http://a/v1,api_key=secret", fail: "can be read by others"},
	} {
		got, err := modellist.Parse(tt.text, environ)
		switch {
		case tt.fail != "":
			if err == nil || !strings.Contains(err.Error(), tt.fail) || strings.Contains(err.Error(), "secret") {
				t.Errorf("Parse(%q) = %v, want an error with %q", tt.text, err, tt.fail)
			}
		case err != nil:
			t.Errorf("Parse(%q) = %v", tt.text, err)
		default:
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Parse(%q) (-want +got):\n%s", tt.text, diff)
			}
		}
	}
}

const list = `
model_list:
  - model_name: policy
    litellm_params:
      model: hosted_vllm/Qwen/Qwen3-8B
      api_base: http://10.0.0.1:8000/v1/
      api_key: os.environ/MY_KEY
      weight: 2
      rpm: 60
      tpm: 1000
      max_parallel_requests: 8
    model_info: {id: x, mode: chat}
  - model_name: policy
    litellm_params: {model: openai/Qwen3, api_base: os.environ/BASE, max_retries: 1, input_cost_per_token: 0}
  - model_name: gpt-4o
    litellm_params: {model: gpt-4o}
  - model_name: az
    litellm_params: {model: azure/my-deployment, api_base: "https://x.openai.azure.com", api_version: "2024-10-21"}
  - model_name: cl
    litellm_params: {model: anthropic/claude-x, api_base: "https://api.anthropic.com"}
  - model_name: local
    litellm_params: {model: llama, custom_llm_provider: ollama_chat, api_base: "http://127.0.0.1:11434/"}
litellm_settings:
  num_retries: 3
`

func TestParseYAML(t *testing.T) {
	t.Parallel()
	got, err := modellist.ParseYAML([]byte(list), environ)
	if err != nil {
		t.Fatal(err)
	}
	want := []agl.Model{
		{
			Name: "policy", Endpoint: "http://10.0.0.1:8000/v1/", Kind: agl.BackendCompatible, Target: "Qwen/Qwen3-8B", APIKey: "k1",
			Weight: 2, RPM: 60, TPM: 1000, Concurrency: 8, Retries: 3,
		},
		{Name: "policy", Endpoint: "http://env:8000/v1", Target: "Qwen3", Retries: 1},
		{Name: "gpt-4o", Endpoint: "https://api.openai.com/v1", APIKey: "ok", Retries: 3},
		{Name: "az", Endpoint: "https://x.openai.azure.com", Kind: agl.BackendAzure, Target: "my-deployment", APIKey: "ak", APIVersion: "2024-10-21", Retries: 3},
		{Name: "cl", Endpoint: "https://api.anthropic.com/v1", Kind: agl.BackendAnthropic, Target: "claude-x", APIKey: "an", Retries: 3},
		{Name: "local", Endpoint: "http://127.0.0.1:11434/v1", Kind: agl.BackendCompatible, Target: "llama", Retries: 3},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("models (-want +got):\n%s", diff)
	}
}

func TestParseYAMLRefuses(t *testing.T) {
	t.Parallel()
	params := func(text string) string {
		return "model_list: [{model_name: m, litellm_params: {" + text + "}}]"
	}
	for _, tt := range []struct{ text, fail string }{
		{"", "model_list: is empty"},
		{"model_list: []", "model_list: is empty"},
		{"model_list: {}", "model_list: must be a list"},
		{"- a", "mapping is expected"},
		{"model_list: [{model_name: m, litellm_params: {api_key: sk-secret", ""},
		{"model_list: [1]", "model_list[0]: must have members"},
		{"model_list: [{litellm_params: {model: openai/x}}]", "model_name: is missing"},
		{"model_list: [{model_name: m}]", "litellm_params.model: is missing"},
		{"model_list: [{model_name: m, extra: 1}]", "extra: not supported"},
		{"router_settings: {}\nmodel_list: [{model_name: m, litellm_params: {model: gpt-4o}}]", "router_settings: not supported"},
		{"litellm_settings: {drop_params: true}\nmodel_list: [{model_name: m, litellm_params: {model: gpt-4o}}]", "litellm_settings.drop_params: not supported"},
		{params("model: bedrock/x"), `provider "bedrock" is not supported; supported are anthropic, azure`},
		{params("model: x"), `"x" names no provider`},
		{params("model: hosted_vllm/x"), "api_base: is missing"},
		{params("model: hosted_vllm/"), "names no model"},
		{params("model: gpt-4o, temperature: 1"), "litellm_params.temperature: not supported"},
		{params("model: gpt-4o, rpm: many"), "litellm_params.rpm: must be a whole number"},
		{params("model: gpt-4o, api_key: os.environ/NONE"), "litellm_params.api_key: the environment has no NONE"},
		{params("model: gpt-4o, api_base: 7"), "litellm_params.api_base: must be a text"},
	} {
		_, err := modellist.ParseYAML([]byte(tt.text), environ)
		if err == nil || !strings.Contains(err.Error(), tt.fail) || strings.Contains(err.Error(), "secret") {
			t.Errorf("ParseYAML(%q) = %v, want an error with %q", tt.text, err, tt.fail)
		}
	}
	// All that is wrong is told at once.
	_, err := modellist.ParseYAML([]byte("a: 1\nmodel_list: [1, 2]"), environ)
	for _, want := range []string{"a: not supported", "model_list[0]", "model_list[1]"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseYAML = %v, want %q among it", err, want)
		}
	}
}

// A key of the environment goes to the provider it belongs to, and nowhere else.
func TestKeysStayWithTheirProvider(t *testing.T) {
	t.Parallel()
	got, err := modellist.ParseYAML([]byte("model_list: [{model_name: m, litellm_params: {model: openai/x, api_base: 'http://elsewhere/v1'}}]"), environ)
	if err != nil || got[0].APIKey != "" {
		t.Errorf("key for another server is %q, %v, want none", got[0].APIKey, err)
	}
}

func FuzzParseYAML(f *testing.F) {
	f.Add([]byte(list))
	f.Add([]byte("model_list: [{model_name: m, litellm_params: {model: gpt-4o, rpm: 1.5}}]"))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("model_list: &x [{? {a: b} : c}, *x]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		models, err := modellist.ParseYAML(text, environ)
		if err != nil {
			return
		}
		for _, m := range models {
			if err := m.Validate(); err != nil {
				t.Errorf("a backend is not valid: %v", err)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("m=http://a/v1,kind=azure,weight=2,key_env=MY_KEY")
	f.Fuzz(func(t *testing.T, text string) {
		if m, err := modellist.Parse(text, environ); err == nil && m.Validate() != nil {
			t.Errorf("Parse(%q) is not valid: %v", text, m.Validate())
		}
	})
}
