//go:build unix

package llmproxy

import (
	"errors"
	"net"
	"syscall"
)

// quiet reports whether nothing has come over an idle connection, not even its
// end.
func quiet(conn net.Conn) bool {
	sys, ok := conn.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := sys.SyscallConn()
	if err != nil {
		return false
	}
	nothing := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		nothing = errors.Is(err, syscall.EAGAIN)
		return true
	})
	return err == nil && nothing
}
