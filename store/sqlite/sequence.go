package sqlite

import "fmt"

func (t *tx) TakeSequenceIDs(rolloutID string, n int) (int64, error) {
	if err := t.write(); err != nil {
		return 0, err
	}
	t.touch(rolloutID)
	last, err := t.c.number(takeSequence, rolloutID, int64(n))
	if err != nil {
		return 0, fmt.Errorf("sequence of rollout %s: %w", rolloutID, err)
	}
	t.reached(rolloutID, last)
	return last, nil
}

func (t *tx) RaiseSequenceID(rolloutID string, id int64) error {
	if r := t.known.get(rolloutID); r != nil && id <= r.sequence {
		return nil
	}
	if err := t.write(); err != nil {
		return err
	}
	t.touch(rolloutID)
	if _, err := t.c.exec(raiseSequence, rolloutID, id); err != nil {
		return fmt.Errorf("sequence of rollout %s: %w", rolloutID, err)
	}
	t.reached(rolloutID, id)
	return nil
}

func (t *tx) reached(rolloutID string, id int64) {
	if r := t.known.get(rolloutID); r != nil {
		r.sequence = id
	}
}
