package sqlite

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
)

// manyIDs is from how many ids on one query with a list beats one query each.
const manyIDs = 12

func (r reader) Rollout(id string) (agl.AttemptedRollout, bool, error) { return rolloutOf(r, id) }

// Rollout answers from what the writer remembers.
func (t *tx) Rollout(id string) (agl.AttemptedRollout, bool, error) {
	if r := t.known.get(id); r != nil && r.whole && r.latestKnown {
		out := agl.AttemptedRollout{Rollout: engine.CloneRollout(r.rollout)}
		if r.latest != nil {
			out.Attempt = new(engine.CloneAttempt(r.latest))
		}
		return out, true, nil
	}
	return rolloutOf(t, id)
}

func rolloutOf(r engine.Reader, id string) (agl.AttemptedRollout, bool, error) {
	var out agl.AttemptedRollout
	ids := []string{id}
	found, err := r.Rollouts(ids)
	if err != nil {
		return out, false, err
	}
	var known bool
	if out.Rollout, known = found[id]; !known {
		return out, false, nil
	}
	latest, err := r.LatestAttempts(ids)
	if a, ok := latest[id]; ok {
		out.Attempt = &a
	}
	return out, true, err
}

func (r reader) Rollouts(ids []string) (map[string]agl.Rollout, error) {
	out := make(map[string]agl.Rollout, len(ids))
	add := func(row row) error {
		ro, err := r.c.scanRollout(row)
		out[ro.RolloutID] = ro
		return err
	}
	return out, r.each(ids, selectRollout, selectRollouts, add)
}

// each looks ids up, one by one or all at once.
func (r reader) each(ids []string, one, many string, add func(row) error) error {
	if len(ids) >= manyIDs {
		return r.c.query(add, many, jsonList(ids))
	}
	for _, id := range ids {
		if err := r.c.query(add, one, id); err != nil {
			return err
		}
	}
	return nil
}

func rolloutSelection(q *store.RolloutQuery) selection {
	var f filter
	if q.StatusIn != nil {
		f.within("status", texts(q.StatusIn))
	}
	if q.RolloutIDIn != nil {
		f.within("rollout_id", q.RolloutIDIn)
	}
	f.contains("rollout_id", q.RolloutIDContains)
	if q.Controlled {
		f.scopes = append(f.scopes, "control IS NOT NULL")
	}
	return f.selection("rollouts", q.Paging, rolloutSorts)
}

func (r reader) QueryRollouts(q store.RolloutQuery) (store.Page[agl.AttemptedRollout], error) {
	page, err := fetch(r.c, rolloutSelection(&q), rolloutColumns, r.c.scanRollout)
	if err != nil {
		return store.Page[agl.AttemptedRollout]{}, err
	}
	items, err := r.withAttempts(page.Items)
	return store.Page[agl.AttemptedRollout]{Items: items, Total: page.Total}, err
}

func (r reader) OpenRollouts() ([]agl.AttemptedRollout, error) {
	var open []agl.Rollout
	err := r.c.query(func(row row) error {
		ro, err := r.c.scanRollout(row)
		open = append(open, ro)
		return err
	}, selectOpen)
	if err != nil {
		return nil, err
	}
	all, err := r.withAttempts(open)
	return slices.DeleteFunc(all, func(a agl.AttemptedRollout) bool { return a.Attempt == nil }), err
}

func (r reader) withAttempts(rollouts []agl.Rollout) ([]agl.AttemptedRollout, error) {
	ids := make([]string, len(rollouts))
	for i := range rollouts {
		ids[i] = rollouts[i].RolloutID
	}
	latest, err := r.LatestAttempts(ids)
	if err != nil {
		return nil, err
	}
	out := make([]agl.AttemptedRollout, len(rollouts))
	for i := range rollouts {
		out[i].Rollout = rollouts[i]
		if a, ok := latest[ids[i]]; ok {
			out[i].Attempt = &a
		}
	}
	return out, nil
}

// Rollouts answers from what the writer remembers, and asks for the rest.
func (t *tx) Rollouts(ids []string) (map[string]agl.Rollout, error) {
	out := make(map[string]agl.Rollout, len(ids))
	var rest []string
	for _, id := range ids {
		if r := t.known.get(id); r != nil && r.whole {
			out[id] = engine.CloneRollout(r.rollout)
		} else {
			rest = append(rest, id)
		}
	}
	return out, t.each(rest, selectRollout, selectRollouts, func(row row) error {
		ro, err := t.c.scanRollout(row)
		if err == nil {
			out[ro.RolloutID] = ro
			t.known.put(row.int(0), &ro)
		}
		return err
	})
}

// seqOf returns the seq of a rollout, errMissing when there is none.
func (t *tx) seqOf(rolloutID string) (int64, error) {
	if r := t.known.get(rolloutID); r != nil {
		return r.seq, nil
	}
	seq, err := t.c.number(selectRolloutSeq, rolloutID)
	if err != nil {
		return 0, err
	}
	if seq == 0 {
		return 0, fmt.Errorf("rollout %s: %w", rolloutID, errMissing)
	}
	t.known.add(rolloutID).seq = seq
	return seq, nil
}

func (t *tx) InsertRollouts(rollouts []agl.Rollout) error {
	t.write()
	for i := range rollouts {
		r := &rollouts[i]
		t.touch(r.RolloutID)
		seq, err := t.c.insert(insertRollout, rolloutArgs(r)...)
		if err != nil {
			return fmt.Errorf("insert rollout %s: %w", r.RolloutID, err)
		}
		t.known.put(seq, r)
		t.known.get(r.RolloutID).setLatest(0, nil)
	}
	return nil
}

func (t *tx) UpdateRollouts(rollouts []agl.Rollout) error {
	t.write()
	for i := range rollouts {
		r := &rollouts[i]
		t.touch(r.RolloutID)
		seq, err := t.seqOf(r.RolloutID)
		if err != nil {
			return fmt.Errorf("update rollout: %w", err)
		}
		if err := t.updateRollout(seq, r); err != nil {
			return fmt.Errorf("update rollout %s: %w", r.RolloutID, err)
		}
		t.known.put(seq, r)
	}
	return nil
}

func (t *tx) updateRollout(seq int64, r *agl.Rollout) error {
	if k := t.known.get(r.RolloutID); k.whole && onlyMoved(k.rollout, r) {
		_, err := t.c.exec(moveRollout, string(r.Status), orNull(r.EndTime), seq)
		return err
	}
	_, err := t.c.exec(updateRollout, append(rolloutArgs(r), seq)...)
	return err
}

// onlyMoved reports whether nothing but the status and the end of a rollout
// differs, as in nearly all updates.
func onlyMoved(from, to *agl.Rollout) bool {
	return from.Control == nil && to.Control == nil && from.Mode == to.Mode && from.StartTime == to.StartTime && same(from.ResourcesID, to.ResourcesID) &&
		same(from.Config.TimeoutSeconds, to.Config.TimeoutSeconds) &&
		same(from.Config.UnresponsiveSeconds, to.Config.UnresponsiveSeconds) &&
		from.Config.MaxAttempts == to.Config.MaxAttempts &&
		(from.Config.RetryCondition == nil) == (to.Config.RetryCondition == nil) &&
		slices.Equal(from.Config.RetryCondition, to.Config.RetryCondition) &&
		(from.Metadata == nil) == (to.Metadata == nil) && bytes.Equal(from.Metadata, to.Metadata) &&
		(from.Input == nil) == (to.Input == nil) && bytes.Equal(from.Input, to.Input)
}

func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

func rolloutArgs(r *agl.Rollout) []any {
	limited := int64(0)
	if r.Config.TimeoutSeconds != nil || r.Config.UnresponsiveSeconds != nil {
		limited = 1
	}
	return []any{
		r.RolloutID, string(r.Status), string(r.Mode), r.StartTime, orNull(r.EndTime),
		orNull(r.ResourcesID), limited, string(r.Config.AppendJSON(nil)), rawOrNull(r.Metadata), rawOrNull(r.Input), controlOrNull(r.Control),
	}
}

func (c *conn) scanRollout(r row) (agl.Rollout, error) {
	ro := agl.Rollout{
		RolloutID: r.text(1), Status: agl.RolloutStatus(r.text(2)), Mode: agl.Mode(r.text(3)),
		StartTime: r.float(4), EndTime: r.optionalFloat(5), ResourcesID: r.optionalText(6),
		Metadata: r.raw(8), Input: r.raw(9),
	}
	var err error
	if ro.Config, err = c.configs.decode(r.text(7)); err != nil {
		return ro, fmt.Errorf("config of rollout %s: %w", ro.RolloutID, err)
	}
	if control := r.raw(10); control != nil {
		ro.Control = new(agl.Control)
		if err := ro.Control.UnmarshalJSON(control); err != nil {
			return ro, fmt.Errorf("control state of rollout %s: %w", ro.RolloutID, err)
		}
	}
	return ro, nil
}

func controlOrNull(c *agl.Control) any {
	if c == nil {
		return nil
	}
	return string(c.AppendJSON(nil))
}

// configCache decodes each text once: nearly all rollouts share a few.
type configCache map[string]agl.RolloutConfig

// maxConfigs bounds the cache; past it the cache starts again.
const maxConfigs = 128

func (c *configCache) decode(text string) (agl.RolloutConfig, error) {
	cfg, ok := (*c)[text]
	if !ok {
		if err := json.Unmarshal([]byte(text), &cfg); err != nil {
			return cfg, err
		}
		if *c == nil || len(*c) >= maxConfigs {
			*c = make(configCache)
		}
		(*c)[text] = cfg
	}
	// The caller owns what it gets, so nothing of the cached value is shared.
	cfg.TimeoutSeconds = clone(cfg.TimeoutSeconds)
	cfg.UnresponsiveSeconds = clone(cfg.UnresponsiveSeconds)
	cfg.RetryCondition = slices.Clone(cfg.RetryCondition)
	return cfg, nil
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}
