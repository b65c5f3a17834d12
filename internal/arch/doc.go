// Package arch has no code. Its tests read the whole repository and keep what
// the layout promises: which package may import which, that the SDK stays free
// of databases and metrics, that pure packages do no I/O, that every package
// says what it is for and every public one shows how it is used, and that the
// README and the documents are true where a machine can tell.
//
// The table of packages is in rules_test.go. A package or an import that is
// not in it fails with a sentence that says what to do; so does a line of the
// table that the code no longer needs.
package arch
