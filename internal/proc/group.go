package proc

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// Group holds programs that must not outlive this process. The zero value is
// ready. Close it when no program of it runs any more.
type Group struct {
	mu    sync.Mutex
	pipe  *os.File       // what keeper reads; nil before the first start
	shell *exec.Cmd      // keeper
	live  map[string]int // groups of what runs by their marks, 0 until they are known
}

// keeper is a shell script that reads which programs run, and kills them when
// there is nobody left who writes: "+ MARK" before a start, "+ MARK GROUP" after
// it, "- MARK" after the end. On Linux it looks for marks in the environment of
// processes too, several times, for what is being killed may be forking.
const keeper = `
trap '' INT TERM HUP QUIT
list=
while read -r op mark group; do
  case $op in
  +) list="$list $mark:$group" ;;
  -) new=
     for e in $list; do case $e in "$mark":*) ;; *) new="$new $e" ;; esac; done
     list=$new ;;
  esac
done
[ -z "$list" ] && exit 0
marks=
for e in $list; do
  group=${e#*:}
  [ -n "$group" ] && kill -KILL -- "-$group" 2>/dev/null
  marks="$marks -e ` + markName + `=${e%%:*}"
done
[ -r /proc/self/environ ] || exit 0
for round in 1 2 3 4 5; do
  found=
  for file in $(grep -lsaF $marks /proc/[0-9]*/environ); do
    pid=${file#/proc/}; pid=${pid%/environ}
    [ "$pid" = "$$" ] || { kill -KILL "$pid" 2>/dev/null && found=1; }
  done
  [ -z "$found" ] && exit 0
done
`

// note tells the keeper that a program starts, and once it has started, of its
// group. A keeper that is gone is replaced. Detached programs have none.
func (g *Group) note(mark string, group int) error {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.live == nil {
		g.live = map[string]int{}
	}
	g.live[mark] = group
	if g.pipe != nil {
		_, err := g.pipe.WriteString(entry(mark, group))
		if err == nil {
			return nil
		}
		_ = g.close() // killed by somebody
	}
	if err := g.keep(); err != nil {
		return fmt.Errorf("start the shell that ends programs when this process is killed: %w", err)
	}
	var all strings.Builder
	for mark, group := range g.live {
		all.WriteString(entry(mark, group))
	}
	_, err := g.pipe.WriteString(all.String())
	return err
}

func entry(mark string, group int) string {
	if group == 0 {
		return "+ " + mark + "\n"
	}
	return fmt.Sprintf("+ %s %d\n", mark, group)
}

// forget tells the keeper that nothing of a program is left.
func (g *Group) forget(mark string) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.live, mark)
	if g.pipe != nil {
		_, _ = g.pipe.WriteString("- " + mark + "\n") // one that is gone needs not know
	}
}

func (g *Group) keep() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	shell := exec.Command("/bin/sh", "-c", keeper) //nolint:noctx // ends with the pipe
	shell.Stdin = r
	shell.Env = without(os.Environ(), markName)
	apart(shell)
	if err := shell.Start(); err != nil {
		_ = w.Close()
		return err
	}
	g.pipe, g.shell = w, shell
	return nil
}

// Close ends the shell of the group and waits for it. Programs that still run
// are killed.
func (g *Group) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pipe == nil {
		return nil
	}
	return g.close()
}

func (g *Group) close() error {
	_ = g.pipe.Close()
	g.pipe = nil
	err := g.shell.Wait()
	if _, ended := errors.AsType[*exec.ExitError](err); ended {
		return nil // it did what it could
	}
	return err
}

// NewMark returns a mark that no other program has.
func NewMark() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
