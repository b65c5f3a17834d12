package agl

import (
	"encoding/json"

	"agentlightning/internal/jsonx"
)

// Control is what the 1.0 protocol keeps of a rollout that was made through it,
// beside what both protocols share. Such a rollout is started by a controller,
// which watches it and says how it ended; it never enters the queue from which
// runners claim.
type Control struct {
	// Config is the configuration for controllers, an object that the store
	// does not look into.
	Config json.RawMessage
	// K8sJobName names the Kubernetes Job that runs the rollout.
	K8sJobName *string
	// LastAttemptID names the attempt whose events count; nil means "0".
	LastAttemptID *string
	ErrorMessage  *string
	// Version counts from 1 and grows with every change.
	Version   int64
	UpdatedAt float64 // Unix seconds
}

// Clone copies the control state; that of nil is nil.
func (c *Control) Clone() *Control {
	if c == nil {
		return nil
	}
	out := *c
	out.Config = append(json.RawMessage(nil), c.Config...)
	for _, s := range [...]**string{&out.K8sJobName, &out.LastAttemptID, &out.ErrorMessage} {
		if *s != nil {
			*s = new(**s)
		}
	}
	return &out
}

// AppendJSON appends the JSON in which stores keep the control state.
func (c *Control) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"config":`...)
	dst = jsonx.AppendRaw(dst, c.Config)
	dst = append(dst, `,"k8s_job_name":`...)
	dst = jsonx.AppendOptionalString(dst, c.K8sJobName)
	dst = append(dst, `,"last_attempt_id":`...)
	dst = jsonx.AppendOptionalString(dst, c.LastAttemptID)
	dst = append(dst, `,"error_message":`...)
	dst = jsonx.AppendOptionalString(dst, c.ErrorMessage)
	dst = append(dst, `,"version":`...)
	dst = appendInt(dst, c.Version)
	dst = append(dst, `,"updated_at":`...)
	dst = jsonx.AppendFloat(dst, c.UpdatedAt)
	return append(dst, '}')
}

// MarshalJSON implements [json.Marshaler].
func (c *Control) MarshalJSON() ([]byte, error) {
	if c == nil {
		return []byte("null"), nil
	}
	return c.AppendJSON(nil), nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (c *Control) UnmarshalJSON(data []byte) error {
	var w struct {
		Config        json.RawMessage `json:"config"`
		K8sJobName    *string         `json:"k8s_job_name"`
		LastAttemptID *string         `json:"last_attempt_id"`
		ErrorMessage  *string         `json:"error_message"`
		Version       int64           `json:"version"`
		UpdatedAt     float64         `json:"updated_at"`
	}
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*c = Control(w)
	return nil
}
