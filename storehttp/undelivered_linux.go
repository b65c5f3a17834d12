package storehttp

import (
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unread reports whether the peer is gone without having read all that was
// sent, judging by the error that reading from it gave.
func unread(c *net.TCPConn, err error) bool {
	if errors.Is(err, syscall.ECONNRESET) {
		return true
	}
	if !errors.Is(err, io.EOF) {
		return false
	}
	// The peer closed. What it had not received by then it answers with a
	// reset, what it had is acknowledged; either takes one round trip.
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	for wait := time.Millisecond; wait < time.Second; wait *= 2 {
		lost, pending := false, false
		err := raw.Control(func(fd uintptr) {
			if code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR); err == nil && code != 0 {
				lost = true
				return
			}
			left, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
			pending = err == nil && left > 0
		})
		if err != nil || lost {
			return lost
		}
		if !pending {
			return false
		}
		timer := time.NewTimer(wait)
		<-timer.C
	}
	return true
}
