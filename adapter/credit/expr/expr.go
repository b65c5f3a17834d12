// Package expr makes credit rules of expressions in CEL, the Common Expression
// Language (https://cel.dev): typed, without side effects and without loops that
// do not end. It is a package of its own, so that only programs that read
// expressions carry their library.
package expr

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"agentlightning/adapter/credit"
)

// maxCost bounds the work of one evaluation, in CEL's units.
const maxCost = 100_000

// variables are what an expression sees of a call and its rollout.
func variables() []cel.EnvOption {
	return []cel.EnvOption{
		cel.Variable("reward", cel.DoubleType),                               // final reward of the rollout
		cel.Variable("rewards", cel.MapType(cel.StringType, cel.DoubleType)), // its parts by name
		cel.Variable("earned", cel.DoubleType),                               // sum of the rewards that belong to the call
		cel.Variable("index", cel.IntType),                                   // of the call among the usable ones, from 0
		cel.Variable("count", cel.IntType),                                   // usable calls
		cel.Variable("agent", cel.StringType),
		cel.Variable("model", cel.StringType),
		cel.Variable("finish_reason", cel.StringType),
		cel.Variable("state", cel.StringType),        // text of the last message of the prompt
		cel.Variable("prompt_tokens", cel.IntType),   // read
		cel.Variable("response_tokens", cel.IntType), // sampled
	}
}

// Syntax says what an expression sees, for help texts.
const Syntax = "a CEL expression for what a call earned, over reward, rewards (by name), earned, index, count, agent, model, " +
	"finish_reason, state, prompt_tokens and response_tokens; a number, or null to leave the call out"

// New compiles an expression to a rule. An error says where it is wrong.
func New(text string) (credit.Rule, error) {
	env, err := cel.NewEnv(variables()...)
	if err != nil {
		return nil, fmt.Errorf("credit expression: %w", err)
	}
	ast, issues := env.Compile(text)
	if err := issues.Err(); err != nil {
		return nil, fmt.Errorf("credit expression %q: %w", text, err)
	}
	switch ast.OutputType().Kind() {
	case types.DoubleKind, types.IntKind, types.DynKind:
	default:
		return nil, fmt.Errorf("credit expression %q: gives a %s: must be a number, or null to leave a call out", text, ast.OutputType())
	}
	program, err := env.Program(ast, cel.CostLimit(maxCost))
	if err != nil {
		return nil, fmt.Errorf("credit expression %q: %w", text, err)
	}
	return credit.Func{Name: "cel:" + text, Of: func(r credit.Rollout) ([]*float64, error) { return evaluate(program, &r) }}, nil
}

func evaluate(program cel.Program, r *credit.Rollout) ([]*float64, error) {
	out := make([]*float64, len(r.Calls))
	if r.Final == nil {
		return out, nil
	}
	parts := make(map[string]float64, len(r.Dimensions))
	for _, d := range r.Dimensions {
		parts[d.Name] = d.Value
	}
	count := 0
	for i := range r.Calls {
		if r.Calls[i].Usable() {
			count++
		}
	}
	earned := r.Earned()
	index := 0
	for i := range r.Calls {
		c := &r.Calls[i]
		if !c.Usable() {
			continue
		}
		value, _, err := program.Eval(map[string]any{
			"reward": *r.Final, "rewards": parts, "earned": earned[i], "index": index, "count": count,
			"agent": c.Agent, "model": c.Model, "finish_reason": c.FinishReason, "state": c.State,
			"prompt_tokens": len(c.PromptIDs), "response_tokens": len(c.ResponseIDs),
		})
		if err != nil {
			return nil, fmt.Errorf("call %d: %w", i, err)
		}
		if out[i], err = number(value); err != nil {
			return nil, fmt.Errorf("call %d: %w", i, err)
		}
		index++
	}
	return out, nil
}

var errNoNumber = errors.New("the expression did not give a number or null")

func number(v ref.Val) (*float64, error) {
	if v.Type() == types.NullType {
		return nil, nil
	}
	if v.Type() != types.DoubleType && v.Type() != types.IntType {
		return nil, fmt.Errorf("%w but a %s", errNoNumber, v.Type().TypeName())
	}
	native, err := v.ConvertToNative(reflect.TypeFor[float64]())
	if err != nil {
		if n, ok := v.Value().(int64); ok {
			return new(float64(n)), nil
		}
		return nil, fmt.Errorf("%w: %w", errNoNumber, err)
	}
	f, _ := native.(float64)
	return &f, nil
}
