package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/store"
	"agentlightning/tracking"
)

func newRuns() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "runs",
		Short: "Look at the runs of algorithms: configurations, metrics, checkpoints, samples, logs",
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRunsList(), newRunsShow(), newRunsLog(), newRunsCompare(), newRunsExport(), newRunsRemove())
	return cmd
}

// withRuns opens the source of a command, does the work and closes it.
func withRuns(cmd *cobra.Command, from *source, do func(store.Store) error) (err error) {
	st, err := from.open(cmd.Context())
	if err != nil {
		return err
	}
	return errors.Join(do(st), st.Close())
}

// someRuns wants ids of runs, at least so many.
func someRuns(least int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least {
			return usageError{fmt.Errorf("give %s, as in '%s%s'; 'agl runs ls' lists them",
				counted(least, "run id"), cmd.CommandPath(), strings.Repeat(" run-0123456789ab", least))}
		}
		return nil
	}
}

func newRunsList() *cobra.Command {
	var (
		from      source
		limit     int
		algorithm string
		status    string
		asJSON    bool
	)
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   "List runs, the newest first",
		Example: "  agl runs ls\n  agl runs ls --algorithm pg --status failed --limit 0 --json | jq .error",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			known := []string{"", string(agl.RunRunning), string(agl.RunSucceeded), string(agl.RunFailed), string(agl.RunInterrupted)}
			switch {
			case limit < 0:
				return usageError{fmt.Errorf("--limit %d: must not be negative; 0 is no limit", limit)}
			case !slices.Contains(known, status):
				return usageError{fmt.Errorf("--status %s: must be one of %s", status, strings.Join(known[1:], ", "))}
			}
			return withRuns(cmd, &from, func(st store.Store) error {
				return listRuns(cmd, st, limit, asJSON, func(r *agl.Run) bool {
					return (algorithm == "" || r.Algorithm == algorithm) && (status == "" || string(r.Status) == status)
				})
			})
		},
	}
	from.bind(cmd)
	bindTable(cmd)
	f := cmd.Flags()
	f.IntVar(&limit, "limit", 20, "how many at the most; 0 for all")
	f.StringVar(&algorithm, "algorithm", "", "only runs of this algorithm, such as pg, sft, dpo, gepa or apo")
	f.StringVar(&status, "status", "", "only running, succeeded, failed or interrupted ones")
	f.BoolVar(&asJSON, "json", false, "one JSON object a line")
	return cmd
}

// runLine is a run of a list under --json.
type runLine struct {
	agl.Run
	CodeVersion string   `json:"code_version"`
	LastStep    int      `json:"last_step"`
	News        float64  `json:"last_news_time"`
	BestScore   *float64 `json:"best_score"`
	BestMetric  string   `json:"best_metric,omitempty"`
	BestStep    int      `json:"best_step"`
}

func listRuns(cmd *cobra.Command, st store.Store, limit int, asJSON bool, fits func(*agl.Run) bool) error {
	runs, err := st.Runs(cmd.Context(), 0)
	if err != nil {
		return err
	}
	runs = slices.DeleteFunc(runs, func(r agl.Run) bool { return !fits(&r) })
	more := 0
	if limit > 0 && len(runs) > limit {
		more = len(runs) - limit
		runs = runs[:limit]
	}
	list := newListing(cmd, "", "RUN", "ALGORITHM", "STATUS", "SEED", "STEP", "BEST SCORE", "STARTED", "LAST NEWS", "ERROR")
	for i := range runs {
		r, err := tracking.Read(cmd.Context(), st, runs[i].RunID)
		if err != nil {
			return err
		}
		line := lineOf(r)
		if asJSON {
			if err := json.NewEncoder(cmd.OutOrStdout()).Encode(line); err != nil {
				return err
			}
			continue
		}
		best := "-"
		if line.BestScore != nil {
			best = fmt.Sprintf("%.4g %s", *line.BestScore, line.BestMetric)
		}
		list.add(r.RunID, r.Algorithm, string(r.Status), strconv.FormatInt(r.Seed, 10), strconv.Itoa(r.Steps()), best,
			list.when(r.StartTime), list.when(r.News()), dash(list.cut(r.Error, 60)))
	}
	if asJSON {
		return nil
	}
	if err := list.flush(); err != nil || list.table == nil {
		return err
	}
	switch {
	case list.rows == 0:
		fmt.Fprintln(cmd.OutOrStdout(), "no runs")
	case more > 0:
		fmt.Fprintf(cmd.OutOrStdout(), "%d shown, %d more; see them with --limit\n", list.rows, more)
	}
	return nil
}

func lineOf(r *tracking.Run) runLine {
	line := runLine{Run: r.Run, CodeVersion: r.CodeVersion, LastStep: r.Steps(), News: r.News()}
	if score, metric, step, ok := r.Best(); ok {
		line.BestScore, line.BestMetric, line.BestStep = &score, metric, step
	}
	return line
}

func newRunsShow() *cobra.Command {
	var (
		from    source
		samples int
		set     string
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:     "show RUN",
		Short:   "Show one run: configuration, seed, code, last metrics, checkpoints, samples",
		Example: "  agl runs show run-0123456789ab\n  agl runs show run-0123456789ab --samples 10 --reward-set strict",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("give one run id, as in '%s run-0123456789ab'; 'agl runs ls' lists them", cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if samples < 0 {
				return usageError{fmt.Errorf("--samples %d: must not be negative", samples)}
			}
			if err := checkRewardSet(set); err != nil {
				return usageError{err}
			}
			return withRuns(cmd, &from, func(st store.Store) error {
				r, err := tracking.Read(cmd.Context(), st, args[0])
				if err != nil {
					return err
				}
				shown, err := someSamples(cmd, st, r, samples, set)
				if err != nil {
					return err
				}
				if asJSON {
					return json.NewEncoder(cmd.OutOrStdout()).Encode(struct {
						runLine
						Metrics     []agl.StepMetrics  `json:"metrics"`
						Checkpoints []agl.Checkpoint   `json:"checkpoints"`
						Samples     []*tracking.Sample `json:"samples"`
					}{lineOf(r), r.Metrics, r.Checkpoints, shown})
				}
				return showRun(cmd, r, shown)
			})
		},
	}
	from.bind(cmd)
	bindTable(cmd)
	bindRewardSet(cmd, &set)
	cmd.Flags().IntVar(&samples, "samples", 4, "how many rollouts of the last step that has some to show: the best and the worst")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object with everything")
	return cmd
}

// mostSamples bounds how many rollouts are looked at to find the best and worst.
const mostSamples = 256

var errEnough = errors.New("enough samples")

// someSamples returns the best and the worst rollouts of the last step that has
// some, the best first.
func someSamples(cmd *cobra.Command, st store.Store, r *tracking.Run, n int, set string) ([]*tracking.Sample, error) {
	found := []*tracking.Sample{}
	if n == 0 {
		return found, nil
	}
	err := r.Samples(cmd.Context(), st, -1, set, func(s *tracking.Sample) error {
		if len(found) == mostSamples || len(found) > 0 && s.Step != found[0].Step {
			return errEnough
		}
		one := *s
		found = append(found, &one)
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	slices.SortStableFunc(found, func(a, b *tracking.Sample) int {
		switch {
		case a.Reward == nil && b.Reward == nil:
			return 0
		case a.Reward == nil:
			return 1
		case b.Reward == nil || *a.Reward > *b.Reward:
			return -1
		case *a.Reward < *b.Reward:
			return 1
		}
		return 0
	})
	if len(found) > n {
		found = append(found[:(n+1)/2:(n+1)/2], found[len(found)-n/2:]...)
	}
	return found, nil
}

func showRun(cmd *cobra.Command, r *tracking.Run, samples []*tracking.Sample) error {
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "%s  %s  %s  %s\n", r.RunID, r.Algorithm, r.Status, took(r.StartTime, r.EndTime))
	if r.Error != "" {
		fmt.Fprintf(w, "error      %s\n", short(r.Error, 1000))
	}
	fmt.Fprintf(w, "started    %s, last news %s\n", agl.Time(r.StartTime).Format(time.DateTime), agl.Time(r.News()).Format(time.DateTime))
	fmt.Fprintf(w, "seed       %d\ncode       %s\n", r.Seed, dash(r.CodeVersion))
	if score, metric, step, ok := r.Best(); ok {
		fmt.Fprintf(w, "best       %.4g %s at step %d\n", score, metric, step)
	}
	fmt.Fprintln(w, "\nconfiguration")
	list := newListing(cmd, "  ", "KEY", "VALUE")
	for _, p := range r.Params {
		list.add(p.Key, list.cut(p.Value, 100))
	}
	if err := list.flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nmetrics of %s\n", counted(len(r.Metrics), "step"))
	list = newListing(cmd, "  ", "METRIC", "LAST", "STEP", "LEAST", "MOST")
	for _, name := range r.Names() {
		f := r.Figure(name)
		list.add(name, fmt.Sprintf("%.6g", f.Last), strconv.Itoa(f.LastStep), fmt.Sprintf("%.6g", f.Min), fmt.Sprintf("%.6g", f.Max))
	}
	if err := list.flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%s recorded\n", counted(len(r.Checkpoints), "checkpoint"))
	list = newListing(cmd, "  ", "STEP", "SCORE", "WHEN", "WEIGHTS")
	for _, c := range r.Checkpoints {
		list.add(strconv.Itoa(c.Step), number(c.Score), list.when(c.Time), dash(c.Path))
	}
	if err := list.flush(); err != nil || len(samples) == 0 {
		return err
	}
	fmt.Fprintf(w, "\nsamples of step %d\n", samples[0].Step)
	list = newListing(cmd, "  ", "ROLLOUT", "GROUP", "STATUS", "REWARD", "TASK")
	for _, s := range samples {
		list.add(s.RolloutID, dash(s.Group), s.Status, number(s.Reward), list.cut(string(s.Input), 60))
	}
	return list.flush()
}

func newRunsCompare() *cobra.Command {
	var (
		from    source
		metrics string
		all     bool
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:     "compare RUN RUN…",
		Short:   "Put runs side by side: what their configurations differ in, and their metrics",
		Example: "  agl runs compare run-0123456789ab run-ba9876543210\n  agl runs compare run-0123456789ab run-ba9876543210 --metrics 'reward|grad_norm' --all",
		Args:    someRuns(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			pattern, err := regexp.Compile(metrics)
			if err != nil {
				return usageError{fmt.Errorf("--metrics: %w", err)}
			}
			return withRuns(cmd, &from, func(st store.Store) error {
				runs := make([]*tracking.Run, len(args))
				for i, id := range args {
					if runs[i], err = tracking.Read(cmd.Context(), st, id); err != nil {
						return err
					}
				}
				c := tracking.Compare(runs)
				c.Metrics = slices.DeleteFunc(c.Metrics, func(m tracking.ComparedMetric) bool { return !pattern.MatchString(m.Name) })
				if asJSON {
					return json.NewEncoder(cmd.OutOrStdout()).Encode(c)
				}
				return compareRuns(cmd, runs, c, all)
			})
		},
	}
	from.bind(cmd)
	bindTable(cmd)
	f := cmd.Flags()
	f.StringVar(&metrics, "metrics", "", "only metrics whose name this regular expression matches")
	f.BoolVar(&all, "all", false, "also what the configurations have in common")
	f.BoolVar(&asJSON, "json", false, "one JSON object with everything")
	return cmd
}

func compareRuns(cmd *cobra.Command, runs []*tracking.Run, c tracking.Comparison, all bool) error {
	w := cmd.OutOrStdout()
	list := newListing(cmd, "", append([]string{""}, c.Runs...)...)
	row := func(name string, of func(*tracking.Run) string) {
		cells := []string{name}
		for _, r := range runs {
			cells = append(cells, of(r))
		}
		list.add(cells...)
	}
	row("status", func(r *tracking.Run) string { return string(r.Status) })
	row("steps", func(r *tracking.Run) string { return strconv.Itoa(r.Steps()) })
	row("took", func(r *tracking.Run) string { return took(r.StartTime, r.EndTime) })
	row("best score", func(r *tracking.Run) string {
		score, metric, step, ok := r.Best()
		if !ok {
			return "-"
		}
		return fmt.Sprintf("%.4g %s at %d", score, metric, step)
	})
	same := 0
	for _, p := range c.Params {
		if !all && p.Same() {
			same++
			continue
		}
		cells := []string{p.Key}
		for _, v := range p.Values {
			cells = append(cells, dash(list.cut(v, 40)))
		}
		list.add(cells...)
	}
	for _, m := range c.Metrics {
		cells := []string{m.Name}
		for _, f := range m.Figures {
			cells = append(cells, figureText(m.Name, f))
		}
		list.add(cells...)
	}
	if err := list.flush(); err != nil {
		return err
	}
	if list.table != nil && same > 0 {
		fmt.Fprintf(w, "%s of the configuration are the same; see them with --all\n", counted(same, "value"))
	}
	return nil
}

// figureText is the last value of a metric and, where more is better, the best.
func figureText(name string, f *tracking.Figure) string {
	if f == nil {
		return "-"
	}
	text := fmt.Sprintf("%.5g", f.Last)
	if better := name == algorithm.MetricReward || strings.HasPrefix(name, "val/") && strings.HasSuffix(name, "reward") || strings.HasSuffix(name, "score"); better && f.Max > f.Last {
		text += fmt.Sprintf(" (best %.5g at %d)", f.Max, f.MaxStep)
	}
	return text
}

// writeTo calls write with a new file, or with the output of the command when
// there is no path. A file that could not be written whole is removed.
func writeTo(cmd *cobra.Command, path string, write func(io.Writer) error) error {
	if path == "" {
		return write(cmd.OutOrStdout())
	}
	return writeFile(path, write)
}
