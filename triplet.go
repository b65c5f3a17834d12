package agl

import "encoding/json"

// Triplet is what one model call contributes to training: what was asked, what
// was answered, what it was worth. Prompt and Response are JSON, usually
// {"token_ids": […]} with more beside it.
type Triplet struct {
	Prompt   json.RawMessage `json:"prompt"`
	Response json.RawMessage `json:"response"`
	Reward   *float64        `json:"reward"`
	Metadata json.RawMessage `json:"metadata"`
}
