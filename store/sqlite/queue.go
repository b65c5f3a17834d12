package sqlite

import (
	"fmt"
	"slices"

	agl "agentlightning"
)

func (r reader) QueueLength() (int, error) {
	if r.c.queued != nil {
		return int(r.c.queued.Load()), nil
	}
	n, err := r.c.number(queueLength)
	return int(n), err
}

// QueueLength counts what the transaction did too.
func (t *tx) QueueLength() (int, error) {
	n, err := t.reader.QueueLength()
	return n + t.queued, err
}

func (r reader) QueueFront() (agl.AttemptedRollout, bool, error) {
	var front agl.AttemptedRollout
	found, err := r.c.one(func(row row) (err error) {
		front.Rollout, err = r.c.scanRollout(row)
		return err
	}, queueFront, int64(1))
	if err != nil || !found {
		return front, false, err
	}
	latest, err := r.LatestAttempts([]string{front.RolloutID})
	if a, ok := latest[front.RolloutID]; ok {
		front.Attempt = &a
	}
	return front, true, err
}

func (t *tx) Push(ids []string) error {
	t.write()
	for _, id := range ids {
		if err := t.push(pushQueue, id); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) PushFront(ids []string) error {
	t.write()
	for _, id := range slices.Backward(ids) {
		if err := t.push(pushQueueFront, id); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) push(sql, rolloutID string) error {
	seq, err := t.seqOf(rolloutID)
	if err == nil {
		var added int64
		added, err = t.c.exec(sql, seq)
		t.queued += int(added)
	}
	if err != nil {
		return fmt.Errorf("queue: %w", err)
	}
	return nil
}

func (t *tx) Pop(n int) ([]string, error) {
	if n <= 0 {
		return nil, nil
	}
	var last int64
	var ids []string
	err := t.c.query(func(r row) error {
		ro, err := t.c.scanRollout(r)
		if err != nil {
			return err
		}
		t.known.put(r.int(0), &ro)
		if r.int(12) == 0 {
			t.known.get(ro.RolloutID).setLatest(0, nil)
		}
		last = r.int(11)
		ids = append(ids, ro.RolloutID)
		return nil
	}, queueFront, int64(n))
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	t.write()
	gone, err := t.c.exec(popQueue, last)
	t.queued -= int(gone)
	return ids, err
}
