package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// errLocked is what tryLock returns when another process, or another backend in
// this one, holds the lock.
var errLocked = errors.New("locked")

// fileLock makes one backend the owner of a database. It is a lock of the
// operating system on a file beside the database, so it ends with the process
// however that ends. The file itself stays: removing it would let two owners
// lock two files of one name.
type fileLock struct{ f *os.File }

func lockDatabase(path string) (*fileLock, error) {
	f, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o644)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("cannot open database %s: the folder %s does not exist; create it or choose another file",
			path, filepath.Dir(path))
	case err != nil:
		return nil, explain(path, err)
	}
	if err := tryLock(f); err != nil {
		holder := heldBy(f)
		_ = f.Close()
		if errors.Is(err, errLocked) {
			return nil, fmt.Errorf("cannot open database %s: %s has it open; stop that one or choose another file", path, holder)
		}
		return nil, fmt.Errorf("cannot lock database %s: %w", path, err)
	}
	// Who holds the lock is for people to read; the lock works without it.
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return &fileLock{f}, nil
}

func heldBy(f *os.File) string {
	b := make([]byte, 32)
	n, _ := f.ReadAt(b, 0)
	if pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n]))); err == nil {
		return fmt.Sprintf("another server (process %d)", pid)
	}
	return "another server"
}

// release gives the lock back, also where a process that is just being started
// still has the file open.
func (l *fileLock) release() error { return errors.Join(unlock(l.f), l.f.Close()) }
