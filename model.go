package agl

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Model is a model backend that the proxy may route to. Several backends may
// serve one name. Its JSON is that of the 1.0 protocol with our members added.
type Model struct {
	Name     string // as callers ask for it
	Endpoint string // base URL, "/v1" included
	Version  int64  // weights version that the backend serves
	// Target is the name sent to the backend; empty means Name.
	Target string
	// APIKey is sent to the backend in the way of its kind. It is not shown to
	// people and not written to a database: a server that starts anew has to be
	// told again. APIKeyEnv lasts.
	APIKey string
	// KeyGiven says that APIKey was set when the backend was registered. Stores
	// set it; with an empty APIKey the key is lost.
	KeyGiven bool
	// APIKeyEnv names a variable of the server's environment that holds the key.
	APIKeyEnv string
	// Kind is what the backend speaks; empty lets the host of the endpoint decide,
	// see [Model.Speaks].
	Kind BackendKind
	// APIVersion is the api-version of Azure OpenAI; empty sends none.
	APIVersion string
	// Weight is the share of new rollouts beside other backends of the name; 0
	// means 1.
	Weight int64
	// Retries is how often a call that the backend could not serve is sent again;
	// 0 hands every failure through.
	Retries int64
	// Concurrency limits open calls, RPM calls a minute, TPM tokens a minute; 0 has
	// no limit.
	Concurrency int64
	RPM         int64
	TPM         int64
}

// BackendKind is what a backend speaks.
type BackendKind string

// Kinds of backends.
const (
	BackendCompatible BackendKind = "openai-compatible" // OpenAI's chat completions, as vLLM, SGLang, Ollama and the built-in model have them
	BackendOpenAI     BackendKind = "openai"            // OpenAI's own service
	BackendResponses  BackendKind = "openai-responses"  // a server that speaks OpenAI's Responses beside chat completions
	BackendAzure      BackendKind = "azure"             // Azure OpenAI: deployments, api-version, api-key
	BackendAnthropic  BackendKind = "anthropic"         // Anthropic's Messages
)

// BackendKinds lists the kinds that there are.
func BackendKinds() []BackendKind {
	return []BackendKind{BackendCompatible, BackendOpenAI, BackendResponses, BackendAzure, BackendAnthropic}
}

// Speaks returns the kind of the backend: Kind, or that of a well-known host.
func (m Model) Speaks() BackendKind {
	if m.Kind != "" {
		return m.Kind
	}
	u, err := url.Parse(m.Endpoint)
	if err != nil {
		return BackendCompatible
	}
	switch host := u.Hostname(); {
	case host == "api.openai.com":
		return BackendOpenAI
	case host == "api.anthropic.com":
		return BackendAnthropic
	case strings.HasSuffix(host, ".openai.azure.com"):
		return BackendAzure
	}
	return BackendCompatible
}

// maxOption bounds options that count; none is meant to come near it.
const maxOption = 1 << 40

// Validate returns an error that names the first field that is wrong and the
// rule.
func (m Model) Validate() error {
	if m.Name == "" {
		return fmt.Errorf("model at %q: the name is empty", m.Endpoint)
	}
	u, err := url.Parse(m.Endpoint)
	switch {
	case err != nil:
		return fmt.Errorf("model %q: endpoint: %w", m.Name, err)
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return fmt.Errorf("model %q: endpoint %q is not a URL such as http://127.0.0.1:8000/v1", m.Name, m.Endpoint)
	case u.User != nil:
		return fmt.Errorf("model %q: endpoint: a user name or password in a URL ends up in logs and spans; give the key as api_key or api_key_env", m.Name)
	case m.Kind != "" && !slices.Contains(BackendKinds(), m.Kind):
		return fmt.Errorf("model %q: kind %q must be one of %s", m.Name, m.Kind, kindList())
	case m.APIVersion != "" && m.Speaks() != BackendAzure:
		return fmt.Errorf("model %q: api_version %q is for kind %s, this one is %s", m.Name, m.APIVersion, BackendAzure, m.Speaks())
	case m.APIKeyEnv != "" && (!strings.HasSuffix(m.APIKeyEnv, "_API_KEY") || strings.HasPrefix(m.APIKeyEnv, "AGL_")):
		return fmt.Errorf("model %q: api_key_env %q must end in _API_KEY and not begin with AGL_, so that no other secret can be sent to a backend", m.Name, m.APIKeyEnv)
	case m.APIKeyEnv != "" && m.APIKey != "":
		return fmt.Errorf("model %q: api_key and api_key_env exclude each other", m.Name)
	}
	for _, o := range []struct {
		name  string
		value int64
	}{
		{"weight", m.Weight}, {"retries", m.Retries}, {"concurrency", m.Concurrency}, {"rpm", m.RPM}, {"tpm", m.TPM},
	} {
		if o.value < 0 || o.value > maxOption {
			return fmt.Errorf("model %q: %s %d must not be negative or above %d", m.Name, o.name, o.value, int64(maxOption))
		}
	}
	if m.Retries > maxRetries {
		return fmt.Errorf("model %q: retries %d must be at most %d", m.Name, m.Retries, maxRetries)
	}
	return nil
}

// maxRetries bounds retries: with waits of up to eight seconds between them, a
// call beyond that only holds its caller up.
const maxRetries = 20

func kindList() string {
	words := make([]string, len(BackendKinds()))
	for i, k := range BackendKinds() {
		words[i] = string(k)
	}
	return strings.Join(words, ", ")
}

type modelJSON struct {
	Name        string      `json:"model"`
	Endpoint    string      `json:"endpoint"`
	Version     int64       `json:"version"`
	Target      string      `json:"target,omitempty"`
	APIKey      string      `json:"api_key,omitempty"`
	KeyGiven    bool        `json:"key_given,omitempty"`
	APIKeyEnv   string      `json:"api_key_env,omitempty"`
	Kind        BackendKind `json:"kind,omitempty"`
	APIVersion  string      `json:"api_version,omitempty"`
	Weight      int64       `json:"weight,omitempty"`
	Retries     int64       `json:"retries,omitempty"`
	Concurrency int64       `json:"concurrency,omitempty"`
	RPM         int64       `json:"rpm,omitempty"`
	TPM         int64       `json:"tpm,omitempty"`
}

// MarshalJSON implements [json.Marshaler].
func (m Model) MarshalJSON() ([]byte, error) { return json.Marshal(modelJSON(m)) }

// UnmarshalJSON implements [json.Unmarshaler].
func (m *Model) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, (*modelJSON)(m)) }
