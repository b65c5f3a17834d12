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

// postJSON sends the JSON of in.
func (c *Client) postJSON(ctx context.Context, path, key string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return invalid("%s: %v", path, err)
	}
	return c.post(ctx, path, key, body, out)
}

// CreateRun implements [store.RunStore].
func (c *Client) CreateRun(ctx context.Context, run agl.Run) (agl.Run, error) {
	var made agl.Run
	err := c.postJSON(ctx, "/runs", newKey(), run, &made)
	return made, err
}

// UpdateRun implements [store.RunStore].
func (c *Client) UpdateRun(ctx context.Context, runID string, u store.RunUpdate) (agl.Run, error) {
	var run agl.Run
	id, err := segment(runID)
	if err != nil {
		return run, err
	}
	b := newBody()
	if u.Status.Given {
		b.string("status", string(u.Status.Value))
	}
	if u.Config.Given {
		b.raw("config", u.Config.Value)
	}
	if u.Error.Given {
		b.string("error", u.Error.Value)
	}
	body, err := b.close()
	if err == nil {
		err = c.post(ctx, "/runs/"+id, "", body, &run)
	}
	return run, err
}

// Run implements [store.RunStore].
func (c *Client) Run(ctx context.Context, runID string) (agl.Run, error) {
	var run agl.Run
	id, err := segment(runID)
	if err == nil {
		err = c.find(ctx, "/runs/"+id, &run, "Run "+runID+" not found")
	}
	return run, err
}

// Runs implements [store.RunStore].
func (c *Client) Runs(ctx context.Context, limit int) ([]agl.Run, error) {
	runs := []agl.Run{}
	err := c.get(ctx, "/runs?limit="+strconv.Itoa(limit), &runs)
	return runs, err
}

// AddStepMetrics implements [store.RunStore].
func (c *Client) AddStepMetrics(ctx context.Context, runID string, m ...agl.StepMetrics) error {
	id, err := segment(runID)
	if err != nil {
		return err
	}
	return c.postJSON(ctx, "/runs/"+id+"/metrics", "", stepMetricsJSON(m), nil)
}

// StepMetrics implements [store.RunStore].
func (c *Client) StepMetrics(ctx context.Context, runID string, after int) ([]agl.StepMetrics, error) {
	id, err := segment(runID)
	if err != nil {
		return nil, err
	}
	var metrics []metricsJSON
	err = c.get(ctx, "/runs/"+id+"/metrics?after="+strconv.Itoa(after), &metrics)
	return fromMetricsJSON(metrics), err
}

// PutCheckpoint implements [store.RunStore].
func (c *Client) PutCheckpoint(ctx context.Context, runID string, checkpoint agl.Checkpoint) error {
	id, err := segment(runID)
	if err != nil {
		return err
	}
	return c.postJSON(ctx, "/runs/"+id+"/checkpoints", "", checkpoint, nil)
}

// LatestCheckpoint implements [store.RunStore].
func (c *Client) LatestCheckpoint(ctx context.Context, runID string) (agl.Checkpoint, error) {
	var checkpoint agl.Checkpoint
	id, err := segment(runID)
	if err == nil {
		err = c.find(ctx, "/runs/"+id+"/checkpoints/latest", &checkpoint, "Run "+runID+" has no checkpoint")
	}
	return checkpoint, err
}

// Checkpoints implements [store.RunStore].
func (c *Client) Checkpoints(ctx context.Context, runID string) ([]agl.Checkpoint, error) {
	id, err := segment(runID)
	if err != nil {
		return nil, err
	}
	checkpoints := []agl.Checkpoint{}
	err = c.get(ctx, "/runs/"+id+"/checkpoints", &checkpoints)
	return checkpoints, err
}

// PutModels implements [store.ModelStore].
func (c *Client) PutModels(ctx context.Context, models []agl.Model) error {
	return c.postJSON(ctx, "/models", "", notNil(models), nil)
}

// ReplaceModels implements [store.ModelStore].
func (c *Client) ReplaceModels(ctx context.Context, models []agl.Model) error {
	body, err := json.Marshal(notNil(models))
	if err != nil {
		return invalid("/models: %v", err)
	}
	return c.exchange(ctx, &request{method: http.MethodPut, path: "/models", body: body}, nil)
}

// DeleteModels implements [store.ModelStore].
func (c *Client) DeleteModels(ctx context.Context, name string, endpoints ...string) error {
	query := url.Values{}
	if name != "" {
		query["name"], query["endpoint"] = []string{name}, endpoints
	}
	path := "/models"
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return c.exchange(ctx, &request{method: http.MethodDelete, path: path}, nil)
}

// Models implements [store.ModelStore].
func (c *Client) Models(ctx context.Context) ([]agl.Model, error) {
	models := []agl.Model{}
	err := c.get(ctx, "/models?keys=true", &models)
	return models, err
}
