// Package lesson holds what the examples that train the built-in model have in
// common: options of the command line, a server and a model in this process,
// warm-up, lines of progress, samples of conversations, and figures as JSON.
package lesson
