package rescore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	agl "agentlightning"
	"agentlightning/semconv"
)

// Score is what an attempt is worth by a scorer.
type Score struct {
	// Rewards has the primary dimension first; it must be there, and all must be
	// finite, unless Err is set.
	Rewards []agl.RewardDimension
	// Calls are rewards of single model calls by span id, for rules of credit that
	// look at steps. They stand before the final reward.
	Calls map[string]float64
	// Note is what a judge said beside the number.
	Note string
	// Tokens that a model read and wrote for this score, and their cost.
	InputTokens, OutputTokens int64
	Cost                      float64
	// Err is why there is no score; see [ScoreError].
	Err error
}

// ScoreError is an error of a scorer with the reason under which it is counted.
type ScoreError struct {
	Reason string // the same for all that failed alike
	Err    error
}

func (f *ScoreError) Error() string { return f.Reason + ": " + f.Err.Error() }

// Unwrap returns what happened.
func (f *ScoreError) Unwrap() error { return f.Err }

func failed(reason string, err error) Score { return Score{Err: &ScoreError{reason, err}} }

func reasonOf(err error) string {
	if f, ok := errors.AsType[*ScoreError](err); ok {
		return f.Reason
	}
	return "the scorer failed"
}

// Scorer says what attempts are worth. It must be safe for concurrent use.
type Scorer interface {
	// Score returns one entry an attempt. It gets one attempt at a time, or all
	// those of a group when the scorer is a [Grouper].
	Score(ctx context.Context, attempts []Attempt) []Score
	// String says what scores, in a line that is kept with every reward.
	String() string
	// Digest differs when attempts would be scored differently.
	Digest() string
}

// Grouper is a scorer that compares the attempts of a group with one another.
type Grouper interface {
	Scorer
	// GroupOnly reports whether it does.
	GroupOnly() bool
}

// Remote is a scorer that asks a service, which may cost money. A dry run does
// not ask it.
type Remote interface {
	Scorer
	// Estimate returns about how many tokens the service would read for the
	// attempts; 0 when nobody can tell.
	Estimate(attempts []Attempt) int64
}

// Func is a Go function as a [Scorer].
type Func struct {
	Name string // identifies it: another function needs another name
	Of   func(ctx context.Context, a *Attempt) (float64, error)
}

// Score implements [Scorer].
func (f Func) Score(ctx context.Context, attempts []Attempt) []Score {
	out := make([]Score, len(attempts))
	for i := range attempts {
		value, err := f.Of(ctx, &attempts[i])
		if err != nil {
			out[i] = failed(f.Name+" failed", err)
			continue
		}
		out[i] = Single(value)
	}
	return out
}

func (f Func) String() string { return "function " + f.Name }

// Digest implements [Scorer].
func (f Func) Digest() string { return digest("func", f.Name) }

// Single is a score of one number.
func Single(value float64) Score {
	return Score{Rewards: []agl.RewardDimension{{Name: semconv.PrimaryReward, Value: value}}}
}

// check returns an error when a score cannot be stored.
func (s *Score) check(a *Attempt) error {
	if s.Err != nil {
		return s.Err
	}
	if len(s.Rewards) == 0 {
		return &ScoreError{"no reward", errors.New("the scorer gave none")}
	}
	for _, d := range s.Rewards {
		if math.IsNaN(d.Value) || math.IsInf(d.Value, 0) {
			return &ScoreError{"reward not finite", fmt.Errorf("%s is %v", d.Name, d.Value)}
		}
	}
	for id, v := range s.Calls {
		if !slices.ContainsFunc(a.Calls, func(c Call) bool { return c.SpanID == id }) {
			return &ScoreError{"reward of an unknown call", fmt.Errorf("the attempt has no model call with span id %q", id)}
		}
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return &ScoreError{"reward not finite", fmt.Errorf("that of call %s is %v", id, v)}
		}
	}
	return nil
}

// ParseScore reads what a program or service answers: a number, or an object
//
//	{"reward":0.5,"rewards":{"brevity":0.2},"calls":{"SPAN_ID":0.1},"note":"…"}
//
// of which only reward is needed, or {"error":"why there is none"}.
func ParseScore(text []byte) Score {
	text = bytes.TrimSpace(text)
	unreadable := func(err error) Score {
		return failed("answer cannot be read", fmt.Errorf("%w: %s", err, clip(string(text), 200)))
	}
	if len(text) == 0 {
		return failed("no answer", errors.New("nothing was written"))
	}
	if text[0] != '{' {
		var value *float64
		if err := json.Unmarshal(text, &value); err != nil || value == nil {
			return unreadable(errors.New("it must be a number or an object with reward"))
		}
		return Single(*value)
	}
	var answer struct {
		Reward  *float64           `json:"reward"`
		Rewards map[string]float64 `json:"rewards"`
		Calls   map[string]float64 `json:"calls"`
		Note    string             `json:"note"`
		Error   string             `json:"error"`
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields() // a misspelt member must not be lost
	if err := in.Decode(&answer); err != nil {
		return unreadable(err)
	}
	switch {
	case answer.Error != "":
		return failed("the scorer gave an error", errors.New(answer.Error))
	case answer.Reward == nil:
		return unreadable(errors.New("there is no reward"))
	}
	s := Single(*answer.Reward)
	s.Calls, s.Note = answer.Calls, answer.Note
	s.Rewards = append(s.Rewards, others(answer.Rewards)...)
	return s
}

// others are the dimensions beside the primary one, by name.
func others(values map[string]float64) []agl.RewardDimension {
	var out []agl.RewardDimension
	for name, v := range values {
		if name != semconv.PrimaryReward {
			out = append(out, agl.RewardDimension{Name: name, Value: v})
		}
	}
	slices.SortFunc(out, func(a, b agl.RewardDimension) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + "…"
}
