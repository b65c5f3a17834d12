package gateway

import (
	"context"
	"encoding/json"
	"net/http"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
)

func (h *handler) putModels(w http.ResponseWriter, r *http.Request, _ params) {
	var f form
	body, ok := h.read(w, r, &f)
	if !ok {
		return
	}
	models := modelsOf(body)
	if h.refused(w, &f) {
		return
	}
	put := h.store.PutModels
	if r.Method == http.MethodPut {
		put = h.store.ReplaceModels
	}
	if err := h.changeModels(r.Context(), func(ctx context.Context) error { return put(ctx, models) }); err != nil {
		h.fail(w, r, err)
		return
	}
	writeModels(w, r.Method, models)
}

func writeModels(w http.ResponseWriter, method string, models []agl.Model) {
	status := http.StatusOK
	if method == http.MethodPost {
		status = http.StatusCreated
	}
	out := []byte{'['}
	for i, m := range models {
		if i > 0 {
			out = append(out, ',')
		}
		m.APIKey = "" // what was given is never shown again
		text, err := json.Marshal(m)
		if err != nil { // strings and numbers only
			continue
		}
		out = jsonx.AppendNormal(out, text)
	}
	writeJSON(w, status, append(out, ']'))
}

func modelsOf(body field) []agl.Model {
	items := body.list()
	models := make([]agl.Model, len(items))
	for i, item := range items {
		models[i] = modelOf(item)
	}
	return models
}

// modelOf reads a model backend: leniently what the protocol declares, strictly
// what is added to it.
func modelOf(v field) (m agl.Model) {
	o, ok := v.model()
	if !ok {
		return m
	}
	known := len(v.form.problems)
	name, hasName := o.need("model")
	if hasName {
		m.Name = name.text()
	}
	endpoint, hasEndpoint := o.need("endpoint")
	if hasEndpoint {
		m.Endpoint = endpoint.text()
	}
	if version := o.get("version"); version.raw != nil {
		m.Version = version.integer()
	}
	if len(v.form.problems) > known {
		return m
	}
	rest := []byte{'{'}
	for _, one := range o.members {
		switch one.Key {
		case "model", "endpoint", "version":
		default:
			rest = append(jsonx.AppendString(separated(rest), one.Key), ':')
			rest = jsonx.AppendNormal(rest, one.Value)
		}
	}
	added := agl.Model{}
	if err := json.Unmarshal(append(rest, '}'), &added); err != nil {
		v.wrong("value_error", err.Error())
		return m
	}
	added.Name, added.Endpoint, added.Version = m.Name, m.Endpoint, m.Version
	if err := added.Validate(); err != nil {
		v.wrong("value_error", err.Error())
	}
	return added
}

// changeModels changes the backends; the next call sees the change.
func (h *handler) changeModels(ctx context.Context, change func(context.Context) error) error {
	if err := change(ctx); err != nil {
		return err
	}
	return h.proxy.Refresh(ctx)
}

func (h *handler) deleteModels(w http.ResponseWriter, r *http.Request, _ params) {
	name := r.URL.Query().Get("model")
	if err := h.changeModels(r.Context(), func(ctx context.Context) error { return h.store.DeleteModels(ctx, name) }); err != nil {
		h.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, []byte(`{"status":"ok"}`))
}

func (h *handler) listModels(w http.ResponseWriter, r *http.Request, _ params) {
	models, err := h.store.Models(r.Context())
	if err != nil {
		h.fail(w, r, err)
		return
	}
	writeModels(w, r.Method, models)
}
