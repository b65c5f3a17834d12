package adapter

import "slices"

// lineage is a tree of everything that the rows of an attempt hold, in which
// what they have in common is there once: a radix tree over token ids. The ids
// of its nodes are parts of the rows, which only grow at their ends.
type lineage struct {
	ids  []int32 // that lead here from the parent
	kids map[int32]*lineage
	ends []int // rows that hold nothing beyond this node, the latest last
	last int   // row that came through last
}

// find walks along a prompt. It returns the longest row that the prompt begins
// with and that fits, the latest of several, or -1; how many ids the prompt
// shares with any row, and which row that is.
func (l *lineage) find(prompt []int32, fits func(row int) bool) (row, shared, nearest int) {
	row, nearest = -1, l.last
	for at := l; ; {
		rest := prompt[shared:]
		next := at.next(rest)
		if next == nil {
			return row, shared, nearest
		}
		n := common(next.ids, rest)
		shared += n
		nearest = next.last
		if n < len(next.ids) {
			return row, shared, nearest
		}
		for _, r := range slices.Backward(next.ends) {
			if fits(r) {
				row = r
				break
			}
		}
		at = next
	}
}

func (l *lineage) next(rest []int32) *lineage {
	if len(rest) == 0 {
		return nil
	}
	return l.kids[rest[0]]
}

// insert adds all ids of a row. Where the row ended before, if it did, is
// forgotten.
func (l *lineage) insert(ids []int32, row int) {
	at := l
	for {
		at.last = row
		if i := slices.Index(at.ends, row); i >= 0 {
			at.ends = slices.Delete(at.ends, i, i+1)
		}
		next := at.next(ids)
		if next == nil {
			break
		}
		n := common(next.ids, ids)
		if n < len(next.ids) {
			next.split(n)
		}
		at, ids = next, ids[n:]
	}
	if len(ids) > 0 {
		next := &lineage{ids: ids, last: row}
		at.add(next)
		at = next
	}
	at.ends = append(at.ends, row)
}

// split puts what follows the first n ids of a node into a node below it.
func (l *lineage) split(n int) {
	below := &lineage{ids: l.ids[n:], kids: l.kids, ends: l.ends, last: l.last}
	l.ids, l.kids, l.ends = l.ids[:n], nil, nil
	l.add(below)
}

func (l *lineage) add(next *lineage) {
	if l.kids == nil {
		l.kids = map[int32]*lineage{}
	}
	l.kids[next.ids[0]] = next
}
