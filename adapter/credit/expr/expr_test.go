package expr_test

import (
	"fmt"
	"strings"
	"testing"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/adapter/credit"
	"agentlightning/adapter/credit/expr"
)

func rollout() credit.Rollout {
	call := func(agent string, n int, problem string) credit.Call {
		return credit.Call{Call: adapter.Call{Agent: agent, ResponseIDs: make([]int32, n), Problem: problem, FinishReason: "stop"}, State: "door"}
	}
	return credit.Rollout{
		ID: "ro-1", Final: new(0.5), Dimensions: []agl.RewardDimension{{Name: "primary", Value: 0.5}, {Name: "style", Value: 2}},
		Calls:   []credit.Call{call("planner", 3, ""), call("coder", 4, "truncated"), call("coder", 5, "")},
		Rewards: []credit.Reward{{Value: 0.25, Before: 0}, {Value: 0.5, Before: 2}},
	}
}

func TestExpressions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"reward":                              "0.5 - 0.5",
		"earned":                              "0.25 - 0.5",
		"index == count - 1 ? reward : 0.0":   "0 - 0.5",
		"index == 1 ? dyn(reward) : null":     "- - 0.5",
		"rewards['style'] - rewards.primary":  "1.5 - 1.5",
		"response_tokens":                     "3 - 5",
		"agent == 'coder' ? 1 : -1":           "-1 - 1",
		"reward * double(index + 1)":          "0.5 - 1",
		"state.startsWith('d') ? reward : .0": "0.5 - 0.5",
	} {
		rule, err := expr.New(text)
		if err != nil {
			t.Errorf("New(%q): %v", text, err)
			continue
		}
		got, err := rule.Credit([]credit.Rollout{rollout()})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var out []string
		for _, e := range got[0] {
			if e.Reward == nil {
				out = append(out, "-")
			} else {
				out = append(out, fmt.Sprint(*e.Reward))
			}
		}
		if s := strings.Join(out, " "); s != want {
			t.Errorf("%s = %s, want %s", text, s, want)
		}
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"reward +":           "Syntax error",
		"rewrad":             "undeclared reference to 'rewrad'",
		"agent":              "must be a number",
		"reward > 0.0":       "must be a number",
		"reward + index":     "no matching overload",
		"dyn('a')":           "",
		"rewards['nothing']": "",
	} {
		rule, err := expr.New(text)
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("New(%q) = %v, want an error that says %q", text, err, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("New(%q): %v", text, err)
			continue
		}
		if _, err := rule.Credit([]credit.Rollout{rollout()}); err == nil || !strings.Contains(err.Error(), "ro-1") {
			t.Errorf("%s: %v, want an error that names the rollout", text, err)
		}
	}
	rule, err := expr.New("reward")
	if err != nil {
		t.Fatal(err)
	}
	r := rollout()
	r.Final = nil
	if got, err := rule.Credit([]credit.Rollout{r}); err != nil || got[0][0].Reward != nil {
		t.Errorf("without a reward: %v, %v, want nothing earned", got, err)
	}
}

func Example() {
	rule, err := expr.New("index == count - 1 ? reward : 0.1 * reward")
	if err != nil {
		fmt.Println(err)
		return
	}
	earned, err := rule.Credit([]credit.Rollout{{
		Final: new(1.0), Calls: make([]credit.Call, 3),
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range earned[0] {
		fmt.Println(*e.Reward)
	}
	// Output:
	// 0.1
	// 0.1
	// 1
}
