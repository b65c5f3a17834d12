package lesson

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/openai/openai-go/v3"

	"agentlightning/agent"
	"agentlightning/semconv"
)

// Sampling is how one attempt samples: turn t uses Seed+t.
type Sampling struct {
	Temperature float64
	Seed        int64
}

// SamplingOf is how the attempt of a call samples: from the policy itself in
// training, the likeliest tokens otherwise, with the seed that the algorithm gave
// the rollout, 0 when it gave none.
func SamplingOf(c *agent.Call) Sampling {
	var how Sampling
	if c.Training() {
		how.Temperature = 1
	}
	if seed, err := strconv.ParseInt(string(c.Rollout.MetadataValue(semconv.MetadataSeed)), 10, 64); err == nil {
		how.Seed = seed
	}
	return how
}

// Client returns a client of OpenAI's API for many agents at once.
func Client(agents int) *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * agents}}
}

// Readable makes an error of the API say what the server said.
func Readable(err error) error {
	var refused *openai.Error
	if errors.As(err, &refused) && refused.Message != "" {
		return fmt.Errorf("%s: %w", refused.Message, err)
	}
	return err
}

// OutOfContext tells whether a model refused a prompt for its length.
func OutOfContext(err error) bool {
	var refused *openai.Error
	return errors.As(err, &refused) && refused.StatusCode == http.StatusBadRequest && refused.Code == "context_length_exceeded"
}
