package agl

import (
	"encoding/json"
	"fmt"
	"strings"

	"agentlightning/internal/jsonx"
)

// The kinds of resources, as their JSON names them.
const (
	KindLLM            = "llm"
	KindProxyLLM       = "proxy_llm"
	KindPromptTemplate = "prompt_template"
)

// Resource is something an agent is given: an [LLM], a [ProxyLLM] or a [PromptTemplate].
type Resource interface {
	// Kind is the value of resource_type.
	Kind() string
	appendJSON(dst []byte) []byte
}

// LLM is a model that speaks OpenAI's protocol at Endpoint.
type LLM struct {
	Endpoint string
	Model    string
	APIKey   *string
	// SamplingParameters is an object that agents pass on with their calls; nil is {}.
	SamplingParameters json.RawMessage
}

// ProxyLLM is a model behind the proxy. Its address depends on the attempt that
// calls it, see [ProxyLLM.Route]. A server that is given one without an Endpoint
// puts in its own, as agents reach it.
type ProxyLLM LLM

// PromptTemplate is a prompt with placeholders.
type PromptTemplate struct {
	Template string
	Engine   string // "jinja", "f-string" or "poml"
}

// Kind returns [KindLLM].
func (LLM) Kind() string { return KindLLM }

// Kind returns [KindProxyLLM].
func (ProxyLLM) Kind() string { return KindProxyLLM }

// Kind returns [KindPromptTemplate].
func (PromptTemplate) Kind() string { return KindPromptTemplate }

// Route returns the model as one attempt reaches it: an [LLM] whose endpoint
// names the rollout and the attempt, so that the proxy knows whose call it is.
func (p ProxyLLM) Route(rolloutID, attemptID string) LLM {
	llm := LLM(p)
	base := strings.TrimSuffix(llm.Endpoint, "/")
	root, v1 := strings.CutSuffix(base, "/v1")
	llm.Endpoint = root + "/rollout/" + rolloutID + "/attempt/" + attemptID
	if v1 {
		llm.Endpoint += "/v1"
	}
	return llm
}

func (l LLM) appendJSON(dst []byte) []byte      { return appendLLM(dst, KindLLM, l) }
func (p ProxyLLM) appendJSON(dst []byte) []byte { return appendLLM(dst, KindProxyLLM, LLM(p)) }

func appendLLM(dst []byte, kind string, l LLM) []byte {
	dst = append(dst, `{"resource_type":`...)
	dst = jsonx.AppendString(dst, kind)
	dst = append(dst, `,"endpoint":`...)
	dst = jsonx.AppendString(dst, l.Endpoint)
	dst = append(dst, `,"model":`...)
	dst = jsonx.AppendString(dst, l.Model)
	dst = append(dst, `,"api_key":`...)
	dst = jsonx.AppendOptionalString(dst, l.APIKey)
	dst = append(dst, `,"sampling_parameters":`...)
	if len(l.SamplingParameters) == 0 {
		dst = append(dst, "{}"...)
	} else {
		dst = append(dst, l.SamplingParameters...)
	}
	return append(dst, '}')
}

func (p PromptTemplate) appendJSON(dst []byte) []byte {
	dst = append(dst, `{"resource_type":"prompt_template","template":`...)
	dst = jsonx.AppendString(dst, p.Template)
	dst = append(dst, `,"engine":`...)
	dst = jsonx.AppendString(dst, p.Engine)
	return append(dst, '}')
}

// NamedResource is a resource under its name.
type NamedResource struct {
	Name     string
	Resource Resource
}

// NamedResources are the resources of one version, in order.
type NamedResources []NamedResource

// Get returns the resource with this name, nil when there is none.
func (n NamedResources) Get(name string) Resource {
	for _, r := range n {
		if r.Name == name {
			return r.Resource
		}
	}
	return nil
}

// AppendJSON appends the resources as an object.
func (n NamedResources) AppendJSON(dst []byte) []byte {
	dst = append(dst, '{')
	for i, r := range n {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(jsonx.AppendString(dst, r.Name), ':')
		dst = r.Resource.appendJSON(dst)
	}
	return append(dst, '}')
}

// MarshalJSON implements [json.Marshaler].
func (n NamedResources) MarshalJSON() ([]byte, error) { return n.AppendJSON(nil), nil }

// UnmarshalJSON implements [json.Unmarshaler].
func (n *NamedResources) UnmarshalJSON(data []byte) error {
	members, err := jsonx.Members(data)
	if err != nil {
		return err
	}
	out := make(NamedResources, 0, len(members))
	for _, m := range members {
		r, err := ParseResource(m.Value)
		if err != nil {
			return fmt.Errorf("resource %q: %w", m.Key, err)
		}
		out = append(out, NamedResource{m.Key, r})
	}
	*n = out
	return nil
}

// ParseResource reads the JSON of one resource by its resource_type.
func ParseResource(raw []byte) (Resource, error) {
	var w struct {
		Type               string          `json:"resource_type"`
		Endpoint           string          `json:"endpoint"`
		Model              string          `json:"model"`
		APIKey             *string         `json:"api_key"`
		SamplingParameters json.RawMessage `json:"sampling_parameters"`
		Template           string          `json:"template"`
		Engine             string          `json:"engine"`
	}
	if err := json.Unmarshal(raw, &w); err != nil {
		return nil, err
	}
	llm := LLM{w.Endpoint, w.Model, w.APIKey, w.SamplingParameters}
	switch w.Type {
	case KindLLM:
		return llm, nil
	case KindProxyLLM:
		return ProxyLLM(llm), nil
	case KindPromptTemplate:
		return PromptTemplate{w.Template, w.Engine}, nil
	}
	return nil, fmt.Errorf("resource_type %q: must be %q, %q or %q", w.Type, KindLLM, KindProxyLLM, KindPromptTemplate)
}

// ResourcesUpdate is one stored version of resources.
type ResourcesUpdate struct {
	ResourcesID string
	CreateTime  float64
	UpdateTime  float64
	Version     int
	Resources   NamedResources
}

// AppendJSON appends the JSON of the version.
func (u *ResourcesUpdate) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"resources_id":`...)
	dst = jsonx.AppendString(dst, u.ResourcesID)
	dst = append(dst, `,"create_time":`...)
	dst = jsonx.AppendFloat(dst, u.CreateTime)
	dst = append(dst, `,"update_time":`...)
	dst = jsonx.AppendFloat(dst, u.UpdateTime)
	dst = append(dst, `,"version":`...)
	dst = appendInt(dst, int64(u.Version))
	dst = append(dst, `,"resources":`...)
	dst = u.Resources.AppendJSON(dst)
	return append(dst, '}')
}

// MarshalJSON implements [json.Marshaler].
func (u ResourcesUpdate) MarshalJSON() ([]byte, error) { return u.AppendJSON(nil), nil }

// UnmarshalJSON implements [json.Unmarshaler].
func (u *ResourcesUpdate) UnmarshalJSON(data []byte) error {
	var w struct {
		ResourcesID string         `json:"resources_id"`
		CreateTime  float64        `json:"create_time"`
		UpdateTime  float64        `json:"update_time"`
		Version     int            `json:"version"`
		Resources   NamedResources `json:"resources"`
	}
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*u = ResourcesUpdate(w)
	return nil
}
