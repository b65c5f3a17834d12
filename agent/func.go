package agent

import (
	"context"

	agl "agentlightning"
)

// Func is a function as an [Agent]; T is the type of the tasks.
type Func[T any] func(ctx context.Context, task T, c *Call) (Result, error)

// Run decodes the task and calls f.
func (f Func[T]) Run(ctx context.Context, c *Call) (Result, error) {
	task, err := Task[T](c)
	if err != nil {
		return Result{}, err
	}
	return f(ctx, task, c)
}

// New makes an agent from a function that sees the whole call. When the
// resources of a rollout do not have what is listed in needs, the attempt fails
// with that reason before f is called.
func New[T any, R Output](f func(ctx context.Context, task T, c *Call) (R, error), needs ...Need) Agent {
	return Requiring(Func[T](func(ctx context.Context, task T, c *Call) (Result, error) {
		out, err := f(ctx, task, c)
		return resultOf(out), err
	}), needs...)
}

// WithLLM makes an agent from a function that needs a model. Of several models
// it gets the first; use [New] and [Call.LLM] to choose by name.
func WithLLM[T any, R Output](f func(ctx context.Context, task T, llm agl.LLM) (R, error)) Agent {
	return New(func(ctx context.Context, task T, c *Call) (R, error) {
		llm, err := c.LLM("")
		if err != nil {
			var none R
			return none, err
		}
		return f(ctx, task, llm)
	}, NeedLLM(""))
}

// WithPrompt makes an agent from a function that needs a prompt template. Of
// several it gets the first; use [New] and [Call.Prompt] to choose by name.
func WithPrompt[T any, R Output](f func(ctx context.Context, task T, prompt agl.PromptTemplate) (R, error)) Agent {
	return New(func(ctx context.Context, task T, c *Call) (R, error) {
		prompt, err := c.Prompt("")
		if err != nil {
			var none R
			return none, err
		}
		return f(ctx, task, prompt)
	}, NeedPrompt(""))
}

// ByMode is an agent that behaves differently in training and in evaluation.
type ByMode struct {
	// Train runs rollouts whose mode is "train".
	Train Agent
	// Eval runs all others.
	Eval Agent
}

func (m ByMode) choose(training bool) Agent {
	if training {
		return m.Train
	}
	return m.Eval
}

// Run calls the agent of the call's mode.
func (m ByMode) Run(ctx context.Context, c *Call) (Result, error) {
	return m.choose(c.Training()).Run(ctx, c)
}

// Requires returns what the agent of the mode requires.
func (m ByMode) Requires(mode agl.Mode) []Need {
	if r, ok := m.choose(mode == agl.ModeTrain).(Requirer); ok {
		return r.Requires(mode)
	}
	return nil
}

// UsesToken reports whether the agent of the mode asks for the token of its attempt.
func (m ByMode) UsesToken(mode agl.Mode) bool {
	return UsesToken(m.choose(mode == agl.ModeTrain), mode)
}
