package memory

import "bytes"

func (t *tx) Secret(name string, fresh []byte) ([]byte, error) {
	if value, ok := t.s.secrets[name]; ok {
		return bytes.Clone(value), nil
	}
	t.s.secrets[name] = bytes.Clone(fresh)
	t.did(func() { delete(t.s.secrets, name) })
	return fresh, nil
}
