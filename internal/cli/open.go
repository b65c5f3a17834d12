package cli

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/store/sqlite"
)

// openStore opens the store that a --db value names.
func openStore(ctx context.Context, db, sync string, scan time.Duration, logger *slog.Logger) (store.Store, error) {
	kind, path, ok := strings.Cut(db, ":")
	if !ok {
		return nil, usageError{fmt.Errorf("--db %s: must be sqlite:PATH or memory:", db)}
	}
	var backend engine.Backend
	switch {
	case kind == "memory":
		backend = memory.New()
	case kind == "sqlite" && path != "":
		if sync != string(sqlite.SyncFull) && sync != string(sqlite.SyncNormal) {
			return nil, usageError{fmt.Errorf("--sync %s: must be full or normal", sync)}
		}
		var err error
		if backend, err = sqlite.Open(ctx, sqlite.Config{Path: path, Sync: sqlite.Sync(sync), Logger: logger}); err != nil {
			return nil, err
		}
	case kind == "sqlite":
		return nil, usageError{fmt.Errorf("--db %s: the path is missing, as in sqlite:agl.db", db)}
	default:
		return nil, usageError{fmt.Errorf("--db %s: %s databases are not supported yet; use sqlite:PATH or memory:", db, kind)}
	}
	return engine.New(backend, engine.Config{HealthScanInterval: scan, Logger: logger}), nil
}
