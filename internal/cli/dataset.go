package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	agl "agentlightning"
	"agentlightning/adapter/credit"
	"agentlightning/algorithm"
	"agentlightning/dataset"
	"agentlightning/rl"
	"agentlightning/store"
)

func newDataset() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dataset",
		Short: "Make training data of stored rollouts, and check files of it",
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDatasetExport(), newDatasetCheck())
	return cmd
}

// Forms of training data.
const (
	formOpenAI        = "openai"
	formConversations = "conversations"
	formPreferences   = "preferences"
	formRows          = "rows"
	formParquet       = "parquet"
	formTasks         = "tasks"
)

// exportForms are the forms that rollouts are written in.
func exportForms() []string {
	return []string{formOpenAI, formConversations, formPreferences, formRows, formParquet}
}

// datasetOptions are the flags of agl dataset export.
type datasetOptions struct {
	source
	filter     rolloutFilter
	form       string
	to         string
	min        float64
	selection  dataset.Selection
	pairs      dataset.Preferences
	rule       string
	set        string
	advantages rl.AdvantageConfig
}

func newDatasetExport() *cobra.Command {
	var o datasetOptions
	cmd := &cobra.Command{
		Use:   "export [ROLLOUT…]",
		Short: "Write rollouts chosen by reward as training data",
		Long: "Write the best of stored rollouts in a form that trainers read:\n\n" +
			"  openai         {\"messages\":…,\"tools\":…} a line, as OpenAI's fine-tuning takes it\n" +
			"  conversations  the same with rollout_id and reward\n" +
			"  preferences    {\"prompt\":…,\"chosen\":…,\"rejected\":…} a line, of pairs within a group\n" +
			"  rows           token ids, mask, log-probabilities and advantages, one JSON object a row\n" +
			"  parquet        the same as a Parquet file\n\n" +
			"Rollouts that failed or have no reward are never chosen. Advantages are those among all rollouts that\n" +
			"the filter takes, whatever of them is chosen.",
		Example: "  agl dataset export --form openai --run run-0123456789ab --min-reward 1 --to best.jsonl\n" +
			"  agl dataset export --form preferences --db sqlite:calc.db --limit 0 --pairs 2 --to pairs.jsonl\n" +
			"  agl dataset export --form parquet --run run-0123456789ab --rule discounted:0.9 --to rows.parquet",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.filter.ids = args
			if cmd.Flags().Changed("min-reward") {
				o.selection.Min = &o.min
			}
			return exportDataset(cmd, &o)
		},
	}
	o.bind(cmd)
	o.filter.bind(cmd, 0)
	f := cmd.Flags()
	f.StringVar(&o.form, "form", formOpenAI, "what to write: "+strings.Join(exportForms(), ", "))
	f.StringVar(&o.to, "to", "", "file to write; it must not exist (default: standard output)")
	f.Float64Var(&o.min, "min-reward", 0, "only rollouts with at least this reward")
	f.Float64Var(&o.selection.Top, "top", 0, "only this share of the best, above 0 and at most 1; at least one rollout; 0 for all")
	f.BoolVar(&o.selection.PerGroup, "per-group", false, "apply --top to the rollouts of each task by themselves")
	f.Float64Var(&o.pairs.Margin, "margin", 0, "preferences: by how much the reward of the chosen answer must be larger")
	f.IntVar(&o.pairs.Most, "pairs", 1, "preferences: pairs of a group at the most: best with worst, second with second")
	f.StringVar(&o.rule, "rule", "", "rows, parquet: rule of credit, as in 'agl credit preview' (default identical)")
	f.StringVar((*string)(&o.advantages.Estimator), "estimator", "", "rows, parquet: what rewards are compared with: "+joined(rl.Estimators())+" (default grpo)")
	bindRewardSet(cmd, &o.set)
	f.BoolVar(&o.advantages.WithoutStd, "without-std", false, "rows, parquet: do not divide by the standard deviation of the group")
	return cmd
}

// check refuses what the form would not look at.
func (o *datasetOptions) check(cmd *cobra.Command) error {
	if !slices.Contains(exportForms(), o.form) {
		return usageError{fmt.Errorf("--form %s: must be one of %s", o.form, strings.Join(exportForms(), ", "))}
	}
	rows := o.form == formRows || o.form == formParquet
	for _, flag := range []struct {
		name string
		read bool
	}{
		{"rule", rows},
		{"estimator", rows},
		{"without-std", rows},
		{"margin", o.form == formPreferences},
		{"pairs", o.form == formPreferences},
		{"min-reward", o.form != formPreferences},
		{"top", o.form != formPreferences},
		{"per-group", o.form != formPreferences},
	} {
		if !flag.read && cmd.Flags().Changed(flag.name) {
			return usageError{fmt.Errorf("--%s: --form %s does not look at it", flag.name, o.form)}
		}
	}
	if err := errors.Join(o.selection.Validate(), o.advantages.Validate(), checkRewardSet(o.set)); err != nil {
		return usageError{err}
	}
	if _, err := o.pairs.Select(nil); err != nil {
		return usageError{err}
	}
	_, err := o.filter.query()
	return err
}

func exportDataset(cmd *cobra.Command, o *datasetOptions) (err error) {
	if err := o.check(cmd); err != nil {
		return err
	}
	var rule credit.Rule
	if o.rule != "" {
		if rule, err = creditRule(o.rule); err != nil {
			return usageError{fmt.Errorf("--rule: %w", err)}
		}
	}
	ctx := cmd.Context()
	st, err := o.source.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	out := cmd.OutOrStdout()
	if o.to != "" {
		file, failed := os.OpenFile(o.to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(failed, os.ErrExist) {
			return usageError{fmt.Errorf("--to %s: the file exists; remove it or choose another", o.to)}
		}
		if failed != nil {
			return failed
		}
		defer func() {
			if err = errors.Join(err, file.Close()); err != nil {
				err = errors.Join(err, os.Remove(o.to)) // half a data set is none
			}
		}()
		out = file
	}
	e := datasetExport{datasetOptions: o, store: st, w: bufio.NewWriter(out), notes: cmd.ErrOrStderr()}
	if o.to != "" {
		e.progress = cmd.ErrOrStderr()
	}
	if err := e.collect(ctx, o.form == formRows || o.form == formParquet); err != nil {
		return err
	}
	written, err := e.write(ctx, rule)
	if err = errors.Join(err, e.w.Flush()); err != nil {
		return err
	}
	if written == 0 {
		return fmt.Errorf("nothing was chosen of %s: none has a reward, the selection takes none, or no two of a group differ", counted(len(e.scored), "rollout"))
	}
	if o.to != "" {
		fmt.Fprintf(cmd.OutOrStdout(), "%s holds %s of %s\n", o.to, counted(written, "line"), counted(len(e.scored), "rollout"))
	}
	return nil
}

// datasetExport is one export under way.
type datasetExport struct {
	*datasetOptions
	store    store.Store
	w        *bufio.Writer
	notes    io.Writer // of what is left out
	progress io.Writer // nil shows none

	scored   []dataset.Scored
	rollouts []credit.Rollout // of rows
}

// collect reads the rewards of all rollouts that the filter takes, and for rows
// everything that training reads.
func (e *datasetExport) collect(ctx context.Context, whole bool) error {
	_, err := e.filter.each(ctx, e.store, func(r *agl.AttemptedRollout) error {
		if n := len(e.scored); e.progress != nil && n > 0 && n%1000 == 0 {
			fmt.Fprintf(e.progress, "%d rollouts read\n", n)
		}
		if !r.Status.Terminal() {
			return nil
		}
		read, err := readRollout(ctx, e.store, &r.Rollout, e.set)
		if err != nil {
			return err
		}
		one := dataset.Scored{ID: read.ID, Group: read.Group, Reward: read.Final}
		if read.Failed {
			one.Reward = nil
		}
		e.scored = append(e.scored, one)
		if whole {
			e.rollouts = append(e.rollouts, read)
		}
		return nil
	})
	return err
}

func (e *datasetExport) write(ctx context.Context, rule credit.Rule) (int, error) {
	if e.form == formPreferences {
		return e.preferences(ctx)
	}
	chosen, err := e.selection.Select(e.scored)
	if err != nil {
		return 0, err
	}
	if e.form == formRows || e.form == formParquet {
		return e.rows(rule, chosen)
	}
	written := 0
	for _, i := range chosen {
		conversations, err := e.conversations(ctx, i)
		if err != nil {
			return written, err
		}
		written += len(conversations)
		if e.form == formOpenAI {
			err = dataset.WriteOpenAI(e.w, conversations)
		} else {
			err = dataset.WriteConversations(e.w, conversations)
		}
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

func (e *datasetExport) conversations(ctx context.Context, i int) ([]dataset.Conversation, error) {
	latest := agl.LatestAttempt
	one := &e.scored[i]
	spans, err := e.store.QuerySpans(ctx, store.SpanQuery{RolloutID: one.ID, AttemptID: &latest, Paging: store.Paging{SortBy: "sequence_id"}})
	if err != nil {
		return nil, fmt.Errorf("spans of rollout %s: %w", one.ID, err)
	}
	out, err := dataset.Conversations(spans.Items)
	if err != nil {
		return nil, fmt.Errorf("rollout %s: %w", one.ID, err)
	}
	for j := range out {
		out[j].RolloutID, out[j].Reward = one.ID, one.Reward
	}
	return out, nil
}

// preferences writes the pairs whose conversations part from a common prompt.
func (e *datasetExport) preferences(ctx context.Context) (int, error) {
	pairs, err := e.pairs.Select(e.scored)
	if err != nil {
		return 0, err
	}
	written, apart := 0, 0
	for _, p := range pairs {
		chosen, err := e.conversations(ctx, p.Chosen)
		if err != nil {
			return written, err
		}
		rejected, err := e.conversations(ctx, p.Rejected)
		if err != nil {
			return written, err
		}
		if len(chosen) == 0 || len(rejected) == 0 {
			apart++
			continue
		}
		preference, err := dataset.Prefer(chosen[len(chosen)-1], rejected[len(rejected)-1])
		if errors.Is(err, dataset.ErrNoPrompt) {
			apart++
			continue
		}
		if err == nil {
			err = dataset.WritePreferences(e.w, []dataset.Preference{preference})
		}
		if err != nil {
			return written, err
		}
		written++
	}
	if apart > 0 {
		fmt.Fprintf(e.notes, "%s left out: %v\n", counted(apart, "pair"), dataset.ErrNoPrompt)
	}
	return written, nil
}

func (e *datasetExport) rows(rule credit.Rule, chosen []int) (int, error) {
	assigned, err := credit.Assign(e.rollouts, rule, e.advantages)
	if err != nil {
		return 0, err
	}
	var rows []dataset.Row
	for _, i := range chosen {
		rows = append(rows, dataset.Rows(&e.rollouts[i], assigned.Calls[i])...)
	}
	if len(rows) == 0 {
		return 0, nil
	}
	if e.form == formParquet {
		return len(rows), dataset.WriteParquet(e.w, rows)
	}
	return len(rows), dataset.WriteRows(e.w, rows)
}

func newDatasetCheck() *cobra.Command {
	var form string
	forms := append(exportForms(), formTasks)
	cmd := &cobra.Command{
		Use:     "check FILE",
		Short:   "Read a file of training data or tasks and say what is wrong with it",
		Example: "  agl dataset check best.jsonl\n  agl dataset check tasks.csv --form tasks",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("give one file, as in '%s best.jsonl'", cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(forms, form) {
				return usageError{fmt.Errorf("--form %s: must be one of %s", form, strings.Join(forms, ", "))}
			}
			n, what, err := checkDataset(args[0], form)
			if line, ok := errors.AsType[*algorithm.LineError](err); ok {
				return line
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is sound: %s\n", args[0], counted(n, what))
			return nil
		},
	}
	cmd.Flags().StringVar(&form, "form", formOpenAI, "what the file holds: "+strings.Join(forms, ", "))
	return cmd
}

func checkDataset(path, form string) (n int, what string, err error) {
	if form == formTasks {
		tasks, err := dataset.LoadTasks(path)
		return len(tasks), "task", err
	}
	f, err := os.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	switch form {
	case formPreferences:
		read, err := dataset.ReadPreferences(f, path)
		return len(read), "preference", err
	case formRows:
		read, err := dataset.ReadRows(f, path)
		return len(read), "row", err
	case formParquet:
		info, err := f.Stat()
		if err != nil {
			return 0, "", err
		}
		read, err := dataset.ReadParquet(f, info.Size(), path)
		return len(read), "row", err
	}
	read, err := dataset.ReadConversations(f, path)
	return len(read), "conversation", err
}
