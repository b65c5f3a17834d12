package engine

import (
	"cmp"
	"math"

	agl "agentlightning"
	"agentlightning/store"
)

// sortKey is what a field of an item sorts by. Only one of the members is in
// use for a field.
type sortKey struct {
	text   string
	number float64
	whole  int64
}

func (k sortKey) compare(o sortKey) int {
	return cmp.Or(cmp.Compare(k.whole, o.whole), cmp.Compare(k.number, o.number), cmp.Compare(k.text, o.text))
}

func text[S ~string](s S) sortKey        { return sortKey{text: string(s)} }
func whole[I ~int | ~int64](n I) sortKey { return sortKey{whole: int64(n)} }
func number(f float64) sortKey           { return sortKey{number: f} }

// optionalText sorts null as the empty string.
func optionalText(s *string) sortKey {
	if s == nil {
		return sortKey{}
	}
	return text(*s)
}

// moment sorts null after every time.
func moment(t *float64) sortKey {
	if t == nil {
		return number(math.Inf(1))
	}
	return number(*t)
}

// field is a member of an item that results can be sorted by.
type field[T any] struct {
	name string
	key  func(*T) sortKey
}

type fields[T any] []field[T]

var rolloutFields = fields[agl.AttemptedRollout]{
	{"rollout_id", func(r *agl.AttemptedRollout) sortKey { return text(r.RolloutID) }},
	{"start_time", func(r *agl.AttemptedRollout) sortKey { return number(r.StartTime) }},
	{"end_time", func(r *agl.AttemptedRollout) sortKey { return moment(r.EndTime) }},
	{"mode", func(r *agl.AttemptedRollout) sortKey { return text(r.Mode) }},
	{"resources_id", func(r *agl.AttemptedRollout) sortKey { return optionalText(r.ResourcesID) }},
	{"status", func(r *agl.AttemptedRollout) sortKey { return text(r.Status) }},
}

var attemptFields = fields[agl.Attempt]{
	{"rollout_id", func(a *agl.Attempt) sortKey { return text(a.RolloutID) }},
	{"attempt_id", func(a *agl.Attempt) sortKey { return text(a.AttemptID) }},
	{"sequence_id", func(a *agl.Attempt) sortKey { return whole(a.SequenceID) }},
	{"start_time", func(a *agl.Attempt) sortKey { return number(a.StartTime) }},
	{"end_time", func(a *agl.Attempt) sortKey { return moment(a.EndTime) }},
	{"status", func(a *agl.Attempt) sortKey { return text(a.Status) }},
	{"worker_id", func(a *agl.Attempt) sortKey { return optionalText(a.WorkerID) }},
	{"last_heartbeat_time", func(a *agl.Attempt) sortKey { return moment(a.LastHeartbeatTime) }},
}

var spanFields = fields[store.EncodedSpan]{
	{"rollout_id", func(s *store.EncodedSpan) sortKey { return text(s.RolloutID) }},
	{"attempt_id", func(s *store.EncodedSpan) sortKey { return text(s.AttemptID) }},
	{"sequence_id", func(s *store.EncodedSpan) sortKey { return whole(s.SequenceID) }},
	{"trace_id", func(s *store.EncodedSpan) sortKey { return text(s.TraceID) }},
	{"span_id", func(s *store.EncodedSpan) sortKey { return text(s.SpanID) }},
	{"parent_id", func(s *store.EncodedSpan) sortKey { return optionalText(s.ParentID) }},
	{"name", func(s *store.EncodedSpan) sortKey { return text(s.Name) }},
	{"start_time", func(s *store.EncodedSpan) sortKey { return moment(s.StartTime) }},
	{"end_time", func(s *store.EncodedSpan) sortKey { return moment(s.EndTime) }},
}

var resourcesFields = fields[agl.ResourcesUpdate]{
	{"resources_id", func(u *agl.ResourcesUpdate) sortKey { return text(u.ResourcesID) }},
	{"create_time", func(u *agl.ResourcesUpdate) sortKey { return number(u.CreateTime) }},
	{"update_time", func(u *agl.ResourcesUpdate) sortKey { return number(u.UpdateTime) }},
	{"version", func(u *agl.ResourcesUpdate) sortKey { return whole(u.Version) }},
}

var workerFields = fields[agl.Worker]{
	{"worker_id", func(w *agl.Worker) sortKey { return text(w.WorkerID) }},
	{"status", func(w *agl.Worker) sortKey { return text(w.Status) }},
	{"last_heartbeat_time", func(w *agl.Worker) sortKey { return moment(w.LastHeartbeatTime) }},
	{"last_dequeue_time", func(w *agl.Worker) sortKey { return moment(w.LastDequeueTime) }},
	{"last_busy_time", func(w *agl.Worker) sortKey { return moment(w.LastBusyTime) }},
	{"last_idle_time", func(w *agl.Worker) sortKey { return moment(w.LastIdleTime) }},
	{"current_rollout_id", func(w *agl.Worker) sortKey { return optionalText(w.CurrentRolloutID) }},
	{"current_attempt_id", func(w *agl.Worker) sortKey { return optionalText(w.CurrentAttemptID) }},
}
