// Package interop has no code. Its tests run the programs of others against the
// server of this module: Agent Lightning 0.3 as published for Python, with its
// client of the store, runners, trainers, tracers and readers; and the official
// clients of OpenAI and Anthropic. README.md says how.
package interop
