package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	agl "agentlightning"
	"agentlightning/agent"
)

// Question is what the tasks of this agent look like.
type Question struct {
	Text   string `json:"text"`
	Answer string `json:"answer"`
}

func Example() {
	solver := agent.WithPrompt(func(_ context.Context, q Question, p agl.PromptTemplate) (float64, error) {
		said := strings.ReplaceAll(p.Template, "{text}", q.Text) // a model would answer this
		if strings.Contains(said, q.Answer) {
			return 1, nil
		}
		return 0, nil
	})

	// A runner makes such calls; here it is done by hand.
	id := "rs-1"
	call := &agent.Call{
		Rollout: agl.AttemptedRollout{
			Rollout: agl.Rollout{RolloutID: "ro-1", Input: json.RawMessage(`{"text":"Red or green?","answer":"green"}`), ResourcesID: &id},
			Attempt: &agl.Attempt{AttemptID: "at-1"},
		},
		Resources: agl.NamedResources{{Name: "prompt", Resource: agl.PromptTemplate{Template: "Say: {text}"}}},
	}
	result, err := solver.Run(context.Background(), call)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("reward:", *result.Reward)

	call.Resources = nil
	fmt.Println(agent.Check(solver, call))
	// Output:
	// reward: 1
	// the agent needs a prompt template; resources rs-1 hold nothing
}
