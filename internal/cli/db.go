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
			"logs of runs that did. What is queued or under way, resources, runs and their metrics stay. The room\n" +
			"is used for what comes next; 'agl db vacuum' gives it back to the disk.",
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
			n, err := sqlite.Prune(cmd.Context(), sqlite.Config{Path: path, Logger: warnings(cmd)}, time.Now().Add(-age), dry)
			if err != nil {
				return err
			}
			verb := "deleted"
			if dry {
				verb = "would delete"
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s %d rollouts, %d attempts, %d spans and %d lines in logs of runs that ended before %s\n", verb, n.Rollouts, n.Attempts, n.Spans, n.LogLines,
				time.Now().Add(-age).Format(time.DateTime))
			return nil
		},
	}
	cmd.Flags().StringVar(&older, "older-than", "", "age of what is deleted, such as 30d, 2w or 12h")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only say what would be deleted")
	return cmd
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
