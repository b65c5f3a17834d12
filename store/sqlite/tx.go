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
	guard bool    // a savepoint must protect what earlier functions wrote
	saved bool    // the savepoint of the current function is open
	now   float64 // the latest time that Answer was asked for

	known   *known
	touched []string // rollouts written to: forgotten when the writes are undone
}

var (
	_ engine.Reader = reader{}
	_ engine.Tx     = (*tx)(nil)
)

// write is called before anything is written. The savepoint is opened here and
// not when the function starts, since functions that only read or that refuse
// their request are common.
func (t *tx) write() error {
	if t.guard && !t.saved {
		if _, err := t.c.exec(savepoint); err != nil {
			return err
		}
		t.saved = true
	}
	t.dirty = true
	return nil
}

// touch notes that what is known of a rollout may have to be forgotten.
func (t *tx) touch(rolloutID string) { t.touched = append(t.touched, rolloutID) }

// forget drops what is remembered of writes that are undone: all after the first
// n touched rollouts.
func (t *tx) forget(n int) {
	t.known.forget(t.touched[n:])
	t.touched = t.touched[:n]
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
