package adapter

import (
	"cmp"
	"math/big"
	"slices"
	"strconv"

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
			timeless = timeless || a.StartTime != b.StartTime // neither has one: they are equal
			return 0
		}
		return cmp.Compare(*a.StartTime, *b.StartTime)
	})
	if timeless {
		return nil, errNoTime
	}

	type call struct {
		sequence         int64
		prompt, response pyList
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
		out[i].Prompt = append(c.prompt.appendJSON([]byte(`{"token_ids":`)), '}')
		out[i].Response = append(c.response.appendJSON([]byte(`{"token_ids":`)), '}')
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

// proxyTokenIDs returns the ids of a call as they are spelled: lists of integers,
// nil when there are none. To Python, True and False are integers too.
func proxyTokenIDs(s *agl.Span) (prompt, response pyList) {
	switch s.Name {
	case spanRawRequest:
		prompt = integers(literal(s, rawPrefix+"prompt_token_ids"))
		if list, ok := literal(s, rawPrefix+"response_token_ids").(pyList); ok && len(list) > 0 {
			response = integers(list[0])
		}
		if len(response) == 0 {
			if choices, ok := literal(s, rawPrefix+"choices").(pyList); ok && len(choices) > 0 {
				if first, ok := choices[0].(pyDict); ok {
					ids, _ := first.get("token_ids")
					response = integers(ids)
				}
			}
		}
	case spanRequest:
		prompt = integers(literal(s, semconv.PromptTokenIDs))
		response = integers(literal(s, semconv.ResponseTokenIDs))
	}
	return prompt, response
}

// proxyRequestID returns the id of a request, empty for none: an id that is no
// text hides the one that would be looked at next.
func proxyRequestID(s *agl.Span) string {
	if v, ok := s.Attributes.Get(semconv.GenAIResponseID); ok && truthy(v) {
		id, _ := v.(string)
		return id
	}
	id, _ := s.Attributes.String(rawPrefix + "id")
	return id
}

// truthy tells what Python takes for true.
func truthy(v any) bool {
	switch v := v.(type) {
	case string:
		return v != ""
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case []string:
		return len(v) > 0
	case []int64:
		return len(v) > 0
	case []float64:
		return len(v) > 0
	case []bool:
		return len(v) > 0
	}
	return v != nil
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

// integers returns a list of integers, nil when it is none.
func integers(v any) pyList {
	list, ok := v.(pyList)
	if !ok {
		return nil
	}
	for _, e := range list {
		switch e.(type) {
		case int64, bool, *big.Int:
		default:
			return nil
		}
	}
	return list
}

// narrowed returns integers as token ids are; those that do not fit are -1.
func (l pyList) narrowed() []int64 {
	out := make([]int64, len(l))
	for i, e := range l {
		switch e := e.(type) {
		case int64:
			out[i] = e
		case bool:
			if e {
				out[i] = 1
			}
		default:
			out[i] = -1
		}
	}
	return out
}

func (l pyList) appendJSON(dst []byte) []byte {
	dst = append(dst, '[')
	for i, e := range l {
		if i > 0 {
			dst = append(dst, ',')
		}
		switch e := e.(type) {
		case int64:
			dst = strconv.AppendInt(dst, e, 10)
		case bool:
			dst = strconv.AppendBool(dst, e)
		case *big.Int:
			dst = e.Append(dst, 10)
		}
	}
	return append(dst, ']')
}
