package sqlite

import "fmt"

func (t *tx) Secret(name string, fresh []byte) ([]byte, error) {
	t.write()
	var value []byte
	_, err := t.c.one(func(r row) error {
		value, _ = r[0].([]byte)
		return nil
	}, takeSecret, name, fresh)
	if err != nil {
		return nil, fmt.Errorf("secret %s: %w", name, err)
	}
	return value, nil
}
