package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	agl "agentlightning"
	"agentlightning/store"
)

func one[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// maybe returns v half of the time.
func maybe[T any](r *rand.Rand, v T) *T {
	if r.IntN(2) == 0 {
		return nil
	}
	return &v
}

func anyConfig(r *rand.Rand) agl.RolloutConfig {
	c := agl.RolloutConfig{MaxAttempts: r.IntN(4)}
	if r.IntN(3) == 0 {
		c.TimeoutSeconds = new(float64(r.IntN(8)))
	}
	if r.IntN(3) == 0 {
		c.UnresponsiveSeconds = new(float64(r.IntN(5)))
	}
	for _, st := range agl.AttemptStatuses() {
		if r.IntN(2) == 0 {
			c.RetryCondition = append(c.RetryCondition, st)
		}
	}
	return c
}

func anyRequest(r *rand.Rand) store.EnqueueRequest {
	req := store.EnqueueRequest{
		Input: json.RawMessage(one(r, `1`, `1.0`, `null`, `{"b":1,"a":[1e3]}`, `"x"`)),
		Mode:  one(r, "", agl.ModeTrain, agl.ModeVal, agl.ModeTest), ResourcesID: maybe(r, "mine"),
		Metadata: json.RawMessage(one(r, ``, `null`, `{"k":2}`)),
	}
	if r.IntN(3) > 0 {
		req.Config = new(anyConfig(r))
	}
	return req
}

func anyWorker(r *rand.Rand) *string { return maybe(r, one(r, "w1", "w2", "w3", "")) }

func anyPaging(r *rand.Rand, fields ...string) store.Paging {
	return store.Paging{
		SortBy: one(r, append(fields, "", "")...), Desc: r.IntN(2) == 0, Any: r.IntN(3) == 0,
		Limit: one(r, -1, 0, 1, 3), Offset: one(r, 0, 0, 1, 2),
	}
}

// generate makes up an operation. What it refers to are places in the lists of a
// side, so that it means the same on the other.
func generate(r *rand.Rand, s *side) operation {
	ro, at := r.IntN(len(s.rollouts)+1), r.IntN(len(s.attempts)+1)
	if n := len(s.attempts); n > 0 && r.IntN(2) == 0 {
		at = max(0, n-1-r.IntN(4)) // what is recent is where things happen
	}
	for {
		if o := choose(r, s, ro, at); o.run != nil {
			return o
		}
	}
}

func choose(r *rand.Rand, s *side, ro, at int) operation {
	switch r.IntN(24) {
	case 0, 1, 2:
		reqs := make([]store.EnqueueRequest, r.IntN(4))
		for i := range reqs {
			reqs[i] = anyRequest(r)
		}
		return op(func(ctx context.Context, s *side) string {
			got, err := s.EnqueueRollouts(ctx, reqs)
			s.rollouts = append(s.rollouts, ids(got)...)
			return show(got, err)
		}, "enqueue %d", len(reqs))
	case 3, 4, 5:
		req := store.DequeueRequest{WorkerID: anyWorker(r), Limit: r.IntN(4), Key: one(r, "", "", "k1", "k2", fmt.Sprint(r.IntN(1e6)))}
		return op(func(ctx context.Context, s *side) string {
			got, err := s.DequeueRollouts(ctx, req)
			for i := range got {
				s.sawAttempt(got[i].Attempt)
			}
			s.claims = append(s.claims, got)
			return show(got, err)
		}, "dequeue %d for %s, key %q", req.Limit, optional(req.WorkerID), req.Key)
	case 6:
		if len(s.claims) == 0 {
			return operation{}
		}
		i := max(0, len(s.claims)-1-r.IntN(3))
		return op(func(ctx context.Context, s *side) string {
			return show(nil, s.ReleaseRollouts(ctx, s.claims[i]))
		}, "release claim %d", i)
	case 7:
		req := store.StartRequest{EnqueueRequest: anyRequest(r), WorkerID: anyWorker(r)}
		return op(func(ctx context.Context, s *side) string {
			got, err := s.StartRollout(ctx, req)
			s.rollouts = append(s.rollouts, got.RolloutID)
			s.sawAttempt(got.Attempt)
			return show(got, err)
		}, "start")
	case 8:
		w := anyWorker(r)
		return op(func(ctx context.Context, s *side) string {
			got, err := s.StartAttempt(ctx, s.rollout(ro), w)
			s.sawAttempt(got.Attempt)
			return show(got, err)
		}, "start attempt of %d for %s", ro, optional(w))
	case 9, 10:
		return anyRolloutUpdate(r, ro)
	case 11, 12, 13:
		return anyAttemptUpdate(r, at)
	case 14, 15:
		return anySpans(r, s)
	case 16:
		n := 1 + r.IntN(3)
		return op(func(ctx context.Context, s *side) string {
			list := make([]store.Attempted, n)
			for i := range list {
				list[i] = s.attempt((at + i) % (len(s.attempts) + 1))
			}
			return show(s.NextSequenceIDs(ctx, list))
		}, "next %d sequence ids from attempt %d", n, at)
	case 17:
		return anyResources(r)
	case 18:
		id, stats := one(r, "w1", "w2", "w4"), store.Set[json.RawMessage]{Given: r.IntN(2) == 0, Value: json.RawMessage(`{"a":1.0}`)}
		return op(func(ctx context.Context, s *side) string { return show(s.UpdateWorker(ctx, id, stats)) }, "heartbeat of %s", id)
	case 19:
		return anyRun(r, s)
	}
	return anyQuery(r, ro, at)
}

func optional(s *string) string {
	if s == nil {
		return "nobody"
	}
	return fmt.Sprintf("%q", *s)
}

func anyRolloutUpdate(r *rand.Rand, ro int) operation {
	var u store.RolloutUpdate
	if r.IntN(4) > 0 {
		u.Status = store.To(one(r, append(agl.RolloutStatuses(), agl.RolloutRequeuing, "bad")...))
	}
	if r.IntN(4) == 0 {
		u.Config = store.To(anyConfig(r))
	}
	if r.IntN(4) == 0 {
		u.Mode, u.Metadata = store.To(one(r, "", agl.ModeVal)), store.To(json.RawMessage(one(r, ``, `{"x":null}`)))
	}
	if r.IntN(4) == 0 {
		u.Input, u.ResourcesID = store.To(json.RawMessage(one(r, `null`, `[1]`))), store.To(maybe(r, "rs"))
	}
	return op(func(ctx context.Context, s *side) string {
		return show(s.UpdateRollout(ctx, s.rollout(ro), u))
	}, "update rollout %d %+v", ro, u.Status)
}

func anyAttemptUpdate(r *rand.Rand, at int) operation {
	var u store.AttemptUpdate
	if r.IntN(4) > 0 {
		u.Status = store.To(one(r, append(agl.AttemptStatuses(), agl.AttemptFailed, agl.AttemptFailed, "bad")...))
	}
	if r.IntN(5) == 0 {
		u.WorkerID = store.To(one(r, "w1", "w2", ""))
	}
	if r.IntN(5) == 0 {
		u.LastHeartbeatTime = store.To(one(r, 0, 1.5, 1767323050.0))
	}
	if r.IntN(5) == 0 {
		u.Metadata = store.To(json.RawMessage(`{"m":[]}`))
	}
	latest := r.IntN(3) == 0
	return op(func(ctx context.Context, s *side) string {
		a := s.attempt(at)
		if latest {
			a.AttemptID = agl.LatestAttempt
		}
		return show(s.UpdateAttempt(ctx, a.RolloutID, a.AttemptID, u))
	}, "update attempt %d (latest %v) %+v", at, latest, u)
}

func anySpans(r *rand.Rand, s *side) operation {
	type draft struct {
		at, sequence int
		id           string
		parent       *string
	}
	drafts := make([]draft, 1+r.IntN(4))
	for i := range drafts {
		drafts[i] = draft{r.IntN(len(s.attempts) + 1), r.IntN(30) - 3, fmt.Sprint(r.IntN(40)), maybe(r, fmt.Sprint(r.IntN(3)))}
		if n := len(s.attempts); n > 0 && r.IntN(2) == 0 {
			drafts[i].at = n - 1
		}
	}
	return op(func(ctx context.Context, s *side) string {
		spans := make([]agl.Span, len(drafts))
		for i, d := range drafts {
			a := s.attempt(d.at)
			spans[i] = agl.Span{
				RolloutID: a.RolloutID, AttemptID: a.AttemptID, SequenceID: int64(d.sequence), SpanID: d.id,
				TraceID: "t" + d.id, ParentID: d.parent, Name: "n" + d.id, Status: agl.TraceStatus{StatusCode: agl.StatusOK},
				Attributes: agl.Attributes{{Key: "i", Value: int64(i)}, {Key: "f", Value: 1.0}},
			}
		}
		got, err := s.AddSpans(ctx, spans)
		lines := []string{show(nil, err)}
		for _, g := range got {
			lines = append(lines, fmt.Sprintf("stored %v, %s", g.Stored, show(g.Span, g.Err)))
		}
		return strings.Join(lines, "\n")
	}, "add spans %v", drafts)
}

func anyResources(r *rand.Rand) operation {
	n := agl.NamedResources{
		{Name: "p", Resource: agl.PromptTemplate{Template: fmt.Sprint(r.IntN(100)), Engine: "f-string"}},
		{Name: "l", Resource: agl.LLM{Endpoint: "http://x", Model: "m", SamplingParameters: json.RawMessage(`{"t":1}`)}},
	}[:r.IntN(3)]
	if id := one(r, "", "", "mine", "other"); id != "" {
		return op(func(ctx context.Context, s *side) string { return show(s.UpdateResources(ctx, id, n)) }, "update resources %s", id)
	}
	return op(func(ctx context.Context, s *side) string {
		got, err := s.AddResources(ctx, n)
		s.resources = append(s.resources, got.ResourcesID)
		return show(got, err)
	}, "add resources")
}

func anyRun(r *rand.Rand, s *side) operation {
	i, step := r.IntN(len(s.runs)+1), r.IntN(6)
	id := func(s *side) string {
		if i >= len(s.runs) {
			return "run-unknown"
		}
		return s.runs[i]
	}
	switch r.IntN(9) {
	case 7:
		lines := []agl.LogLine{
			{Level: agl.LogLevels()[r.IntN(4)], Message: "m" + strconv.Itoa(r.IntN(4))},
			{Level: agl.LogInfo, Message: "second", Attributes: json.RawMessage(`{"step":` + strconv.Itoa(step) + `}`)},
		}
		return op(func(ctx context.Context, s *side) string { return show(nil, s.AddLogLines(ctx, id(s), lines...)) }, "log of run %d: %v", i, lines)
	case 8:
		if r.IntN(3) == 0 {
			force := r.IntN(2) == 0
			return op(func(ctx context.Context, s *side) string { return show(nil, s.DeleteRun(ctx, id(s), force)) }, "delete run %d, %v", i, force)
		}
		q := store.LogQuery{
			After: r.Int64N(4), Before: r.Int64N(9), Level: one(r, "", agl.LogDebug, agl.LogWarn, "bad"),
			Text: one(r, "", "M1", "step", "sEcond"), Limit: r.IntN(4), Newest: r.IntN(2) == 0,
		}
		return op(func(ctx context.Context, s *side) string {
			q := q
			q.RunID = id(s)
			return show(s.RunLog(ctx, q))
		}, "read log of run %d: %+v", i, q)
	case 0, 1:
		run := agl.Run{RunID: one(r, "", "", "r1"), Algorithm: "a", Seed: int64(r.IntN(9))}
		return op(func(ctx context.Context, s *side) string {
			got, err := s.CreateRun(ctx, run)
			if err == nil {
				s.runs = append(s.runs, got.RunID)
			}
			return show(got, err)
		}, "create run %q", run.RunID)
	case 2:
		u := store.RunUpdate{Status: store.To(one(r, agl.RunRunning, agl.RunFailed, agl.RunSucceeded, "bad")), Error: store.To("e")}
		return op(func(ctx context.Context, s *side) string { return show(s.UpdateRun(ctx, id(s), u)) }, "update run %d", i)
	case 3:
		m := agl.StepMetrics{Step: step, Values: map[string]float64{"v": float64(r.IntN(100))}}
		return op(func(ctx context.Context, s *side) string { return show(nil, s.AddStepMetrics(ctx, id(s), m)) }, "metrics of run %d step %d", i, step)
	case 4:
		c := agl.Checkpoint{Step: step, Path: "p", Score: maybe(r, 0.5)}
		return op(func(ctx context.Context, s *side) string { return show(nil, s.PutCheckpoint(ctx, id(s), c)) }, "checkpoint of run %d step %d", i, step)
	case 5:
		m := agl.Model{Name: one(r, "m", "n"), Endpoint: one(r, "http://a", "http://b"), Version: int64(step)}
		if r.IntN(4) == 0 {
			return op(func(ctx context.Context, s *side) string { return show(nil, s.DeleteModels(ctx, m.Name)) }, "delete models %s", m.Name)
		}
		return op(func(ctx context.Context, s *side) string { return show(nil, s.PutModels(ctx, []agl.Model{m})) }, "put model %v", m)
	}
	limit := r.IntN(3)
	return op(func(ctx context.Context, s *side) string {
		return show(s.StepMetrics(ctx, id(s), step)) + show(s.LatestCheckpoint(ctx, id(s))) + show(s.Checkpoints(ctx, id(s))) + show(s.Runs(ctx, limit)) + show(s.Models(ctx))
	}, "read run %d", i)
}

// anyQuery reads. Server-made ids are no sort field: their order differs.
func anyQuery(r *rand.Rand, ro, at int) operation {
	switch r.IntN(9) {
	case 0:
		q := store.RolloutQuery{Paging: anyPaging(r, "start_time", "end_time", "mode", "status", "bad")}
		if r.IntN(2) == 0 {
			q.StatusIn = agl.RolloutStatuses()[r.IntN(4) : 4+r.IntN(4)]
		}
		some := r.IntN(3) == 0
		return op(func(ctx context.Context, s *side) string {
			q := q
			if some {
				q.RolloutIDIn = []string{s.rollout(ro), s.rollout(ro / 2), s.rollout(ro / 3)}
			}
			return show(s.QueryRollouts(ctx, q))
		}, "query rollouts %+v", q)
	case 1:
		return op(func(ctx context.Context, s *side) string { return show(s.Rollout(ctx, s.rollout(ro))) }, "rollout %d", ro)
	case 2:
		p := anyPaging(r, "sequence_id", "start_time", "end_time", "status", "worker_id", "last_heartbeat_time")
		return op(func(ctx context.Context, s *side) string {
			return show(s.QueryAttempts(ctx, store.AttemptQuery{RolloutID: s.rollout(ro), Paging: p})) + show(s.LatestAttempt(ctx, s.rollout(ro)))
		}, "attempts of %d %+v", ro, p)
	case 3, 4:
		q := store.SpanQuery{Paging: anyPaging(r, "sequence_id", "span_id", "trace_id", "parent_id", "name", "start_time")}
		q.SpanID, q.ParentIDContains, q.NameContains = maybe(r, "1"), maybe(r, one(r, "", "1")), maybe(r, one(r, "1", "2", "n"))
		whose := r.IntN(3)
		return op(func(ctx context.Context, s *side) string {
			q, a := q, s.attempt(at)
			q.RolloutID = a.RolloutID
			switch whose {
			case 0:
				q.AttemptID = &a.AttemptID
			case 1:
				q.AttemptID = new(agl.LatestAttempt)
			}
			return show(s.QuerySpans(ctx, q))
		}, "spans of attempt %d (%d) %+v", at, whose, q.Paging)
	case 5:
		q := store.WorkerQuery{WorkerIDContains: maybe(r, one(r, "w", "1")), Paging: anyPaging(r, "worker_id", "status",
			"last_heartbeat_time", "last_dequeue_time", "last_busy_time", "last_idle_time")}
		if r.IntN(2) == 0 {
			q.StatusIn = []agl.WorkerStatus{one(r, agl.WorkerIdle, agl.WorkerBusy, agl.WorkerUnknown)}
		}
		return op(func(ctx context.Context, s *side) string { return show(s.QueryWorkers(ctx, q)) }, "workers %+v", q)
	case 6:
		q := store.ResourcesQuery{ResourcesIDContains: maybe(r, one(r, "m", "rs-")), Paging: anyPaging(r, "create_time", "update_time", "version")}
		return op(func(ctx context.Context, s *side) string {
			return show(s.QueryResources(ctx, q)) + show(s.LatestResources(ctx)) + show(s.Resources(ctx, "mine"))
		}, "resources %+v", q)
	case 7:
		return op(func(ctx context.Context, s *side) string {
			return show(s.WaitForRollouts(ctx, []string{s.rollout(ro), s.rollout(ro / 2), s.rollout(ro)}, time.Duration(0)))
		}, "wait for %d", ro)
	}
	return op(func(ctx context.Context, s *side) string {
		st, err := s.Statistics(ctx)
		st.Name, st.Uptime = "", 0
		st.SpanBytes, st.EvictBytes, st.SafeBytes, st.MemoryBytes = 0, 0, 0, 0
		return show(st, err) + show(s.Worker(ctx, "w1"))
	}, "statistics")
}
