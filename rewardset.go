package agl

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"agentlightning/semconv"
)

// DefaultRewardSet names the rewards that agents gave. Other sets are computed
// later and stand beside them, as spans named [semconv.SpanRescore].
const DefaultRewardSet = "default"

var rewardSetName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// CheckRewardSet returns an error when a set cannot have that name. Empty is the
// default set.
func CheckRewardSet(name string) error {
	if name != "" && !rewardSetName.MatchString(name) {
		return fmt.Errorf("reward set %q: must be up to 64 letters, digits, dots, dashes and underscores, the first a letter or digit", name)
	}
	return nil
}

// RewardSetOf returns the set that a span has a reward of; ok is false for spans
// of the default set and for spans without a reward.
func RewardSetOf(s *Span) (set string, ok bool) {
	if s.Name != semconv.SpanRescore {
		return "", false
	}
	set, ok = s.Attributes.String(semconv.RescoreSet)
	return set, ok && set != ""
}

// RewardSets returns the names of the sets that spans have rewards of, beside
// the default one, in order of appearance.
func RewardSets(spans []Span) []string {
	var out []string
	for i := range spans {
		if set, ok := RewardSetOf(&spans[i]); ok && !slices.Contains(out, set) {
			out = append(out, set)
		}
	}
	return out
}

// InRewardSet returns spans as they would be had their agents given the rewards
// of a set: [RewardValue], [FinalReward] and everything that is built on them
// then reads that set. For the default set, which empty names too, they are
// returned as they are; for another, rewards of the default set are taken off.
// The given spans are never changed.
func InRewardSet(spans []Span, set string) []Span {
	if isDefaultSet(set) {
		return spans
	}
	out := make([]Span, len(spans))
	for i := range spans {
		out[i] = SpanInRewardSet(&spans[i], set)
	}
	return out
}

func isDefaultSet(set string) bool { return set == "" || set == DefaultRewardSet }

// SpanInRewardSet is [InRewardSet] of one span.
func SpanInRewardSet(s *Span, set string) Span {
	if isDefaultSet(set) {
		return *s
	}
	if own, ok := RewardSetOf(s); ok {
		if own != set {
			return *s
		}
		out := *s
		out.Name = semconv.SpanAnnotation
		out.Attributes = make(Attributes, 0, len(s.Attributes))
		for _, a := range s.Attributes {
			if rest, ok := strings.CutPrefix(a.Key, semconv.RescoreReward+"."); ok {
				a.Key = semconv.Reward + "." + rest
			}
			out.Attributes = append(out.Attributes, a)
		}
		return out
	}
	if value, err := RewardValue(s); value == nil && err == nil {
		return *s
	}
	out := *s
	out.Attributes = slices.DeleteFunc(slices.Clone(s.Attributes), func(a Attribute) bool {
		switch a.Key {
		case "agentops.task.output", "agentops.entity.output":
			return true
		case "reward":
			return s.Name == semconv.SpanAnnotation
		}
		return strings.HasPrefix(a.Key, semconv.Reward)
	})
	return out
}
