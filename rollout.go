package agl

import (
	"encoding/json"
	"fmt"
	"slices"

	"agentlightning/internal/jsonx"
)

// RolloutStatus is the state of a rollout.
type RolloutStatus string

// The statuses of a rollout.
const (
	RolloutQueuing   RolloutStatus = "queuing"
	RolloutPreparing RolloutStatus = "preparing"
	RolloutRunning   RolloutStatus = "running"
	RolloutFailed    RolloutStatus = "failed"
	RolloutSucceeded RolloutStatus = "succeeded"
	RolloutCancelled RolloutStatus = "cancelled"
	RolloutRequeuing RolloutStatus = "requeuing"
)

// RolloutStatuses lists every status in the order in which the protocol declares them.
func RolloutStatuses() []RolloutStatus {
	return []RolloutStatus{
		RolloutQueuing, RolloutPreparing, RolloutRunning, RolloutFailed,
		RolloutSucceeded, RolloutCancelled, RolloutRequeuing,
	}
}

// Valid reports whether s is one of the declared statuses.
func (s RolloutStatus) Valid() bool { return slices.Contains(RolloutStatuses(), s) }

// Queueing reports whether a rollout in this status waits to be claimed.
func (s RolloutStatus) Queueing() bool { return s == RolloutQueuing || s == RolloutRequeuing }

// Active reports whether an attempt is under way.
func (s RolloutStatus) Active() bool { return s == RolloutPreparing || s == RolloutRunning }

// Terminal reports whether the rollout is finished.
func (s RolloutStatus) Terminal() bool {
	return s == RolloutFailed || s == RolloutSucceeded || s == RolloutCancelled
}

// Mode says what a rollout is for. The empty mode is null in JSON.
type Mode string

// The modes of a rollout.
const (
	ModeTrain Mode = "train"
	ModeVal   Mode = "val"
	ModeTest  Mode = "test"
)

// Valid reports whether m is a declared mode or empty.
func (m Mode) Valid() bool { return m == "" || m == ModeTrain || m == ModeVal || m == ModeTest }

// RolloutConfig holds the limits and the retry rule of one rollout.
type RolloutConfig struct {
	// TimeoutSeconds limits the age of one attempt; nil means no limit.
	TimeoutSeconds *float64
	// UnresponsiveSeconds limits the silence of an attempt; nil means no limit.
	UnresponsiveSeconds *float64
	// MaxAttempts counts the first attempt; 0 means 1.
	MaxAttempts int
	// RetryCondition lists the attempt statuses that lead to another attempt.
	RetryCondition []AttemptStatus
}

// Rollout is one task handed to an agent.
type Rollout struct {
	RolloutID   string
	Input       json.RawMessage // the task, opaque to the store
	StartTime   float64         // Unix seconds of creation
	EndTime     *float64        // Unix seconds of the latest entry into a terminal status
	Mode        Mode
	ResourcesID *string
	Status      RolloutStatus
	Config      RolloutConfig
	Metadata    json.RawMessage // an object, or nil for null
	// Control is set when the rollout was made through the 1.0 protocol. The
	// JSON of the rollout, which is that of 0.3, leaves it out.
	Control *Control
}

// AttemptedRollout is a rollout with its current attempt. What a runner
// receives always has one; in query results Attempt is nil for a rollout that
// was never attempted.
type AttemptedRollout struct {
	Rollout
	Attempt *Attempt
}

// DecodeInput reads the task into v.
func (r *Rollout) DecodeInput(v any) error {
	if err := json.Unmarshal(r.Input, v); err != nil {
		return fmt.Errorf("input of rollout %s: %w", r.RolloutID, err)
	}
	return nil
}

// MetadataValue returns one member of the metadata as JSON, nil when there is none.
func (r *Rollout) MetadataValue(key string) json.RawMessage {
	if len(r.Metadata) == 0 {
		return nil
	}
	members, err := jsonx.Members(r.Metadata)
	if err != nil {
		return nil
	}
	return jsonx.Get(members, key)
}

// AppendJSON appends the JSON of the configuration.
func (c RolloutConfig) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"timeout_seconds":`...)
	dst = jsonx.AppendOptional(dst, c.TimeoutSeconds)
	dst = append(dst, `,"unresponsive_seconds":`...)
	dst = jsonx.AppendOptional(dst, c.UnresponsiveSeconds)
	dst = append(dst, `,"max_attempts":`...)
	dst = appendInt(dst, int64(max(c.MaxAttempts, 1)))
	dst = append(dst, `,"retry_condition":[`...)
	for i, s := range c.RetryCondition {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsonx.AppendString(dst, string(s))
	}
	return append(dst, "]}"...)
}

// AppendJSON appends the JSON of the rollout, without an attempt.
func (r *Rollout) AppendJSON(dst []byte) []byte { return append(r.appendMembers(dst), '}') }

func (r *Rollout) appendMembers(dst []byte) []byte {
	dst = append(dst, `{"rollout_id":`...)
	dst = jsonx.AppendString(dst, r.RolloutID)
	dst = append(dst, `,"input":`...)
	dst = jsonx.AppendRaw(dst, r.Input)
	dst = append(dst, `,"start_time":`...)
	dst = jsonx.AppendFloat(dst, r.StartTime)
	dst = append(dst, `,"end_time":`...)
	dst = jsonx.AppendOptional(dst, r.EndTime)
	dst = append(dst, `,"mode":`...)
	dst = appendOrNull(dst, string(r.Mode))
	dst = append(dst, `,"resources_id":`...)
	dst = jsonx.AppendOptionalString(dst, r.ResourcesID)
	dst = append(dst, `,"status":`...)
	dst = jsonx.AppendString(dst, string(r.Status))
	dst = append(dst, `,"config":`...)
	dst = r.Config.AppendJSON(dst)
	dst = append(dst, `,"metadata":`...)
	return jsonx.AppendRaw(dst, r.Metadata)
}

// AppendJSON appends the JSON of the rollout and, when there is one, its attempt.
func (r *AttemptedRollout) AppendJSON(dst []byte) []byte {
	dst = r.appendMembers(dst)
	if r.Attempt != nil {
		dst = append(dst, `,"attempt":`...)
		dst = r.Attempt.AppendJSON(dst)
	}
	return append(dst, '}')
}

// MarshalJSON implements [json.Marshaler].
func (c RolloutConfig) MarshalJSON() ([]byte, error) { return c.AppendJSON(nil), nil }

// MarshalJSON implements [json.Marshaler].
func (r Rollout) MarshalJSON() ([]byte, error) { return r.AppendJSON(nil), nil }

// MarshalJSON implements [json.Marshaler].
func (r AttemptedRollout) MarshalJSON() ([]byte, error) { return r.AppendJSON(nil), nil }

// UnmarshalJSON implements [json.Unmarshaler].
func (c *RolloutConfig) UnmarshalJSON(data []byte) error {
	var w struct {
		TimeoutSeconds      *float64        `json:"timeout_seconds"`
		UnresponsiveSeconds *float64        `json:"unresponsive_seconds"`
		MaxAttempts         int             `json:"max_attempts"`
		RetryCondition      []AttemptStatus `json:"retry_condition"`
	}
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*c = RolloutConfig{w.TimeoutSeconds, w.UnresponsiveSeconds, max(w.MaxAttempts, 1), w.RetryCondition}
	return nil
}

type rolloutJSON struct {
	RolloutID   string          `json:"rollout_id"`
	Input       json.RawMessage `json:"input"`
	StartTime   float64         `json:"start_time"`
	EndTime     *float64        `json:"end_time"`
	Mode        Mode            `json:"mode"`
	ResourcesID *string         `json:"resources_id"`
	Status      RolloutStatus   `json:"status"`
	Config      RolloutConfig   `json:"config"`
	Metadata    json.RawMessage `json:"metadata"`
	Attempt     *Attempt        `json:"attempt"`
}

func (w *rolloutJSON) rollout() Rollout {
	return Rollout{
		w.RolloutID, w.Input, w.StartTime, w.EndTime, w.Mode, w.ResourcesID,
		w.Status, w.Config, nullToNil(w.Metadata), nil,
	}
}

// UnmarshalJSON implements [json.Unmarshaler].
func (r *Rollout) UnmarshalJSON(data []byte) error {
	var w rolloutJSON
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*r = w.rollout()
	return nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (r *AttemptedRollout) UnmarshalJSON(data []byte) error {
	var w rolloutJSON
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*r = AttemptedRollout{w.rollout(), w.Attempt}
	return nil
}
