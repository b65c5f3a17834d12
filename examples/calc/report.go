package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// report holds the figures of a run as --report writes them. Accuracies are
// shares of right answers, sampled greedily.
type report struct {
	Seed           int64   `json:"seed"`
	ShuffleRewards bool    `json:"shuffle_rewards"`
	Before         float64 `json:"before"` // validation accuracy after the warm-up
	After          float64 `json:"after"`  // validation accuracy at the end
	// Test is the accuracy on problems whose templates occur in the test only.
	Test            float64 `json:"test"`
	TestBefore      float64 `json:"test_before"`
	TestSeen        float64 `json:"test_seen"` // test problems of known templates
	TestSeenBefore  float64 `json:"test_seen_before"`
	Seconds         float64 `json:"seconds"` // of all processes that worked on the run
	Steps           int     `json:"steps"`
	Rollouts        int     `json:"rollouts"`
	FailedRollouts  int     `json:"failed_rollouts"`
	TokensPerSecond float64 `json:"tokens_per_second"` // sampled, while rollouts ran
	Curve           []point `json:"curve"`
}

// point is one step of the curve; what was not measured is null.
type point struct {
	Step     int      `json:"step"`
	Reward   *float64 `json:"reward"`
	Accuracy *float64 `json:"accuracy"`
}

func (r *report) write(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// sample is one problem as it was worked on before and after the training.
type sample struct {
	Question, Answer string
	Before, After    []line
}

func printTable(w io.Writer, r *report) {
	rows := []struct {
		name          string
		before, after float64
	}{
		{"validation: known templates, new problems", r.Before, r.After},
		{"test: known templates, new problems", r.TestSeenBefore, r.TestSeen},
		{"test: templates never trained on", r.TestBefore, r.Test},
	}
	fmt.Fprintf(w, "\n%-44s %8s %8s\n", "right answers", "before", "after")
	for _, row := range rows {
		fmt.Fprintf(w, "%-44s %7.1f%% %7.1f%%\n", row.name, 100*row.before, 100*row.after)
	}
}

func printSamples(w io.Writer, samples []sample) {
	for _, s := range samples {
		fmt.Fprintf(w, "\n%s  (right: %s)\n", s.Question, s.Answer)
		fmt.Fprintf(w, "  before  %s\n", oneLine(s.Before))
		fmt.Fprintf(w, "  after   %s\n", oneLine(s.After))
	}
}

// oneLine shows what followed the question.
func oneLine(lines []line) string {
	var parts []string
	for _, l := range lines {
		text := strings.ToValidUTF8(l.Text, "\uFFFD")
		switch l.Role {
		case "user":
		case "tool":
			parts = append(parts, "→ "+text)
		default:
			parts = append(parts, text)
		}
	}
	if len(parts) == 0 {
		return "(nothing)"
	}
	return strings.Join(parts, "  ")
}
