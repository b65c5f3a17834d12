package llmproxy

import (
	"bytes"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	agl "agentlightning"
	"agentlightning/llm/anthropic"
	"agentlightning/llm/openai"
)

// dialect is one of the APIs that callers speak. A backend that speaks it is
// sent the call as it is; any other is asked for a chat completion, or for a
// message where that is all it speaks, which is translated back.
type dialect struct {
	name      string // as people know it
	route     string // below /v1
	operation string // gen_ai.operation.name

	// spoken reports whether backends of a kind speak the dialect.
	spoken func(agl.BackendKind) bool
	// unsure is true when a backend that should speak the dialect may turn out
	// not to have the route.
	unsure bool
	// silent is true for calls that no model answers, which are not recorded.
	silent bool
	// local answers a call in place of a backend that does not speak the
	// dialect; nil when that cannot be done.
	local func(*call)
	// capture returns what a recorded call asks for besides what the caller
	// wants, where the backend speaks the dialect.
	capture func(*openai.Request) []openai.Edit
	// gather returns what takes the answer out of what such a backend sends.
	gather func() gatherer

	// chat returns the call as a chat completion, which is what spans show and
	// what backends are asked that do not speak the dialect. With an error the
	// call cannot be put that way; the request is then what can be. Nil means
	// that the call is one, or cannot be.
	chat func(*openai.Request) (*openai.Request, *openai.Error)
	// translate returns what turns a chat completion into the answer to a call.
	// It is not nil when chat is not.
	translate func(c *call) translator

	// appendError appends the body of an answer that reports an error of our
	// own, appendErrorEvent the event that ends a broken stream.
	appendError      func(dst []byte, status int, e *openai.Error) []byte
	appendErrorEvent func(dst []byte, status int, e *openai.Error) []byte
}

// gatherer takes the answer to a call out of the bytes of a backend.
type gatherer interface {
	// Add takes in the data of one event of a stream, and keeps no reference to
	// it.
	Add(data []byte) (openai.Chunk, error)
	// AddWhole takes in an answer that is no stream.
	AddWhole(body []byte) error
	// Answer returns what has been gathered, Finished whether that is all.
	Answer() *openai.Answer
	Finished() bool
	// Chunks returns how many events were added.
	Chunks() int
}

// translator turns a chat completion into an answer of another dialect. It
// serves one call, either whole or as a stream.
type translator interface {
	// AppendAnswer appends the body of a whole answer.
	AppendAnswer(dst []byte, a *openai.Answer) ([]byte, error)
	// AppendChunk appends the events that tell of the data of one event of a
	// chat completion's stream.
	AppendChunk(dst, data []byte) ([]byte, error)
	// AppendEnd appends the events that end the stream.
	AppendEnd(dst []byte) []byte
	// AppendError appends the event that ends the stream where it broke.
	AppendError(dst []byte, status int, e *openai.Error) []byte
}

// dialectOf returns the dialect of a path below /v1, nil when there is none.
func dialectOf(route string) *dialect {
	for _, d := range dialects() {
		if d.route == route {
			return d
		}
	}
	return nil
}

// plainDialect is the one of a request whose path belongs to none.
func plainDialect(r *http.Request) *dialect {
	if r.Header.Get("Anthropic-Version") != "" {
		return messages
	}
	return chatCompletions
}

// AppendError appends the body of an answer that refuses a request, in the
// words that its caller understands.
func AppendError(dst []byte, r *http.Request, status int, e *openai.Error) []byte {
	p, err := splitPath(r.URL)
	d := dialectOf(p.route)
	if err != nil || d == nil {
		d = plainDialect(r)
	}
	return d.appendError(dst, status, e)
}

func (d *dialect) writeError(w http.ResponseWriter, status int, e *openai.Error) {
	writeJSON(w, status, d.appendError(nil, status, e))
}

// plan is how a call is put to a backend and how its answer is brought back.
type plan struct {
	route     string          // below the base URL of the backend
	ask       *openai.Request // what the backend is asked, before what the proxy changes
	capture   []openai.Edit   // what it is asked besides
	gather    func() gatherer
	translate translator // nil when the caller reads the backend's own bytes
}

// planFor returns how the call is put to a backend.
func (c *call) planFor(b *backend) (*plan, *openai.Error) {
	d, kind := c.dialect, b.kind
	if d.spoken(kind) && !(d.unsure && c.p.lacks.has(b.Endpoint, d.route)) {
		p := &plan{route: d.route, ask: c.req, gather: d.gather}
		switch {
		case d.capture == nil: // it has no such members
		case c.recorded():
			p.capture = d.capture(c.req)
		case b.TPM > 0:
			p.capture = openai.CaptureUsage(c.req)
		}
		if c.r.URL.RawQuery != "" && d != chatCompletions {
			p.route += "?" + c.r.URL.RawQuery
		}
		return p, nil
	}
	if d.translate == nil && (d != chatCompletions || !messages.spoken(kind)) {
		return nil, &openai.Error{
			Message: "the backend of model " + strconv.Quote(b.Name) + " is of kind " + string(kind) + ", which does not speak " + d.name +
				"; call it by an API that it speaks, or register the model with another backend",
			Type: openai.TypeInvalidRequest, Param: "model", Code: "dialect_not_spoken",
		}
	}
	ask, err := c.said()
	if err != nil {
		return nil, err
	}
	if messages.spoken(kind) {
		return c.planMessage(ask)
	}
	if kind == agl.BackendOpenAI || kind == agl.BackendAzure {
		ask = withNewerNames(ask)
	}
	chat := chatCompletions
	p := &plan{route: chat.route, ask: ask, gather: chat.gather, translate: d.translate(c)}
	if c.recorded() {
		p.capture = chat.capture(ask)
	} else {
		p.capture = openai.CaptureUsage(ask)
	}
	return p, nil
}

// planMessage returns how a chat completion is put to a backend that speaks
// Messages only.
func (c *call) planMessage(chat *openai.Request) (*plan, *openai.Error) {
	ask, err := anthropic.MessageRequest(chat)
	if err != nil {
		return nil, err
	}
	asChat := anthropic.NewChatTranslator(chat, "chatcmpl-"+agl.NewSpanID(), c.start.Unix())
	p := &plan{route: messages.route, ask: ask, gather: messages.gather, translate: asChat}
	if c.dialect.translate != nil {
		p.translate = &throughChat{chat: asChat, caller: c.dialect.translate(c)}
	}
	return p, nil
}

// throughChat turns a message into a chat completion and that into what the
// caller reads.
type throughChat struct {
	chat   *anthropic.ChatTranslator
	caller translator
}

func (t *throughChat) AppendAnswer(dst []byte, a *openai.Answer) ([]byte, error) {
	return t.caller.AppendAnswer(dst, a)
}

func (t *throughChat) AppendChunk(dst, data []byte) ([]byte, error) {
	chunk, err := t.chat.Chunk(data)
	if err != nil || chunk == nil {
		return dst, err
	}
	return t.caller.AppendChunk(dst, chunk)
}

func (t *throughChat) AppendEnd(dst []byte) []byte {
	// It holds no text, which is all that an error could be about.
	dst, _ = t.caller.AppendChunk(dst, t.chat.UsageChunk())
	return t.caller.AppendEnd(dst)
}

func (t *throughChat) AppendError(dst []byte, status int, e *openai.Error) []byte {
	return t.caller.AppendError(dst, status, e)
}

// withNewerNames returns a chat completion request that OpenAI's own servers
// take: their newer models know max_tokens by another name only.
func withNewerNames(ask *openai.Request) *openai.Request {
	limit := ask.Raw("max_tokens")
	if limit == nil {
		return ask
	}
	renamed, err := openai.ParseRequest(ask.Edit(openai.Edit{Key: "max_tokens"}, openai.Edit{Key: "max_completion_tokens", Value: limit}))
	if err != nil {
		return ask // it is JSON, having been parsed before
	}
	return renamed
}

// said returns the call as a chat completion, as far as it can be put that way.
func (c *call) said() (*openai.Request, *openai.Error) {
	if c.dialect.chat == nil {
		return c.req, nil
	}
	if c.asChat == nil {
		c.asChat, c.notChat = c.dialect.chat(c.req)
	}
	return c.asChat, c.notChat
}

// sendInDialect calls the backend of c, and again with a chat completion where
// it turns out not to have the route of the dialect.
func (c *call) sendInDialect() (*http.Response, error) {
	resp, err := c.sendOnce()
	if err != nil || !c.dialect.unsure || c.plan.translate != nil || !c.noSuchRoute(resp.StatusCode) {
		return resp, err
	}
	_ = resp.Body.Close()
	c.p.lacks.add(c.backend.Endpoint, c.dialect.route)
	resp, err = c.sendOnce()
	if err != nil || resp.StatusCode >= 400 {
		// It may not have been the route: the next call finds out anew.
		c.p.lacks.remove(c.backend.Endpoint, c.dialect.route)
	}
	return resp, err
}

// noSuchRoute reports whether a backend answered that it does not have a route,
// and not that it does not have a model.
func (c *call) noSuchRoute(status int) bool {
	switch status {
	case http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return true
	case http.StatusNotFound:
		return !bytes.Contains(bytes.ToLower(c.failure), []byte("model"))
	}
	return false
}

// lacking remembers routes that backends turned out not to have. Something else
// may answer at the same address later, so it does not do so for ever.
type lacking struct {
	now func() time.Time

	mu    sync.Mutex
	until map[[2]string]time.Time // by endpoint and route
}

// lackingHolds is how long a route is taken to be absent.
const lackingHolds = 10 * time.Minute

func newLacking(now func() time.Time) *lacking {
	return &lacking{now: now, until: map[[2]string]time.Time{}}
}

func (l *lacking) has(endpoint, route string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now().Before(l.until[[2]string{endpoint, route}])
}

func (l *lacking) add(endpoint, route string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	maps.DeleteFunc(l.until, func(_ [2]string, until time.Time) bool { return until.Before(now) })
	l.until[[2]string{endpoint, route}] = now.Add(lackingHolds)
}

func (l *lacking) remove(endpoint, route string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.until, [2]string{endpoint, route})
}

// Route is a path below /v1 that model calls are posted to.
type Route struct {
	Path     string
	API      string // whose it is, for people
	Recorded bool   // a call of an attempt becomes a span
}

// Routes lists what the proxy serves, besides the models.
func Routes() []Route {
	var out []Route
	for _, d := range dialects() {
		out = append(out, Route{d.route, d.name, !d.silent})
	}
	return out
}

// servedRoutes lists for people what there is.
func servedRoutes() string {
	var b strings.Builder
	for _, d := range dialects() {
		b.WriteString("POST …/v1" + d.route + ", ")
	}
	return b.String() + "GET …/v1/models"
}
