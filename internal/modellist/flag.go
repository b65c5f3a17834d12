// Package modellist reads model backends as people write them: as options of a
// command, and as LiteLLM's model_list in YAML.
package modellist

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	agl "agentlightning"
)

// Environ looks up a variable of the environment, as [os.LookupEnv] does.
type Environ func(name string) (value string, found bool)

// Usage is the form that [Parse] reads.
const Usage = "NAME=BASE_URL[,OPTION=VALUE…]"

// Options names what may stand behind the address, with what it is for.
const Options = "kind (" + "openai-compatible, openai, openai-responses, azure, anthropic" + "), target (the backend's name of the model), " +
	"version (of the weights), key_env (variable that holds the key), api_version (Azure), weight, retries, concurrency, rpm and tpm (calls and tokens a minute)"

// Parse reads one backend in the form of [Usage]. Keys come from the environment,
// since a command line can be read by others on the machine.
func Parse(text string, environ Environ) (agl.Model, error) {
	name, rest, found := strings.Cut(text, "=")
	if !found || name == "" {
		return agl.Model{}, fmt.Errorf("%s: must be %s", text, Usage)
	}
	endpoint, options, _ := strings.Cut(rest, ",")
	m := agl.Model{Name: name, Endpoint: endpoint}
	for option := range strings.SplitSeq(options, ",") {
		if option == "" {
			continue
		}
		key, value, found := strings.Cut(option, "=")
		if !found {
			return agl.Model{}, fmt.Errorf("model %s: option %q: must be OPTION=VALUE", name, option)
		}
		if err := set(&m, key, value, environ); err != nil {
			return agl.Model{}, fmt.Errorf("model %s: %w", name, err)
		}
	}
	if err := m.Validate(); err != nil {
		return agl.Model{}, err
	}
	return m, nil
}

// ParseAll reads several backends in the form of [Usage].
func ParseAll(texts []string, environ Environ) ([]agl.Model, error) {
	var models []agl.Model
	var errs []error
	for _, text := range texts {
		m, err := Parse(text, environ)
		models, errs = append(models, m), append(errs, err)
	}
	return models, errors.Join(errs...)
}

func set(m *agl.Model, key, value string, environ Environ) (err error) {
	switch key {
	case "kind":
		m.Kind = agl.BackendKind(value)
	case "target":
		m.Target = value
	case "api_version":
		m.APIVersion = value
	case "api_key_env":
		m.APIKeyEnv = value
	case "key_env":
		m.APIKey, err = variable(value, environ)
	case "version":
		m.Version, err = number(value)
	case "weight":
		m.Weight, err = number(value)
	case "retries":
		m.Retries, err = number(value)
	case "concurrency":
		m.Concurrency, err = number(value)
	case "rpm":
		m.RPM, err = number(value)
	case "tpm":
		m.TPM, err = number(value)
	case "key", "api_key":
		return fmt.Errorf("option %s: a key on a command line can be read by others; put it into a variable and name that with key_env", key)
	default:
		return fmt.Errorf("option %q: there is none of that name; there are %s", key, Options)
	}
	if err != nil {
		return fmt.Errorf("option %s: %w", key, err)
	}
	return nil
}

func number(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a whole number", text)
	}
	return n, nil
}

func variable(name string, environ Environ) (string, error) {
	value, _ := environ(name)
	if value == "" {
		return "", fmt.Errorf("the environment has no %s", name)
	}
	return value, nil
}
