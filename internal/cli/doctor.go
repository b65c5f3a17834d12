package cli

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"agentlightning/internal/doctor"
	"agentlightning/internal/modellist"
	"agentlightning/store/sqlite"
)

func newDoctor() *cobra.Command {
	var (
		host, db, token string
		port            int
		models          []string
		insecure, tls   bool
	)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look at what the server needs, and say what is wrong and how to mend it",
		Example: "  agl doctor\n" +
			"  agl doctor --db sqlite:team.db --model policy=http://127.0.0.1:8000/v1",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := applySettings(cmd, os.LookupEnv, nil); err != nil {
				return err
			}
			c := doctor.Config{Host: host, Port: port, Token: token, Insecure: insecure, CheckDatabase: checkDatabase}
			if tls {
				c.Scheme = "https"
			}
			var err error
			if c.Models, err = modellist.ParseAll(models, os.LookupEnv); err != nil {
				return usageError{fmt.Errorf("--model %w", err)}
			}
			if !strings.HasPrefix(db, "memory:") {
				if c.Database, err = databaseFile(db); err != nil {
					return err
				}
			}
			c.OpenFiles, _ = openFiles()
			return printFindings(cmd, doctor.Examine(cmd.Context(), c))
		},
	}
	f := cmd.Flags()
	f.StringVar(&host, "host", "127.0.0.1", "address at which the server listens, or is to listen")
	f.IntVar(&port, "port", 4747, "port of the server")
	f.BoolVar(&tls, "tls", false, "the server speaks TLS")
	f.StringVar(&db, "db", defaultDB, "where everything is kept: sqlite:PATH or memory:")
	f.StringArrayVar(&models, "model", nil, "a model backend as for agl serve (repeatable)")
	f.StringVar(&token, "auth-token", "", "token of the server")
	f.BoolVar(&insecure, "insecure", false, "a public address without a token is on purpose")
	f.String(configFlag, "", "file with settings (YAML, the names of the flags as keys)")
	return cmd
}

func checkDatabase(ctx context.Context, path string) (string, []string, error) {
	r, err := sqlite.Check(ctx, path)
	return holds(&r), r.Problems, err
}

func printFindings(cmd *cobra.Command, found []doctor.Finding) error {
	bad := 0
	for _, f := range found {
		fmt.Fprintf(cmd.OutOrStdout(), "%-5s %-11s %s\n", f.Level, f.Name, f.Text)
		if f.Fix != "" {
			fmt.Fprintf(cmd.OutOrStdout(), "%-17s → %s\n", "", f.Fix)
		}
		if f.Level == doctor.Bad {
			bad++
		}
	}
	switch bad {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("one thing is wrong; it is marked %s above", doctor.Bad)
	}
	return fmt.Errorf("%d things are wrong; they are marked %s above", bad, doctor.Bad)
}
