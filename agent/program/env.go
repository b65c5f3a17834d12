package program

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/internal/proc"
	"agentlightning/semconv"
)

// NoKey is what clients get for a key when the server asks for none: most of
// them refuse to work without.
const NoKey = "none"

// mostVariable bounds the value of one variable; Linux takes 128 KiB.
const mostVariable = 96 << 10

// ours are variables of this process that a program does not get: the token of
// the whole server, and a key that Anthropic's clients prefer to the one set here.
var ours = [...]string{"AGL_AUTH_TOKEN", "ANTHROPIC_AUTH_TOKEN"}

// variables are what a program is told, in the order of the package comment.
type variables []variable

type variable struct{ name, value string }

func (v *variables) set(name, value string) { *v = append(*v, variable{name, value}) }

// environ is the whole environment of a program: ours, these, and the user's.
func (v variables) environ(more []string) []string {
	env := proc.Environ(ours[:]...)
	for _, e := range v {
		env = append(env, e.name+"="+e.value)
	}
	return append(env, more...)
}

// identity is what says whose work this is, and nothing that opens a door.
func identity(c *agent.Call) variables {
	var v variables
	if len(c.Rollout.Input) <= mostVariable {
		v.set("AGL_TASK", string(c.Rollout.Input))
	}
	v.set("AGL_ROLLOUT_ID", c.Rollout.RolloutID)
	v.set("AGL_ATTEMPT_ID", c.Rollout.Attempt.AttemptID)
	v.set("AGL_MODE", string(c.Rollout.Mode))
	return v
}

// variables returns what the program is told about an attempt.
func (a *Agent) variables(c *agent.Call) (variables, error) {
	v := identity(c)
	key := c.Token
	if key == "" {
		key = NoKey
	}
	rollout, attempt := url.PathEscape(c.Rollout.RolloutID), url.PathEscape(c.Rollout.Attempt.AttemptID)

	model, err := c.LLM(a.cfg.Model)
	switch {
	case err == nil:
		modelKey := key
		if model.APIKey != nil && *model.APIKey != "" {
			modelKey = *model.APIKey
		}
		v.model(model.Endpoint, modelKey)
		v.set("AGL_MODEL", model.Model)
	case a.cfg.Model != "":
		return nil, err
	case a.cfg.Server != "": // whatever the server has
		v.model(a.cfg.Server+"/rollout/"+rollout+"/attempt/"+attempt+"/v1", key)
	}
	v.set("AGL_KEY", key)
	if a.cfg.Server != "" {
		v.set("AGL_EVENT_URL", a.cfg.Server+"/api/rollouts/"+rollout+"/attempt/"+attempt+"/events")
		v.telemetry(a.cfg.Server, key, c)
	}
	return v, v.resources(c)
}

// model sets where the model is, for the clients of both makers.
func (v *variables) model(endpoint, key string) {
	v.set("AGL_OPENAI_BASE_URL", endpoint)
	v.set("OPENAI_BASE_URL", endpoint)
	v.set("ANTHROPIC_BASE_URL", strings.TrimSuffix(strings.TrimRight(endpoint, "/"), "/v1"))
	v.set("OPENAI_API_KEY", key)
	v.set("ANTHROPIC_API_KEY", key)
}

// telemetry makes an OpenTelemetry SDK send its traces to the attempt. The server
// takes no metrics and no logs.
func (v *variables) telemetry(server, key string, c *agent.Call) {
	v.set("OTEL_EXPORTER_OTLP_ENDPOINT", server)
	v.set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", server+"/v1/traces")
	v.set("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
	v.set("OTEL_EXPORTER_OTLP_HEADERS", "Authorization="+url.PathEscape("Bearer "+key))
	v.set("OTEL_TRACES_EXPORTER", "otlp")
	v.set("OTEL_METRICS_EXPORTER", "none")
	v.set("OTEL_LOGS_EXPORTER", "none")
	v.set("OTEL_RESOURCE_ATTRIBUTES", semconv.RolloutID+"="+url.PathEscape(c.Rollout.RolloutID)+
		","+semconv.AttemptID+"="+url.PathEscape(c.Rollout.Attempt.AttemptID))
}

// resources sets all resources as JSON, models as the attempt reaches them, and
// the first prompt template as it is.
func (v *variables) resources(c *agent.Call) error {
	routed := make(agl.NamedResources, 0, len(c.Resources))
	for _, r := range c.Resources {
		if r.Resource.Kind() == agl.KindProxyLLM {
			llm, err := c.LLM(r.Name)
			if err != nil {
				return err
			}
			r.Resource = llm
		}
		routed = append(routed, r)
	}
	text := json.RawMessage(routed.AppendJSON(nil))
	if len(text) > mostVariable {
		return fmt.Errorf("the resources take %d bytes, more than the %d that a program can be given in AGL_RESOURCES", len(text), mostVariable)
	}
	v.set("AGL_RESOURCES", string(text))
	if p, err := c.Prompt(""); err == nil {
		v.set("AGL_PROMPT", p.Template)
	}
	return nil
}

// MarshalJSON writes the variables as an object in their order.
func (v variables) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, e := range v {
		if i > 0 {
			b.WriteByte(',')
		}
		for j, text := range [...]string{e.name, e.value} {
			if j > 0 {
				b.WriteByte(':')
			}
			quoted, err := json.Marshal(text)
			if err != nil {
				return nil, err
			}
			b.Write(quoted)
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
