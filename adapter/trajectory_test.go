package adapter_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentlightning/adapter"
)

func turn(prompt, response []int32) adapter.Call {
	return adapter.Call{PromptIDs: prompt, ResponseIDs: response, Logprobs: make([]float32, len(response))}
}

func seen(c adapter.Call, images ...string) adapter.Call {
	c.Images = images
	return c
}

func TestTrajectories(t *testing.T) {
	t.Parallel()
	type row struct {
		IDs    []int32
		Mask   []float32
		Origin []int32
		Calls  []int
	}
	tests := []struct {
		name       string
		calls      []adapter.Call
		want       []row
		mismatches []adapter.Mismatch
	}{
		{
			name: "append-only calls make one row",
			calls: []adapter.Call{
				turn([]int32{1, 2}, []int32{3, 4}),
				turn([]int32{1, 2, 3, 4, 9}, []int32{5}),
				turn([]int32{1, 2, 3, 4, 9, 5, 8, 8}, []int32{6, 7}),
			},
			want: []row{{
				[]int32{1, 2, 3, 4, 9, 5, 8, 8, 6, 7},
				[]float32{0, 0, 1, 1, 0, 1, 0, 0, 1, 1},
				[]int32{0, 0, 0, 0, 1, 1, 2, 2, 2, 2},
				[]int{0, 1, 2},
			}},
		},
		{
			name: "a separator of the template is context",
			calls: []adapter.Call{
				turn([]int32{1}, []int32{2, 3}),
				turn([]int32{1, 2, 3, 198, 50, 51}, []int32{4}),
			},
			want: []row{{[]int32{1, 2, 3, 198, 50, 51, 4}, []float32{0, 1, 1, 0, 0, 0, 1}, []int32{0, 0, 0, 1, 1, 1, 1}, []int{0, 1}}},
		},
		{
			name: "nothing between the answers",
			calls: []adapter.Call{
				turn([]int32{1, 2}, []int32{3, 4}),
				turn([]int32{1, 2, 3, 4}, []int32{5}),
			},
			want: []row{{[]int32{1, 2, 3, 4, 5}, []float32{0, 0, 1, 1, 1}, []int32{0, 0, 0, 0, 1}, []int{0, 1}}},
		},
		{
			name: "an answer that was tokenised again opens a row and is named",
			calls: []adapter.Call{
				turn([]int32{1, 2}, []int32{3, 4}),
				turn([]int32{1, 2, 3, 7, 9}, []int32{5}),
			},
			want: []row{
				{[]int32{1, 2, 3, 4}, []float32{0, 0, 1, 1}, []int32{0, 0, 0, 0}, []int{0}},
				{[]int32{1, 2, 3, 7, 9, 5}, []float32{0, 0, 0, 0, 0, 1}, []int32{1, 1, 1, 1, 1, 1}, []int{1}},
			},
			mismatches: []adapter.Mismatch{{Call: 1, With: 0, Position: 3, Want: 4, Got: 7, Where: adapter.InAnswer}},
		},
		{
			name: "a changed result of a tool is named by the call that brought it",
			calls: []adapter.Call{
				turn([]int32{1}, []int32{2}),
				turn([]int32{1, 2, 8}, []int32{3}),
				turn([]int32{1, 2, 9, 3, 8}, []int32{4}),
			},
			want: []row{
				{[]int32{1, 2, 8, 3}, []float32{0, 1, 0, 1}, []int32{0, 0, 1, 1}, []int{0, 1}},
				{[]int32{1, 2, 9, 3, 8, 4}, []float32{0, 0, 0, 0, 0, 1}, []int32{2, 2, 2, 2, 2, 2}, []int{2}},
			},
			mismatches: []adapter.Mismatch{{Call: 2, With: 1, Position: 2, Want: 8, Got: 9, Where: adapter.InContext}},
		},
		{
			name: "the same question again ends before the row does",
			calls: []adapter.Call{
				turn([]int32{1, 2}, []int32{3}),
				turn([]int32{1, 2}, []int32{4}),
			},
			want: []row{
				{[]int32{1, 2, 3}, []float32{0, 0, 1}, []int32{0, 0, 0}, []int{0}},
				{[]int32{1, 2, 4}, []float32{0, 0, 1}, []int32{1, 1, 1}, []int{1}},
			},
			mismatches: []adapter.Mismatch{{Call: 1, With: 0, Position: 2, Want: 3, Got: -1, Where: adapter.AtEnd}},
		},
		{
			name: "agents that take turns keep a row each",
			calls: []adapter.Call{
				turn([]int32{1}, []int32{2}),
				turn([]int32{7}, []int32{8}),
				turn([]int32{1, 2, 3}, []int32{4}),
				turn([]int32{7, 8, 9}, []int32{10}),
			},
			want: []row{
				{[]int32{1, 2, 3, 4}, []float32{0, 1, 0, 1}, []int32{0, 0, 2, 2}, []int{0, 2}},
				{[]int32{7, 8, 9, 10}, []float32{0, 1, 0, 1}, []int32{1, 1, 3, 3}, []int{1, 3}},
			},
			mismatches: []adapter.Mismatch{{Call: 1, With: 0, Position: 0, Want: 1, Got: 7, Where: adapter.InPrompt}},
		},
		{
			name: "calls side by side from one context, each continued",
			calls: []adapter.Call{
				turn([]int32{1}, []int32{2}),
				turn([]int32{1, 2, 5}, []int32{6}),
				turn([]int32{1, 2, 7}, []int32{8}),
				turn([]int32{1, 2, 5, 6, 9}, []int32{10}),
				turn([]int32{1, 2, 7, 8, 9}, []int32{11}),
			},
			want: []row{
				{[]int32{1, 2, 5, 6, 9, 10}, []float32{0, 1, 0, 1, 0, 1}, []int32{0, 0, 1, 1, 3, 3}, []int{0, 1, 3}},
				{[]int32{1, 2, 7, 8, 9, 11}, []float32{0, 0, 0, 1, 0, 1}, []int32{2, 2, 2, 2, 4, 4}, []int{2, 4}},
			},
			mismatches: []adapter.Mismatch{{Call: 2, With: 1, Position: 2, Want: 5, Got: 7, Where: adapter.InContext}},
		},
		{
			name: "a compacted history goes on as a row of its own",
			calls: []adapter.Call{
				turn([]int32{1, 2, 3}, []int32{4}),
				turn([]int32{1, 2, 3, 4, 5}, []int32{6}),
				turn([]int32{1, 90, 91}, []int32{7}),
				turn([]int32{1, 90, 91, 7, 5}, []int32{8}),
			},
			want: []row{
				{[]int32{1, 2, 3, 4, 5, 6}, []float32{0, 0, 0, 1, 0, 1}, []int32{0, 0, 0, 0, 1, 1}, []int{0, 1}},
				{[]int32{1, 90, 91, 7, 5, 8}, []float32{0, 0, 0, 1, 0, 1}, []int32{2, 2, 2, 2, 3, 3}, []int{2, 3}},
			},
			mismatches: []adapter.Mismatch{{Call: 2, With: 0, Position: 1, Want: 2, Got: 90, Where: adapter.InPrompt}},
		},
		{
			name: "the longest row wins over the latest",
			calls: []adapter.Call{
				turn([]int32{1}, []int32{2, 3}),
				turn([]int32{1}, []int32{2}),
				turn([]int32{1, 2, 3, 4}, []int32{5}),
			},
			want: []row{
				{[]int32{1, 2, 3, 4, 5}, []float32{0, 1, 1, 0, 1}, []int32{0, 0, 0, 2, 2}, []int{0, 2}},
				{[]int32{1, 2}, []float32{0, 1}, []int32{1, 1}, []int{1}},
			},
			mismatches: []adapter.Mismatch{{Call: 1, With: 0, Position: 1, Want: 2, Got: -1, Where: adapter.AtEnd}},
		},
		{
			name: "the same said twice, both continued",
			calls: []adapter.Call{
				turn([]int32{1}, []int32{2}),
				turn([]int32{1}, []int32{2}),
				turn([]int32{1, 2}, []int32{3}),
				turn([]int32{1, 2}, []int32{4}),
			},
			want: []row{
				{[]int32{1, 2, 4}, []float32{0, 1, 1}, []int32{0, 0, 3}, []int{0, 3}},
				{[]int32{1, 2, 3}, []float32{0, 1, 1}, []int32{1, 1, 2}, []int{1, 2}},
			},
			mismatches: []adapter.Mismatch{{Call: 1, With: 0, Position: 1, Want: 2, Got: -1, Where: adapter.AtEnd}},
		},
		{
			name: "calls that cannot be used are left out",
			calls: []adapter.Call{
				{Problem: "truncated", PromptIDs: []int32{1}, ResponseIDs: []int32{2}},
				turn(nil, []int32{1}), turn([]int32{1}, nil), turn([]int32{1}, []int32{2}),
			},
			want: []row{{[]int32{1, 2}, []float32{0, 1}, []int32{3, 3}, []int{3}}},
		},
		{
			name: "the ids of an image do not say which one it is",
			calls: []adapter.Call{
				seen(turn([]int32{1, 99}, []int32{2}), "a.png"),
				seen(turn([]int32{1, 99, 2, 3}, []int32{4}), "b.png"),
				seen(turn([]int32{1, 99, 2, 3, 99}, []int32{5}), "a.png", "c.png"),
			},
			want: []row{
				{[]int32{1, 99, 2, 3, 99, 5}, []float32{0, 0, 1, 0, 0, 1}, []int32{0, 0, 0, 2, 2, 2}, []int{0, 2}},
				{[]int32{1, 99, 2, 3, 4}, []float32{0, 0, 0, 0, 1}, []int32{1, 1, 1, 1, 1}, []int{1}},
			},
			mismatches: []adapter.Mismatch{{Call: 1, With: 0, Position: 0, Want: -1, Got: -1, Where: adapter.InImages}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rows, mismatches := adapter.Trajectories(tt.calls, adapter.TrajectoryConfig{})
			var got []row
			for _, r := range rows {
				got = append(got, row{r.IDs, r.Mask, r.Origin, r.Calls})
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Trajectories (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.mismatches, mismatches); diff != "" {
				t.Errorf("mismatches (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTrajectoriesOfOneLine(t *testing.T) {
	t.Parallel()
	calls := []adapter.Call{
		turn([]int32{1, 2}, []int32{3}),
		turn([]int32{5, 6}, []int32{7}),
		turn([]int32{1, 2, 3}, []int32{4}),
	}
	rows, mismatches := adapter.Trajectories(calls, adapter.TrajectoryConfig{Joining: adapter.Linear})
	if len(rows) != 3 {
		t.Errorf("%d rows, want 3: only the call before is looked at", len(rows))
	}
	want := []adapter.Mismatch{
		{Call: 1, With: 0, Position: 0, Want: 1, Got: 5, Where: adapter.InPrompt},
		{Call: 2, With: 1, Position: 0, Want: 5, Got: 1, Where: adapter.InPrompt},
	}
	if diff := cmp.Diff(want, mismatches); diff != "" {
		t.Errorf("mismatches (-want +got):\n%s", diff)
	}
	rows, mismatches = adapter.Trajectories(calls, adapter.TrajectoryConfig{Joining: adapter.Separate})
	if len(rows) != 3 || mismatches != nil {
		t.Errorf("separate: %d rows and %v, want a row for each call and no mismatch", len(rows), mismatches)
	}
}

func TestTrajectoryLogprobs(t *testing.T) {
	t.Parallel()
	calls := []adapter.Call{
		{PromptIDs: []int32{1}, ResponseIDs: []int32{2}, Logprobs: []float32{-.5}},
		{PromptIDs: []int32{1, 2, 3}, ResponseIDs: []int32{4}, Logprobs: []float32{-.25}},
	}
	got, _ := adapter.Trajectories(calls, adapter.TrajectoryConfig{})
	if want := []float32{0, -.5, 0, -.25}; len(got) != 1 || !slices.Equal(got[0].Logprobs, want) {
		t.Errorf("Trajectories = %+v, want one row with logprobs %v", got, want)
	}
	for name, bad := range map[string][]float32{"missing": nil, "too many": {-1, -1}, "NaN": {float32(math.NaN())}} {
		calls[1].Logprobs = bad
		if got, _ := adapter.Trajectories(calls, adapter.TrajectoryConfig{}); len(got) != 1 || got[0].Logprobs != nil {
			t.Errorf("%s: Trajectories = %+v, want one row without logprobs", name, got)
		}
	}
}

// A rollout of many rows weighs as much as one of a single row.
func TestTokenWeights(t *testing.T) {
	t.Parallel()
	weigh := func(calls []adapter.Call, l adapter.Limits) (sum float64, rows []adapter.Trajectory) {
		rows, _ = adapter.Trajectories(calls, adapter.TrajectoryConfig{Limits: l})
		for i := range rows {
			sum += rows[i].TokenWeight * float64(rows[i].Sampled())
		}
		return sum, rows
	}
	one := []adapter.Call{turn([]int32{1}, []int32{2, 3})}
	var five []adapter.Call
	for i := range int32(5) {
		five = append(five, turn([]int32{10 + i}, make([]int32, i+1)))
	}
	for name, calls := range map[string][]adapter.Call{"one row": one, "five rows": five} {
		if sum, rows := weigh(calls, adapter.Limits{}); math.Abs(sum-1) > 1e-12 {
			t.Errorf("%s: %d rows weigh %v together, want 1", name, len(rows), sum)
		}
	}
	long := append(five, turn([]int32{1, 2, 3}, []int32{4}))
	sum, rows := weigh(long, adapter.Limits{Prompt: 2, Response: 3})
	if last := rows[5]; math.Abs(sum-1) > 1e-12 || !last.PromptCut || last.TokenWeight != 0 || !rows[4].ResponseCut {
		t.Errorf("cut rows weigh %v, the one without its whole prompt %v; want 1 and 0", sum, last.TokenWeight)
	}
}

// long returns n append-only calls of which the last ends with about total ids.
func long(n, total int) []adapter.Call {
	var history []int32
	calls := make([]adapter.Call, n)
	next := int32(0)
	grow := func(k int) []int32 {
		out := make([]int32, k)
		for i := range out {
			next++
			out[i] = next
		}
		return out
	}
	for i := range calls {
		prompt := slices.Concat(history, grow(total/n/2))
		calls[i] = turn(prompt, grow(total/n/2))
		history = slices.Concat(prompt, calls[i].ResponseIDs)
	}
	return calls
}

// interleave returns calls of k agents that take turns, each with n calls whose
// last ends with about total ids, behind a system prompt that all share.
func interleave(k, n, total int) []adapter.Call {
	system := make([]int32, 1000)
	calls := make([]adapter.Call, 0, k*n)
	agents := make([][]adapter.Call, k)
	for a := range agents {
		agents[a] = long(n, total)
		for i := range agents[a] {
			agents[a][i].PromptIDs = slices.Concat(system, []int32{-int32(a) - 1}, agents[a][i].PromptIDs)
		}
	}
	for i := range n {
		for a := range agents {
			calls = append(calls, agents[a][i])
		}
	}
	return calls
}

// TestTrajectoriesAreFast allows some twenty times what the work takes on a
// laptop, so that it fails for what is not linear, which takes longer still, and
// neither for a busy machine nor under the race detector.
func TestTrajectoriesAreFast(t *testing.T) {
	t.Parallel()
	for name, calls := range map[string][]adapter.Call{"one agent": long(128, 70_000), "eight agents": interleave(8, 128, 70_000)} {
		limit := 50 * time.Millisecond
		if name == "eight agents" {
			limit = time.Second
		}
		best := time.Hour
		for range 5 {
			started := time.Now()
			adapter.Trajectories(calls, adapter.TrajectoryConfig{})
			best = min(best, time.Since(started))
		}
		if best > limit {
			t.Errorf("%s: %d calls took %v, want less than %v", name, len(calls), best, limit)
		}
	}
}

func BenchmarkTrajectories(b *testing.B) {
	for _, bench := range []struct {
		name  string
		calls []adapter.Call
		rows  int
	}{
		{"128 calls, 70k tokens", long(128, 70_000), 1},
		{"8 agents of 128 calls, 70k tokens", interleave(8, 128, 70_000), 8},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if got, _ := adapter.Trajectories(bench.calls, adapter.TrajectoryConfig{}); len(got) != bench.rows {
					b.Fatalf("%d rows, want %d", len(got), bench.rows)
				}
			}
		})
	}
}

// FuzzTrajectories reads calls from bytes and checks what holds for any of
// them: no token is lost or trained twice, masks mark exactly the answers, and
// every call is in one row.
func FuzzTrajectories(f *testing.F) {
	f.Add([]byte{2, 1, 2, 2, 3, 4, 5, 1, 2, 3, 4, 9, 1, 5}, uint8(0))
	f.Add([]byte{1, 1, 1, 2, 1, 9, 1, 8, 3, 1, 2, 3, 1, 4}, uint8(1))
	f.Add([]byte{0, 1, 1, 1, 0}, uint8(2))
	f.Fuzz(func(t *testing.T, data []byte, how uint8) {
		var calls []adapter.Call
		take := func() []int32 {
			if len(data) == 0 {
				return nil
			}
			n := min(int(data[0]%16), len(data)-1)
			out := make([]int32, n)
			for i, b := range data[1 : 1+n] {
				out[i] = int32(b % 4) // few ids, so that prefixes happen
			}
			data = data[1+n:]
			return out
		}
		for len(data) > 0 {
			p, r := take(), take()
			if k := len(calls); k > 0 && len(p) > 0 && p[0] == 0 { // continue an earlier call
				from := calls[int(p[len(p)-1])%k]
				p = slices.Concat(from.PromptIDs, from.ResponseIDs, p)
			}
			calls = append(calls, turn(p, r))
		}
		joining := adapter.Joining(how % 3)
		rows, mismatches := adapter.Trajectories(calls, adapter.TrajectoryConfig{Joining: joining})
		if want := max(0, len(rows)-1); joining != adapter.Separate && len(mismatches) != want {
			t.Fatalf("%d mismatches for %d rows", len(mismatches), len(rows))
		}
		for _, m := range mismatches {
			if err := departs(calls, m); err != nil {
				t.Fatalf("%+v: %v", m, err)
			}
		}
		where := make(map[int]bool)
		for _, row := range rows {
			checkRow(t, calls, row, where)
		}
		for i, c := range calls {
			if want := len(c.PromptIDs) > 0 && len(c.ResponseIDs) > 0; where[i] != want {
				t.Fatalf("call %d is in a row: %v, want %v", i, where[i], want)
			}
		}
	})
}

// departs checks that a mismatch is where it says to be.
func departs(calls []adapter.Call, m adapter.Mismatch) error {
	prompt := calls[m.Call].PromptIDs
	with := slices.Concat(calls[m.With].PromptIDs, calls[m.With].ResponseIDs)
	switch {
	case m.Position > len(prompt) || m.Position >= len(with) || !slices.Equal(prompt[:m.Position], with[:m.Position]):
		return errors.New("the calls differ before")
	case with[m.Position] != m.Want:
		return fmt.Errorf("the row holds %d", with[m.Position])
	case m.Position == len(prompt):
		if m.Got != -1 || m.Where != adapter.AtEnd {
			return errors.New("the prompt ends here")
		}
	case prompt[m.Position] != m.Got || m.Got == m.Want:
		return fmt.Errorf("the prompt holds %d", prompt[m.Position])
	}
	return nil
}

func checkRow(t *testing.T, calls []adapter.Call, row adapter.Trajectory, where map[int]bool) {
	t.Helper()
	if len(row.Mask) != len(row.IDs) || len(row.Logprobs) != len(row.IDs) || len(row.Origin) != len(row.IDs) || !slices.IsSorted(row.Calls) {
		t.Fatalf("row %+v: lengths or order", row)
	}
	end := 0
	for i, k := range row.Calls {
		if where[k] {
			t.Fatalf("call %d is in two rows", k)
		}
		where[k] = true
		p, r := calls[k].PromptIDs, calls[k].ResponseIDs
		if i == 0 && row.PromptLength != len(p) {
			t.Fatalf("prompt length %d, want %d", row.PromptLength, len(p))
		}
		if len(p) < end || len(p)+len(r) > len(row.IDs) || !slices.Equal(row.IDs[:len(p)], p) || !slices.Equal(row.IDs[len(p):len(p)+len(r)], r) {
			t.Fatalf("row %v does not hold call %d: %v %v", row.IDs, k, p, r)
		}
		for j := end; j < len(p)+len(r); j++ {
			if want := j >= len(p); (row.Mask[j] == 1) != want || row.Origin[j] != int32(k) {
				t.Fatalf("token %d of call %d: mask %v, origin %d", j, k, row.Mask[j], row.Origin[j])
			}
		}
		end = len(p) + len(r)
	}
	if end != len(row.IDs) {
		t.Fatalf("%d ids, calls end at %d", len(row.IDs), end)
	}
}
