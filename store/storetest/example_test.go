package storetest_test

import (
	"fmt"
	"testing"

	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/store/storetest"
)

// A backend is tried by the whole contract, and beside another one.
func Example() {
	open := func(_ *testing.T, o storetest.Options) store.Store {
		return engine.New(memory.New(), engine.Config{Now: o.Now, HealthScanInterval: o.HealthScanInterval})
	}
	for _, test := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"TestStore", func(t *testing.T) { storetest.Run(t, open) }},
		{"TestLikeAnother", func(t *testing.T) { storetest.DifferentialSeeds(t, 10, open, open) }},
		{"TestQueue", func(t *testing.T) { storetest.Linearizable(t, open) }},
	} {
		fmt.Println(test.name) // a test file has a function for each
	}
	// Output:
	// TestStore
	// TestLikeAnother
	// TestQueue
}
