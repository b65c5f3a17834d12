package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
)

// Sync says what an acknowledged write survives.
type Sync string

// The levels of durability.
const (
	// SyncFull survives a loss of power: one fsync for each group of writes.
	SyncFull Sync = "full"
	// SyncNormal survives the end of the process, however it ends.
	SyncNormal Sync = "normal"
)

// Config says which file holds the database and what it may use.
type Config struct {
	// Path is the file; it is created when it does not exist.
	Path string
	// Sync defaults to [SyncFull].
	Sync Sync
	// CacheBytes bounds the page caches of all connections together; at least
	// 1 MiB is used, 0 means 64 MiB. The operating system caches beyond that.
	CacheBytes int64
	// Readers is how many transactions may read at once; 0 means 4.
	Readers int
	// OnCommit is told how many calls a commit served and how long it took to
	// become durable. It must be quick. Nil means nobody listens.
	OnCommit func(calls int, took time.Duration)
	// Logger gets what happens besides the calls; nil discards it.
	Logger *slog.Logger
}

const (
	defaultCacheBytes = 64 << 20
	minCacheBytes     = 1 << 20
	defaultReaders    = 4
)

func (c Config) withDefaults() Config {
	c.Sync = cmp.Or(c.Sync, SyncFull)
	c.CacheBytes = max(cmp.Or(c.CacheBytes, defaultCacheBytes), minCacheBytes)
	c.Readers = cmp.Or(c.Readers, defaultReaders)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate reports the first field that cannot be used.
func (c Config) Validate() error {
	switch {
	case c.Path == "":
		return errors.New("sqlite: Path is empty: name the database file")
	case c.Sync != "" && c.Sync != SyncFull && c.Sync != SyncNormal:
		return fmt.Errorf("sqlite: Sync is %q: must be %q or %q", c.Sync, SyncFull, SyncNormal)
	case c.CacheBytes < 0:
		return fmt.Errorf("sqlite: CacheBytes is %d: must not be negative", c.CacheBytes)
	case c.Readers < 0:
		return fmt.Errorf("sqlite: Readers is %d: must not be negative", c.Readers)
	}
	return nil
}

// Backend keeps everything in one SQLite file. Its methods are safe for
// concurrent use. Make one with [Open].
type Backend struct {
	cfg  Config
	lock *fileLock
	// writer and checkpointer each own a goroutine that Close waits for.
	writer       *writer
	checkpointer *checkpointer
	log          *os.File // the write-ahead log, to flush it; nil until then

	queued atomic.Int64 // length of the queue

	// slots holds one entry for each reader; a nil entry is a connection that
	// was not needed yet.
	slots chan *conn

	closing   chan struct{}
	closeOnce sync.Once
	closeErr  error
}

var (
	_ engine.Backend = (*Backend)(nil)
	_ engine.Recent  = (*Backend)(nil)
)

// Open opens or creates the database of cfg and makes this process its only
// user until Close. An error is one line that says what to do.
func Open(ctx context.Context, cfg Config) (*Backend, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	path, err := realPath(cfg.Path)
	if err != nil {
		return nil, explain(cfg.Path, err)
	}
	cfg.Path = path
	lock, err := lockDatabase(path)
	if err != nil {
		return nil, err
	}
	b := &Backend{cfg: cfg, lock: lock, slots: make(chan *conn, cfg.Readers), closing: make(chan struct{})}
	if err := b.open(ctx); err != nil {
		return nil, errors.Join(err, lock.release())
	}
	return b, nil
}

func (b *Backend) open(ctx context.Context) error {
	if err := checkHeader(b.cfg.Path); err != nil {
		return err
	}
	// Connecting takes the log over; what it was like is only seen before.
	left, err := findLeftover(b.cfg.Path)
	if err != nil {
		return explain(b.cfg.Path, err)
	}
	// Half of the cache is the writer's, since writes read the most.
	c, err := newConn(ctx, b.cfg.Path, append(b.pragmas(b.cfg.CacheBytes/2), b.writerPragmas()...)...)
	if err != nil {
		return explain(b.cfg.Path, err)
	}
	if err := migrate(c, b.cfg.Path); err != nil {
		if code(err) != 0 {
			err = explain(b.cfg.Path, err)
		}
		return errors.Join(err, c.close())
	}
	queued, err := c.number(queueLength)
	if err != nil {
		return errors.Join(explain(b.cfg.Path, err), c.close())
	}
	b.queued.Store(queued)
	c.queued = &b.queued
	beside, err := newConn(ctx, b.cfg.Path, b.pragmas(0)...)
	if err != nil {
		return errors.Join(explain(b.cfg.Path, err), c.close())
	}
	left.report(b.cfg.Logger, b.cfg.Path)
	b.checkpointer = newCheckpointer(beside, b.cfg.Logger)
	b.writer = newWriter(c, b.flush(), b.checkpointer.tidy)
	b.writer.onCommit = b.cfg.OnCommit
	go b.checkpointer.run()
	go b.writer.run()
	if b.writer.sync != nil {
		go b.writer.sync.run()
	}
	for range b.cfg.Readers {
		b.slots <- nil
	}
	return nil
}

func (b *Backend) pragmas(cacheBytes int64) []string {
	return []string{
		"busy_timeout = 10000",
		fmt.Sprintf("cache_size = -%d", max(cacheBytes>>10, 64)),
		"temp_store = MEMORY", // sorting, mostly
	}
}

func (b *Backend) writerPragmas() []string {
	return []string{
		"journal_mode = WAL",
		"synchronous = NORMAL",   // what full adds to it is done by the syncer
		"wal_autocheckpoint = 0", // the checkpointer does it
		"journal_size_limit = 67108864",
	}
}

// Name returns "sqlite".
func (b *Backend) Name() string { return "sqlite" }

// View runs f in a transaction that sees everything acknowledged before.
func (b *Backend) View(ctx context.Context, f func(engine.Reader) error) error {
	c, err := b.acquire(ctx)
	if err != nil {
		return err
	}
	defer func() { b.slots <- c }()
	if _, err := c.exec(beginRead); err != nil {
		return classify(err)
	}
	// Nothing was written, so this ends the snapshot and cannot fail in a way
	// that matters to the caller.
	defer func() { _, _ = c.exec(rollback) }()
	err = classify(f(reader{c}))
	if b.writer.sync != nil {
		b.writer.sync.await() // what was read is not to vanish
	}
	return err
}

// RecentRollout implements [engine.Recent].
func (b *Backend) RecentRollout(id string) (agl.AttemptedRollout, bool) {
	return b.writer.recent.rollout(id)
}

// RecentSpans implements [engine.Recent].
func (b *Backend) RecentSpans(q store.SpanQuery) (store.Page[store.SpanJSON], bool) {
	return b.writer.recent.query(&q)
}

// acquire takes a reader's connection, opening it the first time.
func (b *Backend) acquire(ctx context.Context) (*conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case <-b.closing:
		return nil, store.ErrClosed
	default:
	}
	select {
	case c := <-b.slots:
		if c != nil {
			return c, nil
		}
		c, err := newConn(ctx, b.cfg.Path, append(b.pragmas(b.cfg.CacheBytes/2/int64(b.cfg.Readers)), "query_only = ON")...)
		if err != nil {
			b.slots <- nil
			return nil, classify(err)
		}
		c.queued = &b.queued
		return c, nil
	case <-b.closing:
		return nil, store.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Update runs f in the writer's next transaction and returns once it is
// durable. A context that ends before f has started stops it; afterwards the
// outcome of the commit is returned.
func (b *Backend) Update(ctx context.Context, f func(engine.Tx) error) error {
	return b.writer.update(ctx, f)
}

// Close lets the transactions that were accepted finish, moves the log into the
// database and gives the file free. Calls made later return [store.ErrClosed].
func (b *Backend) Close() error {
	b.closeOnce.Do(func() {
		close(b.closing)
		b.writer.stop()
		b.checkpointer.stop()
		errs := []error{b.closeLog()}
		for range b.cfg.Readers {
			if c := <-b.slots; c != nil {
				errs = append(errs, c.close())
			}
		}
		// The last connection to be closed checkpoints and removes the log.
		errs = append(errs, b.checkpointer.c.close(), b.writer.c.close(), b.lock.release())
		b.closeErr = classify(errors.Join(errs...))
	})
	return b.closeErr
}

// realPath follows links, so that two names of one file meet in one lock.
func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target, nil
	}
	return path, nil // it does not exist yet
}

// magic is how every SQLite file begins.
const magic = "SQLite format 3\x00"

// checkHeader finds the common mistakes before SQLite does, whose words for
// them say less. It runs under the lock and before the first connection: later,
// closing the file would drop the locks that SQLite holds on it.
func checkHeader(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if info, e := os.Stat(path); e == nil && info.IsDir() {
		return fmt.Errorf("cannot open database %s: it is a folder; name a file in it", path)
	}
	if err != nil {
		return explain(path, err)
	}
	defer func() { _ = f.Close() }()
	head := make([]byte, len(magic))
	switch n, err := io.ReadFull(f, head); {
	case n == 0 && errors.Is(err, io.EOF): // created and never written
		return nil
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return explain(path, err)
	case string(head[:n]) != magic:
		return fmt.Errorf("cannot open database %s: it is not an SQLite database; move it away or choose another file", path)
	}
	return nil
}
