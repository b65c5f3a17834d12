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
// in one transaction and commits once; when one fails after it wrote, the others
// run again without it. With [SyncFull] there is one fsync of the log for the
// whole group, which is what makes durability cheap under load. It happens on a
// goroutine of its own while the writer runs the next group. A caller is told of
// success only after that fsync. With [SyncNormal] there is no fsync: what was
// acknowledged survives the end of the process, and after a loss of power the
// database is sound but may lack the last writes.
//
// [Backend.View] runs on connections of its own, each time in a snapshot that
// holds everything acknowledged before. Readers do not wait for the writer, nor
// it for them; with [SyncFull] a reader that saw a group whose fsync is under way
// waits for that, so that nothing it tells of vanishes. Once an fsync has failed,
// nothing more is written until the database is opened again; reading goes on, and
// shows the group whose callers were told that it may be lost. A third kind of
// connection moves the log into the database beside the writer, so that the log
// stays short and commits stay quick.
//
// The writer remembers the rollouts it dealt with last, so that most of what the
// rules look at before they write needs no query. What a group changed is kept at
// hand for readers too, within bounds: rollouts, and the spans of new attempts.
//
// # What it does not do
//
// The file belongs to one process at a time: a second Open is refused. It must
// be on a local disk; network file systems do not keep the promises that SQLite
// builds on. A full disk fails the call with [store.ErrFull] and leaves the rest
// as it was.
package sqlite
