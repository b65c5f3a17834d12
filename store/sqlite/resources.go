package sqlite

import (
	"fmt"

	agl "agentlightning"
	"agentlightning/store"
)

func (r reader) Resources(id string) (agl.ResourcesUpdate, bool, error) {
	return r.oneResources(selectResources, id)
}

func (r reader) LatestResources() (agl.ResourcesUpdate, bool, error) {
	return r.oneResources(selectLatestResources)
}

func (r reader) oneResources(sql string, args ...any) (agl.ResourcesUpdate, bool, error) {
	var u agl.ResourcesUpdate
	found, err := r.c.one(func(row row) (err error) { u, err = scanResources(row); return err }, sql, args...)
	return u, found, err
}

func (r reader) QueryResources(q store.ResourcesQuery) (store.Page[agl.ResourcesUpdate], error) {
	var f filter
	f.equal("resources_id", q.ResourcesID)
	f.contains("resources_id", q.ResourcesIDContains)
	q.Any = false // the protocol always joins these by "and"
	return fetch(r.c, f.selection("resources", q.Paging, resourcesSorts), resourcesColumns, scanResources)
}

func (t *tx) PutResources(u agl.ResourcesUpdate) error {
	t.write()
	_, err := t.c.exec(putResources, u.ResourcesID, u.CreateTime, u.UpdateTime, int64(u.Version),
		string(u.Resources.AppendJSON(nil)))
	if err != nil {
		return fmt.Errorf("put resources %s: %w", u.ResourcesID, err)
	}
	return nil
}

func scanResources(r row) (agl.ResourcesUpdate, error) {
	u := agl.ResourcesUpdate{
		ResourcesID: r.text(0), CreateTime: r.float(1), UpdateTime: r.float(2),
		Version: int(r.int(3)),
	}
	if err := u.Resources.UnmarshalJSON([]byte(r.text(4))); err != nil {
		return u, fmt.Errorf("stored resources %s: %w", u.ResourcesID, err)
	}
	return u, nil
}
