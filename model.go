package agl

import "encoding/json"

// Model is a model backend that the proxy may route to. Several backends may
// serve one name. Its JSON is that of the 1.0 protocol with our members added.
type Model struct {
	Name     string // as callers ask for it
	Endpoint string // base URL, "/v1" included
	Version  int64  // weights version that the backend serves
	// Target is the name sent to the backend; empty means Name.
	Target string
	// APIKey is sent to the backend as a bearer token; never shown again.
	APIKey string
}

type modelJSON struct {
	Name     string `json:"model"`
	Endpoint string `json:"endpoint"`
	Version  int64  `json:"version"`
	Target   string `json:"target,omitempty"`
	APIKey   string `json:"api_key,omitempty"`
}

// MarshalJSON implements [json.Marshaler].
func (m Model) MarshalJSON() ([]byte, error) { return json.Marshal(modelJSON(m)) }

// UnmarshalJSON implements [json.Unmarshaler].
func (m *Model) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, (*modelJSON)(m)) }
