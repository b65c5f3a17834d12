package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"agentlightning/store"
	"agentlightning/tracking"
)

// Forms of exported runs.
const (
	formJSONL       = "jsonl"
	formTensorBoard = "tensorboard"
	formMLflow      = "mlflow"
)

func runForms() []string { return []string{formJSONL, formTensorBoard, formMLflow} }

// runsExport are the flags of agl runs export.
type runsExport struct {
	source
	form, to  string
	noSamples bool
	set       string
	mlflow    tracking.MLflow
}

func newRunsExport() *cobra.Command {
	var o runsExport
	cmd := &cobra.Command{
		Use:   "export RUN…",
		Short: "Write runs for other trackers: JSON lines, TensorBoard, MLflow",
		Long: "Write runs in a form that other trackers read:\n\n" +
			"  jsonl        one JSON object a line: the run, the metrics of each step, checkpoints, and the rollouts\n" +
			"               that it asked for with their rewards\n" +
			"  tensorboard  an event file a run in --to FOLDER/RUN, for 'tensorboard --logdir FOLDER' and 'wandb sync'\n" +
			"  mlflow       runs of an experiment on the server at --mlflow, which ask for what is in MLFLOW_TRACKING_TOKEN,\n" +
			"               or MLFLOW_TRACKING_USERNAME and _PASSWORD. A run that was exported before is gone on with, so that\n" +
			"               one that is under way can be exported again and again",
		Example: "  agl runs export run-0123456789ab --to run.jsonl\n" +
			"  agl runs export run-0123456789ab run-ba9876543210 --form tensorboard --to events\n" +
			"  agl runs export run-0123456789ab --form mlflow --mlflow http://127.0.0.1:5000 --experiment calc",
		Args: someRuns(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(cmd); err != nil {
				return usageError{err}
			}
			return withRuns(cmd, &o.source, func(st store.Store) error { return o.export(cmd, st, args) })
		},
	}
	o.bind(cmd)
	f := cmd.Flags()
	f.StringVar(&o.form, "form", formJSONL, "what to write: "+strings.Join(runForms(), ", "))
	f.StringVar(&o.to, "to", "", "jsonl: file to write, which must not exist (default: standard output); tensorboard: folder to write to")
	f.BoolVar(&o.noSamples, "no-samples", false, "jsonl: leave out the rollouts, which take the longest to read")
	bindRewardSet(cmd, &o.set)
	f.StringVar(&o.mlflow.URL, "mlflow", "", "mlflow: address of the server (MLFLOW_TRACKING_URI)")
	f.StringVar(&o.mlflow.Experiment, "experiment", "agent-lightning", "mlflow: name of the experiment")
	return cmd
}

func (o *runsExport) check(cmd *cobra.Command) error {
	if !slices.Contains(runForms(), o.form) {
		return fmt.Errorf("--form %s: must be one of %s", o.form, strings.Join(runForms(), ", "))
	}
	for flag, forms := range map[string][]string{
		"to": {formJSONL, formTensorBoard}, "no-samples": {formJSONL}, rewardSetFlag: {formJSONL}, "mlflow": {formMLflow}, "experiment": {formMLflow},
	} {
		if cmd.Flags().Changed(flag) && !slices.Contains(forms, o.form) {
			return fmt.Errorf("--%s: --form %s does not look at it", flag, o.form)
		}
	}
	if o.form == formTensorBoard && o.to == "" {
		return errors.New("--to: the folder for the event files is missing")
	}
	if o.form == formMLflow {
		if o.mlflow.URL == "" {
			o.mlflow.URL = os.Getenv("MLFLOW_TRACKING_URI")
		}
		if !strings.HasPrefix(o.mlflow.URL, "http://") && !strings.HasPrefix(o.mlflow.URL, "https://") {
			return fmt.Errorf("--mlflow %q: must be the address of a server, as in http://127.0.0.1:5000", o.mlflow.URL)
		}
		o.mlflow.Token = os.Getenv("MLFLOW_TRACKING_TOKEN")
		o.mlflow.User, o.mlflow.Password = os.Getenv("MLFLOW_TRACKING_USERNAME"), os.Getenv("MLFLOW_TRACKING_PASSWORD")
	}
	return checkRewardSet(o.set)
}

func (o *runsExport) export(cmd *cobra.Command, st store.Store, ids []string) error {
	ctx := cmd.Context()
	if o.form == formJSONL {
		lines := 0
		err := writeTo(cmd, o.to, func(w io.Writer) error {
			out := &countedLines{w: bufio.NewWriter(w)}
			for _, id := range ids {
				if err := o.jsonl(ctx, st, id, out); err != nil {
					return err
				}
			}
			lines = out.lines
			return out.w.Flush()
		})
		if err == nil && o.to != "" {
			fmt.Fprintf(cmd.OutOrStdout(), "%s holds %s of %s\n", o.to, counted(lines, "line"), counted(len(ids), "run"))
		}
		return err
	}
	for _, id := range ids {
		r, err := tracking.Read(ctx, st, id)
		if err != nil {
			return err
		}
		if o.form == formTensorBoard {
			err = o.events(cmd, r)
		} else {
			err = o.toMLflow(cmd, r)
		}
		if err != nil {
			return fmt.Errorf("run %s: %w", id, err)
		}
	}
	return nil
}

// countedLines counts the writes of whole lines.
type countedLines struct {
	w     *bufio.Writer
	lines int
}

func (c *countedLines) Write(p []byte) (int, error) {
	c.lines++
	return c.w.Write(p)
}

func (o *runsExport) jsonl(ctx context.Context, st store.Store, id string, out io.Writer) error {
	r, err := tracking.Read(ctx, st, id)
	if err != nil {
		return err
	}
	if err := tracking.WriteJSONL(out, r); err != nil || o.noSamples {
		return err
	}
	return r.Samples(ctx, st, -1, o.set, func(s *tracking.Sample) error {
		return tracking.WriteLine(out, tracking.Line{Kind: "sample", RunID: id, Sample: s})
	})
}

// events writes the event file of a run anew: what was there of it before would
// be read twice.
func (o *runsExport) events(cmd *cobra.Command, r *tracking.Run) error {
	folder := filepath.Join(o.to, r.RunID)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	path := filepath.Join(folder, tracking.EventFileName(r))
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	err := writeFile(path, func(w io.Writer) error { return tracking.WriteEvents(w, r) })
	if err == nil {
		fmt.Fprintf(cmd.OutOrStdout(), "%s holds %s of %s\n", path, counted(len(r.Metrics), "step"), r.RunID)
	}
	return err
}

// writeFile writes a file that must not exist. One that could not be written
// whole is removed.
func writeFile(path string, write func(io.Writer) error) (err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return usageError{fmt.Errorf("--to %s: the file exists; remove it or choose another", path)}
	}
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	out := bufio.NewWriter(file)
	return errors.Join(write(out), out.Flush())
}

func (o *runsExport) toMLflow(cmd *cobra.Command, r *tracking.Run) error {
	done, err := o.mlflow.Export(cmd.Context(), r)
	if err != nil {
		return err
	}
	what := "made"
	if done.Continued {
		what = "gone on with"
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: run %s of experiment %s %s, %s sent\n", r.RunID, done.RunID, done.ExperimentID, what, counted(done.Metrics, "value"))
	if len(done.Cut) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "cut to what MLflow takes: %s\n", strings.Join(done.Cut, ", "))
	}
	return nil
}
