// Package runner pulls rollouts from a store and has an agent do them.
//
// A [Runner] claims rollouts one after another (or several at once), fetches
// their resources, opens a trace, calls the agent, writes what it returned and
// reports how the attempt ended:
//
//	r, err := runner.New(runner.Config{Store: s, Agent: solver, WorkerID: "Worker-0"})
//	…
//	err = r.Run(ctx) // until ctx ends
//
// For each attempt the order is: resources, [agent.Hook] OnRolloutStart, trace,
// OnTraceStart, the agent, OnTraceEnd, end of the trace, returned spans and
// reward, OnRolloutEnd, status. A store's long poll makes an idle runner start
// within milliseconds of an enqueue.
//
// # How attempts end
//
// An attempt whose agent returned without an error is reported as succeeded.
// Otherwise the attempt's metadata says why: "error" holds the text and "reason"
// one of the Reason constants. A panic is caught and recorded with its stack.
//
// The agent's context ends, with a cause, when the rollout's time limit passes
// ([ErrTimeout]; reported as timeout), when the rollout is cancelled
// ([ErrCancelled]) or taken over by another attempt ([ErrSuperseded]; in both
// cases the store knows already and nothing is reported), and when the runner is
// told to stop and the grace period is over ([ErrStopped]). An attempt cut short
// by a stop is reported as unresponsive: that is what the store would find out
// by itself later, so rollouts that survive the death of a runner survive its
// stop in the same way, without the wait.
//
// An agent that does not return after its context ended is left behind and
// logged, so that it cannot block the runner.
//
// # When the store is away
//
// The loop does not end because a call failed. Claims carry a key until they
// are answered, so that a repeated one gets the same rollouts; results are kept
// and sent again. Only a store that denies access or is closed ends it, and
// one that never answered at all, after [Config.ConnectTimeout].
package runner
