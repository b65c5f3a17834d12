package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	agl "agentlightning"
	"agentlightning/internal/doctor"
	"agentlightning/internal/modellist"
	"agentlightning/internal/recipe"
	"agentlightning/store"
)

// trainOptions are the flags of agl train and agl optimize.
type trainOptions struct {
	resume      string
	abandon     bool
	dryRun      bool
	printConfig bool
	token       string
	logs        logOptions
}

// resumeLast is what --resume takes for the newest run that is not complete.
const resumeLast = "last"

func newTrain() *cobra.Command {
	cmd, o := newRecipeCommand(func(*recipe.Recipe) error { return nil })
	cmd.Use = "train FILE [KEY=VALUE…]"
	cmd.Short = "Train an agent, its weights or its prompts, as a file describes"
	cmd.Long = "Train an agent as a file describes: the agent, the tasks, and an algorithm with its settings, or several\n" +
		"algorithms one after another. KEY=VALUE changes a setting of the file, as in algorithm.steps=20.\n\n" +
		o.components()
	cmd.Example = "  agl train train.yaml\n" +
		"  agl train train.yaml algorithm.steps=20 seed=3\n" +
		"  agl train train.yaml --dry-run\n" +
		"  agl train train.yaml --resume last"
	return cmd
}

func newOptimize() *cobra.Command {
	cmd, _ := newRecipeCommand(func(r *recipe.Recipe) error {
		if name, found := r.NoPrompts(); found {
			return usageError{fmt.Errorf("%s improves no prompt; use 'agl train'", name)}
		}
		return nil
	})
	cmd.Use = "optimize FILE [KEY=VALUE…]"
	cmd.Short = "Improve the prompts of an agent, by GEPA or APO, as a file describes"
	cmd.Long = "Improve the prompts of any agent by GEPA (several prompts together) or APO (one prompt), as a file\n" +
		"describes. KEY=VALUE changes a setting of the file, as in algorithm.max_evaluations=400."
	cmd.Example = "  agl optimize prompts.yaml\n" +
		"  agl optimize prompts.yaml algorithm.max_evaluations=400 algorithm.model=gpt-5\n" +
		"  agl optimize prompts.yaml --resume run-0123456789ab"
	return cmd
}

func newRecipeCommand(check func(*recipe.Recipe) error) (*cobra.Command, *trainOptions) {
	var o trainOptions
	cmd := &cobra.Command{
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{fmt.Errorf("give a file, as in '%s train.yaml'; see '%s --help'", cmd.CommandPath(), cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.token == "" {
				o.token = os.Getenv("AGL_AUTH_TOKEN")
			}
			r, err := recipe.Load(args[0], args[1:], recipe.Components())
			if err != nil {
				return usageError{err}
			}
			if err := check(r); err != nil {
				return err
			}
			switch {
			case o.printConfig:
				return printRecipe(cmd.OutOrStdout(), r)
			case o.dryRun:
				return o.rehearse(cmd, r)
			}
			return o.train(cmd, r, args)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.resume, "resume", "", "go on with this run, or with the last one that is not complete (last)")
	f.BoolVar(&o.abandon, "abandon", false, "cancel the rollouts that interrupted runs left in the database")
	f.BoolVar(&o.dryRun, "dry-run", false, "check everything, models and tasks too, and run nothing")
	f.BoolVar(&o.printConfig, "print-config", false, "print every setting with where it came from, and end")
	f.StringVar(&o.token, "auth-token", "", "token of the server that the file names (AGL_AUTH_TOKEN)")
	o.logs.bind(f)
	level := f.Lookup("log-level") // what is shown beside the log says the rest
	level.DefValue, o.logs.level = "warning", "warning"
	return cmd, &o
}

// components lists what a file can name.
func (o *trainOptions) components() string {
	reg := recipe.Components()
	var algorithms, learners, agents []string
	for _, k := range reg.Algorithms {
		algorithms = append(algorithms, k.Name)
	}
	for _, k := range reg.Learners {
		learners = append(learners, k.Name)
	}
	for _, k := range reg.Agents {
		agents = append(agents, k.Name)
	}
	return "algorithms: " + strings.Join(algorithms, ", ") + "\nlearners:   " + strings.Join(learners, ", ") + "\nagents:     " + strings.Join(agents, ", ")
}

func printRecipe(w io.Writer, r *recipe.Recipe) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, s := range r.Settings() {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", s.Path, s.Value, s.Origin)
	}
	return tw.Flush()
}

// rehearse checks everything that a run would need.
func (o *trainOptions) rehearse(cmd *cobra.Command, r *recipe.Recipe) (err error) {
	ctx := cmd.Context()
	loggers, closeLog, err := o.logs.open(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	var models []agl.Model
	if r.Server == "" {
		built, entries, err := startBuiltins(ctx, builtinEntries(r), loggers.Logger("proxy"))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, built.close()) }()
		if models, err = modellist.ParseAll(entries, os.LookupEnv); err != nil {
			return usageError{fmt.Errorf("models: %w", err)}
		}
	} else {
		client := clientOptions{server: r.Server, token: o.token}
		st, err := client.open()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, st.Close()) }()
		if models, err = st.Models(ctx); err != nil {
			return fmt.Errorf("server %s: %w", r.Server, err)
		}
	}
	lines, err := r.Check(ctx, modelNames(models), os.LookupEnv, loggers.Logger("train"))
	for _, line := range lines {
		fmt.Fprintln(cmd.OutOrStdout(), line)
	}
	if err != nil {
		return err
	}
	found := doctor.AskModels(ctx, append(models, r.Asked(os.LookupEnv, modelNames(models))...))
	if err := printFindings(cmd, found); err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), "nothing is wrong; nothing was run")
	return nil
}

func modelNames(models []agl.Model) []string {
	var out []string
	for _, m := range models {
		if !slices.Contains(out, m.Name) {
			out = append(out, m.Name)
		}
	}
	return out
}

func builtinEntries(r *recipe.Recipe) []string {
	out := make([]string, len(r.Models))
	for i, entry := range r.Models {
		out[i] = r.BuiltinPath(entry, builtinPrefix)
	}
	return out
}

// train carries the recipe out, and says at the end what came of it.
func (o *trainOptions) train(cmd *cobra.Command, r *recipe.Recipe, args []string) (err error) {
	ctx := cmd.Context()
	show := newTrainDisplay(cmd.OutOrStdout())
	defer show.close()
	loggers, closeLog, err := o.logs.open(show.logWriter(cmd.ErrOrStderr()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	site, closeSite, err := o.openSite(ctx, r, loggers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeSite()) }()
	runID, err := o.begin(ctx, cmd, r, site)
	if err != nil {
		return err
	}
	again := resumeCommand(cmd, args, runID)
	site.OnStage, site.OnProgress, site.OnWait, site.OnStall = show.stage, show.progress, show.wait, show.stall
	site.Worker = worker(site, runID)
	show.line("run %s, %s", runID, where(r, site))
	stopping := context.AfterFunc(ctx, func() {
		show.line("stopping; what is done is kept. Press Ctrl-C again to stop at once.")
	})
	outcomes, err := r.Run(ctx, *site, runID)
	stopping()
	show.close()
	if failed := summarize(context.WithoutCancel(ctx), cmd.OutOrStdout(), site.Store, outcomes); failed != nil {
		err = errors.Join(err, failed)
	}
	if err != nil && r.DB != "memory:" {
		fmt.Fprintf(cmd.OutOrStdout(), "go on with: %s\n", again)
	}
	return err
}

func where(r *recipe.Recipe, site *recipe.Site) string {
	if !site.Own {
		return "on the server " + site.URL
	}
	return fmt.Sprintf("server and dashboard on %s, data in %s", site.URL, r.DBPath())
}

func summarize(ctx context.Context, w io.Writer, s store.Store, outcomes []recipe.Outcome) error {
	for _, o := range outcomes {
		if o.RunID == "" {
			fmt.Fprintf(w, "stage %s was not reached\n", o.Name)
			continue
		}
		summary, err := recipe.Summarize(ctx, s, o)
		if err != nil {
			return err
		}
		for _, line := range summary.Lines() {
			fmt.Fprintln(w, line)
		}
		if summary.Resources != "" {
			fmt.Fprintf(w, "  look at them with: agl resources show %s\n", summary.Resources)
		}
	}
	return nil
}

// begin makes a new run, or finds the one that is gone on with and takes up what
// it had in hand.
func (o *trainOptions) begin(ctx context.Context, cmd *cobra.Command, r *recipe.Recipe, site *recipe.Site) (string, error) {
	if o.resume == "" {
		if err := o.clear(ctx, cmd, site); err != nil {
			return "", err
		}
		return r.Begin(ctx, site.Store)
	}
	run, err := findRun(ctx, site.Store, r, o.resume)
	if err != nil {
		return "", err
	}
	if err := r.Resumable(run); err != nil {
		return "", fmt.Errorf("--resume: %w", err)
	}
	outcomes, err := r.Outcomes(ctx, site.Store, run.RunID)
	if err != nil {
		return "", fmt.Errorf("--resume: %w", err)
	}
	if !r.Remote() {
		n, err := recipe.TakeUp(ctx, site.Store, outcomes, worker(site, run.RunID))
		if err != nil {
			return "", err
		}
		if n > 0 {
			fmt.Fprintf(cmd.OutOrStdout(), "%s that were under way when the run was interrupted are done again\n", counted(n, "rollout"))
		}
	}
	return run.RunID, nil
}

// worker is what the runners of a run are called; empty where all are of this
// process.
func worker(site *recipe.Site, runID string) string {
	if site.Own {
		return ""
	}
	return recipe.WorkerName(runID)
}

// clear sees to what interrupted runs left in a database of this process: the
// agent would do that first.
func (o *trainOptions) clear(ctx context.Context, cmd *cobra.Command, site *recipe.Site) error {
	if !site.Own {
		if o.abandon {
			return usageError{errors.New("--abandon: the rollouts of a server are its own; see 'agl rollouts cancel'")}
		}
		return nil
	}
	if o.abandon {
		n, err := recipe.Abandon(ctx, site.Store)
		if err == nil && n > 0 {
			fmt.Fprintf(cmd.OutOrStdout(), "%s of interrupted runs are cancelled\n", counted(n, "rollout"))
		}
		return err
	}
	left, err := recipe.OpenWork(ctx, site.Store)
	if err != nil || len(left) == 0 {
		return err
	}
	var parts []string
	for run, n := range left {
		parts = append(parts, fmt.Sprintf("%s of run %s", counted(n, "rollout"), run))
	}
	slices.Sort(parts)
	return usageError{fmt.Errorf("the database holds unfinished work: %s; go on with --resume RUN, or cancel it with --abandon", strings.Join(parts, ", "))}
}

func findRun(ctx context.Context, s store.RunStore, r *recipe.Recipe, id string) (agl.Run, error) {
	if id != resumeLast {
		run, err := s.Run(ctx, id)
		if err != nil {
			return agl.Run{}, fmt.Errorf("--resume: %w", err)
		}
		return run, nil
	}
	runs, err := s.Runs(ctx, runsLooked)
	if err != nil {
		return agl.Run{}, err
	}
	for _, run := range runs {
		if r.Resumable(run) == nil {
			return run, nil
		}
	}
	return agl.Run{}, usageError{errors.New("--resume last: there is no run of such a file that is not complete")}
}

// runsLooked is among how many of the newest runs --resume last looks.
const runsLooked = 100

// resumeCommand is the command line that goes on with a run.
func resumeCommand(cmd *cobra.Command, args []string, runID string) string {
	words := []string{cmd.CommandPath()}
	for _, a := range args {
		words = append(words, quote(a))
	}
	return strings.Join(append(words, "--resume", runID), " ")
}

// folderOf makes the folder of a database that is to be made.
func folderOf(db string) error {
	path, ok := strings.CutPrefix(db, "sqlite:")
	if !ok {
		return nil
	}
	return os.MkdirAll(filepath.Dir(path), 0o755)
}
