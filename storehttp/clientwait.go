package storehttp

import (
	"context"
	"net/http"
	"strconv"
	"time"

	agl "agentlightning"
)

// WaitForRollouts implements [store.RolloutStore].
func (c *Client) WaitForRollouts(ctx context.Context, rolloutIDs []string, timeout time.Duration) ([]agl.Rollout, error) {
	return c.wait(ctx, "/waits/rollouts", rolloutIDs, distinct(rolloutIDs), timeout, c.chunk)
}

// WaitForCount implements [store.RolloutStore]. A server that can only wait for
// all of them is asked at the poll interval.
func (c *Client) WaitForCount(ctx context.Context, rolloutIDs []string, count int, timeout time.Duration) ([]agl.Rollout, error) {
	count = max(count, 0)
	if count == 0 {
		timeout = 0
	}
	if !c.noBulk.Load() {
		done, err := c.wait(ctx, "/waits/count", rolloutIDs, count, timeout, c.chunk)
		if !lacksRoute(err) {
			return done, err
		}
		c.noBulk.Store(true)
	}
	return c.wait(ctx, "/waits/rollouts", rolloutIDs, count, timeout, c.poll)
}

// wait asks for finished rollouts until there are as many as asked for, none is
// left to wait for, or the timeout has passed. Each request lasts a chunk.
func (c *Client) wait(ctx context.Context, path string, rolloutIDs []string, count int, timeout, chunk time.Duration) ([]agl.Rollout, error) {
	start := time.Now()
	for {
		if timeout >= 0 {
			chunk = min(chunk, max(0, timeout-time.Since(start)))
		}
		b := newBody()
		words(b, "rollout_ids", rolloutIDs)
		if path == "/waits/count" {
			b.name("count")
			b.dst = strconv.AppendInt(b.dst, int64(count), 10)
		}
		b.float("timeout", chunk.Seconds())
		body, err := b.close()
		if err != nil {
			return nil, err
		}
		done := []agl.Rollout{}
		asked := time.Now()
		r := &request{method: http.MethodPost, path: path, body: body, wait: chunk}
		if err := c.exchange(ctx, r, &done); err != nil {
			return nil, err
		}
		ids := make([]string, len(done))
		for i := range done {
			ids[i] = done[i].RolloutID
		}
		// An answer before its time means that there is nothing more to wait for.
		if distinct(ids) >= count || time.Since(asked) < chunk || timeout >= 0 && time.Since(start) >= timeout {
			return done, nil
		}
	}
}

func distinct(ids []string) int {
	seen := make(map[string]struct{}, len(ids))
	for _, id := range ids {
		seen[id] = struct{}{}
	}
	return len(seen)
}
