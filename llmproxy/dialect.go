package llmproxy

import (
	"net/http"
	"strings"

	"agentlightning/llm/openai"
)

// dialect is one of the APIs that callers speak. A backend that speaks it is
// sent the call as it is; any other is asked for a chat completion, which is
// translated back.
type dialect struct {
	route     string // below /v1
	operation string // gen_ai.operation.name

	// spoken reports whether a backend speaks the dialect. Nil means that all
	// backends do.
	spoken func(*backend) bool
	// capture returns what a recorded call asks for besides what the caller
	// wants, where the backend speaks the dialect.
	capture func(*openai.Request) []openai.Edit
	// gather returns what takes the answer out of what such a backend sends.
	gather func() gatherer

	// chat returns the call as a chat completion, which is what spans show and
	// what backends are asked that do not speak the dialect. With an error the
	// call cannot be put that way; the request is then what can be. Nil means
	// that the call is one.
	chat func(*openai.Request) (*openai.Request, *openai.Error)
	// translate returns what turns a chat completion into the answer to a call.
	// It is not nil when chat is not.
	translate func(*openai.Request) translator

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

// dialects lists what the proxy serves, by route.
var dialects = []*dialect{chatCompletions}

// chatCompletions is OpenAI's API of that name, which every backend speaks.
var chatCompletions = &dialect{
	route:            "/chat/completions",
	operation:        "chat",
	capture:          captureChat,
	gather:           func() gatherer { return &openai.Accumulator{} },
	appendError:      appendOpenAIError,
	appendErrorEvent: appendOpenAIErrorEvent,
}

// dialectOf returns the dialect of a path below /v1, nil when there is none.
func dialectOf(route string) *dialect {
	for _, d := range dialects {
		if d.route == route {
			return d
		}
	}
	return nil
}

// The fields that the proxy adds to recorded calls.
const (
	fieldTokenIDs      = "return_token_ids"
	fieldLogprobs      = "logprobs"
	fieldStreamOptions = "stream_options"
)

func captureChat(req *openai.Request) []openai.Edit {
	edits := []openai.Edit{{Key: fieldTokenIDs, Value: []byte("true")}, {Key: fieldLogprobs, Value: []byte("true")}}
	if req.Stream && !req.IncludeUsage {
		edits = append(edits, openai.Edit{Key: fieldStreamOptions, Value: req.UsageOptions()})
	}
	return edits
}

func appendOpenAIError(dst []byte, _ int, e *openai.Error) []byte { return e.AppendJSON(dst) }

func appendOpenAIErrorEvent(dst []byte, _ int, e *openai.Error) []byte {
	return append(e.AppendJSON(append(dst, "data: "...)), "\n\n"...)
}

func (d *dialect) writeError(w http.ResponseWriter, status int, e *openai.Error) {
	writeJSON(w, status, d.appendError(nil, status, e))
}

// plan is how a call is put to a backend and how its answer is brought back.
type plan struct {
	route     string          // below the base URL of the backend
	ask       *openai.Request // what the backend is asked, before what the proxy changes
	capture   func(*openai.Request) []openai.Edit
	gather    func() gatherer
	translate translator // nil when the caller reads the backend's own bytes
}

// plan returns how the call is put to a backend.
func (c *call) planFor(b *backend) (*plan, *openai.Error) {
	d := c.dialect
	if d.spoken == nil || d.spoken(b) {
		return &plan{route: d.route, ask: c.req, capture: d.capture, gather: d.gather}, nil
	}
	ask, err := d.chat(c.req)
	if err != nil {
		return nil, err
	}
	chat := chatCompletions
	return &plan{route: chat.route, ask: ask, capture: chat.capture, gather: chat.gather, translate: d.translate(c.req)}, nil
}

// said returns the call as a chat completion, as far as it can be put that way.
func (c *call) said() *openai.Request {
	if c.dialect.chat == nil {
		return c.req
	}
	chat, _ := c.dialect.chat(c.req)
	return chat
}

// servedRoutes lists for people what there is.
func servedRoutes() string {
	var b strings.Builder
	for _, d := range dialects {
		b.WriteString("POST …/v1" + d.route + ", ")
	}
	return b.String() + "GET …/v1/models"
}

// plainDialect is the one for a path that belongs to none.
func plainDialect(*http.Request) *dialect { return chatCompletions }
