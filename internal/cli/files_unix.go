//go:build unix

package cli

import "syscall"

// openFiles returns how many files this process may have open. The Go runtime
// has raised the soft limit to the hard one by now.
func openFiles() (n uint64, ok bool) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, false
	}
	return uint64(limit.Cur), true //nolint:unconvert // it is signed on FreeBSD
}
