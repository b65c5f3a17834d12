package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"agentlightning/internal/daemon"
	"agentlightning/internal/logs"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/store/sqlite"
)

// openStore opens the store that a --db value names.
func openStore(ctx context.Context, db, sync string, scan time.Duration, log *logs.Loggers, m *daemon.Metrics) (*engine.Store, error) {
	kind, path, ok := strings.Cut(db, ":")
	if !ok {
		return nil, usageError{fmt.Errorf("--db %s: must be sqlite:PATH or memory:", db)}
	}
	var backend engine.Backend
	switch {
	case kind == "memory":
		var err error
		if backend, err = memory.NewLimited(memory.SpanLimits{}, log.Logger("db")); err != nil {
			return nil, err
		}
	case kind == "sqlite" && path != "":
		if sync != string(sqlite.SyncFull) && sync != string(sqlite.SyncNormal) {
			return nil, usageError{fmt.Errorf("--sync %s: must be full or normal", sync)}
		}
		var err error
		if backend, err = sqlite.Open(ctx, sqlite.Config{
			Path: path, Sync: sqlite.Sync(sync),
			OnCommit: m.OnCommit, Logger: log.Logger("db"),
		}); err != nil {
			return nil, err
		}
		if err := m.WatchFile(path); err != nil {
			return nil, errors.Join(err, backend.Close())
		}
		threadForDisk()
	case kind == "sqlite":
		return nil, usageError{fmt.Errorf("--db %s: the path is missing, as in sqlite:agl.db", db)}
	default:
		return nil, usageError{fmt.Errorf("--db %s: %s databases are not supported yet; use sqlite:PATH or memory:", db, kind)}
	}
	return engine.New(backend, engine.Config{HealthScanInterval: scan, OnChange: m.OnChange, Logger: log.Logger("store")}), nil
}

// threadForDisk lets one more goroutine run than there are processors. One of
// them is most of the time in a write or an fsync, where the runtime takes a while
// to notice that its place is free. It gives a fifteenth more on two processors. A
// limit that somebody set stays.
func threadForDisk() {
	if n := runtime.NumCPU(); os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) == n {
		runtime.GOMAXPROCS(n + 1)
	}
}

// fewFiles is from how many connections on a server is in want of file handles.
const fewFiles = 4096
