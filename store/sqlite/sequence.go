package sqlite

import "fmt"

func (t *tx) TakeSequenceIDs(rolloutID string, n int) (int64, error) {
	t.write()
	_, err := t.c.exec(advanceSequence, rolloutID, int64(n))
	var last int64
	if err == nil {
		last, err = t.c.number(selectSequence, rolloutID)
	}
	if err != nil {
		return 0, fmt.Errorf("sequence of rollout %s: %w", rolloutID, err)
	}
	return last, nil
}

func (t *tx) RaiseSequenceID(rolloutID string, id int64) error {
	t.write()
	if _, err := t.c.exec(raiseSequence, rolloutID, id); err != nil {
		return fmt.Errorf("sequence of rollout %s: %w", rolloutID, err)
	}
	return nil
}
