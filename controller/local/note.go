package local

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"agentlightning/internal/proc"
)

// execution is an agent that was started for a rollout.
type execution struct {
	RolloutID string        `json:"rollout_id"`
	Process   proc.Identity `json:"process"`
	Started   time.Time     `json:"started"`
	// Killed is why the controller ended it, so that this is what is reported
	// however it ends.
	Killed string `json:"killed,omitempty"`

	child *proc.Process // nil for one that was adopted
}

// running reports whether the agent still runs.
func (e *execution) running() bool {
	if e.child == nil {
		return e.Process.Alive()
	}
	select {
	case <-e.child.Done():
		return false
	default:
		return true
	}
}

// notes is the folder that remembers executions: a file for each, and beside it
// the exit status once its shell wrote that.
type notes struct {
	dir  string
	lock *os.File
}

func openNotes(dir string) (*notes, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := exclusive(lock); err != nil {
		return nil, errors.Join(fmt.Errorf("another controller works in %s: %w; stop it, or give this one a folder of its own", dir, err), lock.Close())
	}
	return &notes{dir, lock}, nil
}

func (n *notes) close() error { return n.lock.Close() }

// path is the file of a rollout, whose id may be any text.
func (n *notes) path(rolloutID, suffix string) string {
	sum := sha256.Sum256([]byte(rolloutID))
	return filepath.Join(n.dir, hex.EncodeToString(sum[:12])+suffix)
}

const (
	noteSuffix = ".json"
	exitSuffix = ".exit"
)

func (n *notes) write(e *execution) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	path := n.path(e.RolloutID, noteSuffix)
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func (n *notes) remove(rolloutID string) error {
	var errs []error
	for _, suffix := range []string{noteSuffix, exitSuffix} {
		if err := os.Remove(n.path(rolloutID, suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// read returns what a predecessor noted.
func (n *notes) read() ([]*execution, error) {
	files, err := filepath.Glob(filepath.Join(n.dir, "*"+noteSuffix))
	if err != nil {
		return nil, err
	}
	var out []*execution
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		e := &execution{}
		if err := json.Unmarshal(text, e); err != nil {
			return nil, fmt.Errorf("note %s: %w", file, err)
		}
		out = append(out, e)
	}
	return out, nil
}

// exitCode returns the status with which an agent ended: negative for a signal,
// and whether it is known.
func (n *notes) exitCode(e *execution) (int, bool) {
	if e.child != nil {
		exit := e.child.Wait() // it has ended
		if exit.Signal != 0 {
			return -int(exit.Signal), true
		}
		return signalled(exit.Code), exit.Err == nil
	}
	text, err := os.ReadFile(n.path(e.RolloutID, exitSuffix))
	if err != nil {
		return 0, false
	}
	code, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return signalled(code), err == nil
}

// signalled reads the status of a shell, which adds 128 to a signal.
func signalled(code int) int {
	const added, most = 128, 31
	if code > added && code <= added+most {
		return added - code
	}
	return code
}
