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

// TokenSigner makes tokens that open the server for one attempt, or for looking.
type TokenSigner interface {
	Issue(at store.Attempted, expires time.Time) string
	IssueReader(expires time.Time) string
}

// unchecked makes the tokens of a server that asks for none.
type unchecked struct{}

func (unchecked) Issue(store.Attempted, time.Time) string { return rand.Text() }
func (unchecked) IssueReader(time.Time) string            { return rand.Text() }

const (
	tokenLifetime    = 24 * time.Hour
	maxTokenLifetime = 30 * 24 * time.Hour
)

// lifetime reads how long a token is to last.
func (h *handler) lifetime(c *call) (time.Duration, *answer) {
	o, given, refused := h.bodyObject(c, false)
	if refused != nil {
		return 0, refused
	}
	lifetime := tokenLifetime
	if given {
		if seconds := o.floatOrNull("lifetime_seconds"); seconds != nil {
			if c.valid() && !(*seconds > 0 && *seconds <= maxTokenLifetime.Seconds()) {
				return 0, new(failed(&refusal{http.StatusBadRequest, fmt.Sprintf(
					"lifetime_seconds must be more than 0 and at most %.0f", maxTokenLifetime.Seconds())}))
			}
			lifetime = time.Duration(*seconds * float64(time.Second))
		}
	}
	if !c.valid() {
		return 0, new(c.invalid())
	}
	return lifetime, nil
}

// readerToken issues a token for somebody who looks.
func (h *handler) readerToken(c *call) answer {
	lifetime, refused := h.lifetime(c)
	if refused != nil {
		return *refused
	}
	expires := time.Now().Add(lifetime).Truncate(time.Second)
	dst := jsonx.AppendString([]byte(`{"token":`), h.config.Tokens.IssueReader(expires))
	dst = jsonx.AppendFloat(append(dst, `,"expires_at":`...), float64(expires.Unix()))
	return created(append(dst, '}'))
}

// attemptToken issues a token for an agent.
func (h *handler) attemptToken(c *call) answer {
	lifetime, refused := h.lifetime(c)
	if refused != nil {
		return *refused
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
	return c.issued(ctx, "/rollouts/"+rollout+"/attempts/"+attempt+"/token", lifetime)
}

// ReaderToken returns a token that lets whoever has it look at everything in the
// store and change nothing, such as a trainer. It is empty as that of
// [Client.AttemptToken] is.
func (c *Client) ReaderToken(ctx context.Context, lifetime time.Duration) (string, error) {
	if c.token == "" {
		return "", nil
	}
	return c.issued(ctx, "/tokens/reader", lifetime)
}

func (c *Client) issued(ctx context.Context, path string, lifetime time.Duration) (string, error) {
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
	rep, err := c.do(ctx, &request{method: http.MethodPost, path: path, body: body})
	switch {
	case lacksRoute(err):
		return "", nil
	case err != nil:
		return "", err
	}
	err = json.Unmarshal(rep.body, &issued)
	return issued.Token, err
}
