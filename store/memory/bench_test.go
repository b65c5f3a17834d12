package memory_test

import (
	"testing"

	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/store/storetest"
)

func BenchmarkStore(b *testing.B) {
	storetest.Benchmark(b, func(*testing.B) store.Store {
		return engine.New(memory.New(), engine.Config{HealthScanInterval: engine.DefaultHealthScanInterval})
	})
}
