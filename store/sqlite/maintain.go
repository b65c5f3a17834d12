package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// visit opens a connection beside those of a server that may be running, which
// sees one consistent state of the database in each of its transactions.
func visit(ctx context.Context, path string) (*conn, error) {
	// Not opened but by SQLite: closing a file drops the locks that it has on it.
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("there is no database %s; name its file", path)
	case err != nil:
		return nil, explain(path, err)
	case info.IsDir():
		return nil, fmt.Errorf("cannot open database %s: it is a folder; name a file in it", path)
	}
	c, err := look(ctx, fileURI(path))
	switch code(err) {
	case codeCantOpen, codeReadOnly, codeIOErr:
		// On a disk that cannot be written SQLite has to be told so. Without a
		// log nobody writes the file; with one, the index beside it is needed.
		options := "?immutable=1"
		if _, err := os.Stat(path + "-wal"); err == nil {
			options = "?mode=ro"
		}
		c, err = look(ctx, fileURI(path)+options)
	}
	if err != nil {
		return nil, explain(path, err)
	}
	id, err := c.number("PRAGMA application_id")
	if err != nil {
		err = explain(path, err)
	} else if id != applicationID {
		err = foreign(path)
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// look connects, and reads to see that this works.
func look(ctx context.Context, uri string) (*conn, error) {
	c, err := connect(ctx, uri, "busy_timeout = 10000", "temp_store = FILE")
	if err != nil {
		return nil, err
	}
	if _, err := c.number(anyTables); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// Backup copies the database, as it is at one moment, to a new file. A server
// may be running on it and goes on meanwhile. The copy is complete and on disk
// when Backup returns nil, and not there otherwise.
func Backup(ctx context.Context, path, to string) (err error) {
	if _, err := os.Stat(to); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("back up to %s: there is a file of that name; choose another one", to)
	}
	c, err := visit(ctx, path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	part := to + ".part"
	// The copy holds keys of model backends, so it is nobody else's to read; an
	// empty file is what VACUUM INTO accepts.
	f, err := os.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("back up to %s: %w", to, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(part))
		}
	}()
	if err := f.Close(); err != nil {
		return fmt.Errorf("back up to %s: %w", to, err)
	}
	if _, err := c.exec("VACUUM INTO ?", part); err != nil {
		return fmt.Errorf("back up %s to %s: %w", path, to, classify(err))
	}
	if err := settle(ctx, part, to); err != nil {
		return fmt.Errorf("back up to %s: %w", to, err)
	}
	return nil
}

// settle looks at a copy, makes it durable and gives it its name.
func settle(ctx context.Context, part, to string) error {
	c, err := visit(ctx, part)
	if err != nil {
		return err
	}
	found, err := c.problems("PRAGMA quick_check")
	if err = errors.Join(err, c.close()); err != nil {
		return err
	}
	if len(found) > 0 {
		return fmt.Errorf("the copy is damaged: %s", found[0])
	}
	if err := flush(part); err != nil {
		return err
	}
	if err := os.Rename(part, to); err != nil {
		return err
	}
	return flush(filepath.Dir(to))
}

// flush makes a file or a folder durable. Not every system can do that with
// folders; the name then becomes durable a little later.
func flush(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		if synced := f.Sync(); !info.IsDir() {
			err = synced
		}
	}
	return errors.Join(err, f.Close())
}

// problems runs one of SQLite's checks; what it finds is one line each.
func (c *conn) problems(check string) ([]string, error) {
	var out []string
	err := c.query(func(r row) error {
		if text := r.text(0); text != "ok" {
			out = append(out, text)
		}
		return nil
	}, check)
	if code(err) == codeCorrupt { // too damaged to be looked at any further
		return append(out, err.Error()), nil
	}
	return out, err
}

// Vacuum rewrites the database of cfg without the room that deleted rows left,
// and returns its size before and after. No server may be running on it.
func Vacuum(ctx context.Context, cfg Config) (before, after int64, err error) {
	b, err := OpenExisting(ctx, cfg)
	if err != nil {
		return 0, 0, err
	}
	path := b.cfg.Path
	if err := b.Close(); err != nil { // moves the log into the database
		return 0, 0, err
	}
	lock, err := lockDatabase(path)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, lock.release()) }()
	if before, err = fileSize(path); err != nil {
		return 0, 0, err
	}
	c, err := newConn(ctx, path, "busy_timeout = 10000", "temp_store = FILE")
	if err != nil {
		return 0, 0, explain(path, err)
	}
	if err := errors.Join(c.run("VACUUM"), c.close()); err != nil {
		return 0, 0, fmt.Errorf("vacuum %s: %w", path, classify(err))
	}
	after, err = fileSize(path)
	return before, after, err
}

func fileSize(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// OpenExisting is [Open] without making a file.
func OpenExisting(ctx context.Context, cfg Config) (*Backend, error) {
	if _, err := os.Stat(cfg.Path); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("there is no database %s; name its file", cfg.Path)
	}
	return Open(ctx, cfg)
}
