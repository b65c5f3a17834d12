package daemon

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
)

// withToken asks for the server's token on every request that open does not let through.
func withToken(next http.Handler, token string, open func(*http.Request) bool) http.Handler {
	if token == "" {
		return next
	}
	want := sha256.Sum256([]byte(token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(presented(r)))
		if subtle.ConstantTimeCompare(got[:], want[:]) == 1 || open(r) {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("WWW-Authenticate", "Bearer")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"detail":"this server asks for a token: send it as 'Authorization: Bearer TOKEN'"}`))
	})
}

// presented returns the token of a request, in either of the ways that the
// clients of OpenAI and Anthropic send theirs.
func presented(r *http.Request) string {
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return token
	}
	return r.Header.Get("X-Api-Key")
}
