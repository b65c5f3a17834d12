package adapter_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentlightning/adapter"
)

// vectorCases reads the cases of one recorded file.
func vectorCases[T any](t *testing.T, file string) []T {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "testdata", "vectors", file))
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		Cases []T `json:"cases"`
	}
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if len(f.Cases) == 0 {
		t.Fatalf("%s: no cases", file)
	}
	return f.Cases
}

// padded is a row as the recordings pad it.
type padded struct {
	Prompt, Response []int32
	Mask             []float32
	PromptCut        bool
}

// pad brings a row to the lengths of its limits.
func pad(r *adapter.Trajectory, l adapter.Limits, id int32) padded {
	p := padded{PromptCut: r.PromptCut}
	for range l.Prompt - r.PromptLength {
		p.Prompt = append(p.Prompt, id)
	}
	p.Prompt = append(p.Prompt, r.IDs[:r.PromptLength]...)
	p.Response = append(p.Response, r.IDs[r.PromptLength:]...)
	p.Mask = append(p.Mask, r.Mask[r.PromptLength:]...)
	for len(p.Response) < l.Response {
		p.Response, p.Mask = append(p.Response, id), append(p.Mask, 0)
	}
	return p
}

// tensors are what a recording says of the rows.
type tensors struct {
	Prompts   [][]int32   `json:"prompts"`
	Responses [][]int32   `json:"responses"`
	Mask      [][]float32 `json:"response_mask"` // absent at level transition
	Attention [][]float32 `json:"attention_mask"`
	Drop      []bool      `json:"is_drop_mask"`
	Logprobs  [][]float32 `json:"rollout_log_probs"`
}

func (e tensors) rows() []padded {
	rows := make([]padded, len(e.Prompts))
	for i := range rows {
		rows[i] = padded{e.Prompts[i], e.Responses[i], nil, e.Drop[i]}
		if e.Mask != nil {
			rows[i].Mask = e.Mask[i]
		} else { // every token of the response is trained on
			rows[i].Mask = e.Attention[i][len(e.Prompts[i]):]
		}
	}
	return rows
}

func joining(level string) (adapter.Joining, bool) {
	switch level {
	case "transition":
		return adapter.Separate, true
	case "trajectory", "":
		return adapter.Linear, true
	}
	return 0, false
}

// TestVectorRows covers what trainers of the 1.0 protocol make of calls:
// trajectory_aggregation.json at both levels, and the limits of length of
// v1_0_2_additions.json.
func TestVectorRows(t *testing.T) {
	t.Parallel()
	type triplet struct {
		Prompt   []int32   `json:"prompt_token_ids"`
		Response []int32   `json:"response_token_ids"`
		Logprobs []float32 `json:"response_log_probs"`
	}
	type vector struct {
		Name   string `json:"name"`
		Params struct {
			Level    string `json:"level"`
			Prompt   int    `json:"max_prompt_length"`
			Response int    `json:"max_response_length"`
			Total    *int   `json:"max_total_length"`
			Pad      int32  `json:"pad_token_id"`
		} `json:"params"`
		Rollouts []struct {
			Triplets []triplet `json:"triplets"`
		} `json:"rollouts"`
		Triplets []triplet       `json:"triplets"`
		Expected json.RawMessage `json:"expected"`
	}
	vectors := append(vectorCases[vector](t, "rl/trajectory_aggregation.json"), vectorCases[vector](t, "rl/v1_0_2_additions.json")...)
	ran := 0
	for _, v := range vectors {
		how, known := joining(v.Params.Level)
		switch {
		case !known: // a level of another name is refused by whoever reads the configuration
			continue
		case v.Name == "sort_by_step_and_sample": // rollouts are put in order by their collector
			continue
		case v.Params.Level == "" && !strings.HasPrefix(v.Name, "max_total_length/"): // routes of experts are not read
			continue
		}
		ran++
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			var want struct {
				tensors
				Nested *tensors `json:"tensors"`
				Error  string   `json:"error"`
			}
			if err := json.Unmarshal(v.Expected, &want); err != nil {
				t.Fatal(err)
			}
			if want.Nested != nil {
				want.tensors = *want.Nested
			}
			limits := adapter.Limits{Prompt: v.Params.Prompt, Response: v.Params.Response}
			if v.Params.Total != nil {
				limits.Total = *v.Params.Total
			}
			rollouts := [][]triplet{v.Triplets}
			for _, r := range v.Rollouts {
				rollouts = append(rollouts, r.Triplets)
			}
			var got []padded
			var logprobs [][]float32
			complete := true
			for _, triplets := range rollouts {
				var calls []adapter.Call
				for _, tr := range triplets {
					calls = append(calls, adapter.Call{PromptIDs: tr.Prompt, ResponseIDs: tr.Response, Logprobs: tr.Logprobs})
				}
				rows, _ := adapter.Trajectories(calls, adapter.TrajectoryConfig{Joining: how, Limits: limits})
				for i := range rows {
					r := &rows[i]
					if r.Sampled() == 0 {
						continue
					}
					got = append(got, pad(r, limits, v.Params.Pad))
					if r.Logprobs == nil {
						complete = false
						continue
					}
					l := append([]float32(nil), r.Logprobs[r.PromptLength:]...)
					for len(l) < limits.Response {
						l = append(l, 0)
					}
					logprobs = append(logprobs, l)
				}
			}
			if want.Error != "" {
				if len(got) != 0 {
					t.Fatalf("%d rows, want none: %s", len(got), want.Error)
				}
				return
			}
			if diff := cmp.Diff(want.rows(), got); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
			if want.Logprobs == nil {
				if complete && v.Rollouts != nil {
					t.Error("log-probabilities of every row, want some missing")
				}
				return
			}
			near := cmp.Comparer(func(a, b float32) bool { return math.Abs(float64(a-b)) <= 1e-6 })
			if diff := cmp.Diff(want.Logprobs, logprobs, near); diff != "" {
				t.Errorf("log-probabilities (-want +got):\n%s", diff)
			}
		})
	}
	if ran != 25 {
		t.Errorf("%d cases ran, want 25", ran)
	}
}

// corrected are the recordings of release 0.3 that hold a fault of its
// aggregation, with the rows that are right and why.
var corrected = map[string]struct {
	why  string
	want []padded
}{
	"trajectory_late_long_prompt": {
		why: "the end of a prompt that is too long is moved into the response and trained on, and its mask is longer than the response; " +
			"the prompt is cut and the row marked, as that of a first call is",
		want: []padded{
			{[]int32{0, 0, 1, 2}, []int32{3, 0, 0, 0, 0, 0, 0, 0}, []float32{1, 0, 0, 0, 0, 0, 0, 0}, false},
			{[]int32{9, 8, 7, 6}, []int32{11, 12, 0, 0, 0, 0, 0, 0}, []float32{1, 1, 0, 0, 0, 0, 0, 0}, true},
		},
	},
	"trajectory_no_new_prompt": {
		why:  "a prompt that adds nothing is appended whole, as Python's slice from -0 is everything; nothing is appended",
		want: []padded{{[]int32{0, 0, 1, 2}, []int32{3, 4, 5, 0, 0, 0}, []float32{1, 1, 1, 0, 0, 0}, false}},
	},
	"trajectory_shorter_prompt": {
		why: "a prompt that ends within the answer before counts as its continuation, and a wrong part of it is appended; " +
			"it is a question of its own, since the policy did not sample what follows there",
		want: []padded{
			{[]int32{0, 0, 1, 2}, []int32{3, 4, 0, 0, 0, 0}, []float32{1, 1, 0, 0, 0, 0}, false},
			{[]int32{0, 1, 2, 3}, []int32{4, 5, 0, 0, 0, 0}, []float32{1, 1, 0, 0, 0, 0}, false},
		},
	},
	"trajectory_empty_turn": {
		why:  "a call without ids swallows the next one, whose prompt then sits in the response; it is left out",
		want: []padded{{[]int32{0, 0, 1, 2}, []int32{3, 0, 0, 0}, []float32{1, 0, 0, 0}, false}},
	},
	"transition_empty_turn": {
		why:  "a call without ids makes a row of padding; it is left out",
		want: []padded{{[]int32{0, 0, 1, 2}, []int32{3, 0, 0, 0}, []float32{1, 0, 0, 0}, false}},
	},
}

// TestVectorRowsOf03 covers _trajectory_aggregation.json.
func TestVectorRowsOf03(t *testing.T) {
	t.Parallel()
	type vector struct {
		Name  string `json:"name"`
		Input struct {
			Level    string `json:"level"`
			Prompt   int    `json:"max_prompt_length"`
			Response int    `json:"max_response_length"`
			Pad      int32  `json:"pad_token_id"`
			Rollouts []struct {
				Turns []struct {
					Prompt   []int32 `json:"prompt_ids"`
					Response []int32 `json:"response_ids"`
				} `json:"turns"`
			} `json:"rollouts"`
		} `json:"input"`
		Output struct {
			Batch tensors `json:"batch"`
		} `json:"output"`
	}
	ran, faults := 0, 0
	for _, v := range vectorCases[vector](t, "adapters/_trajectory_aggregation.json") {
		ran++
		want := v.Output.Batch.rows()
		if c, wrong := corrected[v.Name]; wrong {
			faults++
			if cmp.Equal(want, c.want) {
				t.Errorf("%s is listed as a fault and is none: %s", v.Name, c.why)
			}
			want = c.want
		}
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			how, _ := joining(v.Input.Level)
			limits := adapter.Limits{Prompt: v.Input.Prompt, Response: v.Input.Response}
			var got []padded
			for _, r := range v.Input.Rollouts {
				var calls []adapter.Call
				for _, turn := range r.Turns {
					calls = append(calls, adapter.Call{PromptIDs: turn.Prompt, ResponseIDs: turn.Response})
				}
				rows, _ := adapter.Trajectories(calls, adapter.TrajectoryConfig{Joining: how, Limits: limits})
				for i := range rows {
					got = append(got, pad(&rows[i], limits, v.Input.Pad))
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
		})
	}
	if ran != 22 || faults != len(corrected) {
		t.Errorf("%d cases ran with %d faults, want 22 with %d", ran, faults, len(corrected))
	}
}
