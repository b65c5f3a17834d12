package trainer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/algorithm"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/trainer"
)

type sum struct {
	A, B int
}

// model stands for a language model: it adds up only when it is told to.
func model(prompt string, s sum) int {
	if strings.Contains(prompt, "add") {
		return s.A + s.B
	}
	return s.A
}

// adder asks the model and judges its answer.
var adder = agent.WithPrompt(func(_ context.Context, s sum, p agl.PromptTemplate) (float64, error) {
	if model(p.Template, s) == s.A+s.B {
		return 1, nil
	}
	return 0, nil
})

// bestPrompt tries prompts and publishes the one with the highest mean reward.
func bestPrompt(prompts ...string) algorithm.Func {
	return func(ctx context.Context, env algorithm.Env) error {
		best, most := "", -1.0
		for _, p := range prompts {
			id, err := publish(ctx, env.Store, p)
			if err != nil {
				return err
			}
			reqs := make([]store.EnqueueRequest, len(env.Train))
			for i, task := range env.Train {
				reqs[i] = store.EnqueueRequest{Input: task, Mode: agl.ModeTrain, ResourcesID: &id}
			}
			ids, err := algorithm.Ask(ctx, env.Store, reqs)
			if err != nil {
				return err
			}
			outcomes, err := algorithm.Collect(ctx, env.Store, ids, algorithm.Collecting{})
			if err != nil {
				return err
			}
			mean, _ := algorithm.MeanReward(outcomes)
			if fmt.Printf("%-20q %.2f\n", p, mean); mean > most {
				best, most = p, mean
			}
		}
		_, err := publish(ctx, env.Store, best)
		return err
	}
}

func publish(ctx context.Context, s store.ResourceStore, prompt string) (resourcesID string, err error) {
	update, err := s.AddResources(ctx, agl.NamedResources{
		{Name: "instruction", Resource: agl.PromptTemplate{Template: prompt, Engine: "f-string"}},
	})
	return update.ResourcesID, err
}

// An agent is improved by an algorithm of thirty lines.
func ExampleFit() {
	s := engine.New(memory.New(), engine.Config{})
	defer s.Close()
	tasks, err := algorithm.Tasks([]sum{{1, 2}, {3, 0}, {2, 2}, {5, 4}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	err = trainer.Fit(ctx, trainer.Config{
		Agent:     adder,
		Algorithm: bestPrompt("Look at A and B.", "Please add A and B."),
		Store:     s,
		Runners:   2,
	}, tasks, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	latest, err := s.LatestResources(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("published:", latest.Resources.Get("instruction").(agl.PromptTemplate).Template)
	// Output:
	// "Look at A and B."   0.25
	// "Please add A and B." 1.00
	// published: Please add A and B.
}

// Dev runs an agent over tasks once, to see what it does.
func ExampleDev() {
	s := engine.New(memory.New(), engine.Config{})
	defer s.Close()
	results, err := trainer.Dev(context.Background(), trainer.Config{
		Agent: adder,
		Store: s,
		InitialResources: agl.NamedResources{
			{Name: "instruction", Resource: agl.PromptTemplate{Template: "Look at A and B.", Engine: "f-string"}},
		},
	}, []json.RawMessage{json.RawMessage(`{"A":3,"B":0}`), json.RawMessage(`{"A":3,"B":"zero"}`)}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range results {
		if r.Reward != nil {
			fmt.Printf("task %d: reward %v\n", r.Index, *r.Reward)
		} else {
			_, why, _ := strings.Cut(r.Failure, ": ")
			fmt.Printf("task %d: %s, %s\n", r.Index, r.Rollout.Status, why)
		}
	}
	// Output:
	// task 0: reward 1
	// task 1: failed, field "B": a JSON string does not fit int
}
