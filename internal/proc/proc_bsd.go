//go:build unix && !linux

package proc

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

const canLimit = false

func lead(cmd *exec.Cmd, _ bool) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

func holdThread() (release func()) { return func() {} }

// reap waits for the end of the program and kills what is left of its group.
func (p *Process) reap() error {
	err := p.cmd.Wait()
	p.setEnded()
	_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
	return err
}

func (p *Process) keepLimits(<-chan struct{}) error { _ = p; return nil }

// sweep does nothing: what left its group is not found here.
func sweep(string, int) {}

// born tells one process from others that have its id at another time; empty
// when there is none.
func born(pid int) string {
	out, err := exec.Command("ps", "-o", "lstart=", "-p", strconv.Itoa(pid)).Output() //nolint:noctx // answers at once
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
