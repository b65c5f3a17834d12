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
	bindDB(cmd, &s.db)
}

func bindDB(cmd *cobra.Command, db *string) {
	cmd.Flags().StringVar(db, "db", "", "read this database, as sqlite:PATH, rather than ask a server")
}

// reading runs a command that reads a database or, without one, asks a server.
func (o *clientOptions) reading(ctx context.Context, db string, do func(store.Store) error) error {
	s, err := (&source{*o, db}).open(ctx)
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.Close())
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
