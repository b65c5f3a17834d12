package gateway

import (
	"math"
	"strconv"
	"strings"

	"agentlightning/internal/jsonx"
	"agentlightning/semconv"
)

// Types of events that the protocol knows.
const (
	eventModelRequest = "model_request"
	eventReward       = "reward"
)

// parts are what training reads of a model request.
type parts struct {
	prompt, response jsonx.Raw // token ids
	logprobs         []byte    // an array of floats, or null
	failure          jsonx.Raw // what the response says went wrong; nil for nothing
}

var noIDs = jsonx.Raw("[]")

// partsOf looks into the response of a model request. What is not as a model
// server writes it counts as missing.
func partsOf(response jsonx.Raw) parts {
	p := parts{prompt: noIDs, response: noIDs, logprobs: []byte("null")}
	switch jsonx.KindOf(response) {
	case jsonx.Object:
		members, err := jsonx.Members(response)
		if err != nil {
			break
		}
		p.failure = jsonx.Get(members, "error")
		if ids := jsonx.Get(members, "prompt_token_ids"); ids != nil {
			p.prompt = ids
		}
		choice, ok := firstChoice(members)
		if !ok {
			break
		}
		if !truthy(p.prompt) {
			p.prompt = orNoIDs(jsonx.Get(choice, "prompt_token_ids"))
		}
		p.response = orNoIDs(jsonx.Get(choice, "token_ids"))
		p.logprobs = chosenLogprobs(jsonx.Get(choice, "logprobs"))
	case jsonx.Array: // the chunks of a stream, as early servers kept them
		chunks, err := jsonx.Elements(response)
		if err != nil {
			break
		}
		p.fromChunks(chunks)
	case jsonx.Invalid, jsonx.Null, jsonx.Bool, jsonx.Number, jsonx.String:
	}
	return p
}

func orNoIDs(ids jsonx.Raw) jsonx.Raw {
	if ids == nil {
		return noIDs
	}
	return ids
}

func firstChoice(response []jsonx.Member) ([]jsonx.Member, bool) {
	choices, err := jsonx.Elements(jsonx.Get(response, "choices"))
	if err != nil || len(choices) == 0 {
		return nil, false
	}
	choice, err := jsonx.Members(choices[0])
	return choice, err == nil
}

func (p *parts) fromChunks(chunks []jsonx.Raw) {
	var sampled []jsonx.Raw
	for _, c := range chunks {
		chunk, err := jsonx.Members(c)
		if err != nil {
			continue
		}
		if ids := jsonx.Get(chunk, "prompt_token_ids"); !truthy(p.prompt) && truthy(ids) {
			p.prompt = ids
		}
		if choice, ok := firstChoice(chunk); ok {
			if ids, err := jsonx.Elements(jsonx.Get(choice, "token_ids")); err == nil {
				sampled = append(sampled, ids...)
			}
		}
	}
	p.response = listOf(sampled)
}

func listOf(elements []jsonx.Raw) []byte {
	dst := []byte{'['}
	for i, e := range elements {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, e...)
	}
	return append(dst, ']')
}

// chosenLogprobs returns the log-probabilities of the sampled tokens in either
// shape of a choice, or null when one of them is not a finite number.
func chosenLogprobs(logprobs jsonx.Raw) []byte {
	null := []byte("null")
	members, err := jsonx.Members(logprobs)
	if err != nil {
		return null
	}
	values, err := jsonx.Elements(jsonx.Get(members, "content"))
	if err == nil {
		for i, item := range values {
			of, err := jsonx.Members(item)
			if err != nil {
				return null
			}
			values[i] = jsonx.Get(of, "logprob")
		}
	} else if values, err = jsonx.Elements(jsonx.Get(members, "token_logprobs")); err != nil {
		return null
	}
	out := []byte{'['}
	for i, v := range values {
		f, ok := finite(v)
		if !ok {
			return null
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = jsonx.AppendFloat(out, f)
	}
	return append(out, ']')
}

// finite reads a number as Python's float does: also from text and from truth.
func finite(v jsonx.Raw) (float64, bool) {
	text := string(v)
	switch jsonx.KindOf(v) {
	case jsonx.Bool:
		if text == "true" {
			return 1, true
		}
		return 0, true
	case jsonx.String:
		s, err := jsonx.Text(v)
		if err != nil {
			return 0, false
		}
		text = strings.TrimSpace(s)
	case jsonx.Number:
	case jsonx.Invalid, jsonx.Null, jsonx.Array, jsonx.Object:
		return 0, false
	}
	f, err := strconv.ParseFloat(text, 64)
	return f, err == nil && !math.IsNaN(f) && !math.IsInf(f, 0)
}

// trimRequest returns what training reads of the data of a model request.
func trimRequest(data []jsonx.Member) jsonx.Raw {
	p := partsOf(jsonx.Get(data, "response"))
	out := append(append([]byte(`{"prompt_token_ids":`), p.prompt...), `,"response_token_ids":`...)
	out = append(append(out, p.response...), `,"response_log_probs":`...)
	out = append(append(out, p.logprobs...), `,"server":{"model":`...)
	server, err := jsonx.Members(jsonx.Get(data, "server"))
	if err != nil {
		server = nil // as if there was none
	}
	out = jsonx.AppendRaw(out, jsonx.Get(server, "model"))
	out = jsonx.AppendRaw(append(out, `,"version":`...), jsonx.Get(server, "version"))
	out = append(out, '}')
	if routes := jsonx.Get(data, memberRoutes); routes != nil && jsonx.KindOf(routes) != jsonx.Null {
		out = appendMember(out, memberRoutes, routes)
	}
	for _, name := range [...]string{"http_status", "status"} {
		if v := jsonx.Get(data, name); v != nil {
			out = appendMember(out, name, v)
		}
	}
	if p.failure != nil {
		out = appendMember(out, "error", p.failure)
	}
	return append(out, '}')
}

// trimReward returns what training reads of the data of a reward.
func trimReward(data []jsonx.Member) jsonx.Raw {
	out := jsonx.AppendRaw([]byte(`{"value":`), jsonx.Get(data, "value"))
	for _, name := range [...]string{"source", "reason"} {
		if v := jsonx.Get(data, name); v != nil {
			out = appendMember(out, name, v)
		}
	}
	return append(out, '}')
}

func appendMember(dst []byte, name string, value jsonx.Raw) []byte {
	return append(append(jsonx.AppendString(separated(dst), name), ':'), value...)
}

// triplets reduces events to what training reads. Of the model requests with one
// prompt only the last stays, where it is: what came before it was tried again.
// Requests without a prompt of token ids all stay.
func triplets(events []event) []event {
	last := map[string]int{}
	prompts := make([]string, len(events))
	for i := range events {
		e := &events[i]
		data, err := jsonx.Members(e.data)
		if err != nil {
			continue // data is an object
		}
		switch e.kind {
		case eventModelRequest:
			e.data = trimRequest(data)
			if prompts[i] = promptKey(jsonx.Get(data, "response")); prompts[i] != "" {
				last[prompts[i]] = i
			}
		case eventReward:
			e.data = trimReward(data)
		}
	}
	out := events[:0]
	for i := range events {
		if prompts[i] == "" || last[prompts[i]] == i {
			out = append(out, events[i])
		}
	}
	return out
}

// promptKey is the prompt of a response as text, empty when it is not a list of
// integers with something in it.
func promptKey(response jsonx.Raw) string {
	prompt := partsOf(response).prompt
	ids, err := jsonx.Elements(prompt)
	if err != nil || len(ids) == 0 {
		return ""
	}
	for _, id := range ids {
		if jsonx.KindOf(id) != jsonx.Number || jsonx.IsFloat(id) {
			return ""
		}
	}
	return string(jsonx.AppendNormal(nil, prompt))
}

// memberRoutes is the member of a model request's data that holds the experts to
// which the tokens were routed. It is large, so the span keeps it beside the
// data, and only until a later call covers it.
const memberRoutes = "routed_experts"

// withRoutes puts the expert routes of a span back into the data of its event.
func withRoutes(data jsonx.Raw, routes string) jsonx.Raw {
	members, err := jsonx.Members(data)
	if err != nil {
		return data
	}
	out := []byte{'{'}
	for _, m := range members {
		if m.Key != memberRoutes {
			out = appendMember(out, m.Key, m.Value)
		} else if routes != "" {
			out = appendMember(out, m.Key, jsonx.Raw(routes))
		}
	}
	return append(out, '}')
}

// takeRoutes takes the expert routes out of the data of an event; routes is
// empty when there are none.
func takeRoutes(data jsonx.Raw) (rest jsonx.Raw, routes string) {
	members, err := jsonx.Members(data)
	if err != nil {
		return data, ""
	}
	v := jsonx.Get(members, memberRoutes)
	if v == nil || jsonx.KindOf(v) == jsonx.Null {
		return data, ""
	}
	out := []byte{'{'}
	for _, m := range members {
		if m.Key == memberRoutes {
			m.Value = jsonx.Raw("null")
		}
		out = appendMember(out, m.Key, m.Value)
	}
	return append(out, '}'), string(v)
}

// withoutRoutes leaves the expert routes out of the data of an event.
func withoutRoutes(data jsonx.Raw) jsonx.Raw {
	return withRoutes(data, "")
}

// spanOfRequest returns the attributes by which readers of spans know a model
// request that somebody posted.
func attributesOfRequest(data jsonx.Raw) attributes {
	members, err := jsonx.Members(data)
	if err != nil {
		return nil
	}
	var a attributes
	a.text(semconv.GenAIRequestModel, jsonx.Get(members, "model"))
	response := jsonx.Get(members, "response")
	if of, err := jsonx.Members(response); err == nil {
		a.text(semconv.GenAIResponseID, jsonx.Get(of, "id"))
	}
	p := partsOf(response)
	prompt, _, _ := jsonx.Numbers(p.prompt)
	sampled, _, _ := jsonx.Numbers(p.response)
	if len(prompt) > 0 {
		a.add(semconv.PromptTokenIDs, prompt)
	}
	if len(sampled) > 0 {
		a.add(semconv.ResponseTokenIDs, sampled)
	}
	if _, logprobs, _ := jsonx.Numbers(p.logprobs); len(logprobs) == len(sampled) && len(logprobs) > 0 {
		a.add(semconv.ResponseLogprobs, logprobs)
	}
	return a
}
