package recipe

import (
	"errors"
	"fmt"
	"time"

	"github.com/openai/openai-go/v3/option"

	"agentlightning/algorithm/prompt"
	"agentlightning/algorithm/prompt/openai"
)

// completer is where the model is that rewrites prompts.
type completer struct {
	// BaseURL is an API that speaks as OpenAI's does; empty means the model proxy,
	// when the model is one of models, otherwise OPENAI_BASE_URL, otherwise OpenAI.
	BaseURL string
	// KeyEnv is the variable of the environment that holds its key.
	KeyEnv string
	// Retries is how often a call is tried again that failed for want of capacity.
	Retries int
	// RequestTimeout is how long a call may take.
	RequestTimeout time.Duration

	price price
}

func newCompleter() completer {
	return completer{KeyEnv: "OPENAI_API_KEY", Retries: 5, RequestTimeout: 5 * time.Minute}
}

// rewriter is an algorithm that has models rewrite prompts.
type rewriter interface {
	rewriters() (completer, []string)
}

// proxied is a model proxy that some models are behind.
type proxied struct {
	url, token string
	has        func(model string) bool
}

// open returns the model that rewrites prompts.
func (c completer) open(proxy proxied, environ func(string) (string, bool), models ...string) (prompt.Completer, error) {
	base, key, err := c.address(proxy, environ, models)
	if err != nil {
		return nil, err
	}
	if c.Retries < 0 || c.RequestTimeout <= 0 {
		return nil, fmt.Errorf("retries and request_timeout: %d and %v: must not be negative, and more than 0s", c.Retries, c.RequestTimeout)
	}
	return openai.New(openai.Price(c.price), option.WithBaseURL(base), option.WithAPIKey(key),
		option.WithMaxRetries(c.Retries), option.WithRequestTimeout(c.RequestTimeout)), nil
}

func (c completer) address(proxy proxied, environ func(string) (string, bool), models []string) (base, key string, err error) {
	key, found := environ(c.KeyEnv)
	if c.BaseURL != "" {
		if !found {
			key = "none"
		}
		return c.BaseURL, key, nil
	}
	here := 0
	for _, m := range models {
		if proxy.has(m) {
			here++
		}
	}
	switch here {
	case len(models):
		if proxy.token == "" {
			return proxy.url + "/v1", "none", nil
		}
		return proxy.url + "/v1", proxy.token, nil
	case 0:
	default:
		return "", "", fmt.Errorf("models %v: some are behind the proxy and some are not; set base_url", models)
	}
	base = "https://api.openai.com/v1"
	if other, ok := environ("OPENAI_BASE_URL"); ok && other != "" {
		return other, key, nil
	}
	if !found || key == "" {
		return "", "", errors.New("model: it is none of models, and there is no key for OpenAI in " + c.KeyEnv + "; set that, or base_url")
	}
	return base, key, nil
}
