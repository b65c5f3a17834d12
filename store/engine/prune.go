package engine

import (
	"context"
	"slices"

	agl "agentlightning"
	"agentlightning/store"
)

var _ store.Pruner = (*Store)(nil)

// Bounds of the parts that pruning goes by.
const (
	// prunePage is how many rollouts one read looks at.
	prunePage = 1000
	// pruneBatch and pruneSpans bound what one transaction deletes, so that others
	// wait for a few milliseconds: 50 rollouts with 275 spans took 8. A single
	// rollout is deleted as a whole, however many spans it has.
	pruneBatch = 50
	pruneSpans = 500
	// weighAll is how many rollouts are weighed before one in weighEach is.
	weighAll  = 1000
	weighEach = 20
	// pruneAnswers is how many expired answers one transaction forgets.
	pruneAnswers = 1000
)

// Ended is a rollout that ended, as pruning sees it.
type Ended struct {
	RolloutID       string
	EndTime         float64
	Attempts, Spans int64
}

// Prunable implements [store.Pruner].
func (s *Store) Prunable(ctx context.Context, before float64) (out store.Prunable, err error) {
	err = s.view(ctx, func(r Reader) error {
		counts, err := r.Counts()
		if err != nil {
			return err
		}
		out.Resources, out.Workers = counts.TotalResources, counts.TotalWorkers
		byStatus, err := r.CountRollouts()
		if err != nil {
			return err
		}
		for status, n := range byStatus {
			if status.Terminal() {
				out.Later += n // less those that are found below
			} else {
				out.Open += n
			}
		}
		runs, err := r.Runs(0)
		out.Runs = int64(len(runs))
		for i := 0; i < len(runs) && err == nil; i++ {
			if runEnded(&runs[i], before) {
				var lines, bytes int64
				lines, bytes, err = r.LogSize(runs[i].RunID)
				out.LogLines += lines
				out.Bytes += bytes
			}
		}
		return err
	})
	for after, more := int64(0), true; more && err == nil; {
		err = s.view(ctx, func(r Reader) error {
			page, next, looked, err := r.EndedRollouts(before, after, prunePage)
			if err != nil {
				return err
			}
			after, more = next, next > 0
			out.Looked += int64(looked)
			return addPrunable(&out, r, page)
		})
	}
	out.Later = max(out.Later-out.Rollouts, 0)
	return out, err
}

// addPrunable counts a page of rollouts that would be deleted.
func addPrunable(out *store.Prunable, r Reader, page []Ended) error {
	if len(page) == 0 {
		return nil
	}
	var weighed []string
	for i := range page {
		e := &page[i]
		if out.Rollouts+int64(i) < weighAll || i%weighEach == 0 {
			weighed = append(weighed, e.RolloutID)
		}
		out.Attempts += e.Attempts
		out.Spans += e.Spans
		if out.Oldest == nil || e.EndTime < *out.Oldest {
			out.Oldest = new(e.EndTime)
		}
		if out.Newest == nil || e.EndTime > *out.Newest {
			out.Newest = new(e.EndTime)
		}
	}
	bytes, err := r.RolloutBytes(weighed)
	out.Rollouts += int64(len(page))
	out.Bytes += bytes * int64(len(page)) / int64(len(weighed))
	return err
}

// Prune implements [store.Pruner].
func (s *Store) Prune(ctx context.Context, before float64, told func(store.Pruned) error) (store.Pruned, error) {
	var total store.Pruned
	for after, more := int64(0), true; more; {
		var page []Ended
		err := s.view(ctx, func(r Reader) (err error) {
			page, after, _, err = r.EndedRollouts(before, after, prunePage)
			more = after > 0
			return err
		})
		if err != nil {
			return total, err
		}
		for len(page) > 0 {
			n := pruneLength(page)
			one, err := s.pruneOne(ctx, idsOf(page[:n]), before)
			total.Rollouts += one.Rollouts
			total.Attempts += one.Attempts
			total.Spans += one.Spans
			total.Bytes += one.Bytes
			if err != nil {
				return total, err
			}
			page = page[n:]
			if err := told(total); err != nil {
				return total, err
			}
		}
	}
	if err := s.pruneLogs(ctx, before, &total, told); err != nil {
		return total, err
	}
	for forgotten := pruneAnswers; forgotten == pruneAnswers; {
		err := s.update(ctx, func(c *change) (err error) {
			forgotten, err = c.ForgetAnswers(c.now, pruneAnswers)
			return err
		})
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// pruneLogs empties the logs of runs that ended, one in a transaction.
func (s *Store) pruneLogs(ctx context.Context, before float64, total *store.Pruned, told func(store.Pruned) error) error {
	var runs []agl.Run
	err := s.view(ctx, func(r Reader) (err error) {
		runs, err = r.Runs(0)
		return err
	})
	for i := 0; i < len(runs) && err == nil; i++ {
		if !runEnded(&runs[i], before) {
			continue
		}
		id, lines, bytes := runs[i].RunID, int64(0), int64(0)
		err = s.update(ctx, func(c *change) error {
			lines, bytes = 0, 0
			run, ok, err := c.Run(id)
			if err != nil || !ok || !runEnded(&run, before) {
				return err
			}
			if lines, bytes, err = c.LogSize(id); err != nil || lines == 0 {
				return err
			}
			c.after = func() { s.feed.tell(store.NounLogs, id) }
			return c.EmptyLog(id)
		})
		if err != nil || lines == 0 {
			continue
		}
		total.LogLines += lines
		total.Bytes += bytes
		err = told(*total)
	}
	return err
}

// runEnded leaves out runs that go on, whoever left them.
func runEnded(r *agl.Run, before float64) bool {
	return r.Status != agl.RunRunning && r.EndTime != nil && *r.EndTime < before
}

// pruneLength is how many of the rollouts one transaction deletes, at least one.
func pruneLength(page []Ended) int {
	spans := int64(0)
	for i := range page {
		if spans += page[i].Spans; i == pruneBatch || i > 0 && spans > pruneSpans {
			return i
		}
	}
	return len(page)
}

func idsOf(page []Ended) []string {
	ids := make([]string, len(page))
	for i := range page {
		ids[i] = page[i].RolloutID
	}
	return ids
}

// pruneOne deletes rollouts in one transaction, without those that go on since
// they were listed, and tells what it deleted.
func (s *Store) pruneOne(ctx context.Context, ids []string, before float64) (store.Pruned, error) {
	var gone []string
	var out store.Pruned
	err := s.deleteRollouts(ctx, ids, func(c *change) ([]string, error) {
		found, err := c.Rollouts(ids)
		if err != nil {
			return nil, err
		}
		gone, out = nil, store.Pruned{}
		for _, id := range ids {
			if ro, ok := found[id]; ok && endedBefore(&ro, before) {
				gone = append(gone, id)
			}
		}
		had, err := c.Counts()
		if err != nil || len(gone) == 0 {
			return nil, err
		}
		if out.Bytes, err = c.RolloutBytes(gone); err != nil {
			return nil, err
		}
		if err := c.DeleteRollouts(gone); err != nil {
			return nil, err
		}
		has, err := c.Counts()
		out.Rollouts, out.Attempts, out.Spans = had.TotalRollouts-has.TotalRollouts, had.TotalAttempts-has.TotalAttempts, had.TotalSpans-has.TotalSpans
		return gone, err
	})
	if err != nil {
		return store.Pruned{}, err
	}
	return out, nil
}

func endedBefore(ro *agl.Rollout, before float64) bool {
	return ro.Status.Terminal() && ro.EndTime != nil && *ro.EndTime < before
}

// deleteRollouts runs a transaction that deletes some of the rollouts and returns
// which. Calls that wait for these no longer do.
func (s *Store) deleteRollouts(ctx context.Context, ids []string, f func(*change) ([]string, error)) error {
	owners := make([]spanOwner, len(ids))
	for i, id := range ids {
		owners[i].id = id
	}
	counters, err := s.countersFor(ctx, owners)
	if err != nil {
		return err
	}
	// What is gone needs no counter: others are not to be pushed out by these.
	defer s.sequences.forget(counters)
	for _, n := range counters {
		n.mu.Lock()
	}
	var gone []string
	err = s.update(ctx, func(c *change) (err error) {
		gone, err = f(c)
		c.after = func() {
			for _, id := range gone {
				s.waits.drop(id)
			}
			s.feed.tell(store.NounRollouts, gone...)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, n := range counters {
		if slices.Contains(gone, n.id) {
			n.last, n.reserved = 0, 0 // as the backend's counter, which is gone
		}
	}
	return nil
}
