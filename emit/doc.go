// Package emit records what an agent wants to be known about its work: rewards,
// messages, objects, exceptions, annotations, and operations with their inputs
// and outputs.
//
// Everything goes to the trace in the context, so pass on the context that the
// agent was given:
//
//	emit.Message(ctx, "planning")
//	answer, err := emit.Do(ctx, "search", search)
//	emit.Reward(ctx, 0.5, emit.Tag("format"))
//
// [Reward], [Rewards] and [Annotation] return when the store has the span: their
// place among the model calls of the attempt decides what they are credited to.
// The others are written with the next batch.
//
// The …Core functions build the same spans without recording them, for agents
// that return spans instead; the …Of functions read spans back. Attributes are
// flattened and made fit for OpenTelemetry as in the Python implementation, so
// readers in either language see the same. Where Python keeps the order of a
// dict, Go maps are taken in the order of their keys; [agl.Attributes] and
// structs keep their own.
package emit
