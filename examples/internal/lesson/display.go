package lesson

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"agentlightning/algorithm/pg"
	"agentlightning/algorithm/sft"
)

// Display shows the progress of a run: bars that move on a terminal, otherwise
// a line now and then. Its methods are called by one goroutine.
type Display struct {
	out   io.Writer
	bars  *mpb.Progress // nil when out is no terminal
	bar   *mpb.Bar
	start time.Time
	done  int // steps that were done before this phase began
	// text is what the bar shows beside itself; each bar has its own.
	text *atomic.Pointer[string]
	view trainingView
}

// NewDisplay returns a display that writes to out.
func NewDisplay(out io.Writer) *Display {
	d := &Display{out: out}
	if f, ok := out.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			d.bars = mpb.New(mpb.WithOutput(out), mpb.WithWidth(30), mpb.WithRefreshRate(200*time.Millisecond))
		}
	}
	return d
}

// Begin starts a phase of so many steps; done of them are done already.
func (d *Display) Begin(name string, done, steps int) {
	d.start, d.done, d.view = time.Now(), done, trainingView{}
	text := &atomic.Pointer[string]{}
	text.Store(new(string))
	d.text = text
	if d.bars == nil {
		fmt.Fprintf(d.out, "%s: %d steps\n", name, steps-done)
		return
	}
	d.bar = d.bars.AddBar(int64(steps),
		mpb.PrependDecorators(decor.Name(name, decor.WCSyncSpaceR), decor.CountersNoUnit("%d/%d", decor.WCSyncSpace)),
		mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return *text.Load() }, decor.WCSyncSpaceR)))
	d.bar.SetCurrent(int64(done))
}

// End finishes the phase, complete or not, and leaves its last state on screen.
func (d *Display) End() {
	if d.bar == nil {
		return
	}
	d.bar.Abort(false)
	d.bar.Wait()
	d.bar = nil
}

// Close writes what is left; nothing is shown after it.
func (d *Display) Close() {
	d.End()
	if d.bars != nil {
		d.bars.Wait()
	}
}

// Warmup shows a step of the warm-up.
func (d *Display) Warmup(s sft.Step) {
	tokens := s.Metrics["tokens"] / s.Elapsed.Seconds()
	text := fmt.Sprintf("loss %.2f  %s tokens/s  %s left", s.Metrics["loss"], kilo(tokens), d.left(s.Number, s.Of))
	d.step(s.Number, s.Of, max(s.Of/5, 1), text)
}

// trainingView holds what the lines of a training show beside the step itself.
type trainingView struct {
	accuracy                      *float64
	failed                        int
	lastFailure                   string
	rolloutsPerSecond, tokensRate float64
}

func (v *trainingView) update(s pg.Step) {
	if s.Accuracy != nil {
		v.accuracy = s.Accuracy
	}
	v.failed += s.Failed
	v.lastFailure = cmp.Or(s.LastFailure, v.lastFailure)
	if seconds := s.Metrics["seconds_rollouts"]; seconds > 0 {
		v.rolloutsPerSecond = s.Metrics["rollouts_per_second"]
		v.tokensRate = float64(s.Tokens) / seconds
	}
}

// Training shows a step of a training, whose phase began with Begin.
func (d *Display) Training(s pg.Step) {
	v := &d.view
	v.update(s)
	text := "reward "
	if s.Reward != nil {
		text += fmt.Sprintf("%.2f", *s.Reward)
	} else {
		text += "  – "
	}
	if v.accuracy != nil {
		text += fmt.Sprintf("  validation %.2f", *v.accuracy)
	}
	text += fmt.Sprintf("  %.0f rollouts/s  %s tokens/s", v.rolloutsPerSecond, kilo(v.tokensRate))
	if v.failed > 0 {
		text += fmt.Sprintf("  %d failed (%s)", v.failed, clip(v.lastFailure, 60))
	}
	text += "  " + d.left(s.Number, s.Of) + " left"
	every := max(s.Of/10, 1)
	if s.Accuracy != nil {
		every = 1
	}
	d.step(s.Number, s.Of, every, text)
}

func (d *Display) step(number, of, every int, text string) {
	d.text.Store(&text)
	switch {
	case d.bar != nil:
		d.bar.SetCurrent(int64(number))
	case number%every == 0 || number == of:
		fmt.Fprintf(d.out, "  step %d/%d  %s\n", number, of, text)
	}
}

// left estimates the rest of a phase from its steps so far.
func (d *Display) left(number, of int) string {
	if number <= d.done {
		return "–"
	}
	rest := time.Since(d.start) / time.Duration(number-d.done) * time.Duration(of-number)
	return fmt.Sprintf("%d:%02d", int(rest.Minutes()), int(rest.Seconds())%60)
}

func kilo(n float64) string {
	if n < 1000 {
		return fmt.Sprintf("%.0f", n)
	}
	return fmt.Sprintf("%.1fk", n/1000)
}

func clip(text string, n int) string {
	if runes := []rune(text); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return text
}
