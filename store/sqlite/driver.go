package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"net/url"
	"path/filepath"
	"strings"

	"modernc.org/sqlite"
)

// The primary result codes of SQLite that are told apart.
const (
	codePerm     = 3
	codeReadOnly = 8
	codeIOErr    = 10
	codeCorrupt  = 11
	codeFull     = 13
	codeCantOpen = 14
	codeNotADB   = 26

	codeConstraint = 19

	// codeNoShared is an extended code: no room for the index of the log.
	codeNoShared = codeIOErr | 19<<8
)

// dial opens one connection to a database file, named by its URI. Connections are used through
// the interfaces of database/sql/driver, not through its pool: who uses which
// connection when is what this package is about.
//
// This file alone knows which driver that is.
func dial(ctx context.Context, uri string) (driver.Conn, error) {
	// SQLite then flushes data and size but not the modification time, which
	// halves an fsync on journaling file systems; where it is not known, the
	// error is of no interest, since the plain fsync is used.
	_, _ = sqlite.Fdatasync(true)
	connector, err := sqlite.NewConnector(uri)
	if err != nil {
		return nil, err
	}
	return connector.Connect(ctx)
}

// fileURI spells a path so that question marks and hashes in it stay part of it.
func fileURI(path string) string {
	path = filepath.ToSlash(path)
	if filepath.IsAbs(path) && !strings.HasPrefix(path, "/") {
		path = "/" + path // C:/data/agl.db
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath()
}

// code returns the primary result code of an error of SQLite, 0 for others. That
// there is no room beside the database counts as a full disk.
func code(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		if e.Code() == codeNoShared {
			return codeFull
		}
		return e.Code() & 0xff
	}
	return 0
}
