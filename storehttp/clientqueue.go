package storehttp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
	"agentlightning/store"
)

// giveBack limits what a cancelled dequeue does for what it may have claimed.
const giveBack = 2 * time.Second

// DequeueRollouts implements [store.RolloutStore]. When ctx ends while the
// request is under way, what it claimed after all is given back.
func (c *Client) DequeueRollouts(ctx context.Context, req store.DequeueRequest) ([]agl.AttemptedRollout, error) {
	if req.Limit <= 0 {
		return []agl.AttemptedRollout{}, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b := newBody()
	b.name("limit")
	b.dst = strconv.AppendInt(b.dst, int64(req.Limit), 10)
	b.optional("worker_id", req.WorkerID)
	body, err := b.close()
	if err != nil {
		return nil, err
	}
	r := &request{method: http.MethodPost, path: "/queues/rollouts/dequeue", body: body, key: req.Key}
	if r.key == "" {
		r.key = newKey()
	}
	deadline := time.Now().Add(req.Wait)
	for {
		r.wait = min(c.chunk, max(0, time.Until(deadline)))
		r.prefer = r.wait > 0
		claimed, waited, err := c.claim(ctx, r)
		if err != nil {
			if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrClosed) {
				c.giveBack(ctx, r)
			}
			return nil, err
		}
		left := time.Until(deadline)
		if len(claimed) > 0 || left <= 0 {
			return claimed, nil
		}
		if waited {
			continue
		}
		timer := time.NewTimer(min(left, c.poll/2+rand.N(c.poll/2+1)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
	}
}

// claim sends a dequeue; waited is whether the server lets a request wait.
func (c *Client) claim(ctx context.Context, r *request) (claimed []agl.AttemptedRollout, waited bool, err error) {
	rep, err := c.do(ctx, r)
	if err != nil {
		return nil, false, err
	}
	claimed = []agl.AttemptedRollout{}
	if err := json.Unmarshal(rep.body, &claimed); err != nil {
		return nil, false, fmt.Errorf("answer of dequeue: %w", err)
	}
	return claimed, rep.header.Get(appliedHeader) != "", nil
}

// giveBack asks again with the key of a request whose answer nobody waited for,
// and releases what that claimed. A server that is not ours does not know the
// key; its claims end by their time limits.
func (c *Client) giveBack(ctx context.Context, r *request) {
	if c.noBulk.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBack)
	defer cancel()
	again := *r
	again.wait, again.prefer = 0, false
	rep, err := c.try(ctx, &again)
	if err != nil || rep.header.Get(requestIDHeader) == "" {
		return
	}
	var claimed []agl.AttemptedRollout
	if json.Unmarshal(rep.body, &claimed) != nil || len(claimed) == 0 {
		return
	}
	if _, err := c.try(ctx, releaseRequest(claimed)); err != nil {
		c.log.WarnContext(ctx, "cannot give back a claim", "rollout_id", claimed[0].RolloutID, "err", err)
	}
}

func releaseRequest(claimed []agl.AttemptedRollout) *request {
	body := appendItems([]byte(`{"rollouts":`), claimed, appendAttempted)
	return &request{method: http.MethodPost, path: "/queues/rollouts/release", body: append(body, '}')}
}

// ReleaseRollouts implements [store.RolloutStore].
func (c *Client) ReleaseRollouts(ctx context.Context, claimed []agl.AttemptedRollout) error {
	if len(claimed) == 0 {
		return nil
	}
	_, err := c.do(ctx, releaseRequest(claimed))
	return err
}

// StartAttempt implements [store.AttemptStore].
func (c *Client) StartAttempt(ctx context.Context, rolloutID string, workerID *string) (agl.AttemptedRollout, error) {
	var r agl.AttemptedRollout
	id, err := segment(rolloutID)
	if err != nil {
		return r, err
	}
	var body []byte
	if workerID != nil {
		body = append(jsonx.AppendString([]byte(`{"worker_id":`), *workerID), '}')
	}
	err = c.post(ctx, "/rollouts/"+id+"/attempts", newKey(), body, &r)
	return r, err
}

// QueryAttempts implements [store.AttemptStore].
func (c *Client) QueryAttempts(ctx context.Context, q store.AttemptQuery) (store.Page[agl.Attempt], error) {
	id, err := segment(q.RolloutID)
	if errors.Is(err, store.ErrNotFound) { // as any rollout without attempts
		return store.Page[agl.Attempt]{Items: []agl.Attempt{}}, nil
	}
	if err != nil {
		return store.Page[agl.Attempt]{}, err
	}
	b := newBody()
	b.paging(q.Paging)
	return queryPage[agl.Attempt](ctx, c, "/rollouts/"+id+"/attempts/search", b)
}

// LatestAttempt implements [store.AttemptStore].
func (c *Client) LatestAttempt(ctx context.Context, rolloutID string) (agl.Attempt, error) {
	var a agl.Attempt
	id, err := segment(rolloutID)
	if err == nil {
		err = c.find(ctx, "/rollouts/"+id+"/attempts/latest", &a, "No attempts found for rollout "+rolloutID)
	}
	return a, err
}

// UpdateAttempt implements [store.AttemptStore].
func (c *Client) UpdateAttempt(ctx context.Context, rolloutID, attemptID string, u store.AttemptUpdate) (agl.Attempt, error) {
	var a agl.Attempt
	rollout, err := segment(rolloutID)
	if err != nil {
		return a, err
	}
	attempt, err := segment(attemptID, "search")
	if err != nil {
		return a, err
	}
	b := newBody()
	if u.Status.Given {
		b.word("status", string(u.Status.Value))
	}
	if u.WorkerID.Given {
		b.string("worker_id", u.WorkerID.Value)
	}
	if u.LastHeartbeatTime.Given {
		b.float("last_heartbeat_time", u.LastHeartbeatTime.Value)
	}
	if u.Metadata.Given {
		b.raw("metadata", u.Metadata.Value)
	}
	body, err := b.close()
	if err == nil {
		err = c.post(ctx, "/rollouts/"+rollout+"/attempts/"+attempt, "", body, &a)
	}
	return a, err
}
