package apo_test

import (
	"context"
	"fmt"
	"strings"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/algorithm"
	"agentlightning/algorithm/apo"
	"agentlightning/algorithm/prompt"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/trainer"
)

func ExampleNew() {
	type sum struct{ A, B int }
	// adder stands for an agent whose model adds when it is told to.
	adder := agent.WithPrompt(func(_ context.Context, s sum, p agl.PromptTemplate) (float64, error) {
		if s.B == 0 || strings.Contains(p.Template, "add") {
			return 1, nil
		}
		return 0, nil
	})
	// model stands for one that rewrites prompts.
	model := prompt.CompleterFunc(func(_ context.Context, r prompt.Request) (prompt.Answer, error) {
		if r.Purpose == "gradient" {
			return prompt.Answer{Text: "Say that A and B are to be added."}, nil
		}
		return prompt.Answer{Text: "Please add A and B."}, nil
	})
	a, err := apo.New(apo.Config{Completer: model, BeamWidth: 1, BranchFactor: 1, Rounds: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	s := engine.New(memory.New(), engine.Config{})
	defer s.Close()
	tasks, err := algorithm.Tasks([]sum{{1, 2}, {3, 0}, {2, 2}})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = trainer.Fit(context.Background(), trainer.Config{
		Agent: adder, Algorithm: a, Store: s,
		InitialResources: agl.NamedResources{
			{Name: "instruction", Resource: agl.PromptTemplate{Template: "Look at A and B.", Engine: agl.EngineFString}},
		},
	}, tasks, tasks)
	if err != nil {
		fmt.Println(err)
		return
	}
	best, err := a.Best()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(best.Version, best.Template.Template, *best.Score)
	// Output: v1 Please add A and B. 1
}
