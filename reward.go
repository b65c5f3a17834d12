package agl

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"agentlightning/internal/jsonx"
	"agentlightning/semconv"
)

// RewardDimension is one named reward.
type RewardDimension struct {
	Name  string
	Value float64
}

// Rewards returns the reward dimensions that a span carries, the primary one
// first; none when it is not a reward span of the current format. A span whose
// reward attributes do not add up is an error that names the attribute.
func Rewards(s *Span) ([]RewardDimension, error) {
	if !s.Attributes.HasPrefix(semconv.Reward) {
		return nil, nil
	}
	stray := "" // a key that begins like one of a reward
	byIndex := map[int]*RewardDimension{}
	values := map[int]bool{}
	for _, a := range s.Attributes {
		rest, ok := strings.CutPrefix(a.Key, semconv.Reward+".")
		if !ok {
			if strings.HasPrefix(a.Key, semconv.Reward) {
				stray = a.Key
			}
			if a.Key == semconv.Reward {
				return nil, strayReward(s, stray)
			}
			continue
		}
		digits, member, _ := strings.Cut(rest, ".")
		i, err := strconv.Atoi(digits)
		if err != nil || i < 0 {
			return nil, fmt.Errorf("span %s: attribute %q: %q is not an index", s.SpanID, a.Key, digits)
		}
		d := byIndex[i]
		if d == nil {
			d = &RewardDimension{}
			byIndex[i] = d
		}
		switch member {
		case "name":
			name, ok := a.Value.(string)
			if !ok {
				return nil, fmt.Errorf("span %s: attribute %q: %v is not a string", s.SpanID, a.Key, a.Value)
			}
			d.Name = name
		case "value":
			v, ok := asFloat(a.Value)
			if !ok {
				return nil, fmt.Errorf("span %s: attribute %q: %v is not a number", s.SpanID, a.Key, a.Value)
			}
			d.Value = v
			values[i] = true
		}
	}
	if len(byIndex) == 0 {
		return nil, strayReward(s, stray)
	}
	out := make([]RewardDimension, len(byIndex))
	for i := range out {
		d := byIndex[i]
		if d == nil || !values[i] {
			return nil, fmt.Errorf("span %s: reward dimension %d has no value", s.SpanID, i)
		}
		if _, named := s.Attributes.Get(semconv.RewardName(i)); !named {
			return nil, fmt.Errorf("span %s: reward dimension %d has no name", s.SpanID, i)
		}
		out[i] = *d
	}
	return out, nil
}

func strayReward(s *Span, key string) error {
	return fmt.Errorf("span %s: attribute %q is not of the form %s.<i>.name or .value", s.SpanID, key, semconv.Reward)
}

// RewardValue returns the reward of a span, nil when it carries none. Besides
// the current format it reads that of AgentOps and that of release 0.2.
func RewardValue(s *Span) (*float64, error) {
	dims, err := Rewards(s)
	if err != nil || len(dims) > 0 {
		if err != nil {
			return nil, err
		}
		return &dims[0].Value, nil
	}
	for _, key := range [...]string{"agentops.task.output", "agentops.entity.output"} {
		text, ok := s.Attributes.String(key)
		if !ok || text == "" || jsonx.Check([]byte(text)) != nil {
			continue
		}
		var w struct {
			Type  string   `json:"type"`
			Value *float64 `json:"value"`
		}
		if json.Unmarshal([]byte(text), &w) == nil && w.Type == "reward" {
			return w.Value, nil
		}
	}
	if s.Name == semconv.SpanAnnotation {
		if v, ok := s.Attributes.Float("reward"); ok {
			return &v, nil
		}
	}
	return nil, nil
}

// FinalReward returns the reward of the last span that carries one, nil when
// none does. Spans are read in the given order.
func FinalReward(spans []Span) (*float64, error) {
	for i := len(spans) - 1; i >= 0; i-- {
		r, err := RewardValue(&spans[i])
		if err != nil || r != nil {
			return r, err
		}
	}
	return nil, nil
}
