package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"agentlightning/algorithm/stage"
	"agentlightning/internal/recipe"
)

// trainDisplay shows how a training goes: a bar on a terminal, lines elsewhere.
// It is safe for concurrent use.
type trainDisplay struct {
	out  io.Writer
	bars *mpb.Progress // nil when out is no terminal

	mu     sync.Mutex
	bar    *mpb.Bar
	text   *atomic.Pointer[string] // beside the bar
	waits  *atomic.Pointer[string] // what is waited for, behind it
	said   time.Time               // when a line was written last
	closed bool
}

// waitLines is how often a display without a terminal says what is waited for,
// when nothing else is said.
const waitLines = 10 * time.Second

func newTrainDisplay(out io.Writer) *trainDisplay {
	d := &trainDisplay{out: out, said: time.Now()}
	if f, ok := out.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			d.bars = mpb.New(mpb.WithOutput(out), mpb.WithWidth(24), mpb.WithRefreshRate(200*time.Millisecond))
		}
	}
	return d
}

// logWriter is where lines of the log go, above the bar when there is one.
func (d *trainDisplay) logWriter(stderr io.Writer) io.Writer {
	if d.bars != nil {
		return d.bars
	}
	return stderr
}

// line writes a line, above the bar when there is one.
func (d *trainDisplay) line(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.write(format, args...)
}

func (d *trainDisplay) write(format string, args ...any) {
	d.said = time.Now()
	out := d.out
	if d.bars != nil && !d.closed {
		out = d.bars
	}
	fmt.Fprintf(out, format+"\n", args...)
}

func (d *trainDisplay) stage(name string, number, of int, runID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if of > 1 {
		d.write("stage %d of %d: %s, run %s", number, of, name, runID)
	}
	if d.bars == nil {
		return
	}
	d.endBar()
	text, waits := new(atomic.Pointer[string]), new(atomic.Pointer[string])
	text.Store(new(string))
	waits.Store(new(string))
	d.text, d.waits = text, waits
	d.bar = d.bars.AddBar(0,
		mpb.PrependDecorators(decor.Name(name+" "), decor.CountersNoUnit("%d/%d")),
		mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return *text.Load() + "  " + *waits.Load() })))
}

// endBar leaves the last state of the bar on screen.
func (d *trainDisplay) endBar() {
	if d.bar != nil {
		d.bar.Abort(false)
		d.bar.Wait()
		d.bar = nil
	}
}

func (d *trainDisplay) progress(p recipe.Progress) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bar != nil {
		d.text.Store(&p.Text)
		if p.Of > 0 {
			d.bar.SetTotal(int64(p.Of), false)
		}
		d.bar.SetCurrent(int64(p.Step))
		return
	}
	if p.Of > 0 {
		d.write("  %d/%d  %s", p.Step, p.Of, p.Text)
	} else {
		d.write("  %d  %s", p.Step, p.Text)
	}
}

func (d *trainDisplay) wait(s stage.Status) {
	d.mu.Lock()
	defer d.mu.Unlock()
	text := s.Stage
	if s.Last != "" {
		text += ": " + s.Last
	}
	switch {
	case d.bar != nil:
		d.waits.Store(&text)
	case time.Since(d.said) >= waitLines:
		d.write("  %s", text)
	}
}

func (d *trainDisplay) stall(s stage.Status, ok bool) {
	if ok {
		d.line("  stage %s goes on", s.Stage)
		return
	}
	d.line("  %s", s)
}

// close writes what is left. Lines can be written after it.
func (d *trainDisplay) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	d.endBar()
	if d.bars != nil {
		d.bars.Wait()
	}
	d.closed = true
}
