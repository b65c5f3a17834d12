package modellist

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	agl "agentlightning"
)

// maxYAML bounds a list; a backend takes some two hundred bytes.
const maxYAML = 4 << 20

// provider is how LiteLLM's name of a provider is served here.
type provider struct {
	kind   agl.BackendKind // empty lets the address decide
	base   string          // address when the entry has none; empty needs one
	suffix string          // what the address is to end with
	key    string          // variable of the key when the entry has none
}

var providers = map[string]provider{
	"hosted_vllm":   {kind: agl.BackendCompatible},
	"openai":        {base: "https://api.openai.com/v1", key: "OPENAI_API_KEY"},
	"azure":         {kind: agl.BackendAzure, key: "AZURE_API_KEY"},
	"anthropic":     {kind: agl.BackendAnthropic, base: "https://api.anthropic.com/v1", suffix: "/v1", key: "ANTHROPIC_API_KEY"},
	"litellm_proxy": {kind: agl.BackendCompatible},
	"lm_studio":     {kind: agl.BackendCompatible},
	"ollama_chat":   {kind: agl.BackendCompatible, base: "http://127.0.0.1:11434/v1", suffix: "/v1"},
}

func providerNames() string {
	names := make([]string, 0, len(providers))
	for name := range providers {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// environPrefix marks a value that is the name of a variable.
const environPrefix = "os.environ/"

// ParseYAML reads a file with LiteLLM's model_list. What the proxy would not do
// is refused by name, not passed over. The error tells of all entries.
func ParseYAML(text []byte, environ Environ) ([]agl.Model, error) {
	if len(text) > maxYAML {
		return nil, fmt.Errorf("the list has %d bytes, it may have %d", len(text), maxYAML)
	}
	var top yaml.MapSlice
	if err := yaml.UnmarshalWithOptions(text, &top, yaml.UseOrderedMap()); err != nil {
		// The long form shows lines of the file, and those may hold keys.
		return nil, errors.New(yaml.FormatError(err, false, false))
	}
	var errs []error
	var list []any
	var retries int64
	for _, item := range top {
		switch key := item.Key; key {
		case "model_list":
			var ok bool
			if list, ok = item.Value.([]any); !ok {
				errs = append(errs, errors.New("model_list: must be a list"))
			}
		case "litellm_settings":
			n, err := settings(item.Value)
			retries = n
			errs = append(errs, err)
		default:
			errs = append(errs, fmt.Errorf("%v: not supported; the list has model_list and litellm_settings.num_retries", key))
		}
	}
	if len(list) == 0 && errors.Join(errs...) == nil {
		return nil, errors.New("model_list: is empty")
	}
	models := make([]agl.Model, 0, len(list))
	for i, item := range list {
		m, err := entry(item, environ)
		if err != nil {
			errs = append(errs, fmt.Errorf("model_list[%d]: %w", i, err))
			continue
		}
		if m.Retries == 0 {
			m.Retries = retries
		}
		models = append(models, m)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return models, nil
}

func settings(value any) (retries int64, err error) {
	members, ok := value.(yaml.MapSlice)
	if !ok {
		if value == nil {
			return 0, nil
		}
		return 0, errors.New("litellm_settings: must have members")
	}
	var errs []error
	for _, item := range members {
		if item.Key != "num_retries" {
			errs = append(errs, fmt.Errorf("litellm_settings.%v: not supported", item.Key))
			continue
		}
		n, err := whole(item.Value)
		if err != nil {
			errs = append(errs, fmt.Errorf("litellm_settings.num_retries: %w", err))
		}
		retries = n
	}
	return retries, errors.Join(errs...)
}

// entry reads one backend.
func entry(value any, environ Environ) (m agl.Model, err error) {
	members, ok := value.(yaml.MapSlice)
	if !ok {
		return m, errors.New("must have members model_name and litellm_params")
	}
	var params yaml.MapSlice
	for _, item := range members {
		switch item.Key {
		case "model_name":
			if m.Name, ok = item.Value.(string); !ok {
				return m, errors.New("model_name: must be a text")
			}
		case "litellm_params":
			if params, ok = item.Value.(yaml.MapSlice); !ok {
				return m, errors.New("litellm_params: must have members")
			}
		case "model_info": // tells people of the model, changes nothing
		default:
			return m, fmt.Errorf("%v: not supported", item.Key)
		}
	}
	if m.Name == "" {
		return m, errors.New("model_name: is missing")
	}
	if err := backend(&m, params, environ); err != nil {
		return m, fmt.Errorf("model %q: %w", m.Name, err)
	}
	return m, m.Validate()
}

// backend reads the parameters of an entry.
func backend(m *agl.Model, params yaml.MapSlice, environ Environ) error {
	given := map[string]string{}
	for _, item := range params {
		key, ok := item.Key.(string)
		if !ok {
			return fmt.Errorf("litellm_params: %v is not a name", item.Key)
		}
		var err error
		switch key {
		case "model", "api_base", "base_url", "api_key", "api_version", "custom_llm_provider":
			given[key], err = text(item.Value, environ)
		case "weight":
			m.Weight, err = whole(item.Value)
		case "rpm":
			m.RPM, err = whole(item.Value)
		case "tpm":
			m.TPM, err = whole(item.Value)
		case "max_parallel_requests":
			m.Concurrency, err = whole(item.Value)
		case "num_retries", "max_retries":
			m.Retries, err = whole(item.Value)
		default:
			if !strings.Contains(key, "_cost_per_") { // prices change nothing
				err = errors.New("not supported")
			}
		}
		if err != nil {
			return fmt.Errorf("litellm_params.%s: %w", key, err)
		}
	}
	return resolve(m, given, environ)
}

// resolve finds out where the backend is and what it speaks.
func resolve(m *agl.Model, given map[string]string, environ Environ) error {
	name, target, err := split(given)
	if err != nil {
		return err
	}
	p := providers[name]
	m.Kind, m.Target, m.APIVersion = p.kind, target, given["api_version"]
	if target == m.Name {
		m.Target = ""
	}
	m.Endpoint = given["api_base"]
	if m.Endpoint == "" {
		m.Endpoint = given["base_url"]
	}
	if m.Endpoint == "" {
		m.Endpoint = p.base
	}
	if m.Endpoint == "" {
		return fmt.Errorf("litellm_params.api_base: is missing, and provider %s has no address of its own", name)
	}
	if !strings.HasSuffix(strings.TrimRight(m.Endpoint, "/"), p.suffix) {
		m.Endpoint = strings.TrimRight(m.Endpoint, "/") + p.suffix
	}
	// A key that is not in the entry is that of the provider, for the provider's
	// own address only.
	m.APIKey = given["api_key"]
	if m.APIKey == "" && p.key != "" && (p.base == "" || m.Endpoint == p.base) {
		m.APIKey, _ = environ(p.key)
	}
	return nil
}

// split returns the provider of a model and the provider's name of it.
func split(given map[string]string) (provider, target string, err error) {
	model := given["model"]
	if model == "" {
		return "", "", errors.New("litellm_params.model: is missing")
	}
	provider = given["custom_llm_provider"]
	before, after, slash := strings.Cut(model, "/")
	switch {
	case provider != "":
		target = strings.TrimPrefix(model, provider+"/")
	case slash:
		provider, target = before, after
	case strings.HasPrefix(model, "gpt-"):
		provider, target = "openai", model
	case strings.HasPrefix(model, "claude-"):
		provider, target = "anthropic", model
	default:
		return "", "", fmt.Errorf("litellm_params.model: %q names no provider, as in hosted_vllm/%s", model, model)
	}
	if _, known := providers[provider]; !known {
		return "", "", fmt.Errorf("litellm_params.model: provider %q is not supported; supported are %s, and any server that speaks as OpenAI does as openai/NAME with its api_base",
			provider, providerNames())
	}
	if target == "" {
		return "", "", fmt.Errorf("litellm_params.model: %q names no model", model)
	}
	return provider, target, nil
}

func text(value any, environ Environ) (string, error) {
	s, ok := value.(string)
	if !ok {
		if value == nil {
			return "", nil
		}
		return "", errors.New("must be a text")
	}
	if name, found := strings.CutPrefix(s, environPrefix); found {
		return variable(name, environ)
	}
	return s, nil
}

func whole(value any) (int64, error) {
	n, err := strconv.ParseInt(fmt.Sprint(value), 10, 64)
	if err != nil {
		return 0, errors.New("must be a whole number")
	}
	return n, nil
}
