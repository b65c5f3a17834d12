package llmproxy

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	agl "agentlightning"
)

// models is the list of backends. Calls read a finished table without a lock;
// a change makes a new one.
type models struct {
	source  ModelSource
	maxAge  time.Duration
	gap     time.Duration
	environ func(string) string
	log     *slog.Logger

	now     atomic.Pointer[table]
	checked atomic.Int64 // when the source was asked last, Unix nanoseconds

	mu     sync.Mutex // held while the source is asked
	static []agl.Model

	// What follows is guarded by its own lock, since calls read it.
	changes   sync.Mutex
	changed   chan struct{}        // closed by the next change
	withdrawn map[string]time.Time // names that are gone, and when they went
}

// table is one state of the list.
type table struct {
	list    []agl.Model
	names   []string // distinct, in order
	groups  map[string]*group
	aliases map[string][]string // names by the ends of their paths
}

func newModels(cfg Config) *models {
	m := &models{
		source: cfg.Models, static: cfg.Static, maxAge: cfg.ModelsMaxAge, gap: cfg.ModelsGap, environ: cfg.Environ, log: cfg.Logger,
		changed: make(chan struct{}), withdrawn: map[string]time.Time{},
	}
	if m.source == nil {
		m.set(m.static)
	}
	return m
}

// set makes a list the one that calls see. Its caller holds mu, or is alone.
func (m *models) set(list []agl.Model) {
	before := m.now.Load()
	t := newTable(before, list, m.environ, m.log)
	m.now.Store(t)
	if before != nil {
		before.leave(t)
	}
	m.changes.Lock()
	defer m.changes.Unlock()
	now := time.Now()
	for name, at := range m.withdrawn {
		if t.groups[name] != nil || now.Sub(at) > m.gap {
			delete(m.withdrawn, name)
		}
	}
	if before != nil {
		for _, name := range before.names {
			if t.groups[name] == nil {
				m.withdrawn[name] = now
			}
		}
	}
	close(m.changed)
	m.changed = make(chan struct{})
}

func newTable(before *table, list []agl.Model, environ func(string) string, log *slog.Logger) *table {
	t := &table{list: list, groups: map[string]*group{}, aliases: map[string][]string{}}
	for i, m := range list {
		if err := m.Validate(); err != nil {
			log.Warn("model left out", "err", err)
			continue
		}
		if slices.ContainsFunc(list[i+1:], func(o agl.Model) bool { return o.Name == m.Name && o.Endpoint == m.Endpoint }) {
			continue // named twice: what was said last holds
		}
		g, old := t.groups[m.Name], before.group(m.Name)
		if g == nil {
			g = &group{model: m.Name, choice: &sync.Mutex{}}
			if old != nil {
				g.choice = old.choice
			}
			t.groups[m.Name] = g
			t.names = append(t.names, m.Name)
			t.alias(m.Name)
		}
		b := newBackend(m, environ)
		if was := old.find(m.Endpoint); was != nil {
			b.health = was.health
			if was.Model != m {
				b.forget()
			}
		} else {
			b.health = &health{}
			g.join(b)
		}
		b.limits.configure(m.Concurrency, m.RPM, m.TPM)
		g.backends = append(g.backends, b)
	}
	return t
}

// leave sends the calls that wait for backends that the next table has not to
// others. Those that backends have already go on to their end.
func (t *table) leave(next *table) {
	for name, g := range t.groups {
		for _, b := range g.backends {
			if next.group(name).find(b.Endpoint) == nil {
				b.limits.remove()
			}
		}
	}
}

func (t *table) group(name string) *group {
	if t == nil {
		return nil
	}
	return t.groups[name]
}

// alias lists a name under itself and the ends of its path: a model that is
// registered as /models/Qwen/Qwen3-8B is also Qwen/Qwen3-8B and Qwen3-8B.
func (t *table) alias(name string) {
	for end := strings.Trim(name, "/"); end != ""; _, end, _ = strings.Cut(end, "/") {
		t.aliases[end] = append(t.aliases[end], name)
	}
}

// find returns the backends of a model by its name or, when there is no such
// name, by an end of the path that belongs to one name only. Callers may write
// more of a path than was registered, or another one before the same end.
func (t *table) find(name string) (g *group, several []string) {
	if g := t.groups[name]; g != nil {
		return g, nil
	}
	for end := strings.Trim(name, "/"); end != ""; _, end, _ = strings.Cut(end, "/") {
		switch names := t.aliases[end]; len(names) {
		case 0:
		case 1:
			return t.groups[names[0]], nil
		default:
			return nil, names
		}
	}
	return nil, nil
}

// lookup returns the backends of a model, nil when it is not registered. A
// model that was registered a moment ago is found, one that was withdrawn a
// moment ago is waited for.
func (m *models) lookup(ctx context.Context, name string) (*group, error) {
	t, err := m.table(ctx)
	if err != nil {
		return nil, err
	}
	if g, several := t.find(name); g != nil || several != nil || m.source == nil {
		return g, nil
	}
	if err := m.refresh(ctx); err != nil {
		return nil, err
	}
	var late <-chan time.Time
	for {
		m.changes.Lock()
		changed, left := m.changed, m.comesBack(name)
		m.changes.Unlock()
		if g, several := m.now.Load().find(name); g != nil || several != nil || left <= 0 {
			return g, nil
		}
		if late == nil {
			timer := time.NewTimer(left)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-changed:
		case <-late:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// comesBack returns how long a name that was withdrawn is waited for.
func (m *models) comesBack(name string) (left time.Duration) {
	last := name[strings.LastIndexByte(name, '/')+1:]
	for gone, at := range m.withdrawn {
		if gone == name || gone[strings.LastIndexByte(gone, '/')+1:] == last {
			left = max(left, m.gap-time.Since(at))
		}
	}
	return left
}

func (m *models) names(ctx context.Context) ([]string, error) {
	if m.source != nil {
		if err := m.refresh(ctx); err != nil {
			return nil, err
		}
	}
	return m.now.Load().names, nil
}

// table returns a list no older than maxAge. When the source fails the old one
// is good enough.
func (m *models) table(ctx context.Context) (*table, error) {
	t := m.now.Load()
	if m.source == nil {
		return t, nil
	}
	age := time.Now().UnixNano() - m.checked.Load()
	if t != nil && age < int64(m.maxAge) {
		return t, nil
	}
	if t != nil {
		// One call asks, the others need not wait for it.
		if !m.mu.TryLock() {
			return t, nil
		}
		m.mu.Unlock()
	}
	if err := m.refresh(ctx); err != nil && t == nil {
		return nil, err
	}
	return m.now.Load(), nil
}

func (m *models) refresh(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.read(ctx)
}

// forget drops static backends, and reads the others, as one change.
func (m *models) forget(ctx context.Context, gone func(agl.Model) bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.static = slices.DeleteFunc(slices.Clone(m.static), gone)
	return m.read(ctx)
}

func (m *models) fixed() []agl.Model {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.static)
}

// read asks the source. Its caller holds mu.
func (m *models) read(ctx context.Context) error {
	if m.source == nil {
		if !slices.Equal(m.now.Load().list, m.static) {
			m.set(m.static)
		}
		return nil
	}
	listed, err := m.source.Models(ctx)
	if err != nil {
		m.log.WarnContext(ctx, "cannot list models", "err", err)
		return fmt.Errorf("list models: %w", err)
	}
	list := slices.Concat(m.static, listed)
	if before := m.now.Load(); before == nil || !slices.Equal(before.list, list) {
		m.set(list)
	}
	m.checked.Store(time.Now().UnixNano())
	return nil
}

// unknownModel says which models there are.
func (m *models) unknownModel(name string) string {
	said := fmt.Sprintf("model %q is not registered", name)
	if name == "" {
		said = "the request names no model"
	}
	t := m.now.Load()
	if t == nil || len(t.names) == 0 {
		return said + "; no model is: start the server with --model NAME=BASE_URL or register one with 'agl models add NAME=BASE_URL'"
	}
	if _, several := t.find(name); several != nil {
		return fmt.Sprintf("model %q could be any of %s; write the whole name", name, strings.Join(several, ", "))
	}
	return said + "; registered: " + strings.Join(t.names, ", ")
}
