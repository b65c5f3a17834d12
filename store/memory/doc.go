// Package memory is a backend of the store that keeps everything in the
// process: for tests, for examples, and for runs whose data nobody needs
// afterwards.
//
//	s := engine.New(memory.New(), engine.Config{})
//
// Transactions take one lock, run one after the other, and are undone when they
// fail. Claiming, looking up by id and reading the spans of an attempt take time
// in proportion to their result, not to what is stored.
//
// Spans may take 0.7 of the memory, or what [SpanLimits] say. When they take
// more, those of the oldest rollouts are dropped, and asking for them is
// [store.ErrEvicted] from then on; rollouts and attempts stay.
package memory
