// Package expr scores attempts by an expression in CEL, the Common Expression
// Language (https://cel.dev): typed, without side effects and without loops that
// do not end. It is a package of its own, so that only programs that read
// expressions carry their library.
package expr

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"

	agl "agentlightning"
	"agentlightning/rescore"
	"agentlightning/semconv"
)

// maxCost bounds the work of one evaluation, in CEL's units.
const maxCost = 1_000_000

// Syntax says what an expression sees, for help texts.
const Syntax = "a CEL expression over reward (null when there is none), rewards (by name), input, metadata, answer (text), " +
	"messages, feedback (texts), calls (agent, model, finish_reason, prompt_tokens, response_tokens, problem), status, mode, group, " +
	"prompt_tokens, response_tokens and seconds; it gives a number, true for 1 or false for 0, " +
	"or a map of numbers by name, of which primary is the reward"

func options() []cel.EnvOption {
	return []cel.EnvOption{
		cel.CrossTypeNumericComparisons(true), // numbers of JSON are doubles
		cel.OptionalTypes(), ext.Strings(), ext.Math(), ext.Lists(), ext.Sets(), ext.Regex(),
		cel.Variable("reward", cel.DynType),
		cel.Variable("rewards", cel.MapType(cel.StringType, cel.DoubleType)),
		cel.Variable("input", cel.DynType),
		cel.Variable("metadata", cel.DynType),
		cel.Variable("answer", cel.StringType),
		cel.Variable("messages", cel.ListType(cel.DynType)),
		cel.Variable("feedback", cel.ListType(cel.StringType)),
		cel.Variable("calls", cel.ListType(cel.MapType(cel.StringType, cel.DynType))),
		cel.Variable("status", cel.StringType),
		cel.Variable("mode", cel.StringType),
		cel.Variable("group", cel.StringType),
		cel.Variable("prompt_tokens", cel.IntType),   // of all calls
		cel.Variable("response_tokens", cel.IntType), // of all calls
		cel.Variable("seconds", cel.DoubleType),
	}
}

// Scorer scores by an expression. It is safe for concurrent use.
type Scorer struct {
	text    string
	program cel.Program
}

var _ rescore.Scorer = (*Scorer)(nil)

// New compiles an expression. An error says where it is wrong.
func New(text string) (*Scorer, error) {
	env, err := cel.NewEnv(options()...)
	if err != nil {
		return nil, fmt.Errorf("expression: %w", err)
	}
	ast, issues := env.Compile(text)
	if err := issues.Err(); err != nil {
		return nil, fmt.Errorf("expression %q: %w", text, err)
	}
	switch ast.OutputType().Kind() {
	case types.DoubleKind, types.IntKind, types.BoolKind, types.MapKind, types.DynKind:
	default:
		return nil, fmt.Errorf("expression %q: gives a %s: must be a number, a truth value or a map of numbers", text, ast.OutputType())
	}
	program, err := env.Program(ast, cel.CostLimit(maxCost), cel.InterruptCheckFrequency(1000))
	if err != nil {
		return nil, fmt.Errorf("expression %q: %w", text, err)
	}
	return &Scorer{text, program}, nil
}

func (s *Scorer) String() string { return "cel: " + s.text }

// Digest implements [rescore.Scorer].
func (s *Scorer) Digest() string {
	sum := sha256.Sum256([]byte("cel\x00" + s.text))
	return hex.EncodeToString(sum[:8])
}

// Score implements [rescore.Scorer].
func (s *Scorer) Score(ctx context.Context, attempts []rescore.Attempt) []rescore.Score {
	out := make([]rescore.Score, len(attempts))
	for i := range attempts {
		rewards, err := s.one(ctx, &attempts[i])
		if err != nil {
			err = &rescore.ScoreError{Reason: reason(err), Err: err}
		}
		out[i] = rescore.Score{Rewards: rewards, Err: err}
	}
	return out
}

var errNoNumber = errors.New("the expression did not give a number")

func reason(err error) string {
	if errors.Is(err, errNoNumber) {
		return errNoNumber.Error()
	}
	// CEL's own texts name what is missing: no such key, no such overload.
	text, _, _ := strings.Cut(err.Error(), "\n")
	return "expression: " + text
}

func (s *Scorer) one(ctx context.Context, a *rescore.Attempt) ([]agl.RewardDimension, error) {
	seen, err := variables(a)
	if err != nil {
		return nil, err
	}
	value, _, err := s.program.ContextEval(ctx, seen)
	if err != nil {
		return nil, err
	}
	return dimensions(value)
}

func variables(a *rescore.Attempt) (map[string]any, error) {
	parsed := func(name string, raw json.RawMessage) (any, error) {
		var v any
		if err := json.Unmarshal(raw, &v); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return v, nil
	}
	input, err := parsed("input", a.Input)
	if err != nil {
		return nil, err
	}
	metadata, err := parsed("metadata", a.Metadata)
	if err != nil {
		return nil, err
	}
	messages := make([]any, len(a.Messages))
	for i, m := range a.Messages {
		if messages[i], err = parsed("messages", m); err != nil {
			return nil, err
		}
	}
	var reward any
	if a.Reward != nil {
		reward = *a.Reward
	}
	prompt, response := 0, 0
	calls := make([]map[string]any, len(a.Calls))
	for i, c := range a.Calls {
		prompt, response = prompt+c.PromptTokens, response+c.ResponseTokens
		calls[i] = map[string]any{
			"agent": c.Agent, "model": c.Model, "finish_reason": c.FinishReason,
			"prompt_tokens": c.PromptTokens, "response_tokens": c.ResponseTokens, "problem": c.Problem,
		}
	}
	return map[string]any{
		"reward": reward, "rewards": a.Rewards, "input": input, "metadata": metadata, "answer": a.Answer,
		"messages": messages, "feedback": a.Feedback, "calls": calls, "status": a.Status, "mode": a.Mode, "group": a.Group,
		"prompt_tokens": prompt, "response_tokens": response, "seconds": a.Seconds,
	}, nil
}

func dimensions(value ref.Val) ([]agl.RewardDimension, error) {
	if m, ok := value.Value().(map[ref.Val]ref.Val); ok {
		var out []agl.RewardDimension
		primary := false
		for k, v := range m {
			name, ok := k.Value().(string)
			if !ok {
				return nil, fmt.Errorf("%w: the map has a key that is no text: %v", errNoNumber, k.Value())
			}
			x, err := number(v)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			primary = primary || name == semconv.PrimaryReward
			out = append(out, agl.RewardDimension{Name: name, Value: x})
		}
		if !primary {
			return nil, fmt.Errorf("%w: the map has no %q", errNoNumber, semconv.PrimaryReward)
		}
		slices.SortFunc(out, func(a, b agl.RewardDimension) int {
			switch {
			case a.Name == semconv.PrimaryReward:
				return -1
			case b.Name == semconv.PrimaryReward:
				return 1
			}
			return strings.Compare(a.Name, b.Name)
		})
		return out, nil
	}
	x, err := number(value)
	if err != nil {
		return nil, err
	}
	return rescore.Single(x).Rewards, nil
}

func number(v ref.Val) (float64, error) {
	switch x := v.Value().(type) {
	case float64:
		return x, nil
	case int64:
		return float64(x), nil
	case uint64:
		return float64(x), nil
	case bool:
		if x {
			return 1, nil
		}
		return 0, nil
	}
	return 0, fmt.Errorf("%w but a %s", errNoNumber, v.Type().TypeName())
}
