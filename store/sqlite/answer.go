package sqlite

func (t *tx) Answer(key string, now float64) ([]byte, bool, error) {
	t.now = now
	var answer []byte
	found, err := t.c.one(func(r row) error {
		answer, _ = r[0].([]byte)
		return nil
	}, selectAnswer, key, now)
	return answer, found, err
}

func (t *tx) PutAnswer(key string, answer []byte, expires float64) error {
	t.write()
	if t.now > 0 {
		if _, err := t.c.exec(pruneAnswers, t.now); err != nil {
			return err
		}
	}
	if answer == nil {
		answer = []byte{} // nil would be null
	}
	_, err := t.c.exec(putAnswer, key, answer, expires)
	return err
}

func (t *tx) ForgetAnswers(now float64, most int) (int, error) {
	t.write()
	n, err := t.c.exec(deleteAnswers, now, int64(most))
	return int(n), err
}
