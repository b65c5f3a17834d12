package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	agl "agentlightning"
	"agentlightning/store"
)

// logEvery is how often a log that is followed is asked for what is new.
const logEvery = time.Second

func newRunsLog() *cobra.Command {
	var (
		from   source
		q      store.LogQuery
		level  string
		lines  int
		follow bool
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "log RUN",
		Short: "Show what a run said while it went on, and how it ended",
		Long: "Show what a run said while it went on: what trainer, algorithm, learner and agents of its process\n" +
			"logged from info on, and how it ended. " +
			fmt.Sprintf("A run keeps its newest %d lines; how many older\nones have gone is said on standard error.", store.LogLines),
		Example: "  agl runs log run-0123456789ab -n 50\n  agl runs log run-0123456789ab --follow --level warn\n" +
			"  agl runs log run-0123456789ab --grep 'no disk' --json | jq .attributes",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("give one run id, as in '%s run-0123456789ab'; 'agl runs ls' lists them", cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			q.RunID = args[0]
			if level == "warning" {
				level = string(agl.LogWarn)
			}
			switch q.Level = agl.LogLevel(level); {
			case level != "" && !q.Level.Valid():
				return usageError{fmt.Errorf("--level %s: must be debug, info, warn or error", level)}
			case lines < 0 || lines > store.LogPageLines:
				return usageError{fmt.Errorf("--lines %d: must be between 0 and %d; 0 is all", lines, store.LogPageLines)}
			}
			return withRuns(cmd, &from, func(st store.Store) error {
				w := &logWriter{w: cmd.OutOrStdout(), notes: cmd.ErrOrStderr(), json: asJSON, people: forPeople(cmd)}
				return w.show(cmd.Context(), st, q, lines, follow)
			})
		},
	}
	from.bind(cmd)
	f := cmd.Flags()
	f.BoolVarP(&follow, "follow", "f", false, "go on until the run ends")
	f.StringVar(&level, "level", "", "only lines of this level and above: debug, info, warn or error")
	f.StringVar(&q.Text, "grep", "", "only lines with this text in the message or the attributes, whatever its case")
	f.IntVarP(&lines, "lines", "n", 0, "only the newest ones that match, so many; 0 is all")
	f.BoolVar(&asJSON, "json", false, "one JSON object a line")
	return cmd
}

// logWriter writes lines of a log.
type logWriter struct {
	w, notes io.Writer
	json     bool
	people   bool // read it, so that times are those of the clock on the wall
	read     bool // a part
}

// show writes the log of a run, and what comes when it is followed.
func (w *logWriter) show(ctx context.Context, st store.RunStore, q store.LogQuery, lines int, follow bool) error {
	q.Limit, q.Newest = lines, lines > 0
	ticker := time.NewTicker(logEvery)
	defer ticker.Stop()
	for {
		// Asked for first: what is said before the end is then in the log.
		run, err := st.Run(ctx, q.RunID)
		if err == nil {
			q.After, err = w.part(ctx, st, q)
		}
		switch {
		case ctx.Err() != nil && follow:
			return nil // it was told to stop
		case err != nil:
			return err
		case !follow || run.Status != agl.RunRunning:
			return nil
		}
		q.Limit, q.Newest = 0, false
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// part writes what a query finds and returns the position to go on from.
func (w *logWriter) part(ctx context.Context, st store.RunStore, q store.LogQuery) (int64, error) {
	for {
		page, err := st.RunLog(ctx, q)
		if err != nil {
			return 0, err
		}
		if gone := page.First - 1 - q.After; gone > 0 {
			w.dropped(gone)
		}
		w.read = true
		for i := range page.Lines {
			if err := w.write(&page.Lines[i]); err != nil {
				return 0, err
			}
		}
		if !page.More || q.Newest {
			return page.Last, nil
		}
		q.After = page.Lines[len(page.Lines)-1].Position
	}
}

func (w *logWriter) dropped(n int64) {
	what := "older " + plural(n, "line has", "lines have") + " gone: a run keeps its newest"
	if w.read {
		what = plural(n, "line has", "lines have") + " gone before they could be read: a run keeps its newest"
	}
	fmt.Fprintf(w.notes, "%d %s %d\n", n, what, store.LogLines)
}

func plural(n int64, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func (w *logWriter) write(l *agl.LogLine) error {
	if w.json {
		return json.NewEncoder(w.w).Encode(l)
	}
	when := agl.Time(l.Time).UTC().Format("2006-01-02T15:04:05.000Z")
	if w.people {
		when = agl.Time(l.Time).Format("2006-01-02 15:04:05.000")
	}
	attributes, err := attributesText(l.Attributes)
	if err != nil {
		return fmt.Errorf("attributes of line %d: %w", l.Position, err)
	}
	_, err = fmt.Fprintf(w.w, "%s %-5s %s%s\n", when, strings.ToUpper(string(l.Level)), strings.ReplaceAll(l.Message, "\n", "\\n"), attributes)
	return err
}

// attributesText writes the members of an object as key=value, a space before
// each, in their order.
func attributesText(raw json.RawMessage) (string, error) {
	in := json.NewDecoder(bytes.NewReader(raw))
	if _, err := in.Token(); err != nil {
		return "", err
	}
	var b strings.Builder
	for in.More() {
		key, err := in.Token()
		if err != nil {
			return "", err
		}
		var value json.RawMessage
		if err := in.Decode(&value); err != nil {
			return "", err
		}
		text := string(value)
		var s string
		if json.Unmarshal(value, &s) == nil && text != "null" {
			if text = s; s == "" || strings.ContainsAny(s, " \t\r\n\"=") {
				text = strconv.Quote(s)
			}
		}
		fmt.Fprintf(&b, " %v=%s", key, text)
	}
	return b.String(), nil
}

func newRunsRemove() *cobra.Command {
	var (
		from            source
		yes, force, dry bool
	)
	cmd := &cobra.Command{
		Use:   "rm RUN…",
		Short: "Delete runs with their metrics, records of checkpoints and logs; rollouts stay",
		Long: "Delete runs with their metrics, records of checkpoints and logs. Rollouts that they asked for stay,\n" +
			"with the id of the run in their metadata, and so do files of weights. A run that is running is\n" +
			"refused; --force deletes it all the same, such as one whose process was killed. A process that still\n" +
			"works on it fails at its next step.",
		Example: "  agl runs rm run-0123456789ab\n  agl runs rm run-0123456789ab run-ba9876543210 --yes",
		Args:    someRuns(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withRuns(cmd, &from, func(st store.Store) error { return removeRuns(cmd, st, args, yes, force, dry) })
		},
	}
	from.bind(cmd)
	f := cmd.Flags()
	f.BoolVar(&yes, "yes", false, "do not ask")
	f.BoolVar(&force, "force", false, "also those that are running, or that are called so since their process was killed")
	f.BoolVar(&dry, "dry-run", false, "only say what would be deleted")
	return cmd
}

// removeRuns looks at all runs before it deletes the first.
func removeRuns(cmd *cobra.Command, st store.Store, ids []string, yes, force, dry bool) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	var running []string
	for i, id := range ids {
		if slices.Contains(ids[:i], id) {
			return usageError{fmt.Errorf("%s is named twice", id)}
		}
		run, err := st.Run(ctx, id)
		if err != nil {
			return err
		}
		if run.Status == agl.RunRunning {
			running = append(running, id)
		}
		if !dry && yes {
			continue
		}
		metrics, err := st.StepMetrics(ctx, id, -1)
		if err != nil {
			return err
		}
		points, err := st.Checkpoints(ctx, id)
		if err != nil {
			return err
		}
		log, err := st.RunLog(ctx, store.LogQuery{RunID: id, Limit: 1})
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s, %s, %s\n", id, run.Algorithm, run.Status, counted(len(metrics), "step"),
			counted(len(points), "checkpoint"), counted(int(log.Last-log.First+1), "line")+" of log")
	}
	switch {
	case len(running) > 0 && !force:
		return fmt.Errorf("nothing was deleted: %s running; stop it first, or give --force when nothing works on it any more",
			strings.Join(running, ", ")+" "+plural(int64(len(running)), "is", "are"))
	case dry:
		return nil
	case !yes:
		if err := confirm(cmd, fmt.Sprintf("delete %s? Their rollouts and files of weights stay.", counted(len(ids), "run"))); err != nil {
			return err
		}
	}
	for i, id := range ids {
		if err := st.DeleteRun(ctx, id, force); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", id, err), stoppedAfter(i, len(ids)))
		}
		fmt.Fprintf(out, "%s\tis deleted\n", id)
	}
	return nil
}

// errUnconfirmed is the answer to a question that was not yes.
var errUnconfirmed = errors.New("nothing was done")

// confirm asks the person at the terminal.
func confirm(cmd *cobra.Command, question string) error {
	nobody := usageError{errors.New("nothing was done: nobody is there to ask; give --yes")}
	if !isTerminal(cmd.InOrStdin()) {
		return nobody
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s [y/N] ", question)
	var said string
	_, err := fmt.Fscanln(cmd.InOrStdin(), &said)
	if errors.Is(err, io.EOF) {
		return nobody
	}
	if err != nil || !strings.EqualFold(said, "y") && !strings.EqualFold(said, "yes") {
		return errUnconfirmed
	}
	return nil
}
