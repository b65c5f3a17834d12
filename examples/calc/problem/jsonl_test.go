package problem_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentlightning/examples/calc/problem"
)

func TestWriteRead(t *testing.T) {
	t.Parallel()
	d := generate(t, problem.Config{Seed: 1, Train: 100, TestUnseen: 20})
	for name, part := range map[string][]problem.Problem{"train": d.Train, "test": d.Test} {
		var b bytes.Buffer
		if err := problem.Write(&b, part); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(b.String(), "\n"); n != len(part) {
			t.Errorf("%s: %d lines for %d problems", name, n, len(part))
		}
		got, err := problem.Read(&b, name)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(part, got); diff != "" {
			t.Errorf("%s: Read after Write (-want +got):\n%s", name, diff)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	t.Parallel()
	const good = `{"id":"a","template":"t","kind":"order","question":"1 and 2?","answer":3,"steps":[{"left":1,"operator":"+","right":2}]}`
	replace := func(old, by string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("no %s in the line", old)
		}
		return strings.Replace(good, old, by, 1)
	}
	tests := []struct {
		name, text string
		line       int
		rule       string
	}{
		{"broken JSON", good + "\n" + good[:40], 2, "JSON"},
		{"not an object", "[]", 1, "JSON"},
		{"two objects", good + good, 1, "nothing after"},
		{"unknown member", replace(`"id"`, `"extra":1,"id"`), 1, "extra"},
		{"missing member", "\n\n" + replace(`"id":"a",`, ``), 3, "id: must not be empty"},
		{"wrong type", replace(`3`, `"3"`), 1, "answer"},
		{"unknown kind", replace(`order`, `riddle`), 1, `kind "riddle"`},
		{"wrong answer", replace(`"answer":3`, `"answer":4`), 1, "answer 4"},
		{"unknown operator", replace(`"+"`, `"^"`), 1, "steps[0]"},
		{"not whole", replace(`"+"`, `"/"`), 1, "steps[0]"},
		{"no steps", replace(`{"left":1,"operator":"+","right":2}`, ``), 1, "steps"},
		{"id used twice", good + "\n" + good, 2, `id "a"`},
		{"endless line", good + "\n" + strings.Repeat("x", 2<<20), 2, "longer"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := problem.Read(strings.NewReader(tt.text), "tasks.jsonl")
			var broken *problem.LineError
			if !errors.As(err, &broken) {
				t.Fatalf("Read: error %v, want a *LineError", err)
			}
			if broken.File != "tasks.jsonl" || broken.Line != tt.line || !strings.Contains(err.Error(), tt.rule) {
				t.Errorf("Read: error %q, want tasks.jsonl:%d and %q", err, tt.line, tt.rule)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("Read: error %q, want one line", err)
			}
		})
	}
}
