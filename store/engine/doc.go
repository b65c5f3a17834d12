// Package engine holds every rule of the store once: who may claim a rollout,
// what an attempt's outcome does to it, when silence counts as failure, how
// spans are numbered. [Store] implements the contract of package store over a
// [Backend], which only remembers.
//
//	s := engine.New(memory.New(), engine.Config{Logger: logger})
//	defer s.Close()
//
// A rollout moves like this. Besides the edges drawn here, UpdateRollout may
// put it into any status by hand.
//
//	enqueue ──► queuing ──┐                  ┌──────────► succeeded
//	                      ├─ claim ► preparing ─ span ► running
//	            requeuing ┘             │                  │
//	                ▲  │                └────────┬─────────┘
//	                │  └─ late span ► running    │ the latest attempt failed,
//	                │                            │ timed out or fell silent
//	                ├─ another attempt allowed ──┤
//	                                             └─ none left ► failed
//
// An attempt moves like this. Only the newest attempt moves its rollout.
//
//	preparing ── span ──► running ──► succeeded | failed      (reported)
//	    │                  ▲  │
//	    │           span   │  │ too old ───► timeout
//	    │                  │  │
//	    └── silent ──► unresponsive
//
// Every call is one transaction of the backend, and many may be in flight. What
// must not happen twice, or not before the commit (waking waiters, logs, the
// hook for changes), happens after it.
package engine
