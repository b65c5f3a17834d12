// Package agent holds what people implement to have their agent run and
// improved: [Agent], and the ways to make one from a function.
//
// An agent is a function from a task to a result. It does its work as it always
// did; what it is given through [Call] are the resources that an algorithm is
// improving (a model, a prompt), and what it returns is usually a reward:
//
//	type Task struct {
//		Question, Answer string
//	}
//
//	var Solver = agent.WithLLM(func(ctx context.Context, t Task, llm agl.LLM) (float64, error) {
//		got, err := ask(ctx, llm.Endpoint, llm.Model, t.Question)
//		if err != nil {
//			return 0, err
//		}
//		if got == t.Answer {
//			return 1, nil
//		}
//		return 0, nil
//	})
//
// The task is decoded from JSON into the parameter's type. A returned error
// fails the attempt and never counts as a reward of 0. [New] gives the function
// everything ([Call]), [WithLLM] and [WithPrompt] the one resource that most
// agents need, [ByMode] chooses between agents for training and for evaluation.
//
// The package does not run agents; package runner does.
package agent
