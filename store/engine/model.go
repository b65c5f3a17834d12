package engine

import (
	"context"
	"slices"

	agl "agentlightning"
)

// PutModels implements [store.ModelStore].
func (s *Store) PutModels(ctx context.Context, models []agl.Model) error {
	for i := range models {
		if models[i].Name == "" || models[i].Endpoint == "" {
			return invalid("model %d: name %q and endpoint %q must not be empty", i, models[i].Name, models[i].Endpoint)
		}
	}
	return s.update(ctx, func(c *change) error {
		list, err := c.Models()
		if err != nil {
			return err
		}
		for _, m := range models {
			at := slices.IndexFunc(list, func(o agl.Model) bool { return o.Name == m.Name && o.Endpoint == m.Endpoint })
			if at < 0 {
				list = append(list, m)
			} else {
				list[at] = m
			}
		}
		return c.PutModels(list)
	})
}

// DeleteModels implements [store.ModelStore].
func (s *Store) DeleteModels(ctx context.Context, name string) error {
	return s.update(ctx, func(c *change) error {
		list, err := c.Models()
		if err != nil {
			return err
		}
		return c.PutModels(slices.DeleteFunc(list, func(m agl.Model) bool { return name == "" || m.Name == name }))
	})
}

// Models implements [store.ModelStore].
func (s *Store) Models(ctx context.Context) ([]agl.Model, error) {
	out := []agl.Model{}
	err := s.view(ctx, func(r Reader) error {
		list, err := r.Models()
		out = append(out[:0], list...)
		return err
	})
	return out, err
}
