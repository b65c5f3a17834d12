//go:build !linux

package storehttp

import "net"

// unread reports false: only Linux tells what a peer had not read.
func unread(*net.TCPConn, error) bool { return false }
