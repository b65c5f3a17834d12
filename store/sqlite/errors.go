package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"agentlightning/store"
)

// errMissing is an update of what does not exist: a broken promise of the engine.
var errMissing = errors.New("it does not exist")

// classify gives errors of SQLite the sentinel that callers branch on and
// leaves others alone. The driver's own type stays inside this package.
func classify(err error) error {
	if err == nil {
		return nil
	}
	switch code(err) {
	case 0:
		return err
	case codeFull:
		return fmt.Errorf("%w: %s", store.ErrFull, err.Error())
	case codeConstraint:
		return fmt.Errorf("%w: %s", store.ErrConflict, err.Error())
	}
	return errors.New(err.Error())
}

// explain says in one line why a database could not be opened and what to do.
func explain(path string, err error) error {
	name := filepath.Base(path)
	var what string
	switch code(err) {
	case codeNotADB:
		what = "it is not an SQLite database; move it away or choose another file"
	case codeCorrupt:
		what = "it is damaged; restore a backup, or move it away to start with an empty one"
	case codePerm, codeReadOnly:
		what = "it cannot be written; change its permissions or choose another file"
	case codeCantOpen:
		what = "SQLite cannot open it; check that the folder exists and can be written"
	case codeFull:
		return fmt.Errorf("cannot open database %s: %w; make room on the disk", path, store.ErrFull)
	case codeIOErr:
		what = "reading or writing fails (" + err.Error() + "); check the disk"
	default:
		if errors.Is(err, os.ErrPermission) {
			what = "permission denied; change the permissions of " + name + " and its folder, or choose another file"
			break
		}
		return fmt.Errorf("cannot open database %s: %w", path, err)
	}
	return fmt.Errorf("cannot open database %s: %s", path, what)
}
