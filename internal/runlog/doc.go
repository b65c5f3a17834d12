// Package runlog keeps what is said while a run goes on in the log of the run.
//
// A [Log] is a handler beside the one of a program: what that one gets goes to
// it as before, and a copy to the log of every run that is open, in batches and
// from another goroutine, so that a slow store does not hold up the work. Nothing
// that happens to a store stops a run: the handler of the program is told once
// that it failed, and once more when lines are lost for good. What a store is too
// slow to take is dropped and counted, and the count is a line of the log.
//
// Lines from info on are kept however little the program shows, others when it
// shows them.
package runlog
