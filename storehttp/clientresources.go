package storehttp

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"

	agl "agentlightning"
	"agentlightning/store"
)

// AddResources implements [store.ResourceStore].
func (c *Client) AddResources(ctx context.Context, r agl.NamedResources) (agl.ResourcesUpdate, error) {
	var u agl.ResourcesUpdate
	err := c.post(ctx, "/resources", newKey(), r.AppendJSON(nil), &u)
	return u, err
}

// UpdateResources implements [store.ResourceStore].
func (c *Client) UpdateResources(ctx context.Context, resourcesID string, r agl.NamedResources) (agl.ResourcesUpdate, error) {
	var u agl.ResourcesUpdate
	id, err := segment(resourcesID)
	if err == nil {
		err = c.post(ctx, "/resources/"+id, newKey(), r.AppendJSON(nil), &u)
	}
	return u, err
}

// Resources implements [store.ResourceStore].
func (c *Client) Resources(ctx context.Context, resourcesID string) (agl.ResourcesUpdate, error) {
	var u agl.ResourcesUpdate
	id, err := segment(resourcesID, "latest")
	if err == nil {
		err = c.find(ctx, "/resources/"+id, &u, "Resources "+resourcesID+" not found")
	}
	return u, err
}

// LatestResources implements [store.ResourceStore].
func (c *Client) LatestResources(ctx context.Context) (agl.ResourcesUpdate, error) {
	var u agl.ResourcesUpdate
	err := c.find(ctx, "/resources/latest", &u, "No resources were added yet")
	return u, err
}

// QueryResources implements [store.ResourceStore].
func (c *Client) QueryResources(ctx context.Context, q store.ResourcesQuery) (store.Page[agl.ResourcesUpdate], error) {
	v := url.Values{}
	if q.ResourcesID != nil {
		v.Set("resources_id", *q.ResourcesID)
	}
	if q.ResourcesIDContains != nil {
		v.Set("resources_id_contains", *q.ResourcesIDContains)
	}
	if q.SortBy != "" {
		v.Set("sort_by", q.SortBy)
	}
	if q.Desc {
		v.Set("sort_order", "desc")
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.Offset != 0 {
		v.Set("offset", strconv.Itoa(q.Offset))
	}
	rep, err := c.do(ctx, &request{method: http.MethodGet, path: "/resources?" + v.Encode()})
	if err != nil {
		return store.Page[agl.ResourcesUpdate]{}, err
	}
	return decodePage[agl.ResourcesUpdate](rep.body)
}

// UpdateWorker implements [store.WorkerStore].
func (c *Client) UpdateWorker(ctx context.Context, workerID string, stats store.Set[json.RawMessage]) (agl.Worker, error) {
	var w agl.Worker
	id, err := segment(workerID, "search")
	if err != nil {
		return w, err
	}
	var body []byte
	if stats.Given {
		b := newBody()
		b.raw("heartbeat_stats", stats.Value)
		if body, err = b.close(); err != nil {
			return w, err
		}
	}
	err = c.post(ctx, "/workers/"+id, "", body, &w)
	return w, err
}

// Worker implements [store.WorkerStore].
func (c *Client) Worker(ctx context.Context, workerID string) (agl.Worker, error) {
	var w agl.Worker
	id, err := segment(workerID)
	if err == nil {
		err = c.find(ctx, "/workers/"+id, &w, "Worker "+workerID+" not found")
	}
	return w, err
}

// QueryWorkers implements [store.WorkerStore].
func (c *Client) QueryWorkers(ctx context.Context, q store.WorkerQuery) (store.Page[agl.Worker], error) {
	b := newBody()
	if q.StatusIn != nil {
		words(b, "status_in", q.StatusIn)
	}
	b.filter("worker_id_contains", q.WorkerIDContains)
	b.paging(q.Paging)
	return queryPage[agl.Worker](ctx, c, "/workers/search", b)
}

// Statistics implements [store.Store].
func (c *Client) Statistics(ctx context.Context) (store.Statistics, error) {
	var w statisticsJSON
	err := c.get(ctx, "/statistics", &w)
	return w.statistics(), err
}
