package recipe

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/store"
)

// Summary is what a run came to, read from the store.
type Summary struct {
	Run   agl.Run
	Steps int
	// Measure is what First and Best are of; empty when nothing was measured.
	Measure              string
	First, Best          float64
	FirstStep, BestStep  int
	Smaller              bool // the smaller the better
	Rollouts, Failed     int
	Failures             []Failure
	Resources            string   // id of the best prompts; empty when there are none
	Prompts              []string // their names
	Weights, BestWeights string   // folders of checkpoints
	Constant, Groups     float64  // groups whose rewards were all equal, of all
	Calls                float64  // of models, in what was trained on
	Elapsed              time.Duration
}

// Failure is a reason for which rollouts failed, and how many.
type Failure struct {
	Reason string
	Count  int
}

// Learned reports whether the last measure is better than the first.
func (s *Summary) Learned() bool {
	if s.Measure == "" {
		return false
	}
	if s.Smaller {
		return s.Best < s.First
	}
	return s.Best > s.First
}

// measures are what runs are judged by, the first that a run has.
func measures() []struct {
	name, metric string
	smaller      bool
} {
	return []struct {
		name, metric string
		smaller      bool
	}{
		{"validation reward of the best prompts", "training/best_score", false},
		{"validation reward", algorithm.MetricValidationReward, false},
		{"training reward", algorithm.MetricReward, false},
		{"loss", "training/loss", true},
	}
}

// Summarize reads what a stage came to.
func Summarize(ctx context.Context, s store.Store, o Outcome) (*Summary, error) {
	run, err := s.Run(ctx, o.RunID)
	if err != nil {
		return nil, fmt.Errorf("summary of run %s: %w", o.RunID, err)
	}
	out := &Summary{Run: run, Weights: o.Weights, Resources: o.Resources}
	end := agl.Seconds(time.Now())
	if run.EndTime != nil {
		end = *run.EndTime
	}
	out.Elapsed = time.Duration((end - run.StartTime) * float64(time.Second))
	steps, err := s.StepMetrics(ctx, o.RunID, -1)
	if err != nil {
		return nil, fmt.Errorf("metrics of run %s: %w", o.RunID, err)
	}
	out.measure(steps)
	if err := out.rollouts(ctx, s); err != nil {
		return nil, err
	}
	for _, r := range o.Prompts {
		out.Prompts = append(out.Prompts, r.Name)
	}
	latest, err := s.LatestCheckpoint(ctx, o.RunID)
	switch {
	case err == nil:
		out.Weights = cmp.Or(out.Weights, latest.Path)
		var state struct {
			BestStep  int      `json:"best_step"`
			BestScore *float64 `json:"best_score"`
		}
		if json.Unmarshal(latest.State, &state) == nil && state.BestScore != nil && state.BestStep != latest.Step {
			out.BestWeights = strings.TrimSuffix(latest.Path, fmt.Sprintf("step-%06d", latest.Step)) + fmt.Sprintf("step-%06d", state.BestStep)
		}
	case !errors.Is(err, store.ErrNotFound):
		return nil, fmt.Errorf("checkpoint of run %s: %w", o.RunID, err)
	}
	return out, nil
}

func (s *Summary) measure(steps []agl.StepMetrics) {
	if len(steps) > 0 {
		s.Steps = steps[len(steps)-1].Step
	}
	for _, m := range measures() {
		for _, step := range steps {
			v, ok := step.Values[m.metric]
			if !ok {
				continue
			}
			if s.Measure == "" {
				s.Measure, s.Smaller = m.name, m.smaller
				s.First, s.Best, s.FirstStep, s.BestStep = v, v, step.Step, step.Step
			}
			if !m.smaller && v > s.Best || m.smaller && v < s.Best {
				s.Best, s.BestStep = v, step.Step
			}
		}
		if s.Measure != "" {
			break
		}
	}
	for _, step := range steps {
		s.Groups += step.Values["training/n_groups"]
		s.Constant += step.Values["training/n_zero_adv_groups"]
		s.Calls += step.Values["training/n_turns"]
	}
}

// ids are what makes equal reasons differ.
var ids = regexp.MustCompile(`\b(ro|at|run|rs)-[0-9a-zA-Z]+\b`)

func (s *Summary) rollouts(ctx context.Context, st store.Store) error {
	reasons := map[string]int{}
	err := rolloutsOf(ctx, st, func(runID string, r *agl.AttemptedRollout) error {
		if runID != s.Run.RunID {
			return nil
		}
		s.Rollouts++
		if !r.Status.Terminal() || r.Status == agl.RolloutSucceeded {
			return nil
		}
		s.Failed++
		reasons[reason(r)]++
		return nil
	})
	if err != nil {
		return err
	}
	for _, text := range slices.Sorted(maps.Keys(reasons)) {
		s.Failures = append(s.Failures, Failure{text, reasons[text]})
	}
	slices.SortStableFunc(s.Failures, func(a, b Failure) int { return cmp.Compare(b.Count, a.Count) })
	return nil
}

func reason(r *agl.AttemptedRollout) string {
	if r.Status == agl.RolloutCancelled {
		return "cancelled"
	}
	if r.Attempt == nil {
		return "never attempted"
	}
	var m struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(r.Attempt.Metadata, &m) == nil && m.Error != "" {
		return firstLine(ids.ReplaceAllString(m.Error, "$1-…"))
	}
	return "attempt ended as " + string(r.Attempt.Status)
}

// mostReasons is how many reasons of failures are listed.
const mostReasons = 5

// Lines say it for people.
func (s *Summary) Lines() []string {
	lines := []string{fmt.Sprintf("run %s (%s) %s after %v: %d steps, %d rollouts", s.Run.RunID, s.Run.Algorithm, ended(s.Run.Status), s.Elapsed.Round(time.Second), s.Steps, s.Rollouts)}
	add := func(format string, args ...any) { lines = append(lines, "  "+fmt.Sprintf(format, args...)) }
	switch {
	case s.Measure == "":
		add("did it learn: unknown, nothing was measured")
	case s.Learned():
		add("did it learn: yes, %s %.4g at step %d, %.4g at step %d", s.Measure, s.First, s.FirstStep, s.Best, s.BestStep)
	default:
		add("did it learn: no, the best %s is that of step %d, %.4g", s.Measure, s.BestStep, s.Best)
		for _, why := range s.why() {
			add("  %s", why)
		}
	}
	if s.Resources != "" {
		add("result: prompts %s in resources %s", strings.Join(s.Prompts, ", "), s.Resources)
	}
	if s.Weights != "" {
		add("result: weights of the last step in %s", s.Weights)
	}
	if s.BestWeights != "" {
		add("        weights of the best step in %s", s.BestWeights)
	}
	if s.Failed > 0 {
		add("failures: %d of %d rollouts", s.Failed, s.Rollouts)
		for i, f := range s.Failures {
			if i == mostReasons {
				add("  and for %d more reasons; see agl rollouts ls --status failed --run %s", len(s.Failures)-i, s.Run.RunID)
				break
			}
			add("  %d × %s", f.Count, f.Reason)
		}
	}
	if s.Run.Error != "" {
		add("error: %s", strings.ReplaceAll(s.Run.Error, "\n", "; "))
	}
	return lines
}

func ended(s agl.RunStatus) string {
	switch s {
	case agl.RunSucceeded:
		return "is complete"
	case agl.RunFailed:
		return "failed"
	case agl.RunInterrupted:
		return "was interrupted"
	case agl.RunRunning:
	}
	return "is " + string(s)
}

// why names what may be the reason that nothing was learned.
func (s *Summary) why() []string {
	var out []string
	if s.Rollouts > 0 && 2*s.Failed > s.Rollouts {
		out = append(out, fmt.Sprintf("most rollouts failed: %d of %d; the reasons are below", s.Failed, s.Rollouts))
	}
	if s.Groups > 0 && s.Calls == 0 {
		out = append(out, "no model call of the agent was recorded: does it call its model at OPENAI_BASE_URL, under the name AGL_MODEL?")
	}
	if s.Groups > 0 && 2*s.Constant > s.Groups {
		out = append(out, fmt.Sprintf("in %.0f of %.0f groups all rewards were equal, which teaches nothing: the tasks are too easy or too hard, or the reward is too coarse", s.Constant, s.Groups))
	}
	if s.FirstStep == s.Steps {
		out = append(out, "it was measured once only")
	}
	if s.Best >= 1 && s.First >= 1 && !s.Smaller {
		out = append(out, "it was right from the beginning")
	}
	if len(out) == 0 {
		out = append(out, fmt.Sprintf("see 'agl rollouts explain --run %s' for what training made of the rollouts", s.Run.RunID))
	}
	return out
}
