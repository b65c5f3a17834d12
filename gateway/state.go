package gateway

import (
	"strconv"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
)

// State is where a rollout stands.
type State = agl.RolloutStatus

// The states of the protocol; those of package agl that are not here are read
// as one of these.
const (
	Queuing   = agl.RolloutQueuing
	Running   = agl.RolloutRunning
	Succeeded = agl.RolloutSucceeded
	Failed    = agl.RolloutFailed
)

// statusesOf lists what is read as a state.
func statusesOf(s State) []agl.RolloutStatus {
	switch s {
	case Queuing:
		return []agl.RolloutStatus{agl.RolloutQueuing, agl.RolloutPreparing, agl.RolloutRequeuing}
	case Failed:
		return []agl.RolloutStatus{agl.RolloutFailed, agl.RolloutCancelled}
	case Running, Succeeded, agl.RolloutPreparing, agl.RolloutRequeuing, agl.RolloutCancelled:
	}
	return []agl.RolloutStatus{s}
}

const statesExpected = "'queuing', 'running', 'succeeded' or 'failed'"

// state reads one of the four states.
func (v field) state() State {
	if jsonx.KindOf(v.raw) == jsonx.String {
		if s, err := jsonx.Text(v.raw); err == nil {
			switch State(s) {
			case Queuing, Running, Succeeded, Failed:
				return State(s)
			case agl.RolloutPreparing, agl.RolloutRequeuing, agl.RolloutCancelled:
			}
		}
	}
	v.wrongly("enum", "Input should be "+statesExpected, []byte(`{"expected":`+strconv.Quote(statesExpected)+`}`))
	return ""
}
