package gateway

import (
	"net/http"
	"strconv"
	"time"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
	"agentlightning/store"
)

func (h *handler) createRollouts(w http.ResponseWriter, r *http.Request, _ params) {
	var f form
	body, ok := h.read(w, r, &f)
	if !ok {
		return
	}
	items := body.list()
	reqs := make([]store.ControlRequest, len(items))
	for i, item := range items {
		reqs[i] = controlRequest(item)
	}
	if h.refused(w, &f) {
		return
	}
	rollouts, err := h.store.CreateControlled(r.Context(), reqs)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	out := []byte{'['}
	for i := range rollouts {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendRollout(out, &agl.AttemptedRollout{Rollout: rollouts[i]})
	}
	writeJSON(w, http.StatusCreated, append(out, ']'))
}

func controlRequest(v field) store.ControlRequest {
	o, ok := v.model()
	if !ok {
		return store.ControlRequest{}
	}
	req := store.ControlRequest{Mode: agl.ModeTrain}
	if input, ok := o.need("input"); ok {
		req.Input = input.raw
	}
	if train := o.get("is_train"); train.raw != nil && !train.boolean() {
		req.Mode = agl.ModeVal
	}
	req.Config = config(o.get("config"))
	req.Metadata = metadata(o.get("metadata"))
	if id := o.get("rollout_id").optionalText(); id != nil {
		req.RolloutID = *id
	}
	return req
}

// config reads the configuration of a rollout and returns it as it is answered.
func config(v field) []byte {
	limit := int64(defaultTimeout)
	local, k8s := []byte("null"), []byte("null")
	if v.raw != nil && !v.null() {
		o, ok := v.model()
		if !ok {
			return nil
		}
		if t := o.get("timeout_seconds"); t.raw != nil {
			limit = t.integer()
		}
		local = localConfig(o.get("local"))
		k8s = k8sConfig(o.get("k8s"))
	}
	out := strconv.AppendInt([]byte(`{"timeout_seconds":`), limit, 10)
	out = append(append(out, `,"local":`...), local...)
	return append(append(append(out, `,"k8s":`...), k8s...), '}')
}

func localConfig(v field) []byte {
	if v.raw == nil || v.null() {
		return []byte("null")
	}
	o, ok := v.model()
	if !ok {
		return nil
	}
	out := jsonx.AppendOptionalString([]byte(`{"agent_class":`), o.get("agent_class").optionalText())
	out = append(out, `,"env_map":{`...)
	if env := o.get("env_map"); env.raw != nil {
		variables, _ := env.dict()
		for i, m := range variables.members {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(jsonx.AppendString(out, m.Key), ':')
			out = jsonx.AppendString(out, variables.get(m.Key).text())
		}
	}
	return append(out, "}}"...)
}

func k8sConfig(v field) []byte {
	if v.raw == nil || v.null() {
		return []byte("null")
	}
	o, ok := v.model()
	if !ok {
		return nil
	}
	return append(jsonx.AppendOptionalString([]byte(`{"job_template":`), o.get("job_template").optionalText()), '}')
}

// metadata reads the metadata of a rollout; the members that the protocol
// declares become ints and come first.
func metadata(v field) []byte {
	if v.raw == nil || v.null() {
		return nil
	}
	o, ok := v.dict()
	if !ok {
		return nil
	}
	out := []byte{'{'}
	for _, name := range declaredMetadata {
		if n := o.get(name); n.raw != nil && !n.null() {
			out = append(jsonx.AppendString(separated(out), name), ':')
			out = strconv.AppendInt(out, n.integer(), 10)
		}
	}
	for _, m := range o.members {
		if m.Key == declaredMetadata[0] || m.Key == declaredMetadata[1] {
			continue
		}
		out = append(jsonx.AppendString(separated(out), m.Key), ':')
		out = append(out, m.Value...)
	}
	return append(out, '}')
}

// separated appends a comma unless the last byte opens an object.
func separated(dst []byte) []byte {
	if dst[len(dst)-1] == '{' {
		return dst
	}
	return append(dst, ',')
}

// defaultRollouts is how many rollouts a list has unless told otherwise.
const defaultRollouts = 500

func (h *handler) listRollouts(w http.ResponseWriter, r *http.Request, _ params) {
	var f form
	q := query{&f, r.URL.Query()}
	found := store.RolloutQuery{Controlled: true, StatusIn: []agl.RolloutStatus{}}
	states := q.values["state_in"]
	if len(states) == 0 {
		q.field("state_in").wrong("missing", "Field required")
	}
	for i, s := range states {
		v := field{&f, strconv.AppendInt([]byte(`["query","state_in",`), int64(i), 10), jsonx.AppendString(nil, s)}
		if state := v.state(); state != "" {
			found.StatusIn = append(found.StatusIn, statusesOf(state)...)
		}
	}
	limit := q.integer("limit", defaultRollouts)
	if limit < 0 {
		q.field("limit").wrong("greater_than_equal", "Input should be greater than or equal to 0")
	}
	if h.refused(w, &f) {
		return
	}
	out := []byte{'['}
	if limit > 0 { // to the store no limit is 0
		found.Limit = int(limit)
		page, err := h.store.QueryRollouts(r.Context(), found)
		if err != nil {
			h.fail(w, r, err)
			return
		}
		for i := range page.Items {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendRollout(out, &page.Items[i])
		}
	}
	writeJSON(w, http.StatusOK, append(out, ']'))
}

const (
	// defaultCompletions is how many entries of the log a page has unless told
	// otherwise, maxCompletions how many at the most.
	defaultCompletions = 1000
	maxCompletions     = 100_000
	// maxWait bounds how long a caller may wait for the log to grow.
	maxWait = 10 * time.Minute
)

func (h *handler) terminalRollouts(w http.ResponseWriter, r *http.Request, _ params) {
	var f form
	q := query{&f, r.URL.Query()}
	after, limit := q.integer("after", 0), q.integer("limit", defaultCompletions)
	asked := store.CompletionQuery{After: max(after, 0), Limit: int(min(max(limit, 1), maxCompletions))}
	asked.Wait = waitOf(q)
	if h.refused(w, &f) {
		return
	}
	page, err := h.store.Completions(r.Context(), asked)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	out := []byte(`{"items":[`)
	for i := range page.Rollouts {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendTerminal(out, &page.Rollouts[i])
	}
	out = strconv.AppendInt(append(out, `],"next_after":`...), page.Next, 10)
	out = strconv.AppendInt(append(out, `,"total_terminal":`...), page.Total, 10)
	writeJSON(w, http.StatusOK, append(out, '}'))
}

// waitOf returns how long a caller is ready to wait for something new.
func waitOf(q query) time.Duration {
	text, ok := q.text("wait")
	if !ok {
		return 0
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || !(seconds >= 0 && seconds <= maxWait.Seconds()) {
		q.field("wait").wrong("float_parsing", "Input should be a number of seconds from 0 to "+strconv.Itoa(int(maxWait.Seconds())))
		return 0
	}
	return time.Duration(seconds * float64(time.Second))
}

func (h *handler) oneRollout(w http.ResponseWriter, r *http.Request, p params) {
	ro, err := h.store.Rollout(r.Context(), p.rollout)
	if err != nil {
		h.failOf(w, r, p.rollout, err)
		return
	}
	attempts, err := h.store.EventAttempts(r.Context(), p.rollout)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	out := appendRollout([]byte(`{"rollout":`), &ro)
	out = append(out, `,"attempts":[`...)
	for i, id := range attempts {
		if i > 0 {
			out = append(out, ',')
		}
		out = jsonx.AppendString(out, id)
	}
	writeJSON(w, http.StatusOK, append(out, "]}"...))
}

func (h *handler) patchRollout(w http.ResponseWriter, r *http.Request, p params) {
	var f form
	body, ok := h.read(w, r, &f)
	if !ok {
		return
	}
	u := controlUpdate(body)
	if h.refused(w, &f) {
		return
	}
	ro, err := h.store.UpdateControlled(r.Context(), p.rollout, u)
	if err != nil {
		h.failOf(w, r, p.rollout, err)
		return
	}
	whole := agl.AttemptedRollout{Rollout: ro}
	if ro.Control == nil { // its lifecycle is that of its attempts
		if whole, err = h.store.Rollout(r.Context(), p.rollout); err != nil {
			h.failOf(w, r, p.rollout, err)
			return
		}
	}
	writeJSON(w, http.StatusOK, appendRollout(nil, &whole))
}

func controlUpdate(body field) (u store.ControlUpdate) {
	o, ok := body.model()
	if !ok {
		return u
	}
	status := o.get("status")
	if status.raw == nil || status.null() {
		return u
	}
	s, ok := status.model()
	if !ok {
		return u
	}
	if v := s.get("state"); v.raw != nil {
		u.State.Given = true
		if !v.null() {
			u.State.Value = v.state()
		}
	}
	for _, m := range []struct {
		name string
		set  *store.Set[*string]
	}{
		{"k8s_job_name", &u.K8sJobName},
		{"last_attempt_id", &u.LastAttemptID},
		{"error_message", &u.ErrorMessage},
	} {
		if v := s.get(m.name); v.raw != nil {
			*m.set = store.To(v.optionalText())
		}
	}
	for _, m := range s.members {
		switch m.Key {
		case "state", "k8s_job_name", "last_attempt_id", "error_message":
		default:
			s.get(m.Key).wrong("extra_forbidden", "Extra inputs are not permitted")
		}
	}
	return u
}

func (h *handler) deleteRollout(w http.ResponseWriter, r *http.Request, p params) {
	if err := h.store.DeleteRollout(r.Context(), p.rollout); err != nil {
		h.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json") // of nothing, as clients know it
	w.WriteHeader(http.StatusNoContent)
}
