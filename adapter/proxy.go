package adapter

import (
	"cmp"
	"slices"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
	"agentlightning/semconv"
)

// ProxyTriplets reads the spans of the model proxy of Agent Lightning 0.3, as
// LlmProxyTraceToTriplet does: by sequence id alone, without regard to the tree.
func ProxyTriplets(spans []agl.Span) ([]agl.Triplet, error) {
	ordered := make([]*agl.Span, len(spans))
	for i := range spans {
		ordered[i] = &spans[i]
	}
	timeless := false
	slices.SortStableFunc(ordered, func(a, b *agl.Span) int {
		if c := cmp.Compare(a.SequenceID, b.SequenceID); c != 0 {
			return c
		}
		if a.StartTime == nil || b.StartTime == nil {
			timeless = true
			return 0
		}
		return cmp.Compare(*a.StartTime, *b.StartTime)
	})
	if timeless {
		return nil, errNoTime
	}

	type call struct {
		sequence         int64
		prompt, response []int64
		id               string
		reward           *float64
	}
	var calls []call
	seen := map[string]bool{}
	for _, s := range ordered {
		prompt, response := proxyTokenIDs(s)
		if len(prompt) == 0 || len(response) == 0 {
			continue
		}
		id := proxyRequestID(s)
		if id != "" && seen[id] {
			continue
		}
		seen[id] = true
		calls = append(calls, call{sequence: s.SequenceID, prompt: prompt, response: response, id: id})
	}
	err := assignRewards(ordered, len(calls),
		func(i int) int64 { return calls[i].sequence },
		func(i int) **float64 { return &calls[i].reward })
	if err != nil {
		return nil, err
	}
	out := make([]agl.Triplet, len(calls))
	for i, c := range calls {
		out[i].Prompt = append(appendInts([]byte(`{"token_ids":`), c.prompt), '}')
		out[i].Response = append(appendInts([]byte(`{"token_ids":`), c.response), '}')
		out[i].Reward = c.reward
		metadata := []byte(`{"response_id":`)
		if c.id == "" {
			metadata = append(metadata, "null"...)
		} else {
			metadata = jsonx.AppendString(metadata, c.id)
		}
		out[i].Metadata = append(metadata, '}')
	}
	return out, nil
}

// Names and attributes of LiteLLM's spans.
const (
	spanRawRequest = "raw_gen_ai_request"
	spanRequest    = "litellm_request"
	rawPrefix      = "llm.hosted_vllm."
)

func proxyTokenIDs(s *agl.Span) (prompt, response []int64) {
	switch s.Name {
	case spanRawRequest:
		prompt = literalInts(literal(s, rawPrefix+"prompt_token_ids"))
		if list, ok := literal(s, rawPrefix+"response_token_ids").(pyList); ok && len(list) > 0 {
			response = literalInts(list[0])
		}
		if len(response) == 0 {
			if choices, ok := literal(s, rawPrefix+"choices").(pyList); ok && len(choices) > 0 {
				if first, ok := choices[0].(pyDict); ok {
					ids, _ := first.get("token_ids")
					response = literalInts(ids)
				}
			}
		}
	case spanRequest:
		prompt = literalInts(literal(s, semconv.PromptTokenIDs))
		response = literalInts(literal(s, semconv.ResponseTokenIDs))
	}
	return prompt, response
}

func proxyRequestID(s *agl.Span) string {
	if id, ok := s.Attributes.String(semconv.GenAIResponseID); ok && id != "" {
		return id
	}
	id, _ := s.Attributes.String(rawPrefix + "id")
	return id
}

// literal returns an attribute; texts are read as Python literals and stay
// texts when they are none.
func literal(s *agl.Span, key string) any {
	v, _ := s.Attributes.Get(key)
	switch v := v.(type) {
	case string:
		if parsed, err := parseLiteral(v); err == nil {
			return parsed
		}
	case []int64:
		list := make(pyList, len(v))
		for i := range v {
			list[i] = v[i]
		}
		return list
	case []bool:
		list := make(pyList, len(v))
		for i := range v {
			list[i] = v[i]
		}
		return list
	}
	return v
}

// literalInts reads a list of integers, nil when it is none; to Python, True and
// False are integers.
func literalInts(v any) []int64 {
	list, ok := v.(pyList)
	if !ok {
		return nil
	}
	out := make([]int64, len(list))
	for i, e := range list {
		switch e := e.(type) {
		case int64:
			out[i] = e
		case bool:
			if e {
				out[i] = 1
			}
		default:
			return nil
		}
	}
	return out
}
