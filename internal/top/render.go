package top

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/charmbracelet/x/ansi"

	agl "agentlightning"
)

// Section is a part of what is shown.
type Section int

// The sections, in the order of a screen.
const (
	Everything Section = iota
	Runs
	QueueSection
	Workers
	Models
	Failures
	sections
)

var sectionNames = [sections]string{"all", "runs", "queue", "workers", "models", "failures"}

// View says how to show a state.
type View struct {
	Width   int // characters of a line; 0 for any number
	Height  int // lines; 0 for any number
	Section Section
	Styled  bool // headings are bold
}

// shownAtOnce is how many rows of each table are shown where all are.
const (
	shownAtOnce = 5
	shownPlain  = 20 // where there is no end of lines
)

// Render writes a state as lines. What does not fit is cut, and said to be.
func Render(s *State, v View) string {
	p := page{View: v}
	for i, write := range [sections]func(*State){
		Runs: p.runs, QueueSection: p.queue, Workers: p.workers, Models: p.models, Failures: p.failures,
	} {
		if write != nil && (v.Section == Everything || v.Section == Section(i)) {
			write(s)
		}
	}
	for _, m := range s.Missing {
		p.line("not shown: " + m)
	}
	if v.Height > 0 && len(p.lines) > v.Height {
		p.lines = append(p.lines[:v.Height-1], p.cut(fmt.Sprintf("… %d more lines", len(p.lines)-v.Height+1)))
	}
	return strings.Join(p.lines, "\n") + "\n"
}

type page struct {
	View
	lines []string
}

// clean makes one line of a text of others that cannot steer the terminal.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control):
			return -1
		}
		return r
	}, text)
}

func (p *page) cut(text string) string {
	if p.Width <= 0 {
		return text
	}
	return ansi.Truncate(text, p.Width, "…")
}

func (p *page) line(text string) { p.lines = append(p.lines, p.cut(clean(text))) }

func (p *page) head(name, text string) {
	text = p.cut(clean(name + "  " + text))
	if rest, ok := strings.CutPrefix(text, name); p.Styled && ok {
		text = "\x1b[1m" + name + "\x1b[m" + rest
	}
	p.lines = append(p.lines, text)
}

// rows is how many rows of a table may be shown.
func (p *page) rows() int {
	switch {
	case p.Height <= 0:
		return shownPlain
	case p.Section == Everything:
		return shownAtOnce
	}
	return max(p.Height-3, 1) // beside the headings and the line about the rest
}

// table writes rows below their headings. Columns marked with a star give way
// when the line is too narrow. In all there are total rows.
func (p *page) table(total int, head []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	rows = rows[:min(len(rows), p.rows())]
	more := total - len(rows)
	names := make([]string, len(head))
	gives := make([]bool, len(head))
	for i, h := range head {
		names[i], gives[i] = strings.CutPrefix(h, "*")
	}
	widths := make([]int, len(head))
	line := 2 * len(head) // with the indent and the gaps
	rows = append([][]string{names}, rows...)
	for i := range head {
		for _, row := range rows {
			row[i] = clean(row[i])
			widths[i] = max(widths[i], ansi.StringWidth(row[i]))
		}
		line += widths[i]
	}
	for p.Width > 0 && line > p.Width {
		widest := -1
		for i := range widths {
			if gives[i] && widths[i] > 8 && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
		line--
	}
	for _, row := range rows {
		var b strings.Builder
		for i, cell := range row {
			cell = ansi.Truncate(cell, widths[i], "…")
			b.WriteString("  " + cell + strings.Repeat(" ", widths[i]-ansi.StringWidth(cell)))
		}
		p.lines = append(p.lines, p.cut(strings.TrimRight(b.String(), " ")))
	}
	if more > 0 {
		p.line(fmt.Sprintf("  … and %d more", more))
	}
}

func (p *page) runs(s *State) {
	running := 0
	rows := make([][]string, 0, len(s.Runs))
	for i := range s.Runs {
		r := &s.Runs[i]
		if r.Status == agl.RunRunning {
			running++
		}
		step := "-"
		if r.Step >= 0 {
			step = strconv.Itoa(r.Step)
		}
		rows = append(rows, []string{r.ID, r.Algorithm, string(r.Status), step, number(r.Reward), number(r.Validation), seconds(r.Seconds), r.Error})
	}
	if len(rows) == 0 {
		p.head("RUNS", "none")
		return
	}
	p.head("RUNS", fmt.Sprintf("%d running", running))
	p.table(len(rows), []string{"*run", "*algorithm", "status", "step", "reward", "val", "time", "*error"}, rows)
}

func (p *page) queue(s *State) {
	q := s.Queue
	if q == nil {
		p.head("QUEUE", "not known")
		return
	}
	longest := "-"
	if q.Waiting > 0 {
		longest = seconds(q.Longest)
	}
	p.head("QUEUE", fmt.Sprintf("%d waiting, longest %s, %d in progress", q.Waiting, longest, q.Active))
	p.line(fmt.Sprintf("  %d succeeded, %d failed, %d cancelled", q.Succeeded, q.Failed, q.Cancelled))
}

func (p *page) workers(s *State) {
	counts := map[string]int{}
	lost := 0
	rows := make([][]string, 0, len(s.Workers))
	for _, w := range s.Workers {
		counts[w.State]++
		heard, state := "never", w.State
		if w.Heard != nil {
			heard = seconds(*w.Heard) + " ago"
		}
		if w.Lost {
			lost++
			state = "silent at work"
		}
		rows = append(rows, []string{w.ID, state, heard, dash(w.Rollout)})
	}
	text := fmt.Sprintf("%d busy, %d idle, %d silent", counts[string(agl.WorkerBusy)], counts[string(agl.WorkerIdle)], counts[workerSilent])
	if lost > 0 {
		text += fmt.Sprintf(" (%d at work)", lost)
	}
	if n := counts[string(agl.WorkerUnknown)]; n > 0 {
		text += fmt.Sprintf(", %d unknown", n)
	}
	if s.WorkersTotal > len(s.Workers) {
		text += fmt.Sprintf(", of the first %d of %d", len(s.Workers), s.WorkersTotal)
	}
	p.head("WORKERS", text)
	p.table(max(s.WorkersTotal, len(rows)), []string{"*worker", "state", "heard of", "*rollout"}, rows)
}

func (p *page) models(s *State) {
	text := "calls not counted"
	if c := s.Calls; c != nil {
		text = fmt.Sprintf("%s calls/s, %.0f calls, %.0f not ok", rateText(c.Rate), c.Total, c.NotOK)
	}
	if s.Paused != "" {
		text += ", " + s.Paused
	}
	p.head("MODELS", text)
	if len(s.Models) == 0 {
		p.line("  no backend is registered")
	}
	rows := make([][]string, 0, len(s.Models))
	for i := range s.Models {
		m := &s.Models[i]
		rows = append(rows, []string{m.Name, m.Health, rateText(m.Tokens), strconv.Itoa(m.Open), strconv.Itoa(m.Waiting), strconv.FormatInt(m.Version, 10), m.Endpoint})
	}
	p.table(len(rows), []string{"*model", "health", "tokens/s", "open", "waiting", "version", "*endpoint"}, rows)
}

func rateText(rate *float64) string {
	switch {
	case rate == nil:
		return "-"
	case *rate >= 1000:
		return strconv.FormatFloat(*rate, 'f', 0, 64)
	}
	return fmt.Sprintf("%.3g", *rate)
}

func (p *page) failures(s *State) {
	if len(s.Failures) == 0 {
		p.head("FAILURES", "none")
		return
	}
	looked := 0
	rows := make([][]string, 0, len(s.Failures))
	for _, r := range s.Failures {
		looked += r.Count
		rows = append(rows, []string{strconv.Itoa(r.Count), r.Why})
	}
	text := fmt.Sprintf("%d failed", s.FailuresTotal)
	if looked < s.FailuresTotal {
		text += fmt.Sprintf(", reasons of the newest %d", looked)
	}
	p.head("FAILURES", text)
	p.table(len(rows), []string{"count", "*reason"}, rows)
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func number(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.4g", *v)
}

// seconds writes a span of time with as much detail as people want.
func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d < 0:
		return "0s"
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}
