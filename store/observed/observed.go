// Package observed is a store that counts and times the calls of another one.
//
// The names, labels and buckets are those of the 0.3 protocol: agl_store_total
// and agl_store_latency by method and status, agl_rollouts_total and
// agl_rollouts_duration by status and mode. Dashboards made for the Python
// implementation go on working.
package observed

import (
	"context"
	"encoding/json"
	"time"

	agl "agentlightning"
	"agentlightning/store"
)

// Store wraps a store. It adds well under a microsecond to a call.
type Store struct {
	next    store.Store
	spans   store.EncodedSpans // of next, as streams is
	streams store.Streams
	m       *Metrics
}

var (
	_ store.Store        = (*Store)(nil)
	_ store.EncodedSpans = (*Store)(nil)
	_ store.Streams      = (*Store)(nil)
	_ store.ControlStore = (*Store)(nil)
)

// New returns a store that records in m what is called on next.
func New(next store.Store, m *Metrics) *Store {
	return &Store{next, store.Encoded(next), store.Streamed(next), m}
}

// Close closes the store behind.
func (s *Store) Close() error { return s.next.Close() }

// EnqueueRollouts implements [store.Store].
func (s *Store) EnqueueRollouts(ctx context.Context, reqs []store.EnqueueRequest) (_ []agl.Rollout, err error) {
	defer s.m.done(opEnqueueRollouts, time.Now(), &err)
	return s.next.EnqueueRollouts(ctx, reqs)
}

// DequeueRollouts implements [store.Store].
func (s *Store) DequeueRollouts(ctx context.Context, req store.DequeueRequest) (_ []agl.AttemptedRollout, err error) {
	defer s.m.done(opDequeueRollouts, time.Now(), &err)
	return s.next.DequeueRollouts(ctx, req)
}

// ReleaseRollouts implements [store.Store].
func (s *Store) ReleaseRollouts(ctx context.Context, claimed []agl.AttemptedRollout) (err error) {
	defer s.m.done(opReleaseRollouts, time.Now(), &err)
	return s.next.ReleaseRollouts(ctx, claimed)
}

// StartRollout implements [store.Store].
func (s *Store) StartRollout(ctx context.Context, req store.StartRequest) (_ agl.AttemptedRollout, err error) {
	defer s.m.done(opStartRollout, time.Now(), &err)
	return s.next.StartRollout(ctx, req)
}

// Rollout implements [store.Store].
func (s *Store) Rollout(ctx context.Context, rolloutID string) (_ agl.AttemptedRollout, err error) {
	defer s.m.done(opRollout, time.Now(), &err)
	return s.next.Rollout(ctx, rolloutID)
}

// QueryRollouts implements [store.Store].
func (s *Store) QueryRollouts(ctx context.Context, q store.RolloutQuery) (_ store.Page[agl.AttemptedRollout], err error) {
	defer s.m.done(opQueryRollouts, time.Now(), &err)
	return s.next.QueryRollouts(ctx, q)
}

// UpdateRollout implements [store.Store].
func (s *Store) UpdateRollout(ctx context.Context, rolloutID string, u store.RolloutUpdate) (_ agl.Rollout, err error) {
	defer s.m.done(opUpdateRollout, time.Now(), &err)
	return s.next.UpdateRollout(ctx, rolloutID, u)
}

// WaitForRollouts implements [store.Store].
func (s *Store) WaitForRollouts(ctx context.Context, rolloutIDs []string, timeout time.Duration) (_ []agl.Rollout, err error) {
	defer s.m.done(opWaitForRollouts, time.Now(), &err)
	return s.next.WaitForRollouts(ctx, rolloutIDs, timeout)
}

// WaitForCount implements [store.Store].
func (s *Store) WaitForCount(ctx context.Context, rolloutIDs []string, count int, timeout time.Duration) (_ []agl.Rollout, err error) {
	defer s.m.done(opWaitForCount, time.Now(), &err)
	return s.next.WaitForCount(ctx, rolloutIDs, count, timeout)
}

// StartAttempt implements [store.Store].
func (s *Store) StartAttempt(ctx context.Context, rolloutID string, workerID *string) (_ agl.AttemptedRollout, err error) {
	defer s.m.done(opStartAttempt, time.Now(), &err)
	return s.next.StartAttempt(ctx, rolloutID, workerID)
}

// QueryAttempts implements [store.Store].
func (s *Store) QueryAttempts(ctx context.Context, q store.AttemptQuery) (_ store.Page[agl.Attempt], err error) {
	defer s.m.done(opQueryAttempts, time.Now(), &err)
	return s.next.QueryAttempts(ctx, q)
}

// LatestAttempt implements [store.Store].
func (s *Store) LatestAttempt(ctx context.Context, rolloutID string) (_ agl.Attempt, err error) {
	defer s.m.done(opLatestAttempt, time.Now(), &err)
	return s.next.LatestAttempt(ctx, rolloutID)
}

// UpdateAttempt implements [store.Store].
func (s *Store) UpdateAttempt(ctx context.Context, rolloutID, attemptID string, u store.AttemptUpdate) (_ agl.Attempt, err error) {
	defer s.m.done(opUpdateAttempt, time.Now(), &err)
	return s.next.UpdateAttempt(ctx, rolloutID, attemptID, u)
}

// AddSpans implements [store.Store].
func (s *Store) AddSpans(ctx context.Context, spans []agl.Span) (_ []store.AddedSpan, err error) {
	defer s.m.done(opAddSpans, time.Now(), &err)
	return s.next.AddSpans(ctx, spans)
}

// AddEncodedSpans implements [store.EncodedSpans].
func (s *Store) AddEncodedSpans(ctx context.Context, spans []store.EncodedSpan) (_ []store.SpanOutcome, err error) {
	defer s.m.done(opAddSpans, time.Now(), &err)
	return s.spans.AddEncodedSpans(ctx, spans)
}

// NextSequenceIDs implements [store.Store].
func (s *Store) NextSequenceIDs(ctx context.Context, attempts []store.Attempted) (_ []int64, err error) {
	defer s.m.done(opNextSequenceIDs, time.Now(), &err)
	return s.next.NextSequenceIDs(ctx, attempts)
}

// QuerySpans implements [store.Store].
func (s *Store) QuerySpans(ctx context.Context, q store.SpanQuery) (_ store.Page[agl.Span], err error) {
	defer s.m.done(opQuerySpans, time.Now(), &err)
	return s.next.QuerySpans(ctx, q)
}

// QueryEncodedSpans implements [store.EncodedSpans].
func (s *Store) QueryEncodedSpans(ctx context.Context, q store.SpanQuery) (_ store.Page[store.SpanJSON], err error) {
	defer s.m.done(opQuerySpans, time.Now(), &err)
	return s.spans.QueryEncodedSpans(ctx, q)
}

// StreamSpans implements [store.Streams].
func (s *Store) StreamSpans(ctx context.Context, q store.SpanQuery, f func(store.SpanJSON) error) (_ int, err error) {
	defer s.m.done(opQuerySpans, time.Now(), &err)
	return s.streams.StreamSpans(ctx, q, f)
}

// StreamRollouts implements [store.Streams].
func (s *Store) StreamRollouts(ctx context.Context, q store.RolloutQuery, f func(*agl.AttemptedRollout) error) (_ int, err error) {
	defer s.m.done(opQueryRollouts, time.Now(), &err)
	return s.streams.StreamRollouts(ctx, q, f)
}

// AddResources implements [store.Store].
func (s *Store) AddResources(ctx context.Context, r agl.NamedResources) (_ agl.ResourcesUpdate, err error) {
	defer s.m.done(opAddResources, time.Now(), &err)
	return s.next.AddResources(ctx, r)
}

// UpdateResources implements [store.Store].
func (s *Store) UpdateResources(ctx context.Context, resourcesID string, r agl.NamedResources) (_ agl.ResourcesUpdate, err error) {
	defer s.m.done(opUpdateResources, time.Now(), &err)
	return s.next.UpdateResources(ctx, resourcesID, r)
}

// Resources implements [store.Store].
func (s *Store) Resources(ctx context.Context, resourcesID string) (_ agl.ResourcesUpdate, err error) {
	defer s.m.done(opResources, time.Now(), &err)
	return s.next.Resources(ctx, resourcesID)
}

// LatestResources implements [store.Store].
func (s *Store) LatestResources(ctx context.Context) (_ agl.ResourcesUpdate, err error) {
	defer s.m.done(opLatestResources, time.Now(), &err)
	return s.next.LatestResources(ctx)
}

// QueryResources implements [store.Store].
func (s *Store) QueryResources(ctx context.Context, q store.ResourcesQuery) (_ store.Page[agl.ResourcesUpdate], err error) {
	defer s.m.done(opQueryResources, time.Now(), &err)
	return s.next.QueryResources(ctx, q)
}

// UpdateWorker implements [store.Store].
func (s *Store) UpdateWorker(ctx context.Context, workerID string, stats store.Set[json.RawMessage]) (_ agl.Worker, err error) {
	defer s.m.done(opUpdateWorker, time.Now(), &err)
	return s.next.UpdateWorker(ctx, workerID, stats)
}

// Worker implements [store.Store].
func (s *Store) Worker(ctx context.Context, workerID string) (_ agl.Worker, err error) {
	defer s.m.done(opWorker, time.Now(), &err)
	return s.next.Worker(ctx, workerID)
}

// QueryWorkers implements [store.Store].
func (s *Store) QueryWorkers(ctx context.Context, q store.WorkerQuery) (_ store.Page[agl.Worker], err error) {
	defer s.m.done(opQueryWorkers, time.Now(), &err)
	return s.next.QueryWorkers(ctx, q)
}

// CreateRun implements [store.Store].
func (s *Store) CreateRun(ctx context.Context, run agl.Run) (_ agl.Run, err error) {
	defer s.m.done(opCreateRun, time.Now(), &err)
	return s.next.CreateRun(ctx, run)
}

// UpdateRun implements [store.Store].
func (s *Store) UpdateRun(ctx context.Context, runID string, u store.RunUpdate) (_ agl.Run, err error) {
	defer s.m.done(opUpdateRun, time.Now(), &err)
	return s.next.UpdateRun(ctx, runID, u)
}

// Run implements [store.Store].
func (s *Store) Run(ctx context.Context, runID string) (_ agl.Run, err error) {
	defer s.m.done(opRun, time.Now(), &err)
	return s.next.Run(ctx, runID)
}

// Runs implements [store.Store].
func (s *Store) Runs(ctx context.Context, limit int) (_ []agl.Run, err error) {
	defer s.m.done(opRuns, time.Now(), &err)
	return s.next.Runs(ctx, limit)
}

// AddStepMetrics implements [store.Store].
func (s *Store) AddStepMetrics(ctx context.Context, runID string, metrics ...agl.StepMetrics) (err error) {
	defer s.m.done(opAddStepMetrics, time.Now(), &err)
	return s.next.AddStepMetrics(ctx, runID, metrics...)
}

// StepMetrics implements [store.Store].
func (s *Store) StepMetrics(ctx context.Context, runID string, after int) (_ []agl.StepMetrics, err error) {
	defer s.m.done(opStepMetrics, time.Now(), &err)
	return s.next.StepMetrics(ctx, runID, after)
}

// PutCheckpoint implements [store.Store].
func (s *Store) PutCheckpoint(ctx context.Context, runID string, c agl.Checkpoint) (err error) {
	defer s.m.done(opPutCheckpoint, time.Now(), &err)
	return s.next.PutCheckpoint(ctx, runID, c)
}

// LatestCheckpoint implements [store.Store].
func (s *Store) LatestCheckpoint(ctx context.Context, runID string) (_ agl.Checkpoint, err error) {
	defer s.m.done(opLatestCheckpoint, time.Now(), &err)
	return s.next.LatestCheckpoint(ctx, runID)
}

// Checkpoints implements [store.Store].
func (s *Store) Checkpoints(ctx context.Context, runID string) (_ []agl.Checkpoint, err error) {
	defer s.m.done(opCheckpoints, time.Now(), &err)
	return s.next.Checkpoints(ctx, runID)
}

// AddLogLines implements [store.Store].
func (s *Store) AddLogLines(ctx context.Context, runID string, lines ...agl.LogLine) (err error) {
	defer s.m.done(opAddLogLines, time.Now(), &err)
	return s.next.AddLogLines(ctx, runID, lines...)
}

// RunLog implements [store.Store].
func (s *Store) RunLog(ctx context.Context, q store.LogQuery) (_ store.LogPage, err error) {
	defer s.m.done(opRunLog, time.Now(), &err)
	return s.next.RunLog(ctx, q)
}

// DeleteRun implements [store.Store].
func (s *Store) DeleteRun(ctx context.Context, runID string, force bool) (err error) {
	defer s.m.done(opDeleteRun, time.Now(), &err)
	return s.next.DeleteRun(ctx, runID, force)
}

// PutModels implements [store.Store].
func (s *Store) PutModels(ctx context.Context, models []agl.Model) (err error) {
	defer s.m.done(opPutModels, time.Now(), &err)
	return s.next.PutModels(ctx, models)
}

// ReplaceModels implements [store.Store].
func (s *Store) ReplaceModels(ctx context.Context, models []agl.Model) (err error) {
	defer s.m.done(opReplaceModels, time.Now(), &err)
	return s.next.ReplaceModels(ctx, models)
}

// DeleteModels implements [store.Store].
func (s *Store) DeleteModels(ctx context.Context, name string, endpoints ...string) (err error) {
	defer s.m.done(opDeleteModels, time.Now(), &err)
	return s.next.DeleteModels(ctx, name, endpoints...)
}

// Models implements [store.Store].
func (s *Store) Models(ctx context.Context) (_ []agl.Model, err error) {
	defer s.m.done(opModels, time.Now(), &err)
	return s.next.Models(ctx)
}

// CreateControlled implements [store.ControlStore].
func (s *Store) CreateControlled(ctx context.Context, reqs []store.ControlRequest) (_ []agl.Rollout, err error) {
	defer s.m.done(opCreateControlled, time.Now(), &err)
	return s.control().CreateControlled(ctx, reqs)
}

// UpdateControlled implements [store.ControlStore].
func (s *Store) UpdateControlled(ctx context.Context, rolloutID string, u store.ControlUpdate) (_ agl.Rollout, err error) {
	defer s.m.done(opUpdateControlled, time.Now(), &err)
	return s.control().UpdateControlled(ctx, rolloutID, u)
}

// DeleteRollout implements [store.ControlStore].
func (s *Store) DeleteRollout(ctx context.Context, rolloutID string) (err error) {
	defer s.m.done(opDeleteRollout, time.Now(), &err)
	return s.control().DeleteRollout(ctx, rolloutID)
}

// ResolveAttempt implements [store.ControlStore].
func (s *Store) ResolveAttempt(ctx context.Context, rolloutID, attemptID string) (_ string, err error) {
	defer s.m.done(opResolveAttempt, time.Now(), &err)
	return s.control().ResolveAttempt(ctx, rolloutID, attemptID)
}

// AddEvent implements [store.ControlStore].
func (s *Store) AddEvent(ctx context.Context, event agl.Span) (_ agl.Span, err error) {
	defer s.m.done(opAddEvent, time.Now(), &err)
	return s.control().AddEvent(ctx, event)
}

// EventAttempts implements [store.ControlStore].
func (s *Store) EventAttempts(ctx context.Context, rolloutID string) (_ []string, err error) {
	defer s.m.done(opEventAttempts, time.Now(), &err)
	return s.control().EventAttempts(ctx, rolloutID)
}

// Completions implements [store.ControlStore].
func (s *Store) Completions(ctx context.Context, q store.CompletionQuery) (_ store.CompletionPage, err error) {
	defer s.m.done(opCompletions, time.Now(), &err)
	return s.control().Completions(ctx, q)
}

// control is the store behind as one of the 1.0 protocol. To call it on a store
// that is none is a mistake of the program.
func (s *Store) control() store.ControlStore { return s.next.(store.ControlStore) }

// Statistics implements [store.Store].
func (s *Store) Statistics(ctx context.Context) (_ store.Statistics, err error) {
	defer s.m.done(opStatistics, time.Now(), &err)
	return s.next.Statistics(ctx)
}
