package gepa_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/algorithm/gepa"
	"agentlightning/algorithm/prompt"
	"agentlightning/emit"
	"agentlightning/semconv"
)

// both is right or short, by the words of its prompt, and cannot do task "c".
var both = agent.New(func(ctx context.Context, task string, c *agent.Call) (agent.Result, error) {
	p, err := c.Prompt("p")
	if err != nil {
		return agent.Result{}, err
	}
	if task == "c" {
		return agent.Result{}, errors.New("task c is broken")
	}
	score := func(word string) float64 {
		if strings.Contains(p.Template, word) {
			return 1
		}
		return 0.5
	}
	return agent.Result{}, emit.Rewards(ctx, []agl.RewardDimension{
		{Name: semconv.PrimaryReward, Value: score("right")}, {Name: "brevity", Value: score("short")},
	})
})

func TestObjectivesAndFailures(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var requests []string
	c := gepa.Config{
		MaxEvaluations: 60, MaxFailures: 1000, Repeats: 2, Minibatch: 2, Objectives: []string{"brevity"},
		Completer: prompt.CompleterFunc(func(_ context.Context, r prompt.Request) (prompt.Answer, error) {
			mu.Lock()
			defer mu.Unlock()
			requests = append(requests, r.Messages[0].Content)
			return prompt.Answer{Text: "<prompt>be right</prompt>"}, nil
		}),
	}
	got, s, err := ask(t, c, both, "be short")
	if err != nil {
		t.Fatal(err)
	}
	want := [][]float64{{1, 0.5}, {1, 0.5}, nil}
	if got.Best.ID != 1 || got.Score != 1 || !reflect.DeepEqual(got.Best.Scores, want) {
		t.Errorf("best %+v with %v, want candidate 1 with %v", got.Best, got.Score, want)
	}
	// Three validation and three training tasks, two prompts, two seeds, at the most.
	if n, err := s.Statistics(t.Context()); err != nil || n.TotalRollouts > 24 || int(n.TotalRollouts) != got.Spent.Evaluations {
		t.Errorf("%d rollouts, spent %+v, want no more than 24: %v", n.TotalRollouts, got.Spent, err)
	}
	// The initial prompt is not as good by its reward and stays for its brevity:
	// it is rewritten again and again, though candidate 1 is better.
	again := 0
	for _, r := range requests[1:] {
		if strings.Contains(r, "<prompt>\nbe short\n</prompt>") {
			again++
		}
	}
	if again == 0 {
		t.Error("the shorter prompt is not on a front")
	}
	if all := strings.Join(requests, ""); !strings.Contains(all, "The agent failed: ") || !strings.Contains(all, "task c is broken") {
		t.Errorf("no request tells of the failure: %q", requests[0])
	}
	c.Objectives, c.OnFailure = nil, gepa.ZeroFailures
	if got, _, err = ask(t, c, both, "be short"); err != nil || got.Best.ID != 1 || !reflect.DeepEqual(got.Best.Scores, [][]float64{{1}, {1}, {0}}) {
		t.Errorf("best %+v, %v, want a failure to count as 0", got.Best, err)
	}
}
