package memory_test

import (
	"testing"

	"go.uber.org/goleak"

	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(_ *testing.T, o storetest.Options) store.Store {
	return engine.New(memory.New(), engine.Config{Now: o.Now, HealthScanInterval: o.HealthScanInterval})
}

func TestStore(t *testing.T) { storetest.Run(t, open) }

// Without an injected clock the suite waits for real, as it does for a store
// behind a network.
func TestStoreOnTheRealClock(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for real")
	}
	storetest.Run(t, open, storetest.Lack{Power: storetest.Clock, Reason: "tried on purpose"})
}
