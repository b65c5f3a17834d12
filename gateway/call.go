package gateway

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
	"agentlightning/llm/openai"
	"agentlightning/llmproxy"
	"agentlightning/semconv"
	"agentlightning/store"
)

// CallConfig says how the model calls below /proxy are made.
type CallConfig struct {
	// Model is the model that every call goes to, whatever the caller asks for.
	// When it is not registered and exactly one other is, calls go there.
	Model string
	// TrainTemperature and ValTemperature are forced on calls of either mode.
	TrainTemperature, ValTemperature float64
	// NoLogprobs leaves out the log-probabilities of the sampled tokens that
	// training calls are otherwise asked with.
	NoLogprobs bool
	// RoutedExperts asks training calls for the experts to which each token was
	// routed.
	RoutedExperts bool
	// RefuseStreams answers calls that ask for a stream with 400, as the Python
	// server does.
	RefuseStreams bool
}

// DefaultCalls is how the protocol makes calls unless told otherwise.
func DefaultCalls() CallConfig {
	return CallConfig{Model: "Qwen/Qwen2.5-7B-Instruct", TrainTemperature: 1, ValTemperature: 0.7}
}

func (c *CallConfig) validate() error {
	for _, t := range []struct {
		name  string
		value float64
	}{{"TrainTemperature", c.TrainTemperature}, {"ValTemperature", c.ValTemperature}} {
		if t.value < 0 || math.IsNaN(t.value) || math.IsInf(t.value, 0) {
			return fmt.Errorf("gateway: %s is %v; it must be a finite number that is not negative", t.name, t.value)
		}
	}
	return nil
}

// callRoutes are the dialects in which an agent of a controlled rollout may call
// its model: those of the protocol and, translated, the newer ones.
var callRoutes = []string{"/chat/completions", "/completions", "/responses", "/messages"}

// retries is how often a call is sent again that the backend could not serve.
const retries = 5

// call makes a model call.
func (h *handler) call(w http.ResponseWriter, r *http.Request, p params) {
	if p.mode != "train" && p.mode != "val" {
		writeDetail(w, http.StatusNotFound, "Unsupported proxy mode: "+p.mode)
		return
	}
	route := "/" + p.upstream
	if !slices.Contains(callRoutes, route) || !h.proxy.Serves(route) {
		writeDetail(w, http.StatusNotFound, "Unsupported upstream path: "+p.upstream)
		return
	}
	ctx := r.Context()
	if _, err := h.store.Rollout(ctx, p.rollout); err != nil {
		h.failOf(w, r, p.rollout, err)
		return
	}
	req, ok := h.readCall(w, r)
	if !ok {
		return
	}
	name, err := h.proxy.Registered(ctx, h.calls.Model)
	switch {
	case err != nil:
		h.fail(w, r, err)
		return
	case name == "":
		writeDetail(w, http.StatusServiceUnavailable, "No servers available for model '"+h.calls.Model+"'")
		return
	}
	if req, err = h.prepare(req, name, p.mode); err != nil {
		writeDetail(w, http.StatusBadRequest, err.Error())
		return
	}
	if req.Stream && h.calls.RefuseStreams && !h.gate.State().Paused { // a pause is told first
		writeDetail(w, http.StatusBadRequest, "Streaming responses are not supported")
		return
	}
	attempt, err := h.store.ResolveAttempt(ctx, p.rollout, p.attempt)
	if err != nil {
		h.failOf(w, r, p.rollout, err)
		return
	}
	d := &llmproxy.Directed{
		At: store.Attempted{RolloutID: p.rollout, AttemptID: attempt}, Route: route, Model: name, Request: req,
		Capture: h.capture(p.mode), Retries: retries, Paused: pausedBody,
	}
	if route == "/chat/completions" || route == "/completions" { // other dialects have shapes of their own
		d.Answer = answer
		d.Error = func(status int, code, message string) []byte {
			return appendDetail(nil, callError(p.rollout, status, code, message))
		}
	}
	h.proxy.ServeDirected(w, r, d)
}

// readCall reads the body of a call; nothing counts as an empty object.
func (h *handler) readCall(w http.ResponseWriter, r *http.Request) (*openai.Request, bool) {
	text, ok := h.readText(w, r)
	if !ok {
		return nil, false
	}
	if len(text) == 0 {
		text = []byte("{}")
	}
	if jsonx.Check(text) != nil {
		writeDetail(w, http.StatusBadRequest, "Invalid JSON in request body")
		return nil, false
	}
	if jsonx.KindOf(text) != jsonx.Object {
		writeDetail(w, http.StatusBadRequest, "Request body must be a JSON object")
		return nil, false
	}
	req, err := openai.ParseRequest(jsonx.AppendNormal(nil, text))
	if err != nil {
		writeDetail(w, http.StatusBadRequest, err.Error())
		return nil, false
	}
	return req, true
}

// prepare puts into a call what the server decides.
func (h *handler) prepare(req *openai.Request, model, mode string) (*openai.Request, error) {
	temperature := h.calls.TrainTemperature
	if mode == "val" {
		temperature = h.calls.ValTemperature
	}
	return openai.ParseRequest(req.Edit(
		openai.Edit{Key: "model", Value: openai.Text(model)},
		openai.Edit{Key: "temperature", Value: jsonx.AppendFloat(nil, temperature)},
	))
}

// capture is what a call is asked with for the record.
func (h *handler) capture(mode string) []openai.Edit {
	yes := []byte("true")
	edits := []openai.Edit{{Key: "return_token_ids", Value: yes}}
	if mode == "train" && !h.calls.NoLogprobs {
		edits = append(edits, openai.Edit{Key: "logprobs", Value: yes})
	}
	if mode == "train" && h.calls.RoutedExperts {
		edits = append(edits, openai.Edit{Key: "return_routed_experts", Value: yes})
	}
	return edits
}

// callError is what a caller is told of an error of the proxy, in the words of
// the protocol where it has some.
func callError(rolloutID string, status int, code, message string) string {
	switch {
	case code == "attempt_not_found":
		return "Rollout not found: " + rolloutID
	case status == http.StatusGatewayTimeout:
		return "Upstream model server timed out"
	case status == http.StatusBadGateway && strings.HasPrefix(code, "backend_"):
		return "Upstream model server request failed"
	}
	return message
}

// answer puts the answer of a backend into the shape of the protocol, and makes
// the event of the call.
func answer(a llmproxy.DirectedAnswer) ([]byte, agl.Attributes, error) {
	body := jsonx.Raw("{}")
	if strings.HasPrefix(a.Type, "application/json") {
		if err := jsonx.Check(a.Body); err != nil {
			return nil, nil, fmt.Errorf("its answer is not JSON: %w", err)
		}
		if jsonx.KindOf(a.Body) != jsonx.Object {
			return nil, nil, errors.New("its answer is not an object")
		}
		body = jsonx.AppendNormal(nil, a.Body)
	}
	body, routes := takeChoiceRoutes(body)
	extra := agl.Attributes{}
	if routes != "" {
		extra = append(extra, agl.Attribute{Key: semconv.RoutedExperts, Value: routes})
	}
	extra = append(extra, agl.Attribute{Key: semconv.EventData, Value: string(requestData(&a, body))})
	return body, extra, nil
}

// requestData is the data of the event of a call, in the order of the protocol.
func requestData(a *llmproxy.DirectedAnswer, body jsonx.Raw) []byte {
	members, err := jsonx.Members(body)
	if err != nil {
		members = nil // it is an object
	}
	model := jsonx.AppendString(nil, a.Model.Name)
	version := strconv.AppendInt(nil, a.Model.Version, 10)
	out := appendMember([]byte{'{'}, "model", model)
	out = appendMember(out, "model_version", version)
	out = appendMember(out, "request", a.Request)
	out = appendMember(out, "response", body)
	server := appendMember([]byte{'{'}, "model", model)
	server = appendMember(server, "endpoint", jsonx.AppendString(nil, a.Model.Endpoint))
	out = appendMember(out, "server", append(appendMember(server, "version", version), '}'))
	out = appendMember(out, "latency_ms", jsonx.AppendFloat(nil, a.Latency.Seconds()*1000))
	out = appendMember(out, "http_status", strconv.AppendInt(nil, int64(a.Status), 10))
	status := `"ok"`
	if a.Status >= http.StatusBadRequest {
		status = `"error"`
	}
	out = appendMember(out, "status", jsonx.Raw(status))
	out = appendMember(out, "retry_count", strconv.AppendInt(nil, int64(a.Retries), 10))
	out = appendMember(out, memberRoutes, jsonx.Raw("null"))
	usage, reason := jsonx.Raw("null"), jsonx.Raw("null")
	if u := jsonx.Get(members, "usage"); jsonx.KindOf(u) == jsonx.Object {
		usage = u
	}
	if choice, ok := firstChoice(members); ok {
		if f := jsonx.Get(choice, "finish_reason"); jsonx.KindOf(f) == jsonx.String && truthy(f) {
			reason = f
		}
	}
	out = appendMember(out, "usage", usage)
	return append(appendMember(out, "finish_reason", reason), '}')
}

// takeChoiceRoutes takes the expert routes out of the choices of an answer, up to
// the first that has some; callers have no use for them.
func takeChoiceRoutes(body jsonx.Raw) (rest jsonx.Raw, routes string) {
	members, err := jsonx.Members(body)
	at := slices.IndexFunc(members, func(m jsonx.Member) bool { return m.Key == "choices" })
	if err != nil || at < 0 {
		return body, ""
	}
	choices, err := jsonx.Elements(members[at].Value)
	if err != nil {
		return body, ""
	}
	changed := false
	for i := 0; i < len(choices) && routes == ""; i++ {
		choice, err := jsonx.Members(choices[i])
		v := jsonx.Get(choice, memberRoutes)
		if err != nil || v == nil {
			continue
		}
		if jsonx.KindOf(v) != jsonx.Null {
			routes = string(v)
		}
		choices[i], changed = withoutRoutes(choices[i]), true
	}
	if !changed {
		return body, ""
	}
	members[at].Value = listOf(choices)
	out := []byte{'{'}
	for _, m := range members {
		out = appendMember(out, m.Key, m.Value)
	}
	return append(out, '}'), routes
}

// pausedBody is how the protocol refuses a call during a pause.
func pausedBody(e *llmproxy.PausedError) (body []byte, retryAfter string) {
	body = append([]byte(`{"error": "gateway paused", "reason": `), "null"...)
	if e.Reason != nil {
		body = appendASCII(body[:len(body)-len("null")], *e.Reason)
	}
	return append(body, '}'), strconv.FormatInt(int64(e.RetryAfter/time.Second), 10)
}

// appendASCII appends a string as JSON without a byte beyond ASCII.
func appendASCII(dst []byte, s string) []byte {
	for _, c := range string(jsonx.AppendString(nil, s)) {
		switch {
		case c < utf8.RuneSelf:
			dst = append(dst, byte(c))
		case c > 0xffff:
			c -= 0x10000
			dst = fmt.Appendf(dst, `\u%04x\u%04x`, 0xd800+c>>10, 0xdc00+c&0x3ff)
		default:
			dst = fmt.Appendf(dst, `\u%04x`, c)
		}
	}
	return dst
}
