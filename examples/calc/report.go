package main

import (
	"fmt"
	"io"

	"agentlightning/examples/internal/lesson"
)

// report holds the figures of a run as --report writes them. Accuracies are
// shares of right answers, sampled greedily; Seconds are those of all processes
// that worked on the run.
type report struct {
	Seed           int64 `json:"seed"`
	ShuffleRewards bool  `json:"shuffle_rewards"`
	lesson.Report
	// Test is the accuracy on problems whose templates occur in the test only.
	Test           float64 `json:"test"`
	TestBefore     float64 `json:"test_before"`
	TestSeen       float64 `json:"test_seen"` // test problems of known templates
	TestSeenBefore float64 `json:"test_seen_before"`
}

// sample is one problem as it was worked on before and after the training.
type sample struct {
	Question, Answer string
	Before, After    []lesson.Line
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
		fmt.Fprintf(w, "  before  %s\n", lesson.OneLine(s.Before))
		fmt.Fprintf(w, "  after   %s\n", lesson.OneLine(s.After))
	}
}
