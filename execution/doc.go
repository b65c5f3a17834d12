// Package execution places an algorithm and the runners that work for it: all in
// one process, or by role in several that meet at a store server.
//
//	role       runs                              store
//	both       algorithm and runners             the given one
//	algorithm  the algorithm                     a server that is running, or the given one served here
//	runner     the runners, until told to stop   a server that is running
//
// Processes of different roles may be started in any order. [FromEnv] reads the
// environment variables by which roles are given from outside.
//
// [Children] starts the runners as processes of their own, in any language.
//
// When the algorithm returns, the runners stop, those elsewhere that work on its
// store too: they claim nothing more, let agents finish within their grace period,
// cancel the rest and report. The first error ends everything in the same way and
// is the one that is returned. An algorithm that is interrupted may go on later, so
// runners elsewhere wait for it. A strategy does not close the store that it was
// given.
package execution
