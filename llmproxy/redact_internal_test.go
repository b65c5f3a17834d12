package llmproxy

import (
	"regexp"
	"testing"
)

func TestCleanEvent(t *testing.T) {
	t.Parallel()
	const data = `{"model":"m","request":{"model":"m","messages":[{"role":"user","content":"card 4111"}],"temperature":1.0,"tools":[{"a":"4111"}]},` +
		`"response":{"id":"x","choices":[{"message":{"content":"4111\\n"},"finish_reason":"stop","token_ids":[7,8],` +
		`"logprobs":{"content":[{"token":"41","bytes":[1],"logprob":-0.50,"top_logprobs":[]}]}}],"error":{"message":"no 4111"}},"usage":null,"retry_count":0}`
	rules := []*regexp.Regexp{regexp.MustCompile(`\d{4}`)}
	for _, tt := range []struct {
		name string
		p    privacy
		want string
	}{
		{"as it is", privacy{}, data},
		{
			"redacted", privacy{rules: rules}, `{"model":"m","request":{"model":"m","messages":[{"role":"user","content":"card [redacted]"}],"temperature":1.0,"tools":[{"a":"[redacted]"}]},` +
				`"response":{"id":"x","choices":[{"message":{"content":"[redacted]\\n"},"finish_reason":"stop","token_ids":[7,8],` +
				`"logprobs":{"content":[{"token":"41","bytes":[1],"logprob":-0.50,"top_logprobs":[]}]}}],"error":{"message":"no [redacted]"}},"usage":null,"retry_count":0}`,
		},
		{
			"no bodies", privacy{rules: rules, noBodies: true}, `{"model":"m","request":{"model":"m","temperature":1.0},` +
				`"response":{"id":"x","choices":[{"finish_reason":"stop","token_ids":[7,8],"logprobs":{"content":[{"logprob":-0.50}]}}],` +
				`"error":{"message":"no [redacted]"}},"usage":null,"retry_count":0}`,
		},
	} {
		if got := tt.p.cleanEvent(data); got != tt.want {
			t.Errorf("%s: cleanEvent = %s, want %s", tt.name, got, tt.want)
		}
	}
}
