package scale

import (
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// forget makes the system drop what it holds of a file in memory.
func forget(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
}

// peak is the most memory that a process held, in kB.
func peak(p *os.ProcessState) int64 {
	if use, ok := p.SysUsage().(*syscall.Rusage); ok {
		return use.Maxrss
	}
	return 0
}
