//go:build unix

package local

import (
	"os"

	"golang.org/x/sys/unix"
)

// exclusive takes a file for this process alone.
func exclusive(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }
