package storehttp

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"time"

	"agentlightning/internal/jsonx"
	"agentlightning/store"
)

// TokenSigner makes tokens that open the server for one attempt.
type TokenSigner interface {
	Issue(at store.Attempted, expires time.Time) string
}

// unchecked makes the tokens of a server that asks for none.
type unchecked struct{}

func (unchecked) Issue(store.Attempted, time.Time) string { return rand.Text() }

const (
	tokenLifetime    = 24 * time.Hour
	maxTokenLifetime = 30 * 24 * time.Hour
)

// attemptToken issues a token for an agent.
func (h *handler) attemptToken(c *call) answer {
	o, given, refused := h.bodyObject(c, false)
	if refused != nil {
		return *refused
	}
	lifetime := tokenLifetime
	if given {
		if seconds := o.floatOrNull("lifetime_seconds"); seconds != nil {
			if c.valid() && !(*seconds > 0 && *seconds <= maxTokenLifetime.Seconds()) {
				return failed(&refusal{http.StatusBadRequest, fmt.Sprintf(
					"lifetime_seconds must be more than 0 and at most %.0f", maxTokenLifetime.Seconds())})
			}
			lifetime = time.Duration(*seconds * float64(time.Second))
		}
	}
	if !c.valid() {
		return c.invalid()
	}
	at, err := h.existing(c.Context(), store.Attempted{RolloutID: c.params[0], AttemptID: c.params[1]})
	if err != nil {
		return failed(err)
	}
	expires := time.Now().Add(lifetime).Truncate(time.Second)
	dst := jsonx.AppendString([]byte(`{"token":`), h.config.Tokens.Issue(at, expires))
	dst = jsonx.AppendString(append(dst, `,"rollout_id":`...), at.RolloutID)
	dst = jsonx.AppendString(append(dst, `,"attempt_id":`...), at.AttemptID)
	dst = jsonx.AppendFloat(append(dst, `,"expires_at":`...), float64(expires.Unix()))
	return created(append(dst, '}'))
}

// existing returns the attempt that is named, which may be by "latest".
func (h *handler) existing(ctx context.Context, at store.Attempted) (store.Attempted, error) {
	if at.AttemptID == "latest" {
		a, err := h.store.LatestAttempt(ctx, at.RolloutID)
		at.AttemptID = a.AttemptID
		return at, err
	}
	page, err := h.store.QueryAttempts(ctx, store.AttemptQuery{RolloutID: at.RolloutID})
	if err != nil {
		return at, err
	}
	for i := range page.Items {
		if page.Items[i].AttemptID == at.AttemptID {
			return at, nil
		}
	}
	return at, &store.Error{Kind: store.ErrNotFound, Message: fmt.Sprintf(
		"Attempt %s of rollout %s not found", at.AttemptID, at.RolloutID)}
}

// AttemptToken returns a token that opens the server for one attempt, to be
// given to its agent in place of the client's own. It is empty when the server
// asks for none: when the client has no token, or the server has no such route.
// A lifetime of 0 leaves it to the server.
func (c *Client) AttemptToken(ctx context.Context, at store.Attempted, lifetime time.Duration) (string, error) {
	if c.token == "" {
		return "", nil
	}
	rollout, err := segment(at.RolloutID)
	if err != nil {
		return "", err
	}
	attempt, err := segment(at.AttemptID)
	if err != nil {
		return "", err
	}
	b := newBody()
	if lifetime > 0 {
		b.float("lifetime_seconds", math.Min(lifetime.Seconds(), maxTokenLifetime.Seconds()))
	}
	body, err := b.close()
	if err != nil {
		return "", err
	}
	var issued struct {
		Token string `json:"token"`
	}
	rep, err := c.do(ctx, &request{method: http.MethodPost, path: "/rollouts/" + rollout + "/attempts/" + attempt + "/token", body: body})
	switch {
	case lacksRoute(err):
		return "", nil
	case err != nil:
		return "", err
	}
	err = json.Unmarshal(rep.body, &issued)
	return issued.Token, err
}
