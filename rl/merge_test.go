package rl_test

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentlightning/rl"
)

func turn(prompt, response []int32) rl.Turn {
	return rl.Turn{Prompt: prompt, Response: response, Logprobs: make([]float32, len(response))}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	type want struct {
		IDs   []int32
		Mask  []float32
		Turns []int
	}
	tests := []struct {
		name     string
		turns    []rl.Turn
		want     []want
		findings []rl.Finding
	}{
		{
			name: "append-only turns make one row",
			turns: []rl.Turn{
				turn([]int32{1, 2}, []int32{3, 4}),
				turn([]int32{1, 2, 3, 4, 9}, []int32{5}),
				turn([]int32{1, 2, 3, 4, 9, 5, 8, 8}, []int32{6, 7}),
			},
			want: []want{{[]int32{1, 2, 3, 4, 9, 5, 8, 8, 6, 7}, []float32{0, 0, 1, 1, 0, 1, 0, 0, 1, 1}, []int{0, 1, 2}}},
		},
		{
			name: "a separator of the template is context",
			turns: []rl.Turn{
				turn([]int32{1}, []int32{2, 3}),
				turn([]int32{1, 2, 3, 198, 50, 51}, []int32{4}),
			},
			want: []want{{[]int32{1, 2, 3, 198, 50, 51, 4}, []float32{0, 1, 1, 0, 0, 0, 1}, []int{0, 1}}},
		},
		{
			name: "a changed history opens a row and is reported",
			turns: []rl.Turn{
				turn([]int32{1, 2}, []int32{3, 4}),
				turn([]int32{1, 2, 3, 7, 9}, []int32{5}),
			},
			want: []want{
				{[]int32{1, 2, 3, 4}, []float32{0, 0, 1, 1}, []int{0}},
				{[]int32{1, 2, 3, 7, 9, 5}, []float32{0, 0, 0, 0, 0, 1}, []int{1}},
			},
			findings: []rl.Finding{{Turn: 1, Reason: rl.PrefixMismatch, Position: 3}},
		},
		{
			name: "agents that take turns keep a row each",
			turns: []rl.Turn{
				turn([]int32{1}, []int32{2}),
				turn([]int32{7}, []int32{8}),
				turn([]int32{1, 2, 3}, []int32{4}),
				turn([]int32{7, 8, 9}, []int32{10}),
			},
			want: []want{
				{[]int32{1, 2, 3, 4}, []float32{0, 1, 0, 1}, []int{0, 2}},
				{[]int32{7, 8, 9, 10}, []float32{0, 1, 0, 1}, []int{1, 3}},
			},
			findings: []rl.Finding{{Turn: 1, Reason: rl.PrefixMismatch}},
		},
		{
			name: "the deepest row wins",
			turns: []rl.Turn{
				turn([]int32{1}, []int32{2}),
				turn([]int32{1}, []int32{2, 3}),
				turn([]int32{1, 2, 3, 4}, []int32{5}),
			},
			want: []want{
				{[]int32{1, 2}, []float32{0, 1}, []int{0}},
				{[]int32{1, 2, 3, 4, 5}, []float32{0, 1, 1, 0, 1}, []int{1, 2}},
			},
			findings: []rl.Finding{{Turn: 1, Reason: rl.PrefixMismatch, Position: 1}},
		},
		{
			name: "the deepest row wins over the latest",
			turns: []rl.Turn{
				turn([]int32{1}, []int32{2, 3}),
				turn([]int32{1}, []int32{2}),
				turn([]int32{1, 2, 3, 4}, []int32{5}),
			},
			want: []want{
				{[]int32{1, 2, 3, 4, 5}, []float32{0, 1, 1, 0, 1}, []int{0, 2}},
				{[]int32{1, 2}, []float32{0, 1}, []int{1}},
			},
			findings: []rl.Finding{{Turn: 1, Reason: rl.PrefixMismatch, Position: 1}},
		},
		{
			name: "the same said twice, both continued",
			turns: []rl.Turn{
				turn([]int32{1}, []int32{2}),
				turn([]int32{1}, []int32{2}),
				turn([]int32{1, 2}, []int32{3}),
				turn([]int32{1, 2}, []int32{4}),
			},
			want: []want{
				{[]int32{1, 2, 4}, []float32{0, 1, 1}, []int{0, 3}},
				{[]int32{1, 2, 3}, []float32{0, 1, 1}, []int{1, 2}},
			},
			findings: []rl.Finding{{Turn: 1, Reason: rl.PrefixMismatch, Position: 1}},
		},
		{
			name:     "turns without ids are left out by name",
			turns:    []rl.Turn{turn(nil, []int32{1}), turn([]int32{1}, nil), turn([]int32{1}, []int32{2})},
			want:     []want{{[]int32{1, 2}, []float32{0, 1}, []int{2}}},
			findings: []rl.Finding{{Turn: 0, Reason: rl.NoPrompt}, {Turn: 1, Reason: rl.NoResponse}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			sequences, findings := rl.Merge(tt.turns, rl.MergeConfig{})
			var got []want
			for _, s := range sequences {
				got = append(got, want{s.IDs, s.Mask, s.Turns})
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Merge (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.findings, findings); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMergeLogprobs(t *testing.T) {
	t.Parallel()
	turns := []rl.Turn{
		{Prompt: []int32{1}, Response: []int32{2}, Logprobs: []float32{-.5}},
		{Prompt: []int32{1, 2, 3}, Response: []int32{4}, Logprobs: []float32{-.25}},
	}
	got, findings := rl.Merge(turns, rl.MergeConfig{})
	if want := []float32{0, -.5, 0, -.25}; len(got) != 1 || !slices.Equal(got[0].Logprobs, want) || findings != nil {
		t.Errorf("Merge = %+v, %v, want one row with logprobs %v", got, findings, want)
	}
	for name, bad := range map[string][]float32{"missing": nil, "too many": {-1, -1}, "NaN": {float32(math.NaN())}} {
		turns[1].Logprobs = bad
		got, findings := rl.Merge(turns, rl.MergeConfig{})
		if len(got) != 1 || got[0].Logprobs != nil || !slices.Equal(findings, []rl.Finding{{Turn: 1, Reason: rl.NoLogprobs}}) {
			t.Errorf("%s: Merge = %+v, %v, want one row without logprobs, reported", name, got, findings)
		}
	}
}

// long returns n append-only turns that end with about total ids.
func long(n, total int) []rl.Turn {
	var history []int32
	turns := make([]rl.Turn, n)
	next := int32(0)
	grow := func(k int) []int32 {
		out := make([]int32, k)
		for i := range out {
			next++
			out[i] = next
		}
		return out
	}
	for i := range turns {
		prompt := slices.Concat(history, grow(total/n/2))
		turns[i] = turn(prompt, grow(total/n/2))
		history = slices.Concat(prompt, turns[i].Response)
	}
	return turns
}

func BenchmarkMerge(b *testing.B) {
	turns := long(128, 69_000)
	b.ReportAllocs()
	for b.Loop() {
		if got, _ := rl.Merge(turns, rl.MergeConfig{}); len(got) != 1 {
			b.Fatalf("%d rows, want 1", len(got))
		}
	}
}

// FuzzMerge reads turns from bytes and checks what holds for any of them: no
// token is lost or trained twice, masks mark exactly the responses, and every
// turn is in one row or reported.
func FuzzMerge(f *testing.F) {
	f.Add([]byte{2, 1, 2, 2, 3, 4, 5, 1, 2, 3, 4, 9, 1, 5}, false)
	f.Add([]byte{1, 1, 1, 2, 1, 9, 1, 8, 3, 1, 2, 3, 1, 4}, true)
	f.Add([]byte{0, 1, 1, 1, 0}, false)
	f.Fuzz(func(t *testing.T, data []byte, latestOnly bool) {
		var turns []rl.Turn
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
			if k := len(turns); k > 0 && len(p) > 0 && p[0] == 0 { // continue an earlier turn
				from := turns[int(p[len(p)-1])%k]
				p = slices.Concat(from.Prompt, from.Response, p)
			}
			turns = append(turns, turn(p, r))
		}
		rows, findings := rl.Merge(turns, rl.MergeConfig{LatestOnly: latestOnly})
		where := make(map[int]bool)
		for _, row := range rows {
			if len(row.Mask) != len(row.IDs) || len(row.Logprobs) != len(row.IDs) || !slices.IsSorted(row.Turns) {
				t.Fatalf("row %+v: lengths or order", row)
			}
			end := 0
			for i, k := range row.Turns {
				if where[k] {
					t.Fatalf("turn %d is in two rows", k)
				}
				where[k] = true
				p, r := turns[k].Prompt, turns[k].Response
				if i == 0 && row.PromptLength != len(p) {
					t.Fatalf("prompt length %d, want %d", row.PromptLength, len(p))
				}
				if len(p) < end || len(p)+len(r) > len(row.IDs) || !slices.Equal(row.IDs[:len(p)], p) || !slices.Equal(row.IDs[len(p):len(p)+len(r)], r) {
					t.Fatalf("row %v does not hold turn %d: %v %v", row.IDs, k, p, r)
				}
				for j := end; j < len(p); j++ {
					if row.Mask[j] != 0 {
						t.Fatalf("context token %d of turn %d is masked", j, k)
					}
				}
				end = len(p) + len(r)
				for j := len(p); j < end; j++ {
					if row.Mask[j] != 1 {
						t.Fatalf("response token %d of turn %d is not masked", j, k)
					}
				}
			}
			if end != len(row.IDs) {
				t.Fatalf("%d ids, turns end at %d", len(row.IDs), end)
			}
		}
		for _, f := range findings {
			if f.Reason == rl.NoPrompt || f.Reason == rl.NoResponse {
				where[f.Turn] = true
			}
		}
		if len(where) != len(turns) {
			t.Fatalf("%d of %d turns in rows or reported", len(where), len(turns))
		}
	})
}
