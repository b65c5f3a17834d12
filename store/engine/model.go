package engine

import (
	"context"
	"slices"
	"sync"

	agl "agentlightning"
	"agentlightning/store"
)

// modelKeys are the keys of model backends that were given by value. They stay
// in this process: what a database file holds ends up in backups.
type modelKeys struct {
	// mu is held while a list is written and its keys are set, so that no reader
	// sees one without the other.
	mu sync.RWMutex

	byBackend map[modelID]string
}

// modelID is what makes two registrations the same backend.
type modelID struct{ name, endpoint string }

func idOf(m agl.Model) modelID { return modelID{m.Name, m.Endpoint} }

// PutModels implements [store.ModelStore].
func (s *Store) PutModels(ctx context.Context, models []agl.Model) error {
	return s.changeModels(ctx, models, func(list []agl.Model) []agl.Model {
		for _, m := range models {
			at := slices.IndexFunc(list, func(o agl.Model) bool { return idOf(o) == idOf(m) })
			if at < 0 {
				list = append(list, m)
			} else {
				list[at] = m
			}
		}
		return list
	})
}

// ReplaceModels implements [store.ModelStore].
func (s *Store) ReplaceModels(ctx context.Context, models []agl.Model) error {
	return s.changeModels(ctx, models, func(list []agl.Model) []agl.Model {
		list = slices.DeleteFunc(list, func(o agl.Model) bool {
			return slices.ContainsFunc(models, func(m agl.Model) bool { return m.Name == o.Name })
		})
		for i, m := range models {
			if !slices.ContainsFunc(models[i+1:], func(o agl.Model) bool { return idOf(o) == idOf(m) }) {
				list = append(list, m) // named twice: what was said last holds
			}
		}
		return list
	})
}

// DeleteModels implements [store.ModelStore].
func (s *Store) DeleteModels(ctx context.Context, name string, endpoints ...string) error {
	return s.changeModels(ctx, nil, func(list []agl.Model) []agl.Model {
		return slices.DeleteFunc(list, func(m agl.Model) bool {
			return name == "" || m.Name == name && (len(endpoints) == 0 || slices.Contains(endpoints, m.Endpoint))
		})
	})
}

// changeModels writes what edit makes of the list. Keys of the given models take
// effect with it, those of backends that are gone are forgotten.
func (s *Store) changeModels(ctx context.Context, given []agl.Model, edit func([]agl.Model) []agl.Model) error {
	for i := range given {
		if err := given[i].Validate(); err != nil {
			return invalid("%s", err)
		}
	}
	s.keys.mu.Lock()
	defer s.keys.mu.Unlock()
	var written []agl.Model
	err := s.update(ctx, func(c *change) error {
		list, err := c.Models()
		if err != nil {
			return err
		}
		written = edit(list)
		for i := range written {
			if written[i].APIKey != "" {
				written[i].KeyGiven, written[i].APIKey = true, ""
			}
		}
		return c.PutModels(written)
	})
	if err != nil {
		return err
	}
	for i := range written {
		s.feed.tell(store.NounModels, written[i].Name)
	}
	if len(written) == 0 {
		s.feed.tell(store.NounModels, "")
	}
	keys := make(map[modelID]string, len(s.keys.byBackend))
	for _, m := range written {
		if key := s.keys.byBackend[idOf(m)]; key != "" {
			keys[idOf(m)] = key
		}
	}
	for _, m := range given {
		delete(keys, idOf(m))
		if m.APIKey != "" {
			keys[idOf(m)] = m.APIKey
		}
	}
	s.keys.byBackend = keys
	return nil
}

// Models implements [store.ModelStore].
func (s *Store) Models(ctx context.Context) ([]agl.Model, error) {
	s.keys.mu.RLock()
	defer s.keys.mu.RUnlock()
	out := []agl.Model{}
	err := s.view(ctx, func(r Reader) error {
		list, err := r.Models()
		out = append(out[:0], list...)
		return err
	})
	for i := range out {
		out[i].APIKey = s.keys.byBackend[idOf(out[i])]
	}
	return out, err
}
