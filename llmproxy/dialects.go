package llmproxy

import (
	agl "agentlightning"
	"agentlightning/llm/anthropic"
	"agentlightning/llm/openai"
)

// dialects lists what the proxy serves.
func dialects() [6]*dialect {
	return [...]*dialect{chatCompletions, completions, responses, messages, countTokens, embeddings}
}

// notAnthropic holds for all kinds that speak OpenAI's APIs.
func notAnthropic(kind agl.BackendKind) bool { return kind != agl.BackendAnthropic }

func isAnthropic(kind agl.BackendKind) bool { return kind == agl.BackendAnthropic }

var chatCompletions = &dialect{
	name:             "OpenAI's chat completions",
	route:            "/chat/completions",
	operation:        "chat",
	spoken:           notAnthropic,
	capture:          openai.CaptureChat,
	gather:           func() gatherer { return &openai.Accumulator{} },
	appendError:      appendOpenAIError,
	appendErrorEvent: appendOpenAIErrorEvent,
}

// completions is OpenAI's older API: a text and how it goes on. Engines have it
// beside chat completions, and take token ids as a prompt there.
var completions = &dialect{
	name:      "OpenAI's completions",
	route:     "/completions",
	operation: "text_completion",
	spoken:    notAnthropic,
	unsure:    true,
	capture:   openai.CaptureCompletion,
	gather:    func() gatherer { return &openai.Accumulator{} },
	chat:      openai.CompletionsChat,
	translate: func(c *call) translator {
		return openai.NewCompletionsTranslator(c.req, "cmpl-"+agl.NewSpanID(), c.start.Unix())
	},
	appendError:      appendOpenAIError,
	appendErrorEvent: appendOpenAIErrorEvent,
}

// responses is OpenAI's newer API. Engines that have it as well return no token
// ids there, so they are asked for chat completions unless their kind says
// otherwise.
var responses = &dialect{
	name:      "OpenAI's Responses",
	route:     "/responses",
	operation: "chat",
	spoken: func(kind agl.BackendKind) bool {
		return kind == agl.BackendResponses || kind == agl.BackendOpenAI
	},
	gather: func() gatherer { return &openai.ResponsesAccumulator{} },
	chat:   openai.ResponsesChat,
	translate: func(c *call) translator {
		return openai.NewResponsesTranslator(c.req, agl.NewSpanID(), c.start.Unix())
	},
	appendError:      appendOpenAIError,
	appendErrorEvent: openai.AppendResponsesErrorEvent,
}

// messages is Anthropic's API.
var messages = &dialect{
	name:             "Anthropic's Messages",
	route:            "/messages",
	operation:        "chat",
	spoken:           isAnthropic,
	gather:           func() gatherer { return &anthropic.Accumulator{} },
	chat:             anthropic.ChatRequest,
	translate:        func(c *call) translator { return anthropic.NewTranslator(c.req, "msg_"+agl.NewSpanID()) },
	appendError:      anthropic.AppendError,
	appendErrorEvent: anthropic.AppendErrorEvent,
}

// countTokens says how long a message would be. No model answers it.
var countTokens = &dialect{
	name:             "Anthropic's token counts",
	route:            "/messages/count_tokens",
	spoken:           isAnthropic,
	silent:           true,
	local:            (*call).countTokens,
	gather:           func() gatherer { return &countGatherer{} },
	appendError:      anthropic.AppendError,
	appendErrorEvent: anthropic.AppendErrorEvent,
}

// embeddings is passed through. There is nothing in it to train on.
var embeddings = &dialect{
	name:             "OpenAI's embeddings",
	route:            "/embeddings",
	spoken:           notAnthropic,
	silent:           true,
	gather:           func() gatherer { return &countGatherer{} },
	appendError:      appendOpenAIError,
	appendErrorEvent: appendOpenAIErrorEvent,
}

func appendOpenAIError(dst []byte, _ int, e *openai.Error) []byte { return e.AppendJSON(dst) }

func appendOpenAIErrorEvent(dst []byte, _ int, e *openai.Error) []byte { return e.AppendEvent(dst) }

// countGatherer takes the counts out of an answer that says nothing else.
type countGatherer struct{ answer openai.Answer }

func (g *countGatherer) Add([]byte) (openai.Chunk, error) { return openai.Chunk{}, nil }

func (g *countGatherer) AddWhole(body []byte) error {
	var d openai.Delta
	if err := d.Parse(body); err != nil {
		return err
	}
	g.answer.Usage = d.Usage
	return nil
}

func (g *countGatherer) Answer() *openai.Answer { return &g.answer }
func (g *countGatherer) Finished() bool         { return true }
func (g *countGatherer) Chunks() int            { return 0 }
