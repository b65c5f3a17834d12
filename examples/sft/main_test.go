package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentlightning/examples/internal/lessontest"
	"agentlightning/learner/native"
)

// small is a plan that goes through all phases in a second; it is far too short
// to learn much.
func small() plan {
	p := tuned()
	p.train, p.validation = 40, 6
	p.warmupSteps, p.warmupRows = 60, 32
	p.rounds, p.tasks, p.group, p.updates, p.rows = 3, 12, 4, 2, 16
	p.model = native.Config{Dim: 32, Layers: 1, Heads: 2, Hidden: 64, Context: 24}
	return p
}

// play runs the example and returns its report and what it printed.
func play(t *testing.T, args ...string) (report, string) {
	t.Helper()
	example := func(args []string, stdout, stderr io.Writer) int { return mainStatus(args, small(), stdout, stderr) }
	return lessontest.Play[report](t, example, append([]string{"--port", "0", "--agents", "8"}, args...)...)
}

// As many walks are imitated as were rewarded, and a seed repeats a run.
func TestRounds(t *testing.T) {
	t.Parallel()
	r, out := play(t, "--seed", "5")
	if r.Steps != 3 || len(r.Curve) != 4 || r.FailedRollouts != 0 || r.Rollouts != 3*12*4+4*6 {
		t.Errorf("report = %+v, want 3 rounds, %d rollouts and none failed", r, 3*12*4+4*6)
	}
	total := 0
	for i, kept := range r.Kept {
		total += kept
		if want := *r.Curve[i+1].Reward * 12 * 4; float64(kept) < want-1e-6 || float64(kept) > want+1e-6 {
			t.Errorf("round %d imitates %d walks, want the %v that were rewarded", i+1, kept, want)
		}
	}
	if total == 0 || !strings.Contains(out, "round  3/3  validation ") {
		t.Errorf("%d walks were imitated:\n%s", total, out)
	}
	again, _ := play(t, "--seed", "5")
	lessontest.SameReport(t, r, again)
}

// The control imitates as many walks, but others.
func TestShuffled(t *testing.T) {
	t.Parallel()
	r, _ := play(t, "--seed", "5", "--shuffle-rewards")
	plain, _ := play(t, "--seed", "5")
	if r.Kept[0] != plain.Kept[0] || r.Before != plain.Before || cmp.Equal(r.Curve[2:], plain.Curve[2:]) {
		t.Errorf("shuffled: %+v\nplain: %+v\nwant the same first round to go on otherwise", r, plain)
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	if status := mainStatus([]string{"--agents", "0"}, small(), &out, &errs); status != 1 || !strings.Contains(errs.String(), "--agents 0: must be at least 1") {
		t.Errorf("sft --agents 0 = %d, %q", status, errs.String())
	}
	if status := mainStatus([]string{"--help"}, small(), &out, &errs); status != 0 || !strings.Contains(out.String(), "-shuffle-rewards") {
		t.Errorf("sft --help = %d, %q", status, out.String())
	}
}
