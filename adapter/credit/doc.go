// Package credit says which model call of a rollout earned which part of its
// reward, and turns that into one advantage a call.
//
// Everything is read from stored spans, so that another rule can be looked at,
// and trained with, without running an agent again:
//
//	rollout := credit.Read(id, group, spans)             // calls and rewards of an attempt
//	assigned, err := credit.Assign(rollouts, rule, how)  // advantages of a batch
//
// A [Rule] is one of [Identical], [LastCall], [Discounted], [StepRewards],
// [AnchorStates], [Linked], [ByRole], a Go function ([Func]), or an expression
// (package credit/cel). [Parse] reads rules as people write them.
//
// [Assign] is the function that training calls and that previews show. A
// rollout is compared with its group once, however many calls it made, with the
// mean of what its calls earned; every call is then judged by the baseline and
// the scale of its rollout.
//
// The functions are pure: they do no I/O and leave the spans alone.
package credit
