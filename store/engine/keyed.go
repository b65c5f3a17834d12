package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	agl "agentlightning"
	"agentlightning/store"
)

// keyed is a call that carries a key, see [store.WithKey]. Its answer is
// remembered in the transaction that does what it asks for, so that no end of
// the process comes between the two. Nil is a call without a key.
type keyed struct {
	key     string
	request string // digest of the arguments
}

func keyOf(ctx context.Context, call string, args any) (*keyed, error) {
	key := store.Key(ctx)
	if key == "" {
		return nil, nil
	}
	text, err := json.Marshal(args)
	if err != nil {
		return nil, invalid("%s: %v", call, err)
	}
	digest := sha256.Sum256(text)
	return &keyed{key: call + "/" + key, request: hex.EncodeToString(digest[:16])}, nil
}

// keyOfSpans is [keyOf] for spans.
func keyOfSpans(ctx context.Context, spans []store.EncodedSpan) (*keyed, error) {
	if store.Key(ctx) == "" {
		return nil, nil
	}
	texts := make([]string, len(spans))
	for i := range spans {
		texts[i] = string(spans[i].JSON)
	}
	return keyOf(ctx, "spans", texts)
}

// remembered is what is kept of a keyed call.
type remembered struct {
	Request string          `json:"q"`
	Answer  json.RawMessage `json:"a"`
}

// recall reads the answer of an earlier call with this key and reports whether
// there was one.
func (c *change) recall(k *keyed, answer any) (bool, error) {
	if k == nil {
		return false, nil
	}
	text, found, err := c.Answer(k.key, c.now)
	if err != nil || !found {
		return false, err
	}
	var r remembered
	if err := json.Unmarshal(text, &r); err != nil {
		return false, fmt.Errorf("read the answer of key %q: %w", k.key, err)
	}
	if r.Request != k.request {
		return false, &store.Error{
			Kind:    store.ErrKeyReused,
			Message: "the key was used for another request; use a new key for each request",
		}
	}
	if err := json.Unmarshal(r.Answer, answer); err != nil {
		return false, fmt.Errorf("read the answer of key %q: %w", k.key, err)
	}
	return true, nil
}

// keep remembers the answer of a keyed call.
func (c *change) keep(k *keyed, answer any) error {
	if k == nil {
		return nil
	}
	raw, err := json.Marshal(answer)
	if err == nil {
		raw, err = json.Marshal(remembered{k.request, raw})
	}
	if err != nil {
		return fmt.Errorf("remember the answer of key %q: %w", k.key, err)
	}
	return c.PutAnswer(k.key, raw, c.now+answerLifetime.Seconds())
}

// Rollouts and attempts are remembered by name: a repetition sees what became of
// them, and an answer costs next to nothing to keep.

func rolloutIDs(rollouts []agl.Rollout) []string {
	ids := make([]string, len(rollouts))
	for i := range rollouts {
		ids[i] = rollouts[i].RolloutID
	}
	return ids
}

func (c *change) rolloutsNamed(ids []string) ([]agl.Rollout, error) {
	found, err := c.Rollouts(ids)
	if err != nil {
		return nil, err
	}
	out := make([]agl.Rollout, 0, len(ids))
	for _, id := range ids {
		if ro, ok := found[id]; ok {
			out = append(out, ro)
		}
	}
	return out, nil
}

func (c *change) attemptNamed(n claimed) (agl.AttemptedRollout, error) {
	ro, err := rollout(c, n.RolloutID)
	if err != nil {
		return agl.AttemptedRollout{}, err
	}
	a, ok, err := c.Attempt(n.RolloutID, n.AttemptID)
	if err == nil && !ok {
		err = unknownAttempt(n.RolloutID, n.AttemptID)
	}
	return agl.AttemptedRollout{Rollout: ro, Attempt: &a}, err
}

// spanOutcome is how the outcome for one span is remembered.
type spanOutcome struct {
	Stored  bool   `json:"s,omitempty"`
	Refused string `json:"e,omitempty"`
}

// keepSpans remembers what became of spans, unless all were refused: then
// nothing was done that a repetition could do twice.
func (c *change) keepSpans(k *keyed, out []store.SpanOutcome) error {
	if k == nil {
		return nil
	}
	outcomes := make([]spanOutcome, len(out))
	refused := 0
	for i := range out {
		outcomes[i].Stored = out[i].Stored
		if out[i].Err != nil {
			outcomes[i].Refused = out[i].Err.Error()
			refused++
		}
	}
	if refused == len(out) {
		return nil
	}
	return c.keep(k, outcomes)
}

// recallSpans fills in what became of spans when they were first sent.
func (c *change) recallSpans(k *keyed, out []store.SpanOutcome) (bool, error) {
	var outcomes []spanOutcome
	known, err := c.recall(k, &outcomes)
	if err != nil || !known {
		return false, err
	}
	if len(outcomes) != len(out) {
		return false, fmt.Errorf("the answer of key %q is for %d spans, not %d", k.key, len(outcomes), len(out))
	}
	for i, o := range outcomes {
		out[i].Stored = o.Stored
		if o.Refused != "" {
			out[i].Err = notFound("%s", o.Refused)
		}
	}
	return true, nil
}
