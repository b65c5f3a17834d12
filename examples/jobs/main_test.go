package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// expected returns the output that the README shows.
func expected(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "## What it prints\n\n```\n")
	block, _, ended := strings.Cut(rest, "```\n")
	if !found || !ended {
		t.Fatal("README.md shows no output")
	}
	return block
}

func TestOutput(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := run(t.Context(), nil, &out); err != nil {
		t.Fatal(err)
	}
	got := regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllString(out.String(), "127.0.0.1:…")
	if want := expected(t); got != want {
		t.Errorf("prints\n%s\nwant\n%s", got, want)
	}
}

type report struct {
	Seed  int64
	Curve []point
}

func curve(t *testing.T, args ...string) report {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.json")
	var out bytes.Buffer
	if err := run(t.Context(), append(args, "--report", path), &out); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestLearns(t *testing.T) {
	t.Parallel()
	for _, seed := range []string{"1", "2", "3"} {
		learnt := curve(t, "--seed", seed).Curve
		if first, last := learnt[0].Validation, learnt[3].Validation; first > 0.5 || last < 0.9 {
			t.Errorf("seed %s: %v, then %v of the tickets are right, want below 0.5, then above 0.9", seed, first, last)
		}
		control := curve(t, "--seed", seed, "--shuffle-rewards").Curve
		for _, p := range control {
			if p.Validation > 0.6 {
				t.Errorf("seed %s with shuffled rewards: %v of the tickets are right in iteration %d, want that nothing is learnt", seed, p.Validation, p.Iteration)
			}
		}
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := run(t.Context(), []string{"more"}, &out); err == nil || !strings.Contains(err.Error(), `"more"`) {
		t.Errorf("run = %v", err)
	}
	if err := run(t.Context(), []string{"--iterations", "-1"}, &out); err == nil || !strings.Contains(err.Error(), "Iterations: -1") {
		t.Errorf("run = %v", err)
	}
}
