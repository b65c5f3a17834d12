package expr_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"agentlightning/rescore"
	"agentlightning/rescore/expr"
)

func attempt() rescore.Attempt {
	return rescore.Attempt{
		RolloutID: "ro-1", Status: "succeeded", Mode: "train", Group: "task 6*7", Seconds: 1.5,
		Input: json.RawMessage(`{"question":"6*7","answer":42}`), Metadata: json.RawMessage("null"),
		Reward: new(1.0), Rewards: map[string]float64{"primary": 1, "style": 0.25},
		Messages: []json.RawMessage{[]byte(`{"role":"user","content":"6*7?"}`), []byte(`{"role":"assistant","content":"It is 42."}`)},
		Answer:   "It is 42.", Feedback: []string{"tool calculator failed"},
		Calls: []rescore.Call{{Agent: "solver", PromptTokens: 10, ResponseTokens: 4}, {Agent: "solver", PromptTokens: 20, ResponseTokens: 6}},
	}
}

func TestScore(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"reward * 0.5":                               "[{primary 0.5}]",
		"reward == null ? 0.0 : 2.0":                 "[{primary 2}]",
		"answer.contains(string(int(input.answer)))": "[{primary 1}]",
		"input.answer == 42 && size(calls) > 2":      "[{primary 0}]",
		"1.0 - double(response_tokens) / 20.0":       "[{primary 0.5}]",
		`rewards["style"] + seconds`:                 "[{primary 1.75}]",
		`math.greatest(reward, 3.0)`:                 "[{primary 3}]",
		`messages[0].role == "user" && size(feedback) == 1 && calls.all(c, c.agent == "solver")`: "[{primary 1}]",
		`{"zeal": 3, "primary": 0.5, "brevity": prompt_tokens}`:                                  "[{primary 0.5} {brevity 30} {zeal 3}]",
	} {
		s, err := expr.New(text)
		if err != nil {
			t.Errorf("New(%s): %v", text, err)
			continue
		}
		got := s.Score(t.Context(), []rescore.Attempt{attempt()})
		if got[0].Err != nil || fmt.Sprint(got[0].Rewards) != want {
			t.Errorf("%s = %v, %v, want %s", text, got[0].Rewards, got[0].Err, want)
		}
	}
}

func TestScoreFails(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"input.missing":          "no such key",
		"input.question":         "did not give a number but a string",
		"null":                   "did not give a number but a null_type",
		`{"style": 1.0}`:         `has no "primary"`,
		`{"primary": input}`:     "primary: the expression did not give a number but a map",
		`messages[7].role == ""`: "index out of bounds",
	} {
		s, err := expr.New(text)
		if err != nil { // what is known before anything is scored
			if !strings.Contains(err.Error(), "must be a number") {
				t.Errorf("New(%s): %v", text, err)
			}
			continue
		}
		got := s.Score(t.Context(), []rescore.Attempt{attempt()})
		if got[0].Err == nil || !strings.Contains(got[0].Err.Error(), want) {
			t.Errorf("%s = %v, %v, want an error that has %q", text, got[0].Rewards, got[0].Err, want)
		}
	}
	for _, bad := range []string{"rewrd", "'text'", "reward *"} {
		if _, err := expr.New(bad); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("New(%s) = %v, want an error that shows it", bad, err)
		}
	}
}

// An expression that would go on and on is stopped.
func TestScoreIsBounded(t *testing.T) {
	t.Parallel()
	list := "[" + strings.TrimSuffix(strings.Repeat("1,", 200), ",") + "]"
	s, err := expr.New(fmt.Sprintf("%s.map(a, %s.map(b, %s.map(c, a * b * c).size()).size()).size()", list, list, list))
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Score(t.Context(), []rescore.Attempt{attempt()}); got[0].Err == nil {
		t.Errorf("eight million steps gave %v", got[0].Rewards)
	}
}

func TestDigestTellsExpressionsApart(t *testing.T) {
	t.Parallel()
	one, err := expr.New("reward * 1.0")
	if err != nil {
		t.Fatal(err)
	}
	other, err := expr.New("reward * 2.0")
	if err != nil {
		t.Fatal(err)
	}
	if one.Digest() == other.Digest() || one.String() == other.String() {
		t.Errorf("%s and %s have digests %s and %s", one, other, one.Digest(), other.Digest())
	}
}

func Example() {
	scorer, err := expr.New(`reward * math.least(1.0, 5.0 / double(response_tokens))`)
	if err != nil {
		fmt.Println(err)
		return
	}
	scores := scorer.Score(context.Background(), []rescore.Attempt{attempt()})
	fmt.Println(math.Round(scores[0].Rewards[0].Value*100) / 100)
	// Output: 0.5
}
