package storehttp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
	"agentlightning/store"
)

// The routes of this file are for people who look: they are ours alone, and are
// there when the store behind has the power for them.

// Watching says how a stream of events behaves.
const (
	// eventPause is the shortest time between two events of one stream: however
	// much happens, a page hears of it this often.
	eventPause = 400 * time.Millisecond
	// eventSilence is after how long without an event a sign of life is sent.
	eventSilence = 15 * time.Second
)

// capabilities says what there is to see and to do.
func (h *handler) capabilities(*call) answer {
	can := map[string]any{
		"browse": h.config.Browser != nil, "events": h.config.Feed != nil, "delete": h.config.Delete != nil,
		"sorts": store.BrowseSorts(), "browse_limit": store.BrowseLimit, "browse_spans_limit": store.BrowseSpansLimit,
		"version": h.config.Version, "rescore": []string{}, "checks": h.config.Checks != nil, "prune": h.config.Pruner != nil,
		"history": h.config.History != nil, "backends": h.config.Backends != nil,
	}
	if h.config.Rescorer != nil {
		can["rescore"] = h.config.Rescorer.Kinds()
	}
	return encoded(http.StatusOK, can)
}

func missingPower(what string) answer {
	return failed(&refusal{http.StatusNotImplemented, "the store of this server cannot " + what})
}

// overview counts what people ask for first.
func (h *handler) overview(c *call) answer {
	if h.config.Browser == nil {
		return missingPower("count by status")
	}
	counts, err := h.config.Browser.CountRollouts(c.Context())
	if err != nil {
		return failed(err)
	}
	out := Overview{Time: agl.Seconds(time.Now()), Rollouts: map[agl.RolloutStatus]int64{}}
	for _, s := range agl.RolloutStatuses() {
		out.Rollouts[s] = counts[s]
	}
	if h.config.Queue != nil {
		if out.Queue.Length, out.Queue.Seconds, err = h.config.Queue(c.Context()); err != nil {
			return failed(err)
		}
	}
	return encoded(http.StatusOK, out)
}

// Overview is what the route of the same name answers.
type Overview struct {
	Time     float64                     `json:"time"` // of the server, Unix seconds
	Rollouts map[agl.RolloutStatus]int64 `json:"rollouts"`
	Queue    struct {
		Length  int     `json:"length"`
		Seconds float64 `json:"waiting_seconds"` // of the rollout in front
	} `json:"queue"`
}

// noMode stands for the mode of rollouts without one.
const noMode = "none"

var browseModes = []string{"train", "val", "test", noMode}

// browseRollouts finds rollouts by what people remember of them.
func (h *handler) browseRollouts(c *call) answer {
	if h.config.Browser == nil {
		return missingPower("search rollouts")
	}
	o := c.query("status_in", "mode_in", "attempt_status_in")
	q := o.browsing()
	p := o.page("start_time")
	q.Paging = p.Paging
	if _, given := o.get("sort_order"); !given {
		q.Desc = true // the newest first, unless asked for otherwise
	}
	if !c.valid() {
		return c.invalid()
	}
	if _, given := o.get("limit"); given && p.limit < 1 {
		return failed(&refusal{http.StatusBadRequest, "Limit must be greater than 0"})
	}
	found, err := h.config.Browser.BrowseRollouts(c.Context(), q)
	if err != nil {
		if errors.Is(err, store.ErrInvalid) {
			err = &refusal{http.StatusBadRequest, err.Error()}
		}
		return failed(err)
	}
	dst := []byte(`{"items":`)
	dst = appendItems(dst, found.Items, appendBrowsed)
	dst = appendCount(dst, "total", int64(found.Total))
	dst = appendCount(dst, "examined", int64(found.Examined))
	dst = strconv.AppendBool(append(dst, `,"complete":`...), found.Complete)
	dst = appendCount(dst, "limit", int64(cmp.Or(max(p.limit, 0), len(found.Items))))
	return ok(append(appendCount(dst, "offset", int64(p.offset)), '}'))
}

// browsing reads the conditions.
func (o object) browsing() store.BrowseQuery {
	var q store.BrowseQuery
	if v, given := o.get("status_in"); given {
		q.StatusIn = literals(v, agl.RolloutStatuses())
	}
	if v, given := o.get("attempt_status_in"); given {
		q.AttemptStatusIn = literals(v, agl.AttemptStatuses())
	}
	if v, given := o.get("mode_in"); given {
		for _, m := range literals(v, browseModes) {
			if m == noMode {
				m = ""
			}
			q.ModeIn = append(q.ModeIn, agl.Mode(m))
		}
	}
	for name, to := range map[string]*string{
		"id": &q.IDContains, "text": &q.Text, "tag": &q.Tag, "run_id": &q.RunID, "group": &q.Group,
		"resources_id": &q.ResourcesID, "same_task": &q.SameTask, "worker_id": &q.WorkerID, "model": &q.Model, "problem": &q.Problem,
	} {
		if v, given := o.get(name); given {
			*to = v.string()
		}
	}
	for name, to := range map[string]**float64{"from": &q.From, "to": &q.To, "reward_min": &q.RewardMin, "reward_max": &q.RewardMax} {
		if v, given := o.get(name); given {
			*to = new(v.float())
		}
	}
	if v, given := o.get("step"); given {
		q.Step = new(v.int())
	}
	if v, given := o.get("rewarded"); given {
		q.Rewarded = new(v.bool())
	}
	return q
}

// appendBrowsed appends a rollout with a digest of its latest attempt.
func appendBrowsed(r *store.Browsed, dst []byte) []byte {
	dst = r.AttemptedRollout.AppendJSON(dst)
	dst = append(dst[:len(dst)-1], `,"digest":{"reward":`...)
	dst = jsonx.AppendOptional(dst, r.Reward)
	dst = append(dst, `,"rewards":{`...)
	for i, d := range r.Rewards {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsonx.AppendFloat(append(jsonx.AppendString(dst, d.Name), ':'), d.Value)
	}
	dst = append(dst, '}')
	dst = appendCount(dst, "calls", int64(r.Calls))
	dst = appendCount(dst, "tokens", r.Tokens)
	dst = appendCount(dst, "spans", int64(r.Spans))
	dst = jsonx.AppendString(append(dst, `,"model":`...), r.Model)
	dst = jsonx.AppendString(append(dst, `,"problem":`...), r.Problem)
	if g := r.Gap; g != nil {
		dst = appendGap(append(dst, `,"gap":`...), g)
	}
	return append(strconv.AppendBool(append(dst, `,"large":`...), r.Large), "}}"...)
}

func appendGap(dst []byte, g *store.TokenGap) []byte {
	dst = jsonx.AppendString(append(dst, `{"run_id":`...), g.RunID)
	dst = appendCount(dst, "step", g.Step)
	dst = appendCount(dst, "tokens", g.Tokens)
	dst = jsonx.AppendFloat(append(dst, `,"sum":`...), g.Sum)
	dst = jsonx.AppendFloat(append(dst, `,"largest":`...), g.Largest)
	dst = jsonx.AppendString(append(dst, `,"span_id":`...), g.SpanID)
	return append(appendCount(dst, "position", g.Position), '}')
}

// samples tells how the tasks of a run went early and late in it.
func (h *handler) samples(c *call) answer {
	if h.config.Browser == nil {
		return missingPower("compare the samples of a run")
	}
	o := c.query()
	q := store.SamplesQuery{RunID: c.params[0]}
	if v, given := o.get("mode"); given {
		q.Mode = new(agl.Mode(literal(v, browseModes)))
		if *q.Mode == noMode {
			*q.Mode = ""
		}
	}
	for name, to := range map[string]**int64{"before": &q.Before, "after": &q.After} {
		if v, given := o.get(name); given {
			*to = new(v.int())
		}
	}
	if v, given := o.get("order"); given {
		q.Order = literal(v, store.SampleOrders())
	}
	for name, to := range map[string]*int{"limit": &q.Limit, "offset": &q.Offset} {
		if v, given := o.get(name); given {
			*to = int(v.int())
		}
	}
	if !c.valid() {
		return c.invalid()
	}
	page, err := h.config.Browser.TaskChanges(c.Context(), q)
	if err != nil {
		if errors.Is(err, store.ErrInvalid) {
			err = &refusal{http.StatusBadRequest, err.Error()}
		}
		return failed(err)
	}
	// The mode of rollouts that have none is called as it is asked for.
	page.Mode = cmp.Or(page.Mode, noMode)
	for i, mode := range page.Modes {
		page.Modes[i] = cmp.Or(mode, noMode)
	}
	return encoded(http.StatusOK, page)
}

// outlineLimit is how many spans are summed up when no limit is given.
const outlineLimit = 1000

// outlineSpans lists the spans of an attempt without what is large in them.
func (h *handler) outlineSpans(c *call) answer {
	if h.config.Browser == nil {
		return missingPower("sum up spans")
	}
	o := c.query()
	at := o.attempted()
	p := o.page("sequence_id")
	if !c.valid() {
		return c.invalid()
	}
	if _, given := o.get("limit"); !given {
		p.limit = outlineLimit
		p.Limit = outlineLimit
	}
	found, err := h.config.Browser.OutlineSpans(c.Context(), at, p.Paging)
	if err != nil {
		if errors.Is(err, store.ErrInvalid) {
			err = &refusal{http.StatusBadRequest, err.Error()}
		}
		return failed(err)
	}
	return ok(appendPage(p, found, appendOutline))
}

// appendOutline appends a span in outline; members without a value are left out,
// since there are many of them.
func appendOutline(s *store.SpanOutline, dst []byte) []byte {
	dst = strconv.AppendInt(append(dst, `{"sequence_id":`...), s.SequenceID, 10)
	dst = jsonx.AppendString(append(dst, `,"span_id":`...), s.SpanID)
	dst = jsonx.AppendString(append(dst, `,"trace_id":`...), s.TraceID)
	if s.ParentID != nil {
		dst = jsonx.AppendString(append(dst, `,"parent_id":`...), *s.ParentID)
	}
	dst = jsonx.AppendString(append(dst, `,"name":`...), s.Name)
	dst = jsonx.AppendOptional(append(dst, `,"start_time":`...), s.StartTime)
	dst = jsonx.AppendOptional(append(dst, `,"end_time":`...), s.EndTime)
	dst = jsonx.AppendString(append(dst, `,"status":`...), s.Status)
	dst = jsonx.AppendString(append(dst, `,"kind":`...), string(s.Kind))
	if s.PromptTokens != 0 {
		dst = appendCount(dst, "prompt_tokens", s.PromptTokens)
	}
	if s.AnswerTokens != 0 {
		dst = appendCount(dst, "answer_tokens", s.AnswerTokens)
	}
	if s.RewardSet != "" {
		dst = jsonx.AppendString(append(dst, `,"reward_set":`...), s.RewardSet)
	}
	if len(s.Rewards) > 0 {
		dst = appendItems(append(dst, `,"rewards":`...), s.Rewards, func(d *agl.RewardDimension, dst []byte) []byte {
			dst = jsonx.AppendString(append(dst, `{"name":`...), d.Name)
			return append(jsonx.AppendFloat(append(dst, `,"value":`...), d.Value), '}')
		})
	}
	if len(s.Events) > 0 {
		dst = appendItems(append(dst, `,"events":`...), s.Events, func(e *store.EventMark, dst []byte) []byte {
			dst = jsonx.AppendString(append(dst, `{"name":`...), e.Name)
			return append(jsonx.AppendOptional(append(dst, `,"timestamp":`...), e.Timestamp), '}')
		})
	}
	return append(dst, '}')
}

// spansByID answers with the spans that are asked for, whole.
func (h *handler) spansByID(c *call) answer {
	if h.config.Browser == nil {
		return missingPower("find spans by their ids")
	}
	o := c.query("span_id")
	at := o.attempted()
	var ids []string
	if v, given := o.need("span_id"); given {
		for _, e := range v.elements() {
			ids = append(ids, e.string())
		}
	}
	if !c.valid() {
		return c.invalid()
	}
	found, err := h.config.Browser.SpansByID(c.Context(), at, ids)
	if err != nil {
		if errors.Is(err, store.ErrInvalid) {
			err = &refusal{http.StatusBadRequest, err.Error()}
		}
		return failed(err)
	}
	return ok(appendItems(nil, found, appendSpan))
}

// events is a stream of what changes, as server-sent events.
func (h *handler) events(*call) answer {
	if h.config.Feed == nil {
		return missingPower("tell what changes")
	}
	return answer{stream: h.sendEvents}
}

func (h *handler) sendEvents(ctx context.Context, w http.ResponseWriter) {
	watcher := h.config.Feed.Watch()
	defer watcher.Close()
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // proxies that gather answers would hold events back
	control := http.NewResponseController(w)
	send := func(text []byte) bool {
		_, err := w.Write(text)
		return err == nil && control.Flush() == nil
	}
	if !send([]byte("event: open\ndata: {}\n\n")) {
		return
	}
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		text, err := nextEvent(ctx, watcher)
		if err != nil || !send(text) {
			return
		}
		pause.Reset(eventPause)
	}
}

// nextEvent waits for the next thing to send: an event, or a sign of life.
func nextEvent(ctx context.Context, watcher store.Watcher) ([]byte, error) {
	quiet, cancel := context.WithTimeout(ctx, eventSilence)
	defer cancel()
	happened, err := watcher.Next(quiet)
	switch {
	case err == nil:
		return appendEvent(nil, happened)
	case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		return []byte(": nothing new\n\n"), nil
	}
	return nil, err
}

func appendEvent(dst []byte, happened store.Happened) ([]byte, error) {
	type changes struct {
		N   int      `json:"n"`
		IDs []string `json:"ids"` // null when there are too many to name
	}
	out := make(map[store.Noun]changes, len(happened))
	for noun, c := range happened {
		out[noun] = changes{c.N, c.IDs}
	}
	body, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	dst = append(append(dst, "event: change\ndata: "...), body...)
	return append(dst, "\n\n"...), nil
}

// deleteRollout removes a rollout with all that was recorded of it.
func (h *handler) deleteRollout(c *call) answer {
	if h.config.Delete == nil {
		return missingPower("delete rollouts")
	}
	if _, err := h.store.Rollout(c.Context(), c.params[0]); err != nil {
		return failed(err)
	}
	if err := h.config.Delete(c.Context(), c.params[0]); err != nil {
		return failed(err)
	}
	return ok([]byte("{}"))
}
