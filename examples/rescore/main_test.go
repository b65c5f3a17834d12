package main

import (
	"bytes"
	"strings"
	"testing"

	"agentlightning/examples/internal/lessontest"
)

// play runs the example and returns its report and what it printed.
func play(t *testing.T, args ...string) (report, string) {
	t.Helper()
	return lessontest.Play[report](t, mainStatus, args...)
}

// What the new reward asks for is learnt from stored rollouts alone, and is not
// when rewards are shuffled.
func TestExample(t *testing.T) {
	t.Parallel()
	r, out := play(t, "--seed", "1")
	if r.Summary.Scored != 768 || *r.Summary.MeanNew >= *r.Summary.MeanOld {
		t.Errorf("summary: %+v", r.Summary)
	}
	if r.Before.Brief > 0.4 || r.Brief.Brief < 0.75 || r.Brief.Brief < r.Default.Brief || r.Brief.Tokens > r.Before.Tokens-2 {
		t.Errorf("before %+v, trained on the new set %+v, on the old one %+v", r.Before, r.Brief, r.Default)
	}
	if !strings.Contains(out, "rollouts run for this: 0\n") {
		t.Errorf("output: %s", out)
	}
	control, _ := play(t, "--seed", "1", "--shuffle-rewards")
	if control.Brief.Brief > control.Before.Brief+0.15 {
		t.Errorf("with shuffled rewards: before %+v, after %+v", control.Before, control.Brief)
	}
	if control.Before != r.Before || control.Summary.Scored != r.Summary.Scored || *control.Summary.MeanNew != *r.Summary.MeanNew {
		t.Errorf("the same seed gave other rollouts: %+v and %+v", control.Before, r.Before)
	}
}

func TestExampleRefuses(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--seeds", "1"}, {"now"}} {
		var out, errs bytes.Buffer
		if status := mainStatus(args, &out, &errs); status != 2 || errs.Len() == 0 {
			t.Errorf("rescore %v = %d, %s", args, status, errs.String())
		}
	}
}
