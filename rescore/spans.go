package rescore

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"

	agl "agentlightning"
	"agentlightning/semconv"
)

// digest is a short name of texts that differ.
func digest(texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// rewardSpans are the spans that keep a score: one for each call that has a
// reward of its own, then the final one. Their ids follow from the set and the
// attempt, so that a store never takes a second score of the same attempt.
func rewardSpans(a *Attempt, s *Score, set string, by Scorer, under place, now float64) []agl.Span {
	one := func(part string, rewards []agl.RewardDimension, more agl.Attributes) agl.Span {
		attributes := agl.Attributes{
			{Key: semconv.RescoreSet, Value: set},
			{Key: semconv.RescoreScorer, Value: by.String()},
			{Key: semconv.RescoreDigest, Value: by.Digest()},
		}
		for i, d := range rewards {
			prefix := semconv.RescoreReward + "." + strconv.Itoa(i)
			attributes = append(attributes, agl.Attribute{Key: prefix + ".name", Value: d.Name}, agl.Attribute{Key: prefix + ".value", Value: d.Value})
		}
		core := agl.SpanCore{
			Name: semconv.SpanRescore, Status: agl.TraceStatus{StatusCode: agl.StatusOK},
			Attributes: append(attributes, more...), StartTime: &now, EndTime: &now,
		}
		span := core.Span(a.RolloutID, a.AttemptID, 0, now)
		span.SpanID = digest(set, a.RolloutID, a.AttemptID, part)
		span.TraceID, span.ParentID = under.trace, under.parent
		span.Context = &agl.SpanContext{TraceID: span.TraceID, SpanID: span.SpanID}
		return span
	}
	var out []agl.Span
	for _, id := range slices.Sorted(maps.Keys(s.Calls)) {
		out = append(out, one("call "+id, []agl.RewardDimension{{Name: semconv.PrimaryReward, Value: s.Calls[id]}}, agl.Attributes{
			{Key: semconv.LinkKeyMatch(0), Value: "span_id"}, {Key: semconv.LinkValueMatch(0), Value: id},
		}))
	}
	var more agl.Attributes
	if s.Note != "" {
		more.Set(semconv.RescoreNote, s.Note)
	}
	if s.InputTokens != 0 || s.OutputTokens != 0 {
		more.Set(semconv.RescoreInput, s.InputTokens)
		more.Set(semconv.RescoreOutput, s.OutputTokens)
	}
	if s.Cost != 0 {
		more.Set(semconv.RescoreCost, s.Cost)
	}
	return append(out, one("final", s.Rewards, more))
}

// place is where spans are put in the trace of an attempt.
type place struct {
	trace  string
	parent *string
}

// placeIn is below the root of the trace, when it has one.
func placeIn(spans []agl.Span) place {
	p := place{trace: agl.NewTraceID()}
	roots := 0
	for i := range spans {
		s := &spans[i]
		if s.ParentID != nil || s.Name == semconv.SpanRescore {
			continue
		}
		if roots++; roots == 1 {
			p.trace, p.parent = s.TraceID, &s.SpanID
		}
	}
	if roots > 1 {
		p.parent = nil
	}
	return p
}
