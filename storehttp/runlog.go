package storehttp

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"

	agl "agentlightning"
	"agentlightning/store"
)

// logQuery reads the conditions of a part of a log.
func (o object) logQuery(runID string) store.LogQuery {
	q := store.LogQuery{RunID: runID}
	for name, to := range map[string]*int64{"after": &q.After, "before": &q.Before} {
		if v, given := o.get(name); given {
			*to = v.int()
		}
	}
	if v, given := o.get("level"); given {
		q.Level = literal(v, agl.LogLevels())
	}
	if v, given := o.get("text"); given {
		q.Text = v.string()
	}
	if v, given := o.get("limit"); given {
		q.Limit = int(v.int())
	}
	if v, given := o.get("newest"); given {
		q.Newest = v.bool()
	}
	return q
}

func (h *handler) runLog(c *call) answer {
	q := c.query().logQuery(c.params[0])
	if !c.valid() {
		return c.invalid()
	}
	page, err := h.store.RunLog(c.Context(), q)
	if errors.Is(err, store.ErrInvalid) {
		err = &refusal{http.StatusBadRequest, err.Error()}
	}
	if err != nil {
		return failed(err)
	}
	return encoded(http.StatusOK, page)
}

func (h *handler) addLogLines(c *call) answer {
	lines, refused := bodyOf[[]agl.LogLine](h, c)
	if refused != nil {
		return *refused
	}
	return h.once(c, func(ctx context.Context) answer {
		if err := h.store.AddLogLines(ctx, c.params[0], lines...); err != nil {
			return failed(err)
		}
		return ok([]byte("{}"))
	})
}

func (h *handler) deleteRun(c *call) answer {
	force := false
	if v, given := c.query().get("force"); given {
		force = v.bool()
	}
	if !c.valid() {
		return c.invalid()
	}
	if err := h.store.DeleteRun(c.Context(), c.params[0], force); err != nil {
		return failed(err)
	}
	return ok([]byte("{}"))
}

// AddLogLines implements [store.RunStore].
func (c *Client) AddLogLines(ctx context.Context, runID string, lines ...agl.LogLine) error {
	id, err := segment(runID)
	if err != nil {
		return err
	}
	return c.postJSON(ctx, "/runs/"+id+"/log", cmp.Or(store.Key(ctx), newKey()), notNil(lines), nil)
}

// RunLog implements [store.RunStore].
func (c *Client) RunLog(ctx context.Context, q store.LogQuery) (store.LogPage, error) {
	page := store.LogPage{Lines: []agl.LogLine{}}
	id, err := segment(q.RunID)
	if err != nil {
		return page, err
	}
	asked := url.Values{}
	for name, n := range map[string]int64{"after": q.After, "before": q.Before, "limit": int64(max(q.Limit, 0))} {
		if n != 0 {
			asked.Set(name, strconv.FormatInt(n, 10))
		}
	}
	if q.Level != "" {
		asked.Set("level", string(q.Level))
	}
	if q.Text != "" {
		asked.Set("text", q.Text)
	}
	if q.Newest {
		asked.Set("newest", "true")
	}
	path := "/runs/" + id + "/log"
	if len(asked) > 0 {
		path += "?" + asked.Encode()
	}
	err = c.get(ctx, path, &page)
	return page, err
}

// DeleteRun implements [store.RunStore].
func (c *Client) DeleteRun(ctx context.Context, runID string, force bool) error {
	id, err := segment(runID)
	if err != nil {
		return err
	}
	path := "/runs/" + id
	if force {
		path += "?force=true"
	}
	return c.exchange(ctx, &request{method: http.MethodDelete, path: path}, nil)
}
