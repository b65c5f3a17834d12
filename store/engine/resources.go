package engine

import (
	"context"

	agl "agentlightning"
	"agentlightning/store"
)

// AddResources implements [store.ResourceStore].
func (s *Store) AddResources(ctx context.Context, r agl.NamedResources) (agl.ResourcesUpdate, error) {
	r, err := checkResources(r)
	if err != nil {
		return agl.ResourcesUpdate{}, err
	}
	var out agl.ResourcesUpdate
	err = s.update(ctx, func(c *change) error {
		c.after = func() { s.feed.tell(store.NounResources, out.ResourcesID) }
		out = agl.ResourcesUpdate{
			ResourcesID: agl.NewResourcesID(), CreateTime: c.now, UpdateTime: c.now,
			Version: 1, Resources: CloneResources(r),
		}
		return c.PutResources(out)
	})
	return out, err
}

// UpdateResources implements [store.ResourceStore]. An unknown id is created.
func (s *Store) UpdateResources(ctx context.Context, resourcesID string, r agl.NamedResources) (agl.ResourcesUpdate, error) {
	r, err := checkResources(r)
	if err != nil {
		return agl.ResourcesUpdate{}, err
	}
	if err := s.checkHealth(ctx); err != nil {
		return agl.ResourcesUpdate{}, err
	}
	var out agl.ResourcesUpdate
	err = s.update(ctx, func(c *change) error {
		c.after = func() { s.feed.tell(store.NounResources, resourcesID) }
		old, ok, err := c.Resources(resourcesID)
		if err != nil {
			return err
		}
		if !ok {
			old = agl.ResourcesUpdate{ResourcesID: resourcesID, CreateTime: c.now}
		}
		out = old
		out.UpdateTime = c.now
		out.Version++
		out.Resources = CloneResources(r)
		return c.PutResources(out)
	})
	return out, err
}

// Resources implements [store.ResourceStore].
func (s *Store) Resources(ctx context.Context, resourcesID string) (agl.ResourcesUpdate, error) {
	var out agl.ResourcesUpdate
	err := s.view(ctx, func(r Reader) (err error) {
		var ok bool
		if out, ok, err = r.Resources(resourcesID); err == nil && !ok {
			err = notFound("Resources %s not found", resourcesID)
		}
		return err
	})
	return out, err
}

// LatestResources implements [store.ResourceStore].
func (s *Store) LatestResources(ctx context.Context) (agl.ResourcesUpdate, error) {
	var out agl.ResourcesUpdate
	err := s.view(ctx, func(r Reader) (err error) {
		var ok bool
		if out, ok, err = r.LatestResources(); err == nil && !ok {
			err = notFound("no resources were added yet")
		}
		return err
	})
	return out, err
}

// QueryResources implements [store.ResourceStore].
func (s *Store) QueryResources(ctx context.Context, q store.ResourcesQuery) (store.Page[agl.ResourcesUpdate], error) {
	if err := checkPaging(&q.Paging, resourcesFields); err != nil {
		return store.Page[agl.ResourcesUpdate]{}, err
	}
	return query(ctx, s, q, Reader.QueryResources)
}
