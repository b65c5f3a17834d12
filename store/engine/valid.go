package engine

import (
	"encoding/json"
	"slices"
	"strings"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
	"agentlightning/store"
)

// draft checks a request for a rollout and returns the part of the rollout that
// does not depend on the moment.
func draft(req *store.EnqueueRequest) (agl.Rollout, error) {
	var ro agl.Rollout
	var err error
	if ro.Input, err = anyJSON("input", req.Input); err != nil {
		return ro, err
	}
	if ro.Metadata, err = objectOrEmpty("metadata", req.Metadata); err != nil {
		return ro, err
	}
	if !req.Mode.Valid() {
		return ro, badMode(req.Mode)
	}
	ro.Mode = req.Mode
	ro.ResourcesID = clonePtr(req.ResourcesID)
	ro.Config.MaxAttempts = 1
	if req.Config != nil {
		ro.Config, err = checkConfig(req.Config)
	}
	return ro, err
}

func badMode(m agl.Mode) error {
	return invalid("mode %q is not one of %q, %q, %q", m, agl.ModeTrain, agl.ModeVal, agl.ModeTest)
}

func checkConfig(c *agl.RolloutConfig) (agl.RolloutConfig, error) {
	out := cloneConfig(c)
	if c.MaxAttempts < 0 {
		return out, invalid("config.max_attempts is %d; it must be 1 or more", c.MaxAttempts)
	}
	out.MaxAttempts = max(c.MaxAttempts, 1)
	for _, st := range c.RetryCondition {
		if !st.Valid() {
			return out, invalid("config.retry_condition: %q is not a status of an attempt", st)
		}
	}
	return out, nil
}

func checkRolloutUpdate(u *store.RolloutUpdate) (err error) {
	if u.Input.Given {
		if u.Input.Value, err = anyJSON("input", u.Input.Value); err != nil {
			return err
		}
	}
	if u.Mode.Given && !u.Mode.Value.Valid() {
		return badMode(u.Mode.Value)
	}
	if u.Status.Given && !u.Status.Value.Valid() {
		if u.Status.Value == "" {
			return nullRefused("status")
		}
		return invalid("status %q is not a status of a rollout", u.Status.Value)
	}
	if u.Config.Given {
		if u.Config.Value, err = checkConfig(&u.Config.Value); err != nil {
			return err
		}
	}
	if u.Metadata.Given {
		u.Metadata.Value, err = object("metadata", u.Metadata.Value)
	}
	return err
}

func checkAttemptUpdate(u *store.AttemptUpdate) (err error) {
	if u.Status.Given && !u.Status.Value.Valid() {
		if u.Status.Value == "" {
			return nullRefused("status")
		}
		return invalid("status %q is not a status of an attempt", u.Status.Value)
	}
	if u.Metadata.Given {
		if u.Metadata.Value, err = object("metadata", u.Metadata.Value); err != nil {
			return err
		}
		if u.Metadata.Value == nil {
			return nullRefused("metadata")
		}
	}
	return nil
}

func checkRunUpdate(u *store.RunUpdate) (err error) {
	if u.Status.Given {
		switch u.Status.Value {
		case agl.RunRunning, agl.RunSucceeded, agl.RunFailed, agl.RunInterrupted:
		default:
			return invalid("status %q is not a status of a run", u.Status.Value)
		}
	}
	if u.Config.Given {
		u.Config.Value, err = objectOrEmpty("config", u.Config.Value)
	}
	return err
}

func checkResources(n agl.NamedResources) (agl.NamedResources, error) {
	out := CloneResources(n)
	for i := range out {
		var err error
		switch r := out[i].Resource.(type) {
		case agl.LLM:
			r.SamplingParameters, err = objectOrEmpty("sampling_parameters", r.SamplingParameters)
			out[i].Resource = r
		case agl.ProxyLLM:
			r.SamplingParameters, err = objectOrEmpty("sampling_parameters", r.SamplingParameters)
			out[i].Resource = r
		case nil:
			err = invalid("it is nil")
		}
		if err != nil {
			return nil, invalid("resource %q: %v", out[i].Name, err)
		}
	}
	return out, nil
}

func nullRefused(field string) error {
	return invalid("%s is invalid; it cannot be a null value.", field)
}

// anyJSON returns a value in the protocol's form; nothing at all is null.
func anyJSON(field string, raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 {
		return json.RawMessage("null"), nil
	}
	out, err := jsonx.Normalize(raw)
	if err != nil {
		return nil, invalid("%s is not valid JSON: %v", field, err)
	}
	return out, nil
}

// object is [anyJSON] for a member that is an object or null; null is nil.
func object(field string, raw json.RawMessage) (json.RawMessage, error) {
	out, err := anyJSON(field, raw)
	if err != nil {
		return nil, err
	}
	switch jsonx.KindOf(out) {
	case jsonx.Object:
		return out, nil
	case jsonx.Null:
		return nil, nil
	}
	return nil, invalid("%s must be an object", field)
}

func objectOrEmpty(field string, raw json.RawMessage) (json.RawMessage, error) {
	out, err := object(field, raw)
	if err == nil && out == nil {
		out = json.RawMessage("{}")
	}
	return out, err
}

func checkPaging[T any](p *store.Paging, fields fields[T]) error {
	if p.SortBy != "" && fields.key(p.SortBy) == nil {
		return invalid("Invalid sort_by: %s, allowed fields are: %s", p.SortBy, strings.Join(fields.names(), ", "))
	}
	if p.Offset < 0 {
		return invalid("Offset must be greater than or equal to 0")
	}
	return nil
}

func (f fields[T]) key(name string) func(*T) sortKey {
	if i := slices.IndexFunc(f, func(x field[T]) bool { return x.name == name }); i >= 0 {
		return f[i].key
	}
	return nil
}

func (f fields[T]) names() []string {
	out := make([]string, len(f))
	for i := range f {
		out[i] = f[i].name
	}
	return out
}
