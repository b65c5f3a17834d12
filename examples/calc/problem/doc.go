// Package problem makes the arithmetic word problems that the calculator agent
// is trained and judged on.
//
// [Generate] draws a [Dataset] from a seed: training, validation and test
// problems that share no question. Every problem is written from one of the
// templates of [Templates]; some templates occur in the test problems only, so
// that an agent is also judged on sentences it has never been trained on. Four
// kinds of choices are asked for: which operation ([Operation]), which numbers
// in which order ([Order]), which number to leave alone ([Distractor]) and
// which result to go on with ([TwoSteps]).
//
// [Demonstrate] writes the worked examples of a warm-up. They show the form of
// a conversation and how to copy numbers, but choose operation and operands
// mostly at random: choosing well is left to be learnt.
//
// The package does no I/O beyond the reader or writer it is given and holds no
// state.
package problem
