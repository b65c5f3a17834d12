package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/term"
)

// Terminal tells whether a person at a terminal reads what is written to w.
func Terminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(file.Fd())
}

// Print writes one look to w, and one more after each interval until ctx ends
// when it is above 0. It fails as soon as a look does.
func Print(ctx context.Context, r *Reader, w io.Writer, interval time.Duration) error {
	var again <-chan time.Time
	if interval > 0 {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		again = ticker.C
	}
	for {
		s, err := r.Read(ctx)
		if err != nil {
			return errors.Join(ctx.Err(), err)
		}
		text := Render(s, View{})
		if again != nil {
			text = time.Now().Format(time.DateTime) + "\n" + text + "\n"
		}
		if _, err := io.WriteString(w, text); err != nil || again == nil {
			return err
		}
		select {
		case <-again:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Watch shows a server in the terminal out until the person there has seen
// enough or ctx ends. A server that is away is said to be, and asked again.
func Watch(ctx context.Context, r *Reader, out io.Writer, interval time.Duration) error {
	looking, stop := context.WithCancel(ctx)
	m := newScreen(r.Server(), interval, func() (*State, error) { return r.Read(looking) })
	_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithOutput(out), tea.WithoutSignalHandler()).Run()
	stop()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// screen is what a terminal shows. It changes by messages alone.
type screen struct {
	server   string
	interval time.Duration
	read     func() (*State, error)

	view  View
	state *State // the last that was seen; nil before the first
	seen  time.Time
	err   error // of the last look
	since time.Time
}

// seenMsg is what came of a look.
type seenMsg struct {
	state *State
	err   error
	at    time.Time
}

// againMsg says that it is time for the next look.
type againMsg struct{}

func newScreen(server string, interval time.Duration, read func() (*State, error)) *screen {
	return &screen{server: server, interval: interval, read: read, view: View{Width: 80, Height: 24, Styled: true}}
}

func (m *screen) look() tea.Msg {
	s, err := m.read()
	return seenMsg{s, err, time.Now()}
}

// Init implements [tea.Model].
func (m *screen) Init() tea.Cmd { return m.look }

// Update implements [tea.Model].
func (m *screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.view.Width, m.view.Height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		switch msg.String() {
		case "q", "ctrl+c":
			return m, tea.Quit
		case "tab", "right", "down":
			m.view.Section = (m.view.Section + 1) % sections
		case "shift+tab", "left", "up":
			m.view.Section = (m.view.Section + sections - 1) % sections
		}
	case againMsg:
		return m, m.look
	case seenMsg:
		if msg.err == nil {
			m.state, m.seen = msg.state, msg.at
		} else if m.err == nil {
			m.since = msg.at
		}
		m.err = msg.err
		return m, tea.Tick(m.interval, func(time.Time) tea.Msg { return againMsg{} })
	}
	return m, nil
}

// View implements [tea.Model].
func (m *screen) View() tea.View {
	v := tea.NewView(m.text())
	v.AltScreen = true
	return v
}

// text is what the screen says: where one is, what was seen, and the keys.
func (m *screen) text() string {
	p := page{View: m.view}
	switch {
	case m.err != nil:
		p.line(fmt.Sprintf("no answer since %s, trying again: %v", m.since.Format(time.TimeOnly), m.err))
	case m.state == nil:
		p.line("asking " + m.server + " …")
	default:
		p.line(m.server + "  " + m.seen.Format(time.TimeOnly))
	}
	var names strings.Builder
	for i, name := range sectionNames {
		if Section(i) == m.view.Section {
			name = "[" + name + "]"
		}
		names.WriteString(name + " ")
	}
	p.line(names.String() + " tab: next  q: quit")
	head := strings.Join(p.lines, "\n") + "\n"
	if m.state == nil {
		return head
	}
	view := m.view
	view.Height = max(view.Height-len(p.lines), 1)
	return head + strings.TrimSuffix(Render(m.state, view), "\n")
}
