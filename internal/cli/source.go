package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/sqlite"
)

// source says where stored rollouts are read: a server, or a database that no
// server has open.
type source struct {
	clientOptions
	db string
}

func (s *source) bind(cmd *cobra.Command) {
	s.clientOptions.bind(cmd)
	cmd.Flags().StringVar(&s.db, "db", "", "read this database, as sqlite:PATH, rather than ask a server")
}

// open opens the database, which must exist, or reaches the server.
func (s *source) open(ctx context.Context) (store.Store, error) {
	if s.db == "" {
		return s.clientOptions.open()
	}
	if s.server != "" {
		return nil, usageError{errors.New("--db and --server: give one of them")}
	}
	path, err := databaseFile(s.db)
	if err != nil {
		return nil, err
	}
	backend, err := sqlite.OpenExisting(ctx, sqlite.Config{Path: path})
	if err != nil {
		return nil, err
	}
	return engine.New(backend, engine.Config{}), nil
}
