package storehttp

import (
	"net/http"
	"slices"
	"strings"
)

// CORS lets pages of other origins call next. Blank origins are dropped, "*"
// allows any; without an origin next is returned as it is. Credentials, all
// methods and all headers are allowed.
func CORS(origins []string, next http.Handler) http.Handler {
	var kept []string
	for _, o := range origins {
		if o = strings.TrimSpace(o); o != "" {
			kept = append(kept, o)
		}
	}
	if len(kept) == 0 {
		return next
	}
	return &cors{origins: kept, any: slices.Contains(kept, "*"), next: next}
}

type cors struct {
	origins []string
	any     bool
	next    http.Handler
}

func (c *cors) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	origin := r.Header.Get("Origin")
	header := w.Header()
	if origin == "" {
		header.Add("Vary", "Origin")
		c.next.ServeHTTP(w, r)
		return
	}
	allowed := c.any || slices.Contains(c.origins, origin)
	if allowed {
		header.Set("Access-Control-Allow-Origin", origin)
	}
	header.Set("Access-Control-Allow-Credentials", "true")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		header.Set("Access-Control-Expose-Headers", "*")
		header.Add("Vary", "Origin")
		c.next.ServeHTTP(w, r)
		return
	}
	RequestID(w)
	header.Set("Vary", "Origin, Access-Control-Request-Method, Access-Control-Request-Headers, Access-Control-Request-Private-Network")
	header.Set("Access-Control-Allow-Methods", "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT, QUERY")
	header.Set("Access-Control-Max-Age", "600")
	if asked, given := r.Header["Access-Control-Request-Headers"]; given {
		header.Set("Access-Control-Allow-Headers", strings.Join(asked, ", "))
	}
	header.Set("Content-Type", "text/plain; charset=utf-8")
	if !allowed {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte("Disallowed CORS origin"))
		return
	}
	_, _ = w.Write([]byte("OK"))
}
