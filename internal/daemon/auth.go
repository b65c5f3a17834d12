package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"strings"
	"time"

	"agentlightning/gateway"
	"agentlightning/internal/access"
	"agentlightning/internal/jsonx"
	"agentlightning/llm/openai"
	"agentlightning/llmproxy"
	"agentlightning/store"
	"agentlightning/storehttp"
)

// secretKeeper is a store that keeps a secret with its data.
type secretKeeper interface {
	Secret(ctx context.Context, name string) ([]byte, error)
}

// newSigner returns what signs the tokens of attempts. With a store that keeps a
// secret they outlive a restart.
func newSigner(ctx context.Context, c Config) (*access.Signer, error) {
	if keeper, ok := c.Store.(secretKeeper); ok && c.AuthToken != "" {
		secret, err := keeper.Secret(ctx, "attempt-tokens")
		if err != nil {
			return nil, err
		}
		return access.NewSigner(c.AuthToken, secret), nil
	}
	return access.NewSigner(c.AuthToken, []byte(rand.Text())), nil
}

// withGuard asks for a token on every request that open does not let through,
// and keeps those that come with the token of an attempt to that attempt.
func withGuard(next http.Handler, guard *access.Guard) http.Handler {
	if guard == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if open(r) {
			next.ServeHTTP(w, r)
			return
		}
		grant, ok, err := guard.Admit(access.Presented(r.Header.Get("Authorization"), r.Header.Get("X-Api-Key")), time.Now())
		switch {
		case !ok:
			refuse(w, r, http.StatusUnauthorized, unauthorized(err))
			return
		case grant.Reader && !looks(r):
			refuse(w, r, http.StatusForbidden, "the token of a reader does not open "+r.Method+" "+r.URL.Path+"; it is for looking at the store")
			return
		case grant.Attempt == nil:
		case !opens(*grant.Attempt, r):
			refuse(w, r, http.StatusForbidden, "the token of an attempt does not open "+r.Method+" "+r.URL.Path+
				"; it is for the model calls and the spans of attempt "+grant.Attempt.AttemptID+" of rollout "+grant.Attempt.RolloutID)
			return
		default:
			r = r.WithContext(access.WithScope(r.Context(), *grant.Attempt))
		}
		next.ServeHTTP(w, r)
	})
}

func unauthorized(err error) string {
	const how = "send it as 'Authorization: Bearer TOKEN', as 'X-Api-Key: TOKEN' or as the password of the address"
	switch {
	case errors.Is(err, access.ErrExpired):
		return err.Error()
	case err != nil:
		return "this server has another token; " + how
	}
	return "this server asks for a token: " + how
}

// opens tells whether the token of an attempt is for this request. What the
// bodies of spans say is looked at by the store that [access.Scoped] makes.
func opens(at store.Attempted, r *http.Request) bool {
	switch area(r.URL.Path) {
	case areaProxy:
		named, ok := llmproxy.AttemptOf(r)
		return ok && named == at
	case areaOTLP, areaPages:
		return true
	case areaStore:
		switch strings.TrimPrefix(r.URL.Path, storehttp.Prefix) {
		case "/spans":
			return true
		case "/spans/next", "/spans/batch", "/spans/next/batch":
			return r.Method == http.MethodPost
		}
	case areaGateway:
		named, ok := gateway.AttemptOf(r)
		return ok && named == at
	}
	return false
}

// looks tells whether a request only reads what is in the store.
func looks(r *http.Request) bool {
	switch area(r.URL.Path) {
	case areaPages:
		return true
	case areaStore:
		path := strings.TrimPrefix(r.URL.Path, storehttp.Prefix)
		if strings.HasPrefix(path, "/queues/") { // to claim is not to look
			return false
		}
		return r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodPost && strings.HasSuffix(path, "/search")
	}
	return false
}

// refuse answers in the words that the caller of this path understands.
func refuse(w http.ResponseWriter, r *http.Request, status int, message string) {
	header := w.Header()
	if status == http.StatusUnauthorized {
		header.Set("WWW-Authenticate", "Bearer")
	}
	if status == http.StatusUnauthorized && area(r.URL.Path) == areaGateway {
		message = "Invalid or missing API key" // as clients of the 1.0 protocol know it
	}
	body := append(jsonx.AppendString([]byte(`{"detail":`), message), '}')
	if area(r.URL.Path) == areaProxy {
		kind, code := "authentication_error", "invalid_api_key"
		if status == http.StatusForbidden {
			kind, code = "permission_error", "forbidden"
		}
		body = llmproxy.AppendError(nil, r, status, &openai.Error{Message: message, Type: kind, Code: code})
	}
	header.Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a caller that is gone needs no answer
}
