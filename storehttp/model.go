package storehttp

import (
	"context"
	"net/http"

	agl "agentlightning"
	"agentlightning/store"
)

// listModels leaves out the keys of the backends unless the query asks for
// them, so that they do not end up on screens and in logs.
func (h *handler) listModels(c *call) answer {
	models, err := h.store.Models(c.Context())
	if err != nil {
		return failed(err)
	}
	if c.URL.Query().Get("keys") != "true" {
		for i := range models {
			models[i].APIKey = ""
		}
	}
	return encoded(http.StatusOK, notNil(models))
}

func (h *handler) putModels(c *call) answer { return h.takeModels(c, h.store.PutModels) }

func (h *handler) replaceModels(c *call) answer { return h.takeModels(c, h.store.ReplaceModels) }

func (h *handler) takeModels(c *call, take func(context.Context, []agl.Model) error) answer {
	models, refused := bodyOf[[]agl.Model](h, c)
	if refused != nil {
		return *refused
	}
	if err := take(c.Context(), models); err != nil {
		return failed(err)
	}
	return ok([]byte("{}"))
}

// deleteModels forgets the backends that the query names, or all. Endpoints
// without a name would forget more than was asked.
func (h *handler) deleteModels(c *call) answer {
	query := c.URL.Query()
	if query.Get("name") == "" && query.Has("endpoint") {
		return failed(&store.Error{Kind: store.ErrInvalid, Message: "endpoint: needs the name of the model beside it"})
	}
	if err := h.store.DeleteModels(c.Context(), query.Get("name"), query["endpoint"]...); err != nil {
		return failed(err)
	}
	return ok([]byte("{}"))
}
