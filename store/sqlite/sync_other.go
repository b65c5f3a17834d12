//go:build !linux

package sqlite

import "os"

// syncData waits until the content of a file is on the disk.
func syncData(f *os.File) error { return f.Sync() }
