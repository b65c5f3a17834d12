package engine

import (
	"testing"

	agl "agentlightning"
)

func TestOverdue(t *testing.T) {
	t.Parallel()
	const now = 1000.0
	both := agl.RolloutConfig{TimeoutSeconds: new(100.0), UnresponsiveSeconds: new(10.0)}
	for _, tt := range []struct {
		name   string
		status agl.RolloutStatus
		config agl.RolloutConfig
		start  float64
		beat   *float64
		want   agl.AttemptStatus // empty for not overdue
	}{
		{"young", agl.RolloutPreparing, both, now - 5, nil, ""},
		{"silent from the start", agl.RolloutPreparing, both, now - 11, nil, agl.AttemptUnresponsive},
		{"just silent enough", agl.RolloutRunning, both, now - 10, nil, ""},
		{"silent since", agl.RolloutRunning, both, now - 50, new(now - 11), agl.AttemptUnresponsive},
		{"heard of lately", agl.RolloutRunning, both, now - 50, new(now - 9), ""},
		{"old and silent", agl.RolloutRunning, both, now - 101, new(now - 99), agl.AttemptTimeout},
		{"old and talking", agl.RolloutRunning, both, now - 101, new(now), agl.AttemptTimeout},
		{"just old enough", agl.RolloutRunning, both, now - 100, new(now), ""},
		{"heartbeat of zero", agl.RolloutRunning, both, now - 50, new(0.0), ""},
		{"no limits", agl.RolloutRunning, agl.RolloutConfig{}, 0, nil, ""},
		{"age only", agl.RolloutRunning, agl.RolloutConfig{TimeoutSeconds: new(1.0)}, now - 2, nil, agl.AttemptTimeout},
		{"succeeded meanwhile", agl.RolloutSucceeded, both, 0, nil, ""},
		{"requeued meanwhile", agl.RolloutRequeuing, both, 0, nil, ""},
		{"cancelled meanwhile", agl.RolloutCancelled, both, 0, nil, ""},
	} {
		ro := agl.Rollout{Status: tt.status, Config: tt.config}
		a := agl.Attempt{AttemptID: "at-1", Status: agl.AttemptRunning, StartTime: tt.start, LastHeartbeatTime: tt.beat}
		if got, ok := overdue(&ro, &a, now); got != tt.want || ok != (tt.want != "") {
			t.Errorf("%s: overdue = %q, %v, want %q", tt.name, got, ok, tt.want)
		}
	}
	if got, ok := overdue(&agl.Rollout{Status: agl.RolloutRunning, Config: both}, nil, now); ok {
		t.Errorf("overdue without an attempt = %q", got)
	}
}
