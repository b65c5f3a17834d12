// Package interop has no code. Its tests run the programs of Agent Lightning
// 0.3, as published for Python, against the server of this module: the client
// of the store, runners, trainers, tracers and readers. README.md says how.
package interop
