package storehttp_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"

	"agentlightning/storehttp"
)

// pythonLike takes away what the Python implementation lacks: our routes and
// headers; and answers unknown entities as it does, with status 500.
func pythonLike(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimPrefix(r.URL.Path, storehttp.Prefix)
		if path == "/spans/batch" || path == "/spans/next/batch" || path == "/queues/rollouts/release" || path == "/waits/count" || strings.HasSuffix(path, "/token") || path == "/tokens/reader" ||
			strings.HasPrefix(path, "/runs") || strings.HasPrefix(path, "/models") {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Allow", http.MethodGet)
			w.WriteHeader(http.StatusMethodNotAllowed)
			_, _ = w.Write([]byte(`{"detail":"Method Not Allowed"}`))
			return
		}
		r.Header.Del("Prefer")
		r.Header.Del("Idempotency-Key")
		answer := httptest.NewRecorder()
		next.ServeHTTP(answer, r)
		body := answer.Body.Bytes()
		if answer.Code == http.StatusNotFound && bytes.Contains(body, []byte(`"error_type":"ValueError"`)) {
			answer.Code = http.StatusInternalServerError
			body = bytes.Replace(body, []byte(`"traceback":"`), []byte(`"traceback":"Traceback (most recent call last):\n  ...\n`), 1)
		}
		w.Header().Set("Content-Type", answer.Header().Get("Content-Type"))
		w.WriteHeader(answer.Code)
		_, _ = w.Write(body)
	})
}
