// Command measure holds the agl binary to its promises about starting up: how
// long `agl version` takes, how soon a server answers, what it weighs on disk and
// in memory when nothing happens, and how fast it ends when asked to.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The promises.
const (
	maxVersion = 50 * time.Millisecond
	maxReady   = 300 * time.Millisecond
	maxStop    = 10 * time.Second
	maxIdleMB  = 60
	maxSizeMB  = 90 // no promise, but more than this wants a reason
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: measure PATH-OF-AGL")
		os.Exit(2)
	}
	if err := measure(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

func measure(agl string) error {
	dir, err := os.MkdirTemp("", "agl-measure-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	size, err := weigh(agl)
	if err != nil {
		return err
	}
	version, err := median(20, func() (time.Duration, error) {
		start := time.Now()
		err := exec.Command(agl, "version").Run()
		return time.Since(start), err
	})
	if err != nil {
		return fmt.Errorf("agl version: %w", err)
	}
	var idle float64
	var stop time.Duration
	ready, err := median(5, func() (time.Duration, error) {
		s, err := serve(agl, dir)
		if err != nil {
			return 0, err
		}
		idle, stop = max(idle, s.idleMB), max(stop, s.stop)
		return s.ready, nil
	})
	if err != nil {
		return fmt.Errorf("agl serve: %w", err)
	}
	return errors.Join(
		check("size", size, maxSizeMB, "MB"),
		check("agl version, median of 20", version.Seconds()*1000, maxVersion.Seconds()*1000, "ms"),
		check("server ready, median of 5", ready.Seconds()*1000, maxReady.Seconds()*1000, "ms"),
		check("idle memory, largest of 5", idle, maxIdleMB, "MB"),
		check("end after SIGTERM, largest of 5", stop.Seconds(), maxStop.Seconds(), "s"),
	)
}

func check(what string, got, limit float64, unit string) error {
	fmt.Printf("%-32s %8.1f %s (limit %g)\n", what, got, unit, limit)
	if got >= limit {
		return fmt.Errorf("%s: %.1f %s, limit %g", what, got, unit, limit)
	}
	return nil
}

// allMethods is a method that nothing calls and no interface has. The linker
// keeps it when it keeps every exported method, because some function that the
// program can reach looks methods up by a name or number known only as it runs:
// this makes a program of this kind half as large again.
const allMethods = "reflect.(*Value).MethodByName\x00"

// weigh returns the size of a program in MB.
func weigh(program string) (float64, error) {
	b, err := os.ReadFile(program)
	if err != nil {
		return 0, err
	}
	if bytes.Contains(b, []byte(allMethods)) {
		return 0, fmt.Errorf("%s holds every exported method of its types: go build -ldflags=-dumpdep ./cmd/agl 2>&1 | grep ReflectMethod "+
			"names the function that looks methods up", program)
	}
	return float64(len(b)) / 1e6, nil
}

func median(n int, f func() (time.Duration, error)) (time.Duration, error) {
	var all []time.Duration
	for range n {
		d, err := f()
		if err != nil {
			return 0, err
		}
		all = append(all, d)
	}
	slices.Sort(all)
	return all[len(all)/2], nil
}

// life is what one server showed between start and end.
type life struct {
	ready, stop time.Duration
	idleMB      float64
}

func serve(agl, dir string) (life, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	port, err := freePort()
	if err != nil {
		return life{}, err
	}
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, agl, "serve", "--port", strconv.Itoa(port), "--db", "sqlite:"+filepath.Join(dir, strconv.Itoa(port)+".db"))
	cmd.Stdout, cmd.Stderr = &output, &output
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return life{}, err
	}
	var l life
	err = untilHealthy(ctx, port)
	l.ready = time.Since(start)
	if err == nil {
		time.Sleep(time.Second) // idle: what start-up allocated has been counted
		l.idleMB, err = residentMB(cmd.Process.Pid)
	}
	start = time.Now()
	if stop := cmd.Process.Signal(syscall.SIGTERM); err == nil {
		err = stop
	}
	if wait := cmd.Wait(); err == nil && wait != nil {
		err = fmt.Errorf("after SIGTERM: %w", wait)
	}
	l.stop = time.Since(start)
	if err != nil {
		return life{}, fmt.Errorf("%w; it wrote:\n%s", err, &output)
	}
	return l, nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func untilHealthy(ctx context.Context, port int) error {
	url := fmt.Sprintf("http://127.0.0.1:%d/v1/agl/health", port)
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			return fmt.Errorf("%s answered %s", url, resp.Status)
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%s did not answer: %w", url, err)
		}
	}
}

// residentMB reads the resident memory of a process from Linux's /proc.
func residentMB(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kb / 1024, err
		}
	}
	return 0, errors.New("no VmRSS in /proc")
}
