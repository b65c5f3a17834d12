package storehttp

import (
	"net/http"

	agl "agentlightning"
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

func (h *handler) putModels(c *call) answer {
	models, refused := bodyOf[[]agl.Model](h, c)
	if refused != nil {
		return *refused
	}
	if err := h.store.PutModels(c.Context(), models); err != nil {
		return failed(err)
	}
	return ok([]byte("{}"))
}

// deleteModels forgets the models of the name in the query, or all.
func (h *handler) deleteModels(c *call) answer {
	if err := h.store.DeleteModels(c.Context(), c.URL.Query().Get("name")); err != nil {
		return failed(err)
	}
	return ok([]byte("{}"))
}
