package agl_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	agl "agentlightning"
)

// What the Python implementation's readers were recorded to say. They hand out
// some values unconverted, such as a reward that is text; here these are none.
func TestRecordedRewards(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/vectors/emitters/_readers.json")
	if err != nil {
		t.Fatal(err)
	}
	type outcome struct {
		Output json.RawMessage `json:"output"`
		Error  json.RawMessage `json:"error"`
	}
	var recorded struct {
		Rewards []struct {
			SpanName   string         `json:"span_name"`
			Attributes agl.Attributes `json:"attributes"`
			Value      outcome        `json:"get_reward_value"`
			Dimensions outcome        `json:"get_rewards_from_span"`
		} `json:"rewards"`
	}
	if err := json.Unmarshal(text, &recorded); err != nil {
		t.Fatal(err)
	}
	if len(recorded.Rewards) < 15 {
		t.Fatalf("%d recordings, want more", len(recorded.Rewards))
	}
	for _, r := range recorded.Rewards {
		span := agl.Span{Name: r.SpanName, Attributes: r.Attributes}
		about := string(span.Attributes.AppendJSON(nil))

		dims, err := agl.Rewards(&span)
		if wantErr := r.Dimensions.Error != nil; (err != nil) != wantErr {
			t.Errorf("Rewards(%s) = %v, %v, want an error: %v", about, dims, err, wantErr)
		}
		var want []agl.RewardDimension
		if r.Dimensions.Error == nil {
			if err := json.Unmarshal(r.Dimensions.Output, &want); err != nil {
				t.Fatal(err)
			}
		}
		if len(dims) != len(want) {
			t.Errorf("Rewards(%s) = %v, want %v", about, dims, want)
		}
		for i := range min(len(dims), len(want)) {
			if dims[i] != want[i] {
				t.Errorf("Rewards(%s)[%d] = %v, want %v", about, i, dims[i], want[i])
			}
		}

		value, err := agl.RewardValue(&span)
		var number *float64
		if r.Value.Error != nil {
			// JSON that is no object stops the Python reader; ours goes on.
			if err == nil && value != nil {
				t.Errorf("RewardValue(%s) = %v, want an error or none", about, *value)
			}
			continue
		}
		if json.Unmarshal(r.Value.Output, &number) != nil {
			number = nil // text
		}
		if err != nil || (value == nil) != (number == nil) || value != nil && *value != *number {
			t.Errorf("RewardValue(%s) = %v, %v, want %s", about, value, err, r.Value.Output)
		}
	}
}

func TestRewardErrorsNameTheAttribute(t *testing.T) {
	t.Parallel()
	for key, value := range map[string]any{
		"agentlightning.reward":         1.0,
		"agentlightning.rewards_total":  1.0,
		"agentlightning.reward.x.value": 1.0,
		"agentlightning.reward.0.name":  1.0,
		"agentlightning.reward.0.value": "x",
	} {
		_, err := agl.RewardValue(&agl.Span{SpanID: "s", Attributes: agl.Attributes{{Key: key, Value: value}}})
		if err == nil || !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "span s") {
			t.Errorf("RewardValue with %s = %v: error %v, want one that names span and attribute", key, value, err)
		}
	}
}

func TestFinalReward(t *testing.T) {
	t.Parallel()
	reward := func(v float64) agl.Span {
		return agl.Span{Name: "agentlightning.annotation", Attributes: agl.Attributes{
			{Key: "agentlightning.reward.0.name", Value: "primary"}, {Key: "agentlightning.reward.0.value", Value: v},
		}}
	}
	if got, err := agl.FinalReward([]agl.Span{reward(1), reward(0), {Name: "other"}}); err != nil || got == nil || *got != 0 {
		t.Errorf("FinalReward = %v, %v, want 0", got, err)
	}
	if got, err := agl.FinalReward([]agl.Span{{Name: "other"}}); err != nil || got != nil {
		t.Errorf("FinalReward = %v, %v, want none", got, err)
	}
	bad := agl.Span{Attributes: agl.Attributes{{Key: "agentlightning.reward", Value: 1.0}}}
	if _, err := agl.FinalReward([]agl.Span{reward(1), bad}); err == nil {
		t.Error("FinalReward with a broken reward span: no error")
	}
}

// A key that only begins like one of a reward does no harm beside a reward, and
// is a mistake where there is none.
func TestSimilarKeysBesideAReward(t *testing.T) {
	t.Parallel()
	good := agl.Attributes{{Key: "agentlightning.reward.0.name", Value: "primary"}, {Key: "agentlightning.reward.0.value", Value: 0.5}}
	for _, tt := range []struct {
		key   string
		with  bool
		fails bool
	}{
		{"agentlightning.rewards_total", true, false},
		{"agentlightning.rewards_total", false, true},
		{"agentlightning.reward", true, true},
	} {
		span := agl.Span{SpanID: "s", Attributes: agl.Attributes{{Key: tt.key, Value: 3.0}}}
		if tt.with {
			span.Attributes = append(span.Attributes, good...)
		}
		value, err := agl.RewardValue(&span)
		if (err != nil) != tt.fails || err != nil && !strings.Contains(err.Error(), `"`+tt.key+`"`) || err == nil && *value != 0.5 {
			t.Errorf("RewardValue of %s beside a reward (%v) = %v, %v, want an error that names it: %v", tt.key, tt.with, value, err, tt.fails)
		}
	}
}
