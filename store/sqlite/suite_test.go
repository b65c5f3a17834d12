package sqlite_test

import (
	"path/filepath"
	"testing"

	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/store/sqlite"
	"agentlightning/store/storetest"
)

func open(t *testing.T, o storetest.Options) store.Store {
	t.Helper()
	return engine.New(openBackend(t, sqlite.Config{}), engine.Config{Now: o.Now, HealthScanInterval: o.HealthScanInterval})
}

// openBackend opens a fresh database, or the one of cfg; whoever gets it closes it.
func openBackend(t testing.TB, cfg sqlite.Config) *sqlite.Backend {
	t.Helper()
	if cfg.Path == "" {
		cfg.Path = filepath.Join(t.TempDir(), "agl.db")
	}
	b, err := sqlite.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, open)
}

func TestLinearizable(t *testing.T) {
	t.Parallel()
	storetest.Linearizable(t, open)
}

// TestSameAsMemory drives this backend and the one in memory with the same
// operations: what callers see must be the same.
func TestSameAsMemory(t *testing.T) {
	t.Parallel()
	seeds := 200
	if testing.Short() {
		seeds = 20
	}
	storetest.DifferentialSeeds(t, seeds,
		func(_ *testing.T, o storetest.Options) store.Store {
			return engine.New(memory.New(), engine.Config{Now: o.Now, HealthScanInterval: o.HealthScanInterval})
		},
		func(t *testing.T, o storetest.Options) store.Store {
			b := openBackend(t, sqlite.Config{Sync: sqlite.SyncNormal})
			return engine.New(b, engine.Config{Now: o.Now, HealthScanInterval: o.HealthScanInterval})
		})
}

func BenchmarkStore(b *testing.B) {
	storetest.Benchmark(b, func(b *testing.B) store.Store {
		return engine.New(openBackend(b, sqlite.Config{}), engine.Config{HealthScanInterval: engine.DefaultHealthScanInterval})
	})
}
