package sqlite

import (
	"agentlightning/store"
	"agentlightning/store/engine"
)

// reader reads what its connection's transaction sees.
type reader struct{ c *conn }

// tx is the view of the writer that one function given to Update has.
type tx struct {
	reader

	dirty bool    // the current function has written
	now   float64 // the latest time that Answer was asked for

	known   *known
	touched []string // rollouts written to: forgotten when the writes are undone
	spans   []spanChange
	queued  int // by how much the queue has grown
}

var (
	_ engine.Reader = reader{}
	_ engine.Tx     = (*tx)(nil)
)

// write is called before anything is written.
func (t *tx) write() { t.dirty = true }

// spansChanged notes what happens to the spans of a rollout.
func (t *tx) spansChanged(c spanChange) { t.spans = append(t.spans, c) }

// touch notes that what is known of a rollout changes, and may have to be
// forgotten.
func (t *tx) touch(rolloutID string) { t.touched = append(t.touched, rolloutID) }

// forget drops what is remembered of writes that are undone.
func (t *tx) forget() {
	t.known.forget(t.touched)
	clear(t.known.workers)
	t.touched, t.spans, t.queued = t.touched[:0], nil, 0
}

// changed returns what became of the rollouts that were touched.
func (t *tx) changed() []recentRollout {
	out := make([]recentRollout, len(t.touched))
	for i, id := range t.touched {
		out[i].id = id
		if r := t.known.get(id); r != nil && r.whole && r.latestKnown {
			out[i].rollout, out[i].latest = r.rollout, r.latest
		}
	}
	return out
}

func (r reader) Counts() (store.Statistics, error) {
	var s store.Statistics
	for _, count := range []struct {
		of  *int64
		sql string
	}{
		{&s.TotalRollouts, countRollouts},
		{&s.TotalAttempts, countAttempts},
		{&s.TotalSpans, countSpans},
		{&s.TotalResources, countResources},
		{&s.TotalWorkers, countWorkers},
	} {
		var err error
		if *count.of, err = r.c.number(count.sql); err != nil {
			return s, err
		}
	}
	return s, nil
}
