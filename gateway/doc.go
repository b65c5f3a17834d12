// Package gateway is the server and the client of the 1.0 protocol over the
// same store that the 0.3 protocol uses.
//
// A trainer makes rollouts, a controller starts them and says how they ended,
// agents call their model below /proxy and post events, the trainer reads the
// events as triplets. [NewHandler] serves all of that, [Client] calls it.
//
// Both protocols share what is stored. A rollout made here is an ordinary one
// with an [agl.Control] beside it; it never enters the queue from which runners
// claim, and controllers are not shown what others made. An event is a span: a
// reward is an annotation, a model request a model call, any other event has the
// name [semconv.SpanEvent] and its type. Read the other way round, annotations
// with a reward and model calls of any attempt are events.
//
// Answers, errors included, are byte for byte those of the Python server. What
// is added to the protocol is added beside it and is never in an answer to a
// client that does not ask for it.
package gateway
