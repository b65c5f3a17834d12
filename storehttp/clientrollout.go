package storehttp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
	"agentlightning/store"
)

// waitChunk is how long a server is asked to wait at a time. It is shorter than
// what proxies on the way put up with, and a lost server is noticed by then.
const waitChunk = 20 * time.Second

// post sends a body and decodes the answer into out, unless that is nil.
func (c *Client) post(ctx context.Context, path, key string, body []byte, out any) error {
	if own := store.Key(ctx); own != "" {
		key = own
	}
	return c.exchange(ctx, &request{method: http.MethodPost, path: path, key: key, body: body}, out)
}

func (c *Client) get(ctx context.Context, path string, out any) error {
	return c.exchange(ctx, &request{method: http.MethodGet, path: path}, out)
}

func (c *Client) exchange(ctx context.Context, r *request, out any) error {
	rep, err := c.do(ctx, r)
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(rep.body, out); err != nil {
		return fmt.Errorf("answer of %s %s: %w", r.method, r.path, err)
	}
	return nil
}

// find looks something up that may not exist; the server then answers null.
func (c *Client) find(ctx context.Context, path string, out any, missing string) error {
	rep, err := c.do(ctx, &request{method: http.MethodGet, path: path})
	if err != nil {
		return err
	}
	if string(rep.body) == "null" {
		return notFound(missing)
	}
	if err := json.Unmarshal(rep.body, out); err != nil {
		return fmt.Errorf("answer of GET %s: %w", path, err)
	}
	return nil
}

func notFound(msg string) error { return &store.Error{Kind: store.ErrNotFound, Message: msg} }

func invalid(format string, args ...any) error {
	return &store.Error{Kind: store.ErrInvalid, Message: fmt.Sprintf(format, args...)}
}

// segment makes an id a part of a path. The protocol cannot name an id that is
// empty, that has a slash, or that is one of the words in its place.
func segment(id string, words ...string) (string, error) {
	if id == "" {
		return "", notFound("an empty id names nothing")
	}
	if strings.Contains(id, "/") || slices.Contains(words, id) {
		return "", invalid("%q cannot be used as an id over HTTP", id)
	}
	return url.PathEscape(id), nil
}

// EnqueueRollouts implements [store.RolloutStore].
func (c *Client) EnqueueRollouts(ctx context.Context, reqs []store.EnqueueRequest) ([]agl.Rollout, error) {
	if len(reqs) == 0 {
		return []agl.Rollout{}, nil
	}
	body := []byte(`{"rollouts":[`)
	for i := range reqs {
		if i > 0 {
			body = append(body, ',')
		}
		var err error
		if body, err = appendEnqueue(body, &reqs[i]); err != nil {
			return nil, err
		}
		body = append(body, '}')
	}
	var made []agl.Rollout
	err := c.post(ctx, "/queues/rollouts/enqueue", newKey(), append(body, "]}"...), &made)
	return made, err
}

// appendEnqueue appends a request without its last brace.
func appendEnqueue(dst []byte, r *store.EnqueueRequest) ([]byte, error) {
	for name, raw := range map[string][]byte{"input": r.Input, "metadata": r.Metadata} {
		if len(raw) > 0 {
			if err := jsonx.Check(raw); err != nil {
				return nil, invalid("%s is not JSON: %v", name, err)
			}
		}
	}
	dst = jsonx.AppendRaw(append(dst, `{"input":`...), r.Input)
	dst = appendWord(append(dst, `,"mode":`...), string(r.Mode))
	dst = jsonx.AppendOptionalString(append(dst, `,"resources_id":`...), r.ResourcesID)
	dst = append(dst, `,"config":`...)
	if r.Config == nil {
		dst = append(dst, "null"...)
	} else {
		if err := checkConfig(r.Config); err != nil {
			return nil, err
		}
		dst = r.Config.AppendJSON(dst)
	}
	return jsonx.AppendRaw(append(dst, `,"metadata":`...), r.Metadata), nil
}

// checkConfig refuses what the JSON of a configuration would hide.
func checkConfig(c *agl.RolloutConfig) error {
	if c.MaxAttempts < 0 {
		return invalid("config.max_attempts is %d; it must be 1 or more", c.MaxAttempts)
	}
	return nil
}

// StartRollout implements [store.RolloutStore].
func (c *Client) StartRollout(ctx context.Context, req store.StartRequest) (agl.AttemptedRollout, error) {
	var made agl.AttemptedRollout
	body, err := appendEnqueue(nil, &req.EnqueueRequest)
	if err != nil {
		return made, err
	}
	body = jsonx.AppendOptionalString(append(body, `,"worker_id":`...), req.WorkerID)
	err = c.post(ctx, "/rollouts", newKey(), append(body, '}'), &made)
	return made, err
}

// Rollout implements [store.RolloutStore].
func (c *Client) Rollout(ctx context.Context, rolloutID string) (agl.AttemptedRollout, error) {
	var r agl.AttemptedRollout
	id, err := segment(rolloutID)
	if err == nil {
		err = c.find(ctx, "/rollouts/"+id, &r, "Rollout "+rolloutID+" not found")
	}
	return r, err
}

// QueryRollouts implements [store.RolloutStore].
func (c *Client) QueryRollouts(ctx context.Context, q store.RolloutQuery) (store.Page[agl.AttemptedRollout], error) {
	b := newBody()
	b.rolloutFilters(&q)
	b.paging(q.Paging)
	return queryPage[agl.AttemptedRollout](ctx, c, "/rollouts/search", b)
}

// rolloutFilters writes which rollouts are asked for.
func (b *bodyWriter) rolloutFilters(q *store.RolloutQuery) {
	if q.StatusIn != nil {
		words(b, "status_in", q.StatusIn)
	}
	if q.RolloutIDIn != nil {
		words(b, "rollout_id_in", q.RolloutIDIn)
	}
	b.filter("rollout_id_contains", q.RolloutIDContains)
}

// UpdateRollout implements [store.RolloutStore].
func (c *Client) UpdateRollout(ctx context.Context, rolloutID string, u store.RolloutUpdate) (agl.Rollout, error) {
	var r agl.Rollout
	id, err := segment(rolloutID, "search")
	if err != nil {
		return r, err
	}
	b := newBody()
	if u.Input.Given {
		b.raw("input", u.Input.Value)
	}
	if u.Mode.Given {
		b.word("mode", string(u.Mode.Value))
	}
	if u.ResourcesID.Given {
		b.optional("resources_id", u.ResourcesID.Value)
	}
	if u.Status.Given {
		b.word("status", string(u.Status.Value))
	}
	if u.Config.Given {
		if err := checkConfig(&u.Config.Value); err != nil {
			return r, err
		}
		b.raw("config", u.Config.Value.AppendJSON(nil))
	}
	if u.Metadata.Given {
		b.raw("metadata", u.Metadata.Value)
	}
	body, err := b.close()
	if err == nil {
		err = c.post(ctx, "/rollouts/"+id, "", body, &r)
	}
	return r, err
}
