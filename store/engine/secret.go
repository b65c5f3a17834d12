package engine

import (
	"context"
	"crypto/rand"
)

// secretBytes is enough for the key of any signature.
const secretBytes = 32

// Secret returns random bytes that are made when a name is first asked for and
// then kept with the data, so that what was signed with them outlives a restart.
func (s *Store) Secret(ctx context.Context, name string) ([]byte, error) {
	fresh := make([]byte, secretBytes)
	_, _ = rand.Read(fresh) // never fails
	var out []byte
	err := s.update(ctx, func(c *change) (err error) {
		out, err = c.Secret(name, fresh)
		return err
	})
	return out, err
}
