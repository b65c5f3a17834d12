package crash

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestOpenFilesAreRaised starts the server under a small soft limit of open
// files: it raises that to the hard one, and says when that is small, too.
func TestOpenFilesAreRaised(t *testing.T) {
	for _, tt := range []struct {
		hard  int
		warns bool
	}{{5000, false}, {300, true}} {
		s := newServer(t)
		client := newTestClient(t, s.url)
		process := exec.Command("sh", "-c", fmt.Sprintf(`ulimit -Sn 200; ulimit -Hn %d; exec "$0"`, tt.hard), os.Args[0])
		process.Env = append(os.Environ(), asServer+"="+s.args)
		var said strings.Builder
		process.Stderr = &said
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = process.Wait()
		}()
		if !ready(t, client.Health, ended) {
			t.Fatalf("the server said %q", said.String())
		}
		limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", process.Process.Pid))
		if err != nil {
			t.Error(err)
		}
		soft := regexp.MustCompile(`Max open files +(\d+)`).FindSubmatch(limits)
		if soft == nil || string(soft[1]) != fmt.Sprint(tt.hard-1) { // the runtime leaves one
			t.Errorf("limits are %s\nwant one less than %d open files", limits, tt.hard)
		}
		if err := process.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		<-ended
		if warns := strings.Contains(said.String(), "few files may be open at once"); warns != tt.warns {
			t.Errorf("with a hard limit of %d the server said %q", tt.hard, said.String())
		}
	}
}
