package gateway

import (
	"math"
	"strconv"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
	"agentlightning/store"
)

// defaultTimeout is the time limit, in seconds, of a rollout that names none.
const defaultTimeout = 3600

// appendConfig appends the configuration of a rollout as controllers read it.
// That of a rollout of the 0.3 protocol has its time limit.
func appendConfig(dst []byte, ro *agl.Rollout) []byte {
	if ro.Control != nil && len(ro.Control.Config) > len("{}") {
		return append(dst, ro.Control.Config...)
	}
	limit := int64(defaultTimeout)
	if ro.Control == nil {
		limit = 0
		if t := ro.Config.TimeoutSeconds; t != nil {
			limit = int64(math.Ceil(*t))
		}
	}
	dst = strconv.AppendInt(append(dst, `{"timeout_seconds":`...), limit, 10)
	return append(dst, `,"local":null,"k8s":null}`...)
}

// The members of the metadata that the protocol declares, in its order.
var declaredMetadata = [...]string{"batch_idx", "sample_idx_in_batch"}

func appendMetadata(dst []byte, ro *agl.Rollout) []byte {
	members, err := jsonx.Members(ro.Metadata)
	if err != nil {
		members = nil // there is none
	}
	dst = append(dst, '{')
	for i, name := range declaredMetadata {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(jsonx.AppendString(dst, name), ':')
		dst = jsonx.AppendRaw(dst, jsonx.Get(members, name))
	}
	for _, m := range members {
		if m.Key == declaredMetadata[0] || m.Key == declaredMetadata[1] {
			continue
		}
		dst = append(jsonx.AppendString(append(dst, ','), m.Key), ':')
		dst = append(dst, m.Value...)
	}
	return append(dst, '}')
}

// lifecycle returns the control state of a rollout; that of one of the 0.3
// protocol is made up from its attempts.
func lifecycle(ro *agl.AttemptedRollout) agl.Control {
	var c agl.Control
	if ro.Control != nil {
		c = *ro.Control
	} else {
		c = agl.Control{Version: 1, UpdatedAt: ro.StartTime}
		if a := ro.Attempt; a != nil {
			c.LastAttemptID, c.UpdatedAt = &a.AttemptID, a.StartTime
		}
		switch s := store.ControlState(ro.Status); {
		case s.Terminal():
			c.Version = 3
			if ro.EndTime != nil {
				c.UpdatedAt = *ro.EndTime
			}
		case s == Running:
			c.Version = 2
		}
	}
	if c.ErrorMessage == nil {
		c.ErrorMessage = endedBy(ro)
	}
	return c
}

// endedBy says why a rollout failed where a status of the 0.3 protocol tells.
func endedBy(ro *agl.AttemptedRollout) *string {
	switch {
	case ro.Status == agl.RolloutCancelled:
		return new("cancelled")
	case ro.Status != agl.RolloutFailed || ro.Attempt == nil:
	case ro.Attempt.Status == agl.AttemptTimeout, ro.Attempt.Status == agl.AttemptUnresponsive:
		return new("attempt " + ro.Attempt.AttemptID + ": " + string(ro.Attempt.Status))
	}
	return nil
}

func appendRollout(dst []byte, ro *agl.AttemptedRollout) []byte {
	c := lifecycle(ro)
	dst = jsonx.AppendString(append(dst, `{"rollout_id":`...), ro.RolloutID)
	dst = jsonx.AppendRaw(append(dst, `,"input":`...), ro.Input)
	dst = strconv.AppendBool(append(dst, `,"is_train":`...), isTrain(&ro.Rollout))
	dst = appendConfig(append(dst, `,"config":`...), &ro.Rollout)
	dst = appendMetadata(append(dst, `,"metadata":`...), &ro.Rollout)
	dst = jsonx.AppendString(append(dst, `,"status":{"state":`...), string(store.ControlState(ro.Status)))
	dst = jsonx.AppendOptionalString(append(dst, `,"k8s_job_name":`...), c.K8sJobName)
	dst = jsonx.AppendOptionalString(append(dst, `,"last_attempt_id":`...), c.LastAttemptID)
	dst = jsonx.AppendOptionalString(append(dst, `,"error_message":`...), c.ErrorMessage)
	dst = strconv.AppendInt(append(dst, `,"version":`...), c.Version, 10)
	dst = jsonx.AppendFloat(append(dst, `,"created_at":`...), ro.StartTime)
	dst = jsonx.AppendFloat(append(dst, `,"updated_at":`...), c.UpdatedAt)
	return append(dst, "}}"...)
}

func isTrain(ro *agl.Rollout) bool { return ro.Mode != agl.ModeVal && ro.Mode != agl.ModeTest }

// lastAttempt is the attempt whose events count.
func lastAttempt(ro *agl.AttemptedRollout) string {
	if c := lifecycle(ro); c.LastAttemptID != nil && *c.LastAttemptID != "" {
		return *c.LastAttemptID
	}
	return store.DefaultAttemptID
}

// appendTerminal appends a rollout as the log of completions shows it.
func appendTerminal(dst []byte, ro *agl.Rollout) []byte {
	dst = jsonx.AppendString(append(dst, `{"rollout_id":`...), ro.RolloutID)
	dst = jsonx.AppendString(append(dst, `,"state":`...), string(store.ControlState(ro.Status)))
	dst = jsonx.AppendString(append(dst, `,"data_id":`...), dataID(ro.Input))
	dst = strconv.AppendBool(append(dst, `,"is_train":`...), isTrain(ro))
	return append(dst, '}')
}

// dataID returns what names the sample of a rollout, as text.
func dataID(input jsonx.Raw) string {
	if jsonx.KindOf(input) != jsonx.Object {
		return ""
	}
	members, err := jsonx.Members(input)
	if err != nil {
		return ""
	}
	for _, name := range [...]string{"data_id", "instance_id"} {
		if v := jsonx.Get(members, name); truthy(v) {
			return plainText(v)
		}
	}
	return ""
}

// truthy tells whether Python takes a value as true; nil is not.
func truthy(v jsonx.Raw) bool {
	switch jsonx.KindOf(v) {
	case jsonx.Bool:
		return v[0] == 't'
	case jsonx.Number:
		f, err := strconv.ParseFloat(string(v), 64)
		return err != nil || f != 0
	case jsonx.String:
		return len(v) > len(`""`)
	case jsonx.Array:
		elements, err := jsonx.Elements(v)
		return err == nil && len(elements) > 0
	case jsonx.Object:
		members, err := jsonx.Members(v)
		return err == nil && len(members) > 0
	case jsonx.Invalid, jsonx.Null:
	}
	return false
}

// plainText is a value as text: strings as they are, truth as Python spells it,
// anything else as JSON.
func plainText(v jsonx.Raw) string {
	switch jsonx.KindOf(v) {
	case jsonx.String:
		if s, err := jsonx.Text(v); err == nil {
			return s
		}
	case jsonx.Bool:
		if v[0] == 't' {
			return "True"
		}
	case jsonx.Invalid, jsonx.Null, jsonx.Number, jsonx.Array, jsonx.Object:
	}
	return string(v)
}
