// Package access says who may call what on a server that has a token.
//
// Whoever has the server's token may call everything. Agents never get it: they
// get a token that the server signs for their attempt, which opens that
// attempt's model calls and spans and nothing else. Such a token says whom it is
// for and until when, so that nothing has to be stored or looked up for it.
package access
