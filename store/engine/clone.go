package engine

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	agl "agentlightning"
)

// The functions of this file copy values of the domain so that nothing is
// shared with the original.

func clonePtr[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}

func cloneRaw(raw json.RawMessage) json.RawMessage { return bytes.Clone(raw) }

func cloneConfig(c *agl.RolloutConfig) agl.RolloutConfig {
	return agl.RolloutConfig{
		TimeoutSeconds:      clonePtr(c.TimeoutSeconds),
		UnresponsiveSeconds: clonePtr(c.UnresponsiveSeconds),
		MaxAttempts:         c.MaxAttempts,
		RetryCondition:      slices.Clone(c.RetryCondition),
	}
}

// CloneRollout copies a rollout.
func CloneRollout(r *agl.Rollout) agl.Rollout {
	out := *r
	out.Input = cloneRaw(r.Input)
	out.EndTime = clonePtr(r.EndTime)
	out.ResourcesID = clonePtr(r.ResourcesID)
	out.Config = cloneConfig(&r.Config)
	out.Metadata = cloneRaw(r.Metadata)
	out.Control = r.Control.Clone()
	return out
}

// CloneAttempt copies an attempt.
func CloneAttempt(a *agl.Attempt) agl.Attempt {
	out := *a
	out.EndTime = clonePtr(a.EndTime)
	out.WorkerID = clonePtr(a.WorkerID)
	out.LastHeartbeatTime = clonePtr(a.LastHeartbeatTime)
	out.Metadata = cloneRaw(a.Metadata)
	return out
}

// CloneAttempted copies a rollout and its attempt.
func CloneAttempted(r *agl.AttemptedRollout) agl.AttemptedRollout {
	out := agl.AttemptedRollout{Rollout: CloneRollout(&r.Rollout)}
	if r.Attempt != nil {
		out.Attempt = new(CloneAttempt(r.Attempt))
	}
	return out
}

// CloneWorker copies a worker.
func CloneWorker(w *agl.Worker) agl.Worker {
	out := *w
	out.HeartbeatStats = cloneRaw(w.HeartbeatStats)
	out.LastHeartbeatTime = clonePtr(w.LastHeartbeatTime)
	out.LastDequeueTime = clonePtr(w.LastDequeueTime)
	out.LastBusyTime = clonePtr(w.LastBusyTime)
	out.LastIdleTime = clonePtr(w.LastIdleTime)
	out.CurrentRolloutID = clonePtr(w.CurrentRolloutID)
	out.CurrentAttemptID = clonePtr(w.CurrentAttemptID)
	return out
}

// CloneResources copies named resources.
func CloneResources(n agl.NamedResources) agl.NamedResources {
	out := slices.Clone(n)
	for i := range out {
		switch r := out[i].Resource.(type) {
		case agl.LLM:
			out[i].Resource = cloneLLM(r)
		case agl.ProxyLLM:
			out[i].Resource = agl.ProxyLLM(cloneLLM(agl.LLM(r)))
		case agl.PromptTemplate: // holds strings only
		}
	}
	return out
}

func cloneLLM(l agl.LLM) agl.LLM {
	l.APIKey = clonePtr(l.APIKey)
	l.SamplingParameters = cloneRaw(l.SamplingParameters)
	return l
}

// CloneResourcesUpdate copies a version of resources.
func CloneResourcesUpdate(u *agl.ResourcesUpdate) agl.ResourcesUpdate {
	out := *u
	out.Resources = CloneResources(u.Resources)
	return out
}

// CloneRun copies a run.
func CloneRun(r *agl.Run) agl.Run {
	out := *r
	out.Config = cloneRaw(r.Config)
	out.EndTime = clonePtr(r.EndTime)
	return out
}

// CloneStepMetrics copies the metrics of a step.
func CloneStepMetrics(m *agl.StepMetrics) agl.StepMetrics {
	out := *m
	out.Values = maps.Clone(m.Values)
	return out
}

// CloneLogLine copies a line of a log.
func CloneLogLine(l *agl.LogLine) agl.LogLine {
	out := *l
	out.Attributes = cloneRaw(l.Attributes)
	return out
}

// CloneCheckpoint copies a checkpoint.
func CloneCheckpoint(c *agl.Checkpoint) agl.Checkpoint {
	out := *c
	out.Score = clonePtr(c.Score)
	out.State = cloneRaw(c.State)
	return out
}
