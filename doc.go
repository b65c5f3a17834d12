// Package agl is the vocabulary of Agent Lightning: rollouts, attempts, spans,
// resources, workers, runs and models, with the exact JSON that the protocol
// gives them.
//
// A [Rollout] is one task handed to an agent. Each execution of it is an
// [Attempt]. What happens during an attempt is recorded as [Span]s, ordered by
// sequence id; rewards are spans too. [NamedResources] are what an agent is
// given: a model to call, a prompt to use. A [Run] is one execution of an
// algorithm, which reads spans and publishes better resources.
//
// The package holds values and what can be read from them. It does no I/O: the
// contract of the store is in package store, agents are written with package
// agent, and package trainer puts everything together.
package agl
