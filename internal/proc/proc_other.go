//go:build !unix

package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

const canLimit = false

var signalNames map[syscall.Signal]string

func supported() error {
	return fmt.Errorf("programs cannot be run on %s, where nothing ends all that they start: %w", runtime.GOOS, errors.ErrUnsupported)
}

func lead(*exec.Cmd, bool) {}
func apart(*exec.Cmd)      {}

func holdThread() (release func()) { return func() {} }

// Signal does nothing; no program was started.
func (p *Process) Signal(syscall.Signal) { _ = p }

func (p *Process) reap() error { return p.cmd.Wait() }

func (p *Process) keepLimits(<-chan struct{}) error { _ = p; return nil }

func endSignal(*os.ProcessState) syscall.Signal { return 0 }

func sweep(string, int) {}

func born(int) string { return "" }

func killGroup(int) {}
