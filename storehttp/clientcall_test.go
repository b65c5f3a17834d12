package storehttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
	"agentlightning/store"
	"agentlightning/storehttp"
)

// clientCall makes a call and gives its result as the JSON of the protocol.
type clientCall func(ctx context.Context, c *storehttp.Client) ([]byte, error)

// callOf finds the call of the client that a recorded request stands for.
func callOf(s *step) (clientCall, error) {
	path, own := strings.CutPrefix(s.Request.Path, storehttp.Prefix+"/")
	if !own {
		return nil, errors.New("not a route of the store")
	}
	parts := strings.Split(path, "/")
	for i := range parts {
		var err error
		if parts[i], err = url.PathUnescape(parts[i]); err != nil {
			return nil, err
		}
	}
	if s.Request.Method == http.MethodGet {
		return lookup(s, parts)
	}
	if s.Request.Method == http.MethodPost {
		return change(s, parts)
	}
	return nil, fmt.Errorf("no call uses %s", s.Request.Method)
}

// lookup finds the calls of GET routes.
func lookup(s *step, parts []string) (clientCall, error) {
	switch last := parts[len(parts)-1]; {
	case len(parts) == 1 && last == "health":
		return func(ctx context.Context, c *storehttp.Client) ([]byte, error) {
			return []byte(`{"status":"ok"}`), c.Health(ctx)
		}, nil
	case len(parts) == 1 && last == "statistics":
		return statistics(s), nil
	case len(parts) == 1, len(parts) == 3 && last == "attempts":
		return list(s, parts, nil)
	case len(parts) == 2 && parts[0] == "rollouts":
		return func(ctx context.Context, c *storehttp.Client) ([]byte, error) { return encode(c.Rollout(ctx, last)) }, nil
	case len(parts) == 2 && parts[0] == "workers":
		return func(ctx context.Context, c *storehttp.Client) ([]byte, error) { return encode(c.Worker(ctx, last)) }, nil
	case len(parts) == 2 && last == "latest":
		return func(ctx context.Context, c *storehttp.Client) ([]byte, error) { return encode(c.LatestResources(ctx)) }, nil
	case len(parts) == 2 && parts[0] == "resources":
		return func(ctx context.Context, c *storehttp.Client) ([]byte, error) { return encode(c.Resources(ctx, last)) }, nil
	case len(parts) == 4 && last == "latest":
		return func(ctx context.Context, c *storehttp.Client) ([]byte, error) {
			return encode(c.LatestAttempt(ctx, parts[1]))
		}, nil
	}
	return nil, errors.New("no such route")
}

// change finds the calls of POST routes.
func change(s *step, parts []string) (clientCall, error) {
	body := recordedBody(s)
	switch last := parts[len(parts)-1]; {
	case last == "search" && parts[0] != "resources":
		return list(s, parts[:len(parts)-1], body)
	case last == "enqueue":
		var b struct {
			Rollouts []startBody `json:"rollouts"`
		}
		return read(body, &b, func(ctx context.Context, c *storehttp.Client) ([]byte, error) {
			reqs := make([]store.EnqueueRequest, len(b.Rollouts))
			for i := range reqs {
				reqs[i] = b.Rollouts[i].request()
			}
			return encode(c.EnqueueRollouts(ctx, reqs))
		})
	case last == "dequeue":
		b := struct {
			Limit    int     `json:"limit"`
			WorkerID *string `json:"worker_id"`
		}{Limit: 1}
		return readOptional(body, &b, func(ctx context.Context, c *storehttp.Client) ([]byte, error) {
			return encode(c.DequeueRollouts(ctx, store.DequeueRequest{Limit: b.Limit, WorkerID: b.WorkerID}))
		})
	case len(parts) == 1 && last == "rollouts":
		var b startBody
		call, err := read(notFinite.ReplaceAll(body, []byte(`${1}null`)), &b, func(ctx context.Context, c *storehttp.Client) ([]byte, error) {
			return encode(c.StartRollout(ctx, store.StartRequest{EnqueueRequest: b.request(), WorkerID: b.WorkerID}))
		})
		if members, broken := jsonx.Members(body); broken == nil {
			b.Input = jsonx.Get(members, "input") // which may hold NaN
		}
		return call, err
	case len(parts) == 2 && parts[0] == "rollouts":
		return updateRollout(last, body)
	case len(parts) == 3 && last == "attempts":
		var b struct {
			WorkerID *string `json:"worker_id"`
		}
		return readOptional(body, &b, func(ctx context.Context, c *storehttp.Client) ([]byte, error) {
			return encode(c.StartAttempt(ctx, parts[1], b.WorkerID))
		})
	case len(parts) == 4:
		return updateAttempt(parts[1], last, body)
	case parts[0] == "workers" && len(parts) == 2:
		var b map[string]json.RawMessage
		return readOptional(body, &b, func(ctx context.Context, c *storehttp.Client) ([]byte, error) {
			var stats store.Set[json.RawMessage]
			stats.Value, stats.Given = b["heartbeat_stats"]
			return encode(c.UpdateWorker(ctx, last, stats))
		})
	case parts[0] == "resources":
		var b agl.NamedResources
		return read(body, &b, func(ctx context.Context, c *storehttp.Client) ([]byte, error) {
			if len(parts) == 1 {
				return encode(c.AddResources(ctx, b))
			}
			return encode(c.UpdateResources(ctx, last, b))
		})
	case last == "spans":
		var b agl.Span
		err := b.UnmarshalJSON(body) // which knows NaN
		return func(ctx context.Context, c *storehttp.Client) ([]byte, error) { return addSpan(ctx, c, b) }, err
	case last == "next":
		var b struct {
			RolloutID *string `json:"rollout_id"`
			AttemptID *string `json:"attempt_id"`
		}
		if err := json.Unmarshal(body, &b); err != nil || b.RolloutID == nil || b.AttemptID == nil {
			return nil, errors.New("an id is missing")
		}
		return func(ctx context.Context, c *storehttp.Client) ([]byte, error) {
			ids, err := c.NextSequenceIDs(ctx, []store.Attempted{{RolloutID: *b.RolloutID, AttemptID: *b.AttemptID}})
			if err != nil {
				return nil, err
			}
			return fmt.Appendf(nil, `{"sequence_id":%d}`, ids[0]), nil
		}, nil
	case parts[0] == "waits":
		var b struct {
			IDs     []string `json:"rollout_ids"`
			Timeout *float64 `json:"timeout"`
		}
		return read(body, &b, func(ctx context.Context, c *storehttp.Client) ([]byte, error) {
			timeout := time.Duration(-1) // without limit, which the protocol writes as null
			if b.Timeout != nil {
				timeout = time.Duration(max(0, *b.Timeout) * float64(time.Second))
			}
			return encode(c.WaitForRollouts(ctx, b.IDs, timeout))
		})
	}
	return nil, errors.New("no such route")
}

func read(body []byte, into any, call clientCall) (clientCall, error) {
	return call, json.Unmarshal(body, into)
}

func readOptional(body []byte, into any, call clientCall) (clientCall, error) {
	if len(body) == 0 {
		return call, nil
	}
	return read(body, into, call)
}

func encode[T any](v T, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	var raw strings.Builder
	e := json.NewEncoder(&raw)
	e.SetEscapeHTML(false)
	err = e.Encode(v)
	return []byte(strings.TrimSuffix(raw.String(), "\n")), err
}

// startBody asks for a rollout.
type startBody struct {
	Input       json.RawMessage    `json:"input"`
	Mode        agl.Mode           `json:"mode"`
	ResourcesID *string            `json:"resources_id"`
	Config      *agl.RolloutConfig `json:"config"`
	Metadata    json.RawMessage    `json:"metadata"`
	WorkerID    *string            `json:"worker_id"`
}

func (b *startBody) request() store.EnqueueRequest {
	return store.EnqueueRequest{
		Input: b.Input, Mode: b.Mode, ResourcesID: b.ResourcesID, Config: b.Config, Metadata: b.Metadata,
	}
}

// set reads a member that may be given.
func set[T any](members map[string]json.RawMessage, name string, err *error) store.Set[T] {
	raw, given := members[name]
	out := store.Set[T]{Given: given}
	if given && *err == nil {
		*err = json.Unmarshal(raw, &out.Value)
	}
	return out
}

func updateRollout(id string, body []byte) (clientCall, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, err
	}
	var err error
	u := store.RolloutUpdate{
		Input: set[json.RawMessage](m, "input", &err), Mode: set[agl.Mode](m, "mode", &err),
		ResourcesID: set[*string](m, "resources_id", &err), Status: set[agl.RolloutStatus](m, "status", &err),
		Config: set[agl.RolloutConfig](m, "config", &err), Metadata: set[json.RawMessage](m, "metadata", &err),
	}
	return func(ctx context.Context, c *storehttp.Client) ([]byte, error) {
		return encode(c.UpdateRollout(ctx, id, u))
	}, err
}

func updateAttempt(rolloutID, attemptID string, body []byte) (clientCall, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, err
	}
	var err error
	u := store.AttemptUpdate{
		Status: set[agl.AttemptStatus](m, "status", &err), WorkerID: set[string](m, "worker_id", &err),
		LastHeartbeatTime: set[float64](m, "last_heartbeat_time", &err), Metadata: set[json.RawMessage](m, "metadata", &err),
	}
	return func(ctx context.Context, c *storehttp.Client) ([]byte, error) {
		return encode(c.UpdateAttempt(ctx, rolloutID, attemptID, u))
	}, err
}

func addSpan(ctx context.Context, c *storehttp.Client, span agl.Span) ([]byte, error) {
	added, err := c.AddSpans(ctx, []agl.Span{span})
	if err != nil {
		return nil, err
	}
	if added[0].Err != nil {
		return nil, added[0].Err
	}
	if !added[0].Stored {
		return []byte("null"), nil
	}
	return added[0].Span.AppendJSON(nil), nil
}

// statistics compares the members that the client knows.
func statistics(s *step) clientCall {
	return func(ctx context.Context, c *storehttp.Client) ([]byte, error) {
		got, err := c.Statistics(ctx)
		if err != nil {
			return nil, err
		}
		var want struct {
			TotalRollouts  int64   `json:"total_rollouts"`
			TotalAttempts  int64   `json:"total_attempts"`
			TotalSpans     int64   `json:"total_spans"`
			TotalResources int64   `json:"total_resources"`
			TotalWorkers   int64   `json:"total_workers"`
			Uptime         float64 `json:"uptime"`
			SpanBytes      int64   `json:"total_span_bytes"`
			EvictBytes     int64   `json:"eviction_threshold_bytes"`
			SafeBytes      int64   `json:"safe_threshold_bytes"`
			MemoryBytes    int64   `json:"memory_capacity_bytes"`
		}
		if err := json.Unmarshal([]byte(deref(s.Response.BodyText)), &want); err != nil {
			return nil, err
		}
		wish := store.Statistics{
			Name: "memory", TotalRollouts: want.TotalRollouts, TotalAttempts: want.TotalAttempts, TotalSpans: want.TotalSpans,
			TotalResources: want.TotalResources, TotalWorkers: want.TotalWorkers, SpanBytes: want.SpanBytes,
			EvictBytes: want.EvictBytes, SafeBytes: want.SafeBytes, MemoryBytes: want.MemoryBytes,
			Uptime: time.Duration(want.Uptime * float64(time.Second)),
		}
		if got != wish {
			return fmt.Appendf(nil, "%+v instead of %+v", got, wish), nil
		}
		return []byte(deref(s.Response.BodyText)), nil
	}
}

// listBody is what a list can be asked for.
type listBody struct {
	StatusIn            []string `json:"status_in"`
	RolloutIDIn         []string `json:"rollout_id_in"`
	RolloutIDContains   *string  `json:"rollout_id_contains"`
	WorkerIDContains    *string  `json:"worker_id_contains"`
	ResourcesID         *string  `json:"resources_id"`
	ResourcesIDContains *string  `json:"resources_id_contains"`
	RolloutID           string   `json:"rollout_id"`
	AttemptID           *string  `json:"attempt_id"`
	TraceID             *string  `json:"trace_id"`
	TraceIDContains     *string  `json:"trace_id_contains"`
	SpanID              *string  `json:"span_id"`
	SpanIDContains      *string  `json:"span_id_contains"`
	ParentID            *string  `json:"parent_id"`
	ParentIDContains    *string  `json:"parent_id_contains"`
	Name                *string  `json:"name"`
	NameContains        *string  `json:"name_contains"`
	Limit               int      `json:"limit"`
	Offset              int      `json:"offset"`
	SortBy              string   `json:"sort_by"`
	SortOrder           string   `json:"sort_order"`
	Logic               string   `json:"filter_logic"`
}

// list finds the query that a list was asked for by, in a query string or a body.
func list(s *step, parts []string, body []byte) (clientCall, error) {
	path := storehttp.Prefix + "/" + strings.Join(parts, "/")
	if parts[0] != "resources" {
		path += "/search"
	}
	if s.Request.Method == http.MethodPost && len(body) == 0 {
		return nil, errors.New("no body")
	}
	asked, err := meaning(path, s.Request.Query, body)
	if err != nil {
		return nil, err
	}
	var b listBody
	if err := json.Unmarshal(mustJSON(asked), &b); err != nil {
		return nil, err
	}
	page := store.Paging{SortBy: b.SortBy, Desc: b.SortOrder == "desc", Any: b.Logic == "or", Limit: b.Limit, Offset: b.Offset}
	switch {
	case len(parts) == 3:
		return func(ctx context.Context, c *storehttp.Client) ([]byte, error) {
			return encodePage[agl.Attempt](b)(c.QueryAttempts(ctx, store.AttemptQuery{RolloutID: parts[1], Paging: page}))
		}, nil
	case parts[0] == "rollouts":
		q := store.RolloutQuery{RolloutIDIn: b.RolloutIDIn, RolloutIDContains: b.RolloutIDContains, Paging: page}
		q.StatusIn = as[agl.RolloutStatus](b.StatusIn)
		return func(ctx context.Context, c *storehttp.Client) ([]byte, error) {
			return encodePage[agl.AttemptedRollout](b)(c.QueryRollouts(ctx, q))
		}, nil
	case parts[0] == "workers":
		q := store.WorkerQuery{StatusIn: as[agl.WorkerStatus](b.StatusIn), WorkerIDContains: b.WorkerIDContains, Paging: page}
		return func(ctx context.Context, c *storehttp.Client) ([]byte, error) {
			return encodePage[agl.Worker](b)(c.QueryWorkers(ctx, q))
		}, nil
	case parts[0] == "resources":
		q := store.ResourcesQuery{ResourcesID: b.ResourcesID, ResourcesIDContains: b.ResourcesIDContains, Paging: page}
		return func(ctx context.Context, c *storehttp.Client) ([]byte, error) {
			return encodePage[agl.ResourcesUpdate](b)(c.QueryResources(ctx, q))
		}, nil
	case parts[0] == "spans":
		q := store.SpanQuery{
			RolloutID: b.RolloutID, AttemptID: b.AttemptID, TraceID: b.TraceID, TraceIDContains: b.TraceIDContains,
			SpanID: b.SpanID, SpanIDContains: b.SpanIDContains, ParentID: b.ParentID, ParentIDContains: b.ParentIDContains,
			Name: b.Name, NameContains: b.NameContains, Paging: page,
		}
		return func(ctx context.Context, c *storehttp.Client) ([]byte, error) {
			return encodePage[agl.Span](b)(c.QuerySpans(ctx, q))
		}, nil
	}
	return nil, errors.New("no such route")
}

func as[T ~string](list []string) []T {
	if list == nil {
		return nil
	}
	out := make([]T, len(list))
	for i := range list {
		out[i] = T(list[i])
	}
	return out
}

// encodePage writes a page, with what was asked for, as the protocol does.
func encodePage[T any](b listBody) func(store.Page[T], error) ([]byte, error) {
	return func(p store.Page[T], err error) ([]byte, error) {
		if err != nil {
			return nil, err
		}
		items, err := encode(p.Items, nil)
		return fmt.Appendf(nil, `{"items":%s,"limit":%d,"offset":%d,"total":%d}`, items, b.Limit, b.Offset, p.Total), err
	}
}
