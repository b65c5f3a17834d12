// Package storetest judges whatever claims to be a store: the engine over a
// backend, or a client of a server that has one.
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T, o storetest.Options) store.Store {
//			return engine.New(memory.New(), engine.Config{Now: o.Now, HealthScanInterval: o.HealthScanInterval})
//		})
//	}
//
// [Run] is the contract, one file a noun. [Differential] drives two stores with
// the same random operations and compares every answer. [Linearizable] records
// what concurrent callers of the queue saw and checks that some order of the
// calls explains it. [Benchmark] measures what a training run does most.
//
// The package imports testing: it belongs in tests only.
package storetest
