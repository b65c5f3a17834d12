//go:build unix && !linux

package proc

import (
	"os/exec"
	"syscall"
)

const canLimit = false

func lead(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

func holdThread() (release func()) { return func() {} }

// reap waits for the end of the program and kills what is left of its group.
func (p *Process) reap() error {
	err := p.cmd.Wait()
	p.setEnded()
	_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
	return err
}

func (p *Process) keepLimits(<-chan struct{}) error { _ = p; return nil }
