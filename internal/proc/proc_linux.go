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

// lead makes a command the leader of a session, which ends with us unless it is
// detached.
func lead(cmd *exec.Cmd, detached bool) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if !detached {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
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
	_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
	sweep(p.mark, p.PID())
	p.setEnded()
	return p.cmd.Wait()
}

// sweeps is how often processes are looked for that escaped, at most: one that
// forks while it is being looked for is found in the next round.
const sweeps = 20

// sweep kills every process with a mark, but one that has ended and is not yet
// waited for.
func sweep(text string, ended int) {
	mark := []byte(markName + "=" + text)
	for range sweeps {
		found := false
		for _, pid := range processes() {
			if pid == ended {
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
		fields := status(pid)
		if fields == nil || string(fields[statSession]) != strconv.Itoa(p.PID()) || fields[statState][0] == 'Z' {
			continue
		}
		count++
		pages, _ := strconv.ParseInt(string(fields[statResident]), 10, 64)
		memory += pages * page
	}
	return count, memory
}

// Fields of what Linux says about a process, counted from its state.
const (
	statState    = 0
	statSession  = 3
	statBorn     = 19 // ticks since the machine started
	statResident = 21 // pages
)

// status is what Linux says about a process from its state on, nil when there is
// none. Its name, in brackets, may hold anything, so it is skipped.
func status(pid int) [][]byte {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= statResident {
		return nil
	}
	return fields
}

// born tells one process from others that have its id at another time; empty
// when there is none.
func born(pid int) string {
	fields := status(pid)
	if fields == nil || fields[statState][0] == 'Z' {
		return ""
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(boot)) + " " + string(fields[statBorn])
}
