package proc

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const canLimit = true

// lead makes a command the leader of a session, which ends with us.
func lead(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

func holdThread() (release func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}

// reap waits for the end of the program and kills what it left. It waits first
// without taking its status: until then the id is nobody else's.
func (p *Process) reap() error {
	for {
		if err := unix.Waitid(unix.P_PID, p.PID(), nil, unix.WEXITED|unix.WNOWAIT, nil); err != unix.EINTR {
			break
		}
	}
	p.sweep()
	p.setEnded()
	return p.cmd.Wait()
}

// sweeps is how often processes are looked for that escaped, at most: one that
// forks while it is being looked for is found in the next round.
const sweeps = 20

// sweep kills all that the program started and that still runs.
func (p *Process) sweep() {
	_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
	mark := []byte(markName + "=" + p.mark)
	for range sweeps {
		found := false
		for _, pid := range processes() {
			if pid == p.PID() {
				continue
			}
			env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
			if err == nil && bytes.Contains(env, mark) && syscall.Kill(pid, syscall.SIGKILL) == nil {
				found = true
			}
		}
		if !found {
			return
		}
	}
}

func processes() []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(-1)
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// limitInterval is how often limits are looked at. In between a program may pass
// them, but no process by more than hardRoom: there an allocation fails, which
// the program may take for a fault of its own.
const (
	limitInterval = 50 * time.Millisecond
	hardRoom      = 1 << 30
)

// keepLimits kills the program when it passes a limit, and returns which.
func (p *Process) keepLimits(stop <-chan struct{}) error {
	if !p.limit.Set() {
		return nil
	}
	if p.limit.Memory > 0 {
		most := uint64(p.limit.Memory + hardRoom)
		_ = unix.Prlimit(p.PID(), unix.RLIMIT_DATA, &unix.Rlimit{Cur: most, Max: most}, nil)
	}
	ticker := time.NewTicker(limitInterval)
	defer ticker.Stop()
	for {
		count, memory := p.usage()
		var over error
		switch {
		case p.limit.Processes > 0 && count > p.limit.Processes:
			over = &LimitError{fmt.Sprintf("killed: it had %d processes, more than the limit of %d", count, p.limit.Processes)}
		case p.limit.Memory > 0 && memory > p.limit.Memory:
			over = &LimitError{fmt.Sprintf("killed: it held %d MiB in %d processes, more than the limit of %d MiB", memory>>20, count, p.limit.Memory>>20)}
		}
		if over != nil {
			p.Signal(syscall.SIGKILL)
			return over
		}
		select {
		case <-stop:
			return nil
		case <-ticker.C:
		}
	}
}

// usage counts the processes of the session and what they hold.
func (p *Process) usage() (count int, memory int64) {
	page := int64(os.Getpagesize())
	for _, pid := range processes() {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			continue
		}
		// The name, in brackets, may hold anything; what follows are numbers:
		// state, parent, group, session, …, resident pages.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		const session, resident = 3, 21
		if len(fields) <= resident || string(fields[session]) != strconv.Itoa(p.PID()) || fields[0][0] == 'Z' {
			continue
		}
		count++
		pages, _ := strconv.ParseInt(string(fields[resident]), 10, 64)
		memory += pages * page
	}
	return count, memory
}
