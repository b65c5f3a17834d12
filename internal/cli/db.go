package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/sqlite"
)

// defaultDB is where the server keeps everything unless told otherwise.
const defaultDB = "sqlite:agl.db"

func newDB() *cobra.Command {
	var db string
	cmd := &cobra.Command{
		Use:     "db",
		Short:   "Look after the database file: check, back up, vacuum, prune",
		Example: "  agl db check --db sqlite:team.db",
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&db, "db", "", "the database as sqlite:PATH (AGL_DB; default "+defaultDB+")")
	cmd.AddCommand(newDBCheck(&db), newDBBackup(&db), newDBVacuum(&db), newDBPrune(&db))
	return cmd
}

// databaseFile is the file that --db, or the environment, names.
func databaseFile(db string) (string, error) {
	if db == "" {
		db = os.Getenv("AGL_DB")
	}
	if db == "" {
		db = defaultDB
	}
	kind, path, ok := strings.Cut(db, ":")
	if !ok || kind != "sqlite" || path == "" {
		return "", usageError{fmt.Errorf("--db %s: must be sqlite:PATH; other stores have no file to look after", db)}
	}
	return path, nil
}

func newDBCheck(db *string) *cobra.Command {
	return &cobra.Command{
		Use:     "check",
		Short:   "Look for damage; a server may be running on the database",
		Example: "  agl db check\n  agl db check --db sqlite:/backups/monday.db",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := databaseFile(*db)
			if err != nil {
				return err
			}
			r, err := sqlite.Check(cmd.Context(), path)
			if err != nil {
				return err
			}
			for _, p := range r.Problems {
				fmt.Fprintf(cmd.OutOrStdout(), "problem: %s\n", p)
			}
			if n := len(r.Problems); n > 0 {
				return fmt.Errorf("%s has %d problems; restore a backup, or move it away to start anew", path, n)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is sound: schema %d, %s\n", path, r.Schema, holds(&r))
			return nil
		},
	}
}

func holds(r *sqlite.Report) string {
	return fmt.Sprintf("%d rollouts (%d queued), %d attempts, %d spans, %s",
		r.Counts.TotalRollouts, r.Queued, r.Counts.TotalAttempts, r.Counts.TotalSpans, megabytes(r.Bytes))
}

func megabytes(n int64) string { return strconv.FormatFloat(float64(n)/1e6, 'f', 1, 64) + " MB" }

func newDBBackup(db *string) *cobra.Command {
	return &cobra.Command{
		Use:     "backup FILE",
		Short:   "Copy the database as it is at one moment; a server may be running on it",
		Example: "  agl db backup /backups/$(date +%F).db",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("name the file to copy to, as in '%s agl-backup.db'", cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := databaseFile(*db)
			if err != nil {
				return err
			}
			if err := sqlite.ReportLog(path, warnings(cmd)); err != nil {
				return err
			}
			if err := sqlite.Backup(cmd.Context(), path, args[0]); err != nil {
				return err
			}
			info, err := os.Stat(args[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is a copy of %s, %s; it is a database like any other\n", args[0], path, megabytes(info.Size()))
			return nil
		},
	}
}

func newDBVacuum(db *string) *cobra.Command {
	return &cobra.Command{
		Use:     "vacuum",
		Short:   "Give back the room that deleted rollouts left; the server must be stopped",
		Example: "  agl db vacuum",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := databaseFile(*db)
			if err != nil {
				return err
			}
			before, after, err := sqlite.Vacuum(cmd.Context(), sqlite.Config{Path: path, Logger: warnings(cmd)})
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s has %s, before %s\n", path, megabytes(after), megabytes(before))
			return nil
		},
	}
}

func newDBPrune(db *string) *cobra.Command {
	var older string
	var dry bool
	cmd := &cobra.Command{
		Use:   "prune --older-than AGE",
		Short: "Delete rollouts that ended long ago, with their attempts and spans; the server must be stopped",
		Long: "Delete rollouts that ended longer ago than AGE, with their attempts and spans, and the lines in the\n" +
			"logs of runs that did. What is queued or under way, resources, workers, and runs with their metrics\n" +
			"and checkpoints stay. --dry-run tells what would be deleted and what stays. The room is used for what\n" +
			"comes next; 'agl db vacuum' gives it back to the disk. While a server runs, its dashboard does the\n" +
			"same: Store, Retention.",
		Example: "  agl db prune --older-than 30d --dry-run\n  agl db prune --older-than 12h",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := databaseFile(*db)
			if err != nil {
				return err
			}
			age, err := parseAge(older)
			if err != nil {
				return usageError{fmt.Errorf("--older-than %w", err)}
			}
			backend, err := sqlite.OpenExisting(cmd.Context(), sqlite.Config{Path: path, Logger: warnings(cmd)})
			if err != nil {
				return err
			}
			s := engine.New(backend, engine.Config{})
			prune := deleteEnded
			if dry {
				prune = previewEnded
			}
			if err := errors.Join(prune(cmd, s, time.Now().Add(-age)), s.Close()); err != nil {
				return fmt.Errorf("prune %s: %w", path, err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&older, "older-than", "", "age of what is deleted, such as 30d, 2w or 12h")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only say what would be deleted, and what stays")
	return cmd
}

// previewEnded says what would be deleted, and why the rest stays.
func previewEnded(cmd *cobra.Command, s *engine.Store, before time.Time) error {
	p, err := s.Prunable(cmd.Context(), agl.Seconds(before))
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "would delete %s that ended before %s\n", prunedText(p.Pruned), before.Format(time.DateTime))
	if p.Oldest != nil {
		fmt.Fprintf(w, "  the first ended %s, the last %s\n", agl.Time(*p.Oldest).Format(time.DateTime), agl.Time(*p.Newest).Format(time.DateTime))
	}
	fmt.Fprintf(w, "stay:\n  %d rollouts that ended since\n  %d rollouts that wait or are under way: however old, they are never deleted\n", p.Later, p.Open)
	fmt.Fprintf(w, "  %d runs with their metrics and checkpoints: the record of what was trained\n", p.Runs)
	fmt.Fprintf(w, "  %d versions of resources and %d workers: later rollouts and runs refer to them\n", p.Resources, p.Workers)
	return nil
}

// deleteEnded deletes, and tells how far it is every few seconds.
func deleteEnded(cmd *cobra.Command, s *engine.Store, before time.Time) error {
	last := time.Now()
	done, err := s.Prune(cmd.Context(), agl.Seconds(before), func(p store.Pruned) error {
		if time.Since(last) >= progressEvery {
			last = time.Now()
			fmt.Fprintf(cmd.ErrOrStderr(), "deleted %d rollouts so far\n", p.Rollouts)
		}
		return nil
	})
	fmt.Fprintf(cmd.OutOrStdout(), "deleted %s that ended before %s\n", prunedText(done), before.Format(time.DateTime))
	return err
}

func prunedText(p store.Pruned) string {
	return fmt.Sprintf("%d rollouts, %d attempts, %d spans and %d lines in logs of runs, about %s,",
		p.Rollouts, p.Attempts, p.Spans, p.LogLines, megabytes(p.Bytes))
}

// warnings is a logger of what a command should not pass over.
func warnings(cmd *cobra.Command) *slog.Logger {
	return slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// parseAge reads a duration that may be in days or weeks.
func parseAge(text string) (time.Duration, error) {
	const day = 24 * time.Hour
	if text == "" {
		return 0, errors.New("is missing: say how old, as in --older-than 30d")
	}
	age, err := time.ParseDuration(text)
	for suffix, unit := range map[string]time.Duration{"d": day, "w": 7 * day} {
		if number, ok := strings.CutSuffix(text, suffix); ok {
			var n float64
			if n, err = strconv.ParseFloat(number, 64); err == nil {
				age = time.Duration(n * float64(unit))
			}
		}
	}
	if err != nil || age < 0 {
		return 0, fmt.Errorf("%s: must be a duration such as 30d, 2w or 12h", text)
	}
	return age, nil
}
