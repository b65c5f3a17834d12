package sqlite

import (
	"os"
	"syscall"
)

// syncData waits until the content of a file is on the disk. Its modification
// time may not be, which spares a second write on journaling file systems.
func syncData(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if err != syscall.EINTR {
			return err
		}
	}
}
