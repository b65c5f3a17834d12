package sft_test

import (
	"slices"
	"testing"

	"agentlightning/algorithm/sft"
	"agentlightning/learner"
)

func TestDraw(t *testing.T) {
	t.Parallel()
	var rows []learner.Row
	for i := range int32(6) {
		rows = append(rows, learner.Row{IDs: []int32{i}})
	}
	ids := func(rows []learner.Row) (out []int32) {
		for _, r := range rows {
			out = append(out, r.IDs[0])
		}
		return out
	}
	draw := sft.Draw(rows, 4, false, 7)
	var three []int32 // steps: two passes
	for step := 1; step <= 3; step++ {
		three = append(three, ids(draw(step, nil))...)
	}
	for pass := range 2 {
		got := slices.Sorted(slices.Values(three[pass*6 : pass*6+6]))
		if !slices.Equal(got, []int32{0, 1, 2, 3, 4, 5}) {
			t.Errorf("pass %d takes %v, want each once", pass, got)
		}
	}
	if slices.Equal(three[:6], three[6:]) {
		t.Errorf("both passes have the order %v", three[:6])
	}
	if again := ids(sft.Draw(rows, 4, false, 7)(2, nil)); !slices.Equal(again, three[4:8]) {
		t.Errorf("step 2 by itself = %v, want %v", again, three[4:8])
	}
	pairs := ids(sft.Draw(rows, 3, true, 7)(1, nil))
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i]%2 != 0 || pairs[i+1] != pairs[i]+1 {
			t.Errorf("pairs are torn: %v", pairs)
		}
	}
	if got := sft.Draw(nil, 4, false, 7)(1, nil); got != nil {
		t.Errorf("of no rows: %v", got)
	}
}
