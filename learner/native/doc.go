// Package native is the built-in model: a small decoder-only transformer in
// plain Go that is sampled from and trained in the same process, on any
// machine, without a library.
//
// A [Tokenizer] is made from a list of words, a [Model] from a [Config] and the
// tokenizer:
//
//	tok := native.NewTokenizer(native.Words(texts, 256))
//	m, err := native.New(native.Config{Seed: 1}, tok)
//	defer m.Close()
//	res, err := m.Generate(ctx, native.Request{Prompt: prompt, Temperature: 1})
//
// [Model.Generate] and [Model.Stream] may be called by any number of goroutines;
// what is in flight is sampled together. [Model.Update] implements the learner
// contract: imitation of demonstrations and clipped policy gradients. [Server]
// offers the model under OpenAI's HTTP API, [Tokenizer.Render] makes
// demonstrations in the same chat template, [Open] builds the model of a
// checkpoint that [Model.Save] wrote.
//
// # The network
//
// RMS norms before attention and MLP, learned positions, a squared ReLU, no
// biases. The input of a position adds tables of the token itself and of the two
// tokens before it, which lets a small network copy from its context. The
// default is 0.2 million parameters with a vocabulary of 400 tokens; the code is
// made for networks of this kind, up to a few millions.
//
// # What repeats
//
// The same seed, weights and batch give the same tokens and the same new weights
// on the same kind of processor, whatever the number of workers and whatever
// else is in flight. Another instruction set rounds differently. A sequence that
// is in flight during an update goes on with the new weights: its tokens then
// depend on when that happened, and its log-probabilities are those of the
// weights that sampled each token.
//
// # What it is not
//
// Not a model that knows anything: it speaks what it was taught. There are no
// penalties, no constrained decoding and no beam search, and the server refuses
// requests that ask for them.
package native
