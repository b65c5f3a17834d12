package adapter

import (
	"errors"
	"fmt"

	agl "agentlightning"
	"agentlightning/semconv"
)

// maxNodes bounds the tree of a trace. Spans that repeat their ids, each below
// the other, would otherwise make a tree without end.
const maxNodes = 1 << 20

// tree is a span with those below it, in the order of the input.
type tree struct {
	id   string
	span *agl.Span
	kids []*tree
}

var (
	errNoSpans = errors.New("no spans, so there is no trace")
	errNoRoot  = errors.New("no span of the trace is a root")
	errNoTime  = errors.New("a span has no start or end time, so spans cannot be ordered")
)

// buildTree joins spans by their parents. Parents that are not among the spans
// and several roots get nodes of their own.
func buildTree(spans []agl.Span) (*tree, error) {
	if len(spans) == 0 {
		return nil, errNoSpans
	}
	b := builder{byID: make(map[string]*agl.Span, len(spans)), kids: map[string][]string{}}
	var roots []string
	for i := range spans {
		b.byID[spans[i].SpanID] = &spans[i]
	}
	for i := range spans {
		s := &spans[i]
		if s.ParentID == nil {
			roots = append(roots, s.SpanID)
			continue
		}
		parent := *s.ParentID
		if b.byID[parent] == nil && b.kids[parent] == nil {
			b.ghosts = append(b.ghosts, parent)
		}
		b.kids[parent] = append(b.kids[parent], s.SpanID)
	}
	roots = append(roots, b.ghosts...)
	if len(roots) == 0 {
		return nil, errNoRoot
	}
	nodes := make([]*tree, len(roots))
	for i, id := range roots {
		var err error
		if nodes[i], err = b.build(id); err != nil {
			return nil, err
		}
	}
	if len(nodes) == 1 {
		return nodes[0], nil
	}
	const id = "virtual-root"
	first, last := nodes[0].span, nodes[len(nodes)-1].span
	return &tree{id: id, kids: nodes, span: &agl.Span{
		RolloutID: first.RolloutID, AttemptID: first.AttemptID, TraceID: first.TraceID,
		SpanID: id, Name: id, StartTime: first.StartTime, EndTime: last.EndTime,
	}}, nil
}

type builder struct {
	byID   map[string]*agl.Span
	kids   map[string][]string
	ghosts []string
	nodes  int
}

func (b *builder) build(id string) (*tree, error) {
	if b.nodes++; b.nodes > maxNodes {
		return nil, fmt.Errorf("the tree has more than %d nodes; span ids repeat in a circle", maxNodes)
	}
	t := &tree{id: id, span: b.byID[id]}
	for _, kid := range b.kids[id] {
		k, err := b.build(kid)
		if err != nil {
			return nil, err
		}
		t.kids = append(t.kids, k)
	}
	if t.span == nil {
		return t, t.bridge()
	}
	return t, nil
}

// bridge makes the span of a parent that was never recorded from its kids.
func (t *tree) bridge() error {
	first := t.kids[0].span
	s := &agl.Span{
		RolloutID: first.RolloutID, AttemptID: first.AttemptID, TraceID: first.TraceID,
		SpanID: t.id, Name: semconv.SpanVirtual,
	}
	for _, k := range t.kids {
		if start := k.span.StartTime; start != nil && (s.StartTime == nil || *start < *s.StartTime) {
			s.StartTime = start
		}
		if end := k.span.EndTime; end != nil && (s.EndTime == nil || *end > *s.EndTime) {
			s.EndTime = end
		}
	}
	if s.StartTime == nil || s.EndTime == nil {
		return errNoTime
	}
	t.span = s
	return nil
}

// repair moves spans that mixed instrumentation left directly below the root
// to the tightest span that encloses them in time.
func (t *tree) repair() error {
	for len(t.kids) == 1 {
		t = t.kids[0]
	}
	snapshot := append([]*tree(nil), t.kids...)
	for _, c := range snapshot {
		if len(t.kids) <= 1 {
			return nil
		}
		var best *tree
		var slack float64
		err := t.each(c, func(n *tree) error {
			if n == t {
				return nil
			}
			// A time that is missing matters only where it decides.
			if n.span.StartTime == nil || c.span.StartTime == nil {
				return errNoTime
			}
			before := *c.span.StartTime - *n.span.StartTime
			if before < 0 {
				return nil
			}
			if n.span.EndTime == nil || c.span.EndTime == nil {
				return errNoTime
			}
			after := *n.span.EndTime - *c.span.EndTime
			if after < 0 {
				return nil
			}
			if by := after + before; by > 0 && (best == nil || by < slack) {
				best, slack = n, by
			}
			return nil
		})
		if err != nil {
			return err
		}
		if best != nil {
			t.remove(c)
			best.kids = append(best.kids, c)
		}
	}
	return nil
}

// each visits the tree in order, a node before its kids, without what is at
// and below skip: a span moved below itself would be lost.
func (t *tree) each(skip *tree, visit func(*tree) error) error {
	if t == skip {
		return nil
	}
	if err := visit(t); err != nil {
		return err
	}
	for _, k := range t.kids {
		if err := k.each(skip, visit); err != nil {
			return err
		}
	}
	return nil
}

func (t *tree) remove(kid *tree) {
	for i, k := range t.kids {
		if k == kid {
			t.kids = append(t.kids[:i:i], t.kids[i+1:]...)
			return
		}
	}
}
