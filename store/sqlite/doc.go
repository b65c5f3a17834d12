// Package sqlite is the default backend of the store: one file, nothing to
// install, durable over crashes and loss of power.
//
//	b, err := sqlite.Open(ctx, sqlite.Config{Path: "agl.db"})
//	…
//	s := engine.New(b, engine.Config{})
//
// # How it works
//
// The database is in write-ahead mode. One goroutine owns the only connection
// that writes. Calls of [Backend.Update] queue up; the writer runs all that wait
// in one transaction, each behind a savepoint so that one that fails takes
// nothing with it, and commits once. With [SyncFull] that is one fsync for the
// whole group, which is what makes durability cheap under load. A caller is told
// of success only after that fsync. With [SyncNormal] there is no fsync: what was
// acknowledged survives the end of the process, and after a loss of power the
// database is sound but may lack the last writes.
//
// [Backend.View] runs on connections of its own, each time in a snapshot that
// holds everything acknowledged before; readers and the writer never wait for
// each other. A third kind of connection moves the log into the database beside
// the writer, so that the log stays short and commits stay quick.
//
// The writer remembers the rollouts it dealt with last, so that most of what the
// rules look at before they write needs no query.
//
// # What it does not do
//
// The file belongs to one process at a time: a second Open is refused. It must
// be on a local disk; network file systems do not keep the promises that SQLite
// builds on. A full disk fails the call with [store.ErrFull] and leaves the rest
// as it was.
package sqlite
