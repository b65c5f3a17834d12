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
	source ModelSource
	static []agl.Model
	maxAge time.Duration
	log    *slog.Logger

	now     atomic.Pointer[table]
	checked atomic.Int64 // when the source was asked last, Unix nanoseconds

	mu sync.Mutex // held while the source is asked
}

// table is one state of the list.
type table struct {
	list   []agl.Model
	names  []string // distinct, in order
	groups map[string]*group
}

// group are the backends of one model.
type group struct {
	model    string
	backends []*backend
	turn     *atomic.Uint32 // where the next tie begins
}

// backend is one server of a model.
type backend struct {
	agl.Model
	base string // URL that routes are put behind
	*health
}

// health is what was seen of a backend. It outlives changes to the list that
// do not remove the backend.
type health struct {
	load    atomic.Int64             // open calls
	resting atomic.Int64             // until when it is avoided, Unix nanoseconds
	refuses atomic.Pointer[[]string] // fields that it does not accept
	warned  atomic.Bool              // that it returns no token ids
}

func newModels(cfg Config) *models {
	m := &models{source: cfg.Models, static: cfg.Static, maxAge: cfg.ModelsMaxAge, log: cfg.Logger}
	if m.source == nil {
		m.now.Store(newTable(nil, m.static, m.log))
	}
	return m
}

func newTable(before *table, list []agl.Model, log *slog.Logger) *table {
	t := &table{list: list, groups: map[string]*group{}}
	for _, m := range list {
		if err := m.Validate(); err != nil {
			log.Warn("model left out", "err", err)
			continue
		}
		g := t.groups[m.Name]
		if g == nil {
			g = &group{model: m.Name, turn: new(atomic.Uint32)}
			if old := before.group(m.Name); old != nil {
				g.turn = old.turn
			}
			t.groups[m.Name] = g
			t.names = append(t.names, m.Name)
		}
		if at := g.find(m.Endpoint); at != nil {
			at.Model = m // named twice: what was said last holds
			continue
		}
		b := &backend{Model: m, base: strings.TrimRight(m.Endpoint, "/")}
		if old := before.group(m.Name).find(m.Endpoint); old != nil {
			b.health = old.health
		} else {
			b.health = &health{}
		}
		g.backends = append(g.backends, b)
	}
	return t
}

func (t *table) group(name string) *group {
	if t == nil {
		return nil
	}
	return t.groups[name]
}

func (g *group) find(endpoint string) *backend {
	if g == nil {
		return nil
	}
	for _, b := range g.backends {
		if b.Endpoint == endpoint {
			return b
		}
	}
	return nil
}

// target is the name by which the backend knows the model.
func (b *backend) target() string {
	if b.Target != "" {
		return b.Target
	}
	return b.Name
}

// lookup returns the backends of a model, nil when it is not registered. A
// model that was registered a moment ago is found.
func (m *models) lookup(ctx context.Context, name string) (*group, error) {
	t, err := m.table(ctx)
	if err != nil {
		return nil, err
	}
	if g := t.groups[name]; g != nil || m.source == nil {
		return g, nil
	}
	if err := m.refresh(ctx); err != nil {
		return nil, err
	}
	return m.now.Load().groups[name], nil
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
	if m.source == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	listed, err := m.source.Models(ctx)
	if err != nil {
		m.log.WarnContext(ctx, "cannot list models", "err", err)
		return fmt.Errorf("list models: %w", err)
	}
	list := slices.Concat(m.static, listed)
	before := m.now.Load()
	if before == nil || !slices.Equal(before.list, list) {
		m.now.Store(newTable(before, list, m.log))
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
		return said + "; no model is: start the server with --model NAME=BASE_URL or register one with POST /api/models"
	}
	return said + "; registered: " + strings.Join(t.names, ", ")
}
