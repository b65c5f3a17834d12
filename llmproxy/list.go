package llmproxy

import (
	"net/http"
	"net/url"
	"slices"

	"agentlightning/internal/jsonx"
	"agentlightning/llm/openai"
	"agentlightning/store"
)

// modelsCreated is what the protocol answers as the creation time of every
// model; clients need a time and do not use it.
const (
	modelsCreated     = 1677610602
	modelsCreatedText = "2023-02-28T18:56:42Z"
)

// appendModel writes a model as the callers of a dialect read it.
func appendModel(b *jsonx.Builder, d *dialect, name string) {
	b.Open('{')
	if d == messages {
		b.Key("type").Text("model").Key("id").Text(name).Key("display_name").Text(name).Key("created_at").Text(modelsCreatedText)
	} else {
		b.Key("id").Text(name).Key("object").Text("model").Key("created").Int(modelsCreated).Key("owned_by").Text("openai")
	}
	b.Close('}')
}

func (p *Proxy) serveModels(w http.ResponseWriter, r *http.Request, d *dialect, at *store.Attempted) {
	names, ok := p.names(w, r, d, at)
	if !ok {
		return
	}
	var b jsonx.Builder
	b.Open('{').Key("data").Open('[')
	for _, name := range names {
		appendModel(&b, d, name)
	}
	b.Close(']')
	if d == messages {
		b.Key("has_more").Word("false")
		edge := func(key string, i int) {
			if b.Key(key); len(names) == 0 {
				b.Word("null")
			} else {
				b.Text(names[i])
			}
		}
		edge("first_id", 0)
		edge("last_id", len(names)-1)
	} else {
		b.Key("object").Text("list")
	}
	writeJSON(w, http.StatusOK, b.Close('}').Bytes)
}

// serveModel serves one model, named by the rest of a path.
func (p *Proxy) serveModel(w http.ResponseWriter, r *http.Request, d *dialect, at *store.Attempted, escaped string) {
	names, ok := p.names(w, r, d, at)
	if !ok {
		return
	}
	name, err := url.PathUnescape(escaped)
	if err != nil || !slices.Contains(names, name) {
		d.writeError(w, http.StatusNotFound, &openai.Error{
			Message: p.models.unknownModel(name), Type: openai.TypeInvalidRequest, Param: "model", Code: "model_not_found",
		})
		return
	}
	var b jsonx.Builder
	appendModel(&b, d, name)
	writeJSON(w, http.StatusOK, b.Bytes)
}

// names returns the models; it answers the caller when it cannot.
func (p *Proxy) names(w http.ResponseWriter, r *http.Request, d *dialect, at *store.Attempted) ([]string, bool) {
	if at != nil && p.findAttempt(w, r, d, *at) == nil {
		return nil, false
	}
	names, err := p.models.names(r.Context())
	if err != nil {
		d.writeError(w, http.StatusServiceUnavailable, p.noModels(r.Context(), err))
		return nil, false
	}
	return names, true
}
