// Package trainer puts an agent, an algorithm and a store together.
//
// [Fit] runs the algorithm and the runners that do its rollouts until the
// algorithm is done:
//
//	err := trainer.Fit(ctx, trainer.Config{
//		Agent:     solver,
//		Algorithm: improve,
//		Store:     store,
//		Runners:   4,
//	}, train, val)
//
// Without an algorithm it does what is queued and returns when nothing is left.
// [Dev] runs the agent over the tasks once and returns what it was worth.
//
// With [Config.Role] the same program plays one part among several processes
// that meet at a server ("agl serve"); see package execution. Where neither the
// configuration nor the environment says otherwise, everything is in this
// process.
package trainer
