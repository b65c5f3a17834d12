package adapter

import (
	"cmp"
	"slices"

	agl "agentlightning"
)

// matchRewards gives each reward in the tree to at most one call, and each call
// at most one reward.
func matchRewards(root *tree, calls []*foundCall, how RewardMatch) error {
	m := matcher{calls: map[string]bool{}, rewards: map[string]*float64{}}
	for _, c := range calls {
		m.calls[c.node.id] = true
	}
	var err error
	switch how {
	case FirstOccurrence:
		err = m.byTime(root)
	case FirstSibling:
		err = root.each(nil, func(t *tree) error { return m.among(t.kids) })
	}
	// Spans that share an id share the reward.
	for _, c := range calls {
		c.triplet.Reward = m.rewards[c.node.id]
	}
	return err
}

type matcher struct {
	calls   map[string]bool // ids of call spans
	rewards map[string]*float64
}

// byTime looks at all nodes in the order in which they started.
func (m *matcher) byTime(root *tree) error {
	var nodes []*tree
	timeless := false
	_ = root.each(nil, func(t *tree) error {
		nodes = append(nodes, t)
		timeless = timeless || t.span.StartTime == nil
		return nil
	})
	if timeless && len(nodes) > 1 {
		return errNoTime
	}
	slices.SortStableFunc(nodes, func(a, b *tree) int { return cmp.Compare(*a.span.StartTime, *b.span.StartTime) })
	return m.among(nodes)
}

// among gives the rewards among nodes to the calls among them that came before.
func (m *matcher) among(nodes []*tree) error {
	var open []*tree
	for _, t := range nodes {
		if m.calls[t.id] {
			open = append(open, t)
		}
		value, err := agl.RewardValue(t.span)
		if err != nil {
			return err
		}
		if value == nil {
			continue
		}
		for _, call := range slices.Backward(open) {
			if call.span.EndTime == nil || t.span.StartTime == nil {
				return errNoTime
			}
			if *call.span.EndTime <= *t.span.StartTime && m.rewards[call.id] == nil {
				m.rewards[call.id] = value
				break
			}
		}
	}
	return nil
}
