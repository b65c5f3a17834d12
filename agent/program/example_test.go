package program_test

import (
	"context"
	"encoding/json"
	"fmt"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/agent/program"
)

func Example() {
	// The command prints its reward last.
	solver, err := program.New(program.Config{
		Command: []string{"sh", "-c", `echo "the task is $AGL_TASK"; echo '{"reward": 0.5}'`},
		Reward:  program.RewardStdout,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer solver.Close()

	// A runner makes such calls; here it is done by hand.
	result, err := solver.Run(context.Background(), &agent.Call{Rollout: agl.AttemptedRollout{
		Rollout: agl.Rollout{RolloutID: "ro-1", Input: json.RawMessage(`{"question":"6*7"}`)},
		Attempt: &agl.Attempt{AttemptID: "at-1"},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("reward:", *result.Reward)
	// Output: reward: 0.5
}
