package native

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// empty stands for an empty list, object or string in [neutral].
type empty struct{}

// neutral lists the fields that would change what is sampled or answered and
// that this model does not have, with the values that ask for nothing. Fields
// that are not listed and not understood have no bearing and are ignored.
func neutral() map[string][]any {
	return map[string][]any{
		"n":                          {1.0},
		"best_of":                    {1.0},
		"frequency_penalty":          {0.0},
		"presence_penalty":           {0.0},
		"repetition_penalty":         {1.0},
		"length_penalty":             {1.0},
		"top_k":                      {0.0, -1.0},
		"min_p":                      {0.0},
		"typical_p":                  {1.0},
		"min_tokens":                 {0.0},
		"logit_bias":                 {empty{}},
		"stop_token_ids":             {empty{}},
		"bad_words":                  {empty{}},
		"allowed_token_ids":          {empty{}},
		"logits_processors":          {empty{}},
		"ignore_eos":                 {false},
		"use_beam_search":            {false},
		"echo":                       {false},
		"suffix":                     {empty{}},
		"prompt_logprobs":            {false},
		"truncate_prompt_tokens":     {},
		"add_generation_prompt":      {true},
		"continue_final_message":     {false},
		"chat_template":              {},
		"guided_json":                {},
		"guided_regex":               {},
		"guided_choice":              {},
		"guided_grammar":             {},
		"structured_outputs":         {},
		"structural_tag":             {},
		"functions":                  {empty{}},
		"function_call":              {"auto", "none"},
		"audio":                      {},
		"prediction":                 {},
		"return_tokens_as_token_ids": {false},
	}
}

// refuse returns an error for the first field, in alphabetical order, that asks
// for something this model cannot do.
func refuse(body map[string]json.RawMessage) error {
	table := neutral()
	for _, name := range slices.Sorted(maps.Keys(table)) {
		raw, ok := body[name]
		if !ok {
			continue
		}
		var v any
		if err := json.Unmarshal(raw, &v); err != nil {
			return &RequestError{name, "is not valid JSON"}
		}
		if v != nil && !slices.ContainsFunc(table[name], func(n any) bool { return asksNothing(v, n) }) {
			return &RequestError{name, fmt.Sprintf("is %s: the built-in model does not support it; leave it out", raw)}
		}
	}
	if raw, ok := body["response_format"]; ok {
		var f *struct {
			Type string `json:"type"`
		}
		if err := json.Unmarshal(raw, &f); err != nil || f != nil && f.Type != "text" {
			return &RequestError{"response_format", fmt.Sprintf("is %s: the built-in model answers in free text only", raw)}
		}
	}
	if raw, ok := body["modalities"]; ok {
		var m []string
		if err := json.Unmarshal(raw, &m); err != nil || len(m) > 0 && !slices.Equal(m, []string{"text"}) {
			return &RequestError{"modalities", fmt.Sprintf("is %s: the built-in model answers in text only", raw)}
		}
	}
	return nil
}

func asksNothing(v, neutral any) bool {
	if neutral != (empty{}) {
		switch v.(type) {
		case []any, map[string]any:
			return false
		}
		return v == neutral
	}
	switch v := v.(type) {
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	case string:
		return v == ""
	}
	return false
}
