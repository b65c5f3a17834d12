package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	agl "agentlightning"
)

// Client talks to a server of the 1.0 protocol, ours or the Python one. Its
// zero value needs a BaseURL. It is safe for concurrent use.
type Client struct {
	// BaseURL is the root of the server, such as http://127.0.0.1:4747.
	BaseURL string
	// Token is sent as a bearer token; empty sends none.
	Token string
	// HTTP is the client to use; nil means one with the transport's defaults.
	HTTP *http.Client
}

// Error is the refusal of a server.
type Error struct {
	Method, Path string
	Status       int
	// Detail is what the server says, as text or as JSON.
	Detail string
}

// Error names the request, the status and what the server said.
func (e *Error) Error() string {
	return fmt.Sprintf("%s %s: %d %s: %s", e.Method, e.Path, e.Status, http.StatusText(e.Status), e.Detail)
}

// IsNotFound tells whether a server does not know what it was asked for.
func IsNotFound(err error) bool { return hasStatus(err, http.StatusNotFound) }

// IsConflict tells whether a server refused a change of state.
func IsConflict(err error) bool { return hasStatus(err, http.StatusConflict) }

func hasStatus(err error, status int) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == status
}

// Rollout is a rollout as the protocol has it.
type Rollout struct {
	RolloutID string          `json:"rollout_id"`
	Input     json.RawMessage `json:"input"`
	IsTrain   bool            `json:"is_train"`
	Config    RolloutConfig   `json:"config"`
	Metadata  json.RawMessage `json:"metadata"`
	Status    Status          `json:"status"`
}

// RolloutConfig is what a controller reads.
type RolloutConfig struct {
	// TimeoutSeconds limits the execution; 0 means no limit.
	TimeoutSeconds int64        `json:"timeout_seconds"`
	Local          *LocalConfig `json:"local,omitempty"`
	K8s            *K8sConfig   `json:"k8s,omitempty"`
}

// LocalConfig is for controllers that start processes.
type LocalConfig struct {
	AgentClass *string           `json:"agent_class,omitempty"`
	EnvMap     map[string]string `json:"env_map,omitempty"`
}

// K8sConfig is for controllers that start Kubernetes Jobs.
type K8sConfig struct {
	JobTemplate *string `json:"job_template,omitempty"`
}

// Status is where a rollout stands.
type Status struct {
	State         State   `json:"state"`
	K8sJobName    *string `json:"k8s_job_name"`
	LastAttemptID *string `json:"last_attempt_id"`
	ErrorMessage  *string `json:"error_message"`
	Version       int64   `json:"version"`
	CreatedAt     float64 `json:"created_at"` // Unix seconds
	UpdatedAt     float64 `json:"updated_at"` // Unix seconds
}

// RolloutCreate asks for a rollout.
type RolloutCreate struct {
	Input json.RawMessage `json:"input"` // nil is null
	// IsTrain is true unless told otherwise.
	IsTrain  *bool           `json:"is_train,omitempty"`
	Config   *RolloutConfig  `json:"config,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"` // an object
	// RolloutID makes the creation safe to repeat; empty means a fresh id.
	RolloutID string `json:"rollout_id,omitempty"`
}

// StatusPatch changes the fields that are set. A pointer to nil clears one.
type StatusPatch struct {
	State         State
	K8sJobName    **string
	LastAttemptID **string
	ErrorMessage  **string
}

// MarshalJSON implements [json.Marshaler].
func (p StatusPatch) MarshalJSON() ([]byte, error) {
	fields := map[string]any{}
	if p.State != "" {
		fields["state"] = p.State
	}
	for name, v := range map[string]**string{
		"k8s_job_name": p.K8sJobName, "last_attempt_id": p.LastAttemptID, "error_message": p.ErrorMessage,
	} {
		if v != nil {
			fields[name] = *v
		}
	}
	return json.Marshal(fields)
}

// RolloutDetail is a rollout with the attempts that have events.
type RolloutDetail struct {
	Rollout  Rollout  `json:"rollout"`
	Attempts []string `json:"attempts"`
}

// Event is something that happened during an attempt.
type Event struct {
	EventType string          `json:"event_type"`
	RolloutID string          `json:"rollout_id"`
	AttemptID string          `json:"attempt_id"`
	Timestamp float64         `json:"timestamp"` // Unix seconds
	Data      json.RawMessage `json:"data"`
}

// EventQuery selects events of the last attempt of a rollout.
type EventQuery struct {
	// Type is the type that events must have; nil means any.
	Type *string
	// Triplets asks for the view that training reads.
	Triplets bool
	// WithoutRoutedExperts leaves out the expert routes.
	WithoutRoutedExperts bool
}

// TerminalPage is a part of the log of rollouts that ended.
type TerminalPage struct {
	Items         []TerminalItem `json:"items"`
	NextAfter     int64          `json:"next_after"`
	TotalTerminal int64          `json:"total_terminal"`
}

// TerminalItem is a rollout that ended.
type TerminalItem struct {
	RolloutID string `json:"rollout_id"`
	State     State  `json:"state"`
	DataID    string `json:"data_id"`
	IsTrain   bool   `json:"is_train"`
}

// PauseRequest pauses model calls.
type PauseRequest struct {
	// RetryAfterSeconds is what refused callers are told; nil means 5.
	RetryAfterSeconds *int64  `json:"retry_after_seconds,omitempty"`
	Reason            *string `json:"reason,omitempty"`
	// Owner, LeaseSeconds and Hold are ours: who pauses, after what time the pause
	// ends by itself, and whether calls wait in place of being refused.
	Owner        string   `json:"owner,omitempty"`
	LeaseSeconds *float64 `json:"lease_seconds,omitempty"`
	Hold         bool     `json:"hold,omitempty"`
}

// PauseState is the state of the proxy.
type PauseState struct {
	Paused            bool     `json:"paused"`
	RetryAfterSeconds int64    `json:"retry_after_seconds"`
	Reason            *string  `json:"reason"`
	Inflight          int64    `json:"inflight"`
	Owner             string   `json:"owner"`
	LeaseSeconds      *float64 `json:"lease_seconds"` // left of the lease; nil for none
	Hold              bool     `json:"hold"`
	Held              int64    `json:"held"` // calls that wait
}

// Health returns an error unless the server is there.
func (c *Client) Health(ctx context.Context) error {
	return c.do(ctx, http.MethodGet, "/healthz", nil, nil)
}

// CreateRollouts makes rollouts. Those whose id is known are returned as they are.
func (c *Client) CreateRollouts(ctx context.Context, reqs ...RolloutCreate) ([]Rollout, error) {
	if reqs == nil {
		reqs = []RolloutCreate{}
	}
	var out []Rollout
	return out, c.do(ctx, http.MethodPost, "/api/rollouts", reqs, &out)
}

// Rollouts lists up to limit rollouts in any of the states, the oldest first. A
// limit of 0 leaves it to the server, which takes 500.
func (c *Client) Rollouts(ctx context.Context, limit int, states ...State) ([]Rollout, error) {
	q := url.Values{}
	for _, s := range states {
		q.Add("state_in", string(s))
	}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	var out []Rollout
	return out, c.do(ctx, http.MethodGet, withQuery("/api/rollouts", q), nil, &out)
}

// Rollout returns one rollout.
func (c *Client) Rollout(ctx context.Context, rolloutID string) (RolloutDetail, error) {
	var out RolloutDetail
	return out, c.do(ctx, http.MethodGet, rolloutPath(rolloutID), nil, &out)
}

// PatchRollout changes the status of a rollout.
func (c *Client) PatchRollout(ctx context.Context, rolloutID string, p StatusPatch) (Rollout, error) {
	var out Rollout
	return out, c.do(ctx, http.MethodPatch, rolloutPath(rolloutID), map[string]any{"status": p}, &out)
}

// DeleteRollout removes a rollout with its events; an unknown one is no error.
func (c *Client) DeleteRollout(ctx context.Context, rolloutID string) error {
	return c.do(ctx, http.MethodDelete, rolloutPath(rolloutID), nil, nil)
}

// Terminal reads the log of rollouts that ended, from a position on. With a wait
// our server answers once there is an entry, or when the wait is over; the
// Python one answers at once. A limit of 0 leaves it to the server.
func (c *Client) Terminal(ctx context.Context, after int64, limit int, wait time.Duration) (TerminalPage, error) {
	q := url.Values{"after": {strconv.FormatInt(after, 10)}}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	if wait > 0 {
		q.Set("wait", strconv.FormatFloat(wait.Seconds(), 'f', -1, 64))
	}
	var out TerminalPage
	return out, c.do(ctx, http.MethodGet, withQuery("/api/rollouts/terminal", q), nil, &out)
}

// PostEvent adds an event to an attempt. Data is an object; nil means {}.
func (c *Client) PostEvent(ctx context.Context, rolloutID, attemptID, kind string, data json.RawMessage) (Event, error) {
	body := map[string]any{"event_type": kind}
	if data != nil {
		body["data"] = data
	}
	var out Event
	return out, c.do(ctx, http.MethodPost, rolloutPath(rolloutID)+"/attempt/"+url.PathEscape(attemptID)+"/events", body, &out)
}

// Events lists the events of the last attempt of a rollout in the order in which
// they came.
func (c *Client) Events(ctx context.Context, rolloutID string, sel EventQuery) ([]Event, error) {
	q := url.Values{}
	if sel.Type != nil {
		q.Set("event_type", *sel.Type)
	}
	if sel.Triplets {
		q.Set("format", "triplet")
	}
	if sel.WithoutRoutedExperts {
		q.Set("include_routed_experts", "false")
	}
	var out []Event
	return out, c.do(ctx, http.MethodGet, withQuery(rolloutPath(rolloutID)+"/events", q), nil, &out)
}

// PutModels offers model backends to the server's proxy.
func (c *Client) PutModels(ctx context.Context, models ...agl.Model) error {
	return c.do(ctx, http.MethodPost, "/api/models", models, nil)
}

// ReplaceModels makes the backends of each name among models exactly those
// given, with no moment in between at which there are none. The Python server
// lacks it.
func (c *Client) ReplaceModels(ctx context.Context, models ...agl.Model) error {
	return c.do(ctx, http.MethodPut, "/api/models", models, nil)
}

// Models lists the model backends, keys left out. The Python server lacks it.
func (c *Client) Models(ctx context.Context) ([]agl.Model, error) {
	var out []agl.Model
	return out, c.do(ctx, http.MethodGet, "/api/models", nil, &out)
}

// DeleteModels withdraws the backends of a name; an empty name withdraws all, and
// so does any to the Python server.
func (c *Client) DeleteModels(ctx context.Context, name string) error {
	q := url.Values{}
	if name != "" {
		q.Set("model", name)
	}
	return c.do(ctx, http.MethodDelete, withQuery("/api/models", q), nil, nil)
}

// Pause keeps model calls out; those under way go on.
func (c *Client) Pause(ctx context.Context, p PauseRequest) (PauseState, error) {
	var out PauseState
	return out, c.do(ctx, http.MethodPost, "/proxy/pause", p, &out)
}

// Resume lets model calls in again. Owner is that of the pause, empty for none.
func (c *Client) Resume(ctx context.Context, owner string) (PauseState, error) {
	body := map[string]string{}
	if owner != "" {
		body["owner"] = owner
	}
	var out PauseState
	return out, c.do(ctx, http.MethodPost, "/proxy/resume", body, &out)
}

// ProxyState returns the state of the proxy; with a wait, once no call is under
// way or when the wait is over.
func (c *Client) ProxyState(ctx context.Context, wait time.Duration) (PauseState, error) {
	q := url.Values{}
	if wait > 0 {
		q.Set("wait", strconv.FormatFloat(wait.Seconds(), 'f', -1, 64))
	}
	var out PauseState
	return out, c.do(ctx, http.MethodGet, withQuery("/proxy/state", q), nil, &out)
}

// OpenAIBaseURL is where an agent calls its model: the base URL of an OpenAI
// client. Mode is train or val.
func (c *Client) OpenAIBaseURL(rolloutID, attemptID, mode string) string {
	return c.root() + "/proxy/rollout/" + url.PathEscape(rolloutID) + "/attempt/" + url.PathEscape(attemptID) + "/mode/" + mode + "/openai/v1"
}

// EventURL is where an agent posts its events.
func (c *Client) EventURL(rolloutID, attemptID string) string {
	return c.root() + rolloutPath(rolloutID) + "/attempt/" + url.PathEscape(attemptID) + "/events"
}

func (c *Client) root() string { return strings.TrimRight(c.BaseURL, "/") }

func rolloutPath(id string) string { return "/api/rollouts/" + url.PathEscape(id) }

func withQuery(path string, q url.Values) string {
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// maxRefusal is how much of a refusal is read.
const maxRefusal = 64 << 10

func (c *Client) do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("%s %s: %w", method, path, err)
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.root()+path, body)
	if err != nil {
		return err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	client := c.HTTP
	if client == nil {
		client = &http.Client{}
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		said, err := io.ReadAll(io.LimitReader(res.Body, maxRefusal))
		refused := &Error{Method: method, Path: path, Status: res.StatusCode, Detail: detailOf(said)}
		if err != nil {
			return errors.Join(refused, err)
		}
		return refused
	}
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(res.Body).Decode(out); err != nil {
		return fmt.Errorf("%s %s: read the answer: %w", method, path, err)
	}
	return nil
}

// detailOf returns what a refusal says.
func detailOf(body []byte) string {
	var w struct {
		Detail json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &w) != nil || len(w.Detail) == 0 {
		return string(bytes.TrimSpace(body))
	}
	var text string
	if json.Unmarshal(w.Detail, &text) == nil {
		return text
	}
	return string(w.Detail)
}
