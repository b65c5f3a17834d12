package logs

import (
	"os"
	"sync"
	"time"
)

// followEvery is how often a log file looks whether its name is still its own.
const followEvery = time.Second

// File is a log file that follows its name: when a rotation has moved it away,
// what comes next goes to a new file of that name. It is safe for concurrent use.
type File struct {
	path string

	mu     sync.Mutex
	f      *os.File
	looked time.Time
}

// OpenFile opens the file at path to append to it, or creates it.
func OpenFile(path string) (*File, error) {
	f, err := appendTo(path)
	if err != nil {
		return nil, err
	}
	return &File{path: path, f: f, looked: time.Now()}, nil
}

func appendTo(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

// Write appends a line.
func (l *File) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.looked) >= followEvery {
		l.looked = now
		_ = l.follow() // the old file is better than none
	}
	return l.f.Write(line)
}

// Reopen opens the file of that name now, if it is another one. Without it the
// first line that comes a second later does so.
func (l *File) Reopen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.follow()
}

func (l *File) follow() error {
	open, err := l.f.Stat()
	if err != nil {
		return err
	}
	if named, err := os.Stat(l.path); err == nil && os.SameFile(open, named) {
		return nil
	}
	f, err := appendTo(l.path)
	if err != nil {
		return err
	}
	old := l.f
	l.f = f
	return old.Close()
}

// Close closes the file.
func (l *File) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Close()
}
