package local

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"agentlightning/gateway"
	"agentlightning/internal/jsonx"
	"agentlightning/internal/proc"
)

// environ is the environment of an agent: ours, where its server is, and what
// the rollout takes from its input, which wins.
func (c *Controller) environ(r *gateway.Rollout) ([]string, error) {
	mode := "val"
	if r.IsTrain {
		mode = "train"
	}
	agents := gateway.Client{BaseURL: c.cfg.AgentURL}
	env := append(proc.Environ("AGL_AUTH_TOKEN"),
		"AGL_OPENAI_BASE_URL="+agents.OpenAIBaseURL(r.RolloutID, attempt, mode),
		"AGL_EVENT_URL="+agents.EventURL(r.RolloutID, attempt),
		"AGL_KEY="+c.cfg.Token,
	)
	if r.Config.Local == nil {
		return env, nil
	}
	for _, name := range slices.Sorted(maps.Keys(r.Config.Local.EnvMap)) {
		value, err := mapped(r.Input, r.Config.Local.EnvMap[name])
		if err != nil {
			return nil, err
		}
		env = append(env, name+"="+value)
	}
	return env, nil
}

// mapped returns what a path of env_map finds: "input" is the whole input,
// "input.a.0" a part of it, everything else stands for itself.
func mapped(input jsonx.Raw, path string) (string, error) {
	rest, found := strings.CutPrefix(path, "input.")
	switch {
	case path == "input":
		return text(input)
	case !found:
		return path, nil
	}
	value := input
	for part := range strings.SplitSeq(rest, ".") {
		var ok bool
		if value, ok = step(value, part); !ok {
			return "", fmt.Errorf("local.env_map path not found: %s", path)
		}
	}
	return text(value)
}

// step goes from a value to a part of it: a member by its name, an element by
// its number.
func step(value jsonx.Raw, part string) (jsonx.Raw, bool) {
	switch jsonx.KindOf(value) {
	case jsonx.Object:
		members, err := jsonx.Members(value)
		if err != nil {
			return nil, false
		}
		found := jsonx.Get(members, part)
		return found, found != nil
	case jsonx.Array:
		elements, err := jsonx.Elements(value)
		i, wrong := strconv.ParseUint(part, 10, 31)
		if err != nil || wrong != nil || int(i) >= len(elements) {
			return nil, false
		}
		return elements[i], true
	default:
		return nil, false
	}
}

// text is a value as a variable: a string as it is, everything else as Python
// writes JSON, with spaces.
func text(value jsonx.Raw) (string, error) {
	if jsonx.KindOf(value) == jsonx.String {
		return jsonx.Text(value)
	}
	out, err := appendSpaced(nil, value)
	return string(out), err
}

func appendSpaced(dst []byte, value jsonx.Raw) ([]byte, error) {
	switch jsonx.KindOf(value) {
	case jsonx.Object:
		members, err := jsonx.Members(value)
		if err != nil {
			return nil, err
		}
		dst = append(dst, '{')
		for i, m := range members {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = append(jsonx.AppendString(dst, m.Key), ": "...)
			if dst, err = appendSpaced(dst, m.Value); err != nil {
				return nil, err
			}
		}
		return append(dst, '}'), nil
	case jsonx.Array:
		elements, err := jsonx.Elements(value)
		if err != nil {
			return nil, err
		}
		dst = append(dst, '[')
		for i, e := range elements {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			if dst, err = appendSpaced(dst, e); err != nil {
				return nil, err
			}
		}
		return append(dst, ']'), nil
	case jsonx.String:
		s, err := jsonx.Text(value)
		return jsonx.AppendString(dst, s), err
	case jsonx.Number:
		if f, err := strconv.ParseFloat(string(value), 64); jsonx.IsFloat(value) && err == nil {
			return jsonx.AppendToken(dst, f), nil // as Python spells it
		}
	default:
	}
	return jsonx.AppendNormal(dst, value), nil
}
