package llmproxy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/llmproxy"
)

const (
	askMessage       = `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]}`
	askMessageStream = `{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"Hi"}]}`
	askResponse      = `{"model":"m","input":"Hi"}`
	askRespStream    = `{"model":"m","stream":true,"input":"Hi"}`
	askCompletion    = `{"model":"m","prompt":"Hi"}`
	askComplStream   = `{"model":"m","stream":true,"prompt":"Hi"}`
)

// spoken starts a proxy before one backend of a kind.
func spoken(t *testing.T, kind agl.BackendKind, h http.HandlerFunc) *fixture {
	t.Helper()
	f := setup(t, llmproxy.Config{}, h)
	f.store.models[0].Kind, f.store.models[0].APIKey = kind, "sk-backend"
	f.start(t, llmproxy.Config{})
	return f
}

// A message as Anthropic's servers stream it, with what is not known here.
const nativeMessage = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"claude\",\"content\":[],\"stop_reason\":null,\"usage\":{\"input_tokens\":2,\"cache_read_input_tokens\":3,\"output_tokens\":1},\"x\":1.0}}\n\n" +
	"event: ping\ndata: {\"type\": \"ping\"}\n\n" +
	"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}\n\n" +
	"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"Hm\"}}\n\n" +
	"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"signature_delta\",\"signature\":\"EqQB\"}}\n\n" +
	"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n" +
	"event: content_block_start\r\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\r\n\r\n" +
	"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\"Grüße 👋\"}}\n\n" +
	"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":1}\n\n" +
	"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":2,\"content_block\":{\"type\":\"tool_use\",\"id\":\"toolu_1\",\"name\":\"add\",\"input\":{}}}\n\n" +
	"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"a\\\":\"}}\n\n" +
	"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\" 1}\"}}\n\n" +
	"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":2}\n\n" +
	"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":7}}\n\n" +
	"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"

const nativeMessageWhole = `{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[{"type":"thinking","thinking":"Hm","signature":"EqQB"},{"type":"text","text":"Grüße 👋"},` +
	`{"type":"tool_use","id":"toolu_1","name":"add","input":{"a": 1}}],"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":2,"cache_read_input_tokens":3,"output_tokens":7},"x":1.0}`

// The same as a response of OpenAI's servers.
const (
	nativeResponseWhole = `{"id":"msg_1","object":"response","created_at":5,"status":"completed","model":"claude","x":1.0,"output":[{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"Hm"}]},` +
		`{"id":"m_1","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Grüße 👋","annotations":[]}]},` +
		`{"id":"fc_1","type":"function_call","call_id":"toolu_1","name":"add","arguments":"{\"a\": 1}","status":"completed"}],"usage":{"input_tokens":5,"input_tokens_details":{"cached_tokens":3},"output_tokens":7,"total_tokens":12}}`
	nativeResponse = "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"msg_1\",\"model\":\"claude\",\"status\":\"in_progress\",\"output\":[]}}\n\n" +
		"event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"sequence_number\":1,\"output_index\":0,\"item\":{\"id\":\"m_1\",\"type\":\"message\",\"content\":[]}}\n\n" +
		"event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":2,\"item_id\":\"m_1\",\"delta\":\"Gr\",\"obfuscation\":\"xx\"}\r\n\r\n" +
		"event: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":3,\"response\":" + nativeResponseWhole + "}\n\n"
)

// A backend that speaks the caller's dialect is asked as the caller asked, and
// every byte of its answer reaches the caller.
func TestNativeDialectPassesThrough(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, path, route string
		kind              agl.BackendKind
		ask, answer       string
	}{
		{"message", "/v1/messages?beta=true", "/v1/messages?beta=true", agl.BackendAnthropic, askMessage[:len(askMessage)-1] + `,"container":"x", "y":[1.0]}`, nativeMessageWhole},
		{"message stream", "/messages", "/v1/messages", agl.BackendAnthropic, askMessageStream, nativeMessage},
		{"response", "/v1/responses", "/v1/responses", agl.BackendResponses, askResponse[:len(askResponse)-1] + `,"previous_response_id":"r", "tools":[{"type":"web_search"}]}`, nativeResponseWhole},
		{"response stream", "/responses", "/v1/responses", agl.BackendResponses, askRespStream, nativeResponse},
	}
	for _, tt := range tests {
		for _, size := range []int{1, 7, 1 << 16} {
			t.Run(fmt.Sprintf("%s in pieces of %d", tt.name, size), func(t *testing.T) {
				t.Parallel()
				f := spoken(t, tt.kind, func(w http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					if string(body) != tt.ask || r.URL.String() != tt.route {
						t.Errorf("%s was asked %s", r.URL, body)
					}
					key, other := r.Header.Get("Authorization"), r.Header.Get("X-Api-Key")
					if tt.kind == agl.BackendAnthropic {
						key, other = "Bearer "+other, key
						if got := r.Header.Get("Anthropic-Version"); got != "2023-06-01" {
							t.Errorf("Anthropic-Version is %q", got)
						}
					}
					if key != "Bearer sk-backend" || other != "" {
						t.Errorf("the backend was shown the key %q (and %q)", key, other)
					}
					if strings.HasPrefix(tt.answer, "{") {
						answers(tt.answer)(w, r)
					} else {
						streams(tt.answer, size)(w, r)
					}
				})
				status, _, body := f.post(t, attempt+tt.path, tt.ask, "X-Api-Key", "sk-caller", "Anthropic-Version", "2023-06-01")
				if status != http.StatusOK || body != tt.answer {
					t.Errorf("status %d, answer (-want +got):\n%s", status, cmp.Diff(tt.answer, body))
				}
				s := f.store.span(t)
				if problem(s) != "token_ids_missing" {
					t.Errorf("problem is %q", problem(s))
				}
				for key, want := range map[string]any{
					"gen_ai.response.id":                         "msg_1",
					"gen_ai.prompt.0.content":                    "Hi",
					"gen_ai.completion.0.content":                "Grüße 👋",
					"gen_ai.completion.0.reasoning_content":      "Hm",
					"gen_ai.completion.0.tool_calls.0.id":        "toolu_1",
					"gen_ai.completion.0.tool_calls.0.arguments": `{"a": 1}`,
					"gen_ai.completion.0.finish_reason":          "tool_calls",
					"gen_ai.usage.input_tokens":                  int64(5),
					"gen_ai.usage.output_tokens":                 int64(7),
					"agentlightning.call.dialect":                strings.Split(strings.TrimPrefix(tt.route, "/v1/"), "?")[0],
				} {
					got, _ := s.Attributes.Get(key)
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("%s (-want +got):\n%s", key, diff)
					}
				}
			})
		}
	}
}

// translatedCall is a call that is made in one dialect and answered in another.
type translatedCall struct {
	name, route, ask, askStream string
	last                        string // what ends a stream
}

// translatedCalls are the ways to ask a chat-only backend.
var translatedCalls = []translatedCall{
	{"message", "/messages", askMessage, askMessageStream, "event: message_stop"},
	{"response", "/responses", askResponse, askRespStream, "event: response.completed"},
	{"completion", "/completions", askCompletion, askComplStream, "data: [DONE]"},
}

// onlyChat serves chat completions with a handler, and nothing else.
func onlyChat(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/chat/completions" {
			http.NotFound(w, r)
			return
		}
		h(w, r)
	}
}

var chatStream = head + finish + usageChunk + done

// The end of an answer reaches the caller when the call is stored, no sooner.
func TestTranslatedStreamIsStoredBeforeItsEnd(t *testing.T) {
	t.Parallel()
	for _, tt := range translatedCalls {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, llmproxy.Config{}, onlyChat(streams(chatStream, 9)))
			release := make(chan struct{})
			f.store.onAdd = func([]agl.Span) error { <-release; return nil }
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+attempt+tt.route, strings.NewReader(tt.askStream))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client(t).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if got := resp.Header.Get("Content-Type"); got != "text/event-stream; charset=utf-8" {
				t.Errorf("content type is %q", got)
			}
			var seen strings.Builder
			buf := make([]byte, 64)
			for !strings.Contains(seen.String(), "👋") {
				n, err := resp.Body.Read(buf)
				seen.Write(buf[:n])
				if err != nil {
					t.Fatalf("%v after %s", err, seen.String())
				}
			}
			if strings.Contains(seen.String(), tt.last) {
				t.Errorf("the end came before the span:\n%s", seen.String())
			}
			close(release)
			rest, err := io.ReadAll(resp.Body)
			if err != nil || !strings.Contains(seen.String()+string(rest), tt.last) {
				t.Errorf("the stream is (%v)\n%s%s", err, seen.String(), rest)
			}
			if s := f.store.span(t); problem(s) != "" || len(ints(s, "response_token_ids")) != 3 {
				t.Errorf("problem %q, ids %v", problem(s), ints(s, "response_token_ids"))
			}
		})
	}
}

// A backend may end its stream without saying that it is complete, and a caller
// need not notice.
func TestTranslatedStreamWithoutDone(t *testing.T) {
	t.Parallel()
	for _, tt := range translatedCalls {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, llmproxy.Config{}, onlyChat(streams(head+finish+usageChunk, 40)))
			status, _, body := f.post(t, attempt+"/v1"+tt.route, tt.askStream)
			if status != http.StatusOK || strings.Count(body, tt.last) != 1 || strings.Contains(body, "error") && tt.name != "response" {
				t.Errorf("status %d, stream\n%s", status, body)
			}
			if s := f.store.span(t); problem(s) != "" {
				t.Errorf("problem is %q", problem(s))
			}
		})
	}
}

// OpenAI's own servers are asked with the names that their newer models know.
func TestNamesForOpenAIsServers(t *testing.T) {
	t.Parallel()
	f := spoken(t, agl.BackendOpenAI, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if want := `{"model":"m","messages":[{"role":"user","content":"Hi"}],"max_completion_tokens":9,"logprobs":true}`; string(body) != want {
			t.Errorf("the backend was asked %s, want %s", body, want)
		}
		answers(wholeAnswer)(w, r)
	})
	if status, _, body := f.post(t, attempt+"/v1/messages", askMessage); status != http.StatusOK {
		t.Errorf("answered %d %s", status, body)
	}
}

// What goes wrong on the way is told in the caller's dialect, and what the
// backend says of it is kept.
func TestTranslatedStreamBreaks(t *testing.T) {
	t.Parallel()
	begun := "data: {\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"half\"},\"token_ids\":[7]}],\"prompt_token_ids\":[1,2]}\n\n"
	causes := []struct {
		name    string
		backend http.HandlerFunc
		onAdd   error
		problem string
		says    string
	}{
		{"backend tells an error", streams(begun+"data: {\"error\":{\"message\":\"out of memory\"}}\n\n"+done, 50), nil, "upstream_error", "out of memory"},
		{"cut off", cutAfter(begun), nil, "truncated", "ended its answer early"},
		{"no finish reason", streams(begun, 50), nil, "truncated", "without a finish reason"},
		{"no JSON", streams(begun+"data: {\"choices\"\n\n"+done, 50), nil, "upstream_error", "not a JSON object"},
		{"not stored", streams(chatStream, 50), errors.New("disk full"), "", "could not be recorded"},
	}
	shapes := map[string]string{
		"message":    "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"",
		"response":   "event: response.failed\ndata: {\"type\":\"response.failed\",",
		"completion": "data: {\"error\":{\"message\":\"",
	}
	for _, tt := range translatedCalls {
		for _, cause := range causes {
			t.Run(tt.name+" "+cause.name, func(t *testing.T) {
				t.Parallel()
				f := setup(t, llmproxy.Config{}, onlyChat(cause.backend))
				if cause.onAdd != nil {
					f.store.onAdd = func([]agl.Span) error { return cause.onAdd }
				}
				status, _, body := f.post(t, attempt+"/v1"+tt.route, tt.askStream)
				if status != http.StatusOK || !strings.Contains(body, shapes[tt.name]) || !strings.Contains(body, cause.says) || strings.Contains(body, tt.last) {
					t.Errorf("status %d, stream\n%s", status, body)
				}
				if strings.Count(body, shapes[tt.name]) != 1 {
					t.Errorf("more than one error in\n%s", body)
				}
				if cause.onAdd != nil {
					return
				}
				s := f.store.span(t)
				if text, _ := s.Attributes.String("gen_ai.completion.0.content"); problem(s) != cause.problem || text != "half" {
					t.Errorf("problem %q, text %q", problem(s), text)
				}
			})
		}
	}
}

// A caller that wants one answer is given an error in place of half of one.
func TestGatheredStreamBreaks(t *testing.T) {
	t.Parallel()
	begun := "data: {\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"half\"},\"token_ids\":[7]}],\"prompt_token_ids\":[1,2]}\n\n"
	for _, cause := range []struct {
		name    string
		backend http.HandlerFunc
		problem string
		says    string
	}{
		{"backend tells an error", streams(begun+"data: {\"error\":{\"message\":\"out of memory\"}}\n\n", 50), "upstream_error", "out of memory"},
		{"cut off", cutAfter(begun), "truncated", "ended its answer early"},
		{"no finish reason", streams(begun, 50), "truncated", "without a finish reason"},
		{"no JSON", streams(begun+"data: {\"choices\"\n\n", 50), "upstream_error", "not a JSON object"},
		{"no choices", answers(`{"choices":[]}`), "upstream_error", "no choices"},
		{"arguments that a message cannot hold", answers(`{"choices":[{"message":{"tool_calls":[{"function":{"name":"f","arguments":"{"}}]},"finish_reason":"stop"}]}`), "upstream_error", "tool call 0"},
	} {
		t.Run(cause.name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, llmproxy.Config{}, cause.backend)
			status, _, body := f.post(t, attempt+"/v1/messages", askMessage)
			if status != http.StatusBadGateway || !strings.HasPrefix(body, `{"type":"error","error":{"type":"api_error",`) || !strings.Contains(body, cause.says) {
				t.Errorf("answered %d %s", status, body)
			}
			if s := f.store.span(t); problem(s) != cause.problem {
				t.Errorf("problem is %q", problem(s))
			}
		})
	}
}

// A stream is gathered up to a limit only.
func TestStreamsHaveALimit(t *testing.T) {
	t.Parallel()
	_, texts, _ := strings.Cut(head, "\n\n")
	long := head + strings.Repeat(texts, 20) + finish + done
	for _, tt := range append(translatedCalls[:3:3], struct{ name, route, ask, askStream, last string }{"chat", "/chat/completions", ask, askStream, done}) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, llmproxy.Config{MaxAnswerBytes: 2000}, onlyChat(streams(long, 100)))
			_, _, body := f.post(t, attempt+"/v1"+tt.route, tt.askStream)
			if !strings.Contains(body, "more than 2000 bytes") || strings.Contains(body, tt.last) {
				t.Errorf("the stream is\n%s", body)
			}
			s := f.store.span(t)
			if problem(s) != "upstream_error" || len(ints(s, "response_token_ids")) == 0 {
				t.Errorf("problem %q, ids %v", problem(s), ints(s, "response_token_ids"))
			}
		})
	}
}

// Errors of a backend reach the caller as they are.
func TestTranslatedCallRelaysErrors(t *testing.T) {
	t.Parallel()
	const failed = `{"error":{"message":"slow down","type":"throttling_error","x":[1.0]}}`
	for _, tt := range translatedCalls {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, llmproxy.Config{}, onlyChat(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(http.StatusTooManyRequests)
				_, _ = io.WriteString(w, failed)
			}))
			status, header, body := f.post(t, attempt+"/v1"+tt.route, tt.askStream)
			if status != http.StatusTooManyRequests || body != failed || header.Get("Retry-After") != "7" {
				t.Errorf("answered %d %v %s", status, header, body)
			}
			if s := f.store.span(t); problem(s) != "upstream_error" {
				t.Errorf("problem is %q", problem(s))
			}
		})
	}
}

// A stream for whoever wants a stream and one answer for whoever wants that,
// whichever the backend sends.
func TestTranslatedShapeIsTheCallers(t *testing.T) {
	t.Parallel()
	for _, tt := range translatedCalls {
		for _, at := range []string{"", attempt} {
			t.Run(tt.name+" at "+at, func(t *testing.T) {
				t.Parallel()
				f := setup(t, llmproxy.Config{}, onlyChat(func(w http.ResponseWriter, r *http.Request) {
					if readBody(t, r)["stream"] == true {
						answers(wholeAnswer)(w, r)
					} else {
						streams(chatStream, 11)(w, r)
					}
				}))
				status, header, body := f.post(t, at+"/v1"+tt.route, tt.askStream)
				if status != http.StatusOK || !strings.Contains(body, tt.last) || !strings.Contains(body, "Grüße") || !strings.HasPrefix(header.Get("Content-Type"), "text/event-stream") {
					t.Errorf("asked for a stream: status %d, %s\n%s", status, header.Get("Content-Type"), body)
				}
				status, header, body = f.post(t, at+"/v1"+tt.route, tt.ask)
				if status != http.StatusOK || !strings.HasPrefix(body, "{") || !strings.Contains(body, "Grüße") || header.Get("Content-Type") != "application/json" {
					t.Errorf("asked for one answer: status %d, %s\n%s", status, header.Get("Content-Type"), body)
				}
				if at == "" {
					if n := len(f.store.stored()); n != 0 {
						t.Errorf("%d spans of calls that are of no attempt", n)
					}
					return
				}
				for _, s := range f.store.stored() {
					if ids := ints(s, "response_token_ids"); problem(s) != "" || len(ids) != 3 {
						t.Errorf("problem %q, ids %v", problem(s), ids)
					}
				}
			})
		}
	}
}

// The arguments of a tool call reach the caller as the model writes them.
func TestToolArgumentsComeAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	chunk := func(arguments string) string {
		return `data: {"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":` + arguments + `}}]}}]}` + "\n\n"
	}
	pieces := []string{`"{\"one\""`, `": \"two"`, `" three\"}"`}
	for _, tt := range translatedCalls[:2] {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			next := make(chan struct{})
			f := setup(t, llmproxy.Config{}, onlyChat(lockstep([]string{chunk(pieces[0]), chunk(pieces[1]), chunk(pieces[2]), done}, next)))
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+attempt+"/v1"+tt.route, strings.NewReader(tt.askStream))
			if err != nil {
				t.Fatal(err)
			}
			go func() { next <- struct{}{} }() // the answer begins with the first piece
			resp, err := client(t).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var seen strings.Builder
			buf := make([]byte, 512)
			for i, piece := range pieces {
				if i > 0 {
					next <- struct{}{}
				}
				for !strings.Contains(seen.String(), piece) {
					n, err := resp.Body.Read(buf)
					seen.Write(buf[:n])
					if err != nil {
						t.Fatalf("%v after %s", err, seen.String())
					}
				}
			}
			next <- struct{}{}
			_, _ = io.Copy(io.Discard, resp.Body)
		})
	}
}

// What a chat completion has no place for is refused, by name and before the
// backend is called.
func TestTranslatedCallRefuses(t *testing.T) {
	t.Parallel()
	f := setup(t, llmproxy.Config{}, onlyChat(func(http.ResponseWriter, *http.Request) { t.Error("the backend was called") }))
	tests := []struct{ route, ask, want string }{
		{"/messages", `{"model":"m","messages":[{"role":"user","content":"Hi"}]}`, `{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: field required"}}`},
		{"/messages/count_tokens", `{"model":"m","messages":[]}`, `{"type":"error","error":{"type":"invalid_request_error","message":"messages: at least one message is required"}}`},
		{"/responses", `{"model":"m","input":"Hi","previous_response_id":"resp_1"}`, `{"error":{"message":"previous_response_id: this server keeps no responses; send the whole conversation as input","type":"invalid_request_error","param":"previous_response_id","code":null}}`},
		{"/messages", `{"model":"nope"}`, `{"type":"error","error":{"type":"not_found_error","message":"model \"nope\" is not registered; registered: m"}}`},
		{"/messages", `{"model":`, `{"type":"error","error":{"type":"invalid_request_error","message":"the body is not a JSON object: expected a value at byte 9"}}`},
	}
	for _, tt := range tests {
		status, _, body := f.post(t, attempt+"/v1"+tt.route, tt.ask)
		if status != http.StatusBadRequest && status != http.StatusNotFound || body != tt.want {
			t.Errorf("%s %s is answered %d %s, want %s", tt.route, tt.ask, status, body, tt.want)
		}
	}
	if n := len(f.store.stored()); n != 4 {
		t.Errorf("%d spans, want one for each but the count", n)
	}
	status, _, body := f.post(t, "/rollout/ro/attempt/a9/v1/messages", askMessage)
	if status != http.StatusNotFound || !strings.Contains(body, `"type":"not_found_error"`) || !strings.Contains(body, "a9") {
		t.Errorf("an unknown attempt is answered %d %s", status, body)
	}
}

// A backend of Messages is asked for nothing that a message cannot be.
func TestDialectNotSpoken(t *testing.T) {
	t.Parallel()
	f := spoken(t, agl.BackendAnthropic, func(http.ResponseWriter, *http.Request) { t.Error("the backend was called") })
	status, _, body := f.post(t, "/v1/embeddings", `{"model":"m","input":"Hi"}`)
	if message, code := errorOf(t, body); status != http.StatusBadRequest || code != "dialect_not_spoken" || !strings.Contains(message, "anthropic") {
		t.Errorf("embeddings are answered %d %s", status, body)
	}
	for _, ask := range []struct{ route, body, param string }{
		{"/chat/completions", `{"model":"m","messages":[{"role":"user","content":"Hi"}],"n":2}`, "n"},
		{"/responses", `{"model":"m","input":"Hi","top_logprobs":3}`, "logprobs"},
		{"/completions", `{"model":"m","prompt":"Hi","logit_bias":{"7":1}}`, "logit_bias"},
	} {
		status, _, body := f.post(t, "/v1"+ask.route, ask.body)
		if message, _ := errorOf(t, body); status != http.StatusBadRequest || !strings.HasPrefix(message, ask.param+": ") {
			t.Errorf("%s is answered %d %s, want a refusal of %s", ask.route, status, body, ask.param)
		}
	}
}

// What Anthropic's servers say reaches callers of every other dialect, in
// whatever pieces it comes.
func TestMessagesForOtherCallers(t *testing.T) {
	t.Parallel()
	const words = "Grüße 👋"
	for _, tt := range translatedForMessages {
		for _, size := range []int{0, 1, 7, 1 << 16} {
			t.Run(fmt.Sprintf("%s in pieces of %d", tt.name, size), func(t *testing.T) {
				t.Parallel()
				f := spoken(t, agl.BackendAnthropic, func(w http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					if r.URL.Path != "/v1/messages" || r.Header.Get("X-Api-Key") != "sk-backend" || r.Header.Get("Anthropic-Version") == "" || r.Header.Get("Authorization") != "" {
						t.Errorf("%s was asked with %v", r.URL, r.Header)
					}
					if want := `"max_tokens":8192`; !strings.Contains(string(body), want) {
						t.Errorf("the backend was asked %s without %s", body, want)
					}
					if size == 0 {
						answers(nativeMessageWhole)(w, r)
					} else {
						streams(nativeMessage, size)(w, r)
					}
				})
				for _, ask := range []string{tt.ask, tt.askStream} {
					status, _, body := f.post(t, attempt+tt.route, ask, "Authorization", "Bearer sk-caller")
					if status != http.StatusOK {
						t.Fatalf("status %d: %s", status, body)
					}
					want := []string{words, "toolu_1"}
					if ask == tt.askStream {
						want = append(want, tt.last)
					} else {
						want = append(want, `{\"a\": 1}`) // in a stream it is in pieces
					}
					for _, part := range want {
						if !strings.Contains(body, part) {
							t.Errorf("the answer has no %s:\n%s", part, body)
						}
					}
				}
				for _, s := range f.store.stored() {
					if problem(s) != "token_ids_missing" {
						t.Errorf("problem is %q", problem(s))
					}
					if got, _ := s.Attributes.String("gen_ai.completion.0.tool_calls.0.arguments"); got != `{"a": 1}` {
						t.Errorf("arguments are %s", got)
					}
				}
			})
		}
	}
}

// translatedForMessages are the ways to ask a backend that has Messages only.
var translatedForMessages = append([]translatedCall{
	{"chat", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"Hi"}]}`, `{"model":"m","messages":[{"role":"user","content":"Hi"}],"stream":true}`, "data: [DONE]"},
}, translatedCalls[1:2]...) // a completion cannot call tools

func TestMessageForCompletion(t *testing.T) {
	t.Parallel()
	f := spoken(t, agl.BackendAnthropic, answers(`{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[{"type":"text","text":"Grüße"}],"stop_reason":"max_tokens","usage":{"input_tokens":2,"output_tokens":7}}`))
	status, _, body := f.post(t, attempt+"/completions", askCompletion)
	if want := `"text":"Grüße"`; status != http.StatusOK || !strings.Contains(body, want) || !strings.Contains(body, `"finish_reason":"length"`) {
		t.Errorf("answered %d %s, want %s and that the limit was met", status, body, want)
	}
	if status, _, body := f.post(t, attempt+"/completions", askComplStream); status != http.StatusOK || !strings.Contains(body, `"text":"Grüße"`) || !strings.Contains(body, "data: [DONE]") {
		t.Errorf("as a stream: %d %s", status, body)
	}
}

// That a backend has no completions is found out once.
func TestCompletionsRouteIsAskedForOnce(t *testing.T) {
	t.Parallel()
	var tried atomic.Int64
	f := setup(t, llmproxy.Config{}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/chat/completions" {
			tried.Add(1)
			http.NotFound(w, r)
			return
		}
		answers(wholeAnswer)(w, r)
	})
	for range 3 {
		if status, _, body := f.post(t, attempt+"/v1/completions", askCompletion); status != http.StatusOK || !strings.Contains(body, `"text":"Grüße 👋"`) {
			t.Errorf("answered %d %s", status, body)
		}
	}
	if n := tried.Load(); n != 1 {
		t.Errorf("the route was tried %d times", n)
	}
	// A model that the backend does not know is no missing route.
	unknown := setup(t, llmproxy.Config{}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/completions" {
			t.Errorf("%s was called", r.URL)
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"message":"The model `+"`m`"+` does not exist."}`)
	})
	if status, _, body := unknown.post(t, attempt+"/v1/completions", askCompletion); status != http.StatusNotFound || !strings.Contains(body, "does not exist") {
		t.Errorf("answered %d %s", status, body)
	}
}

func TestCountTokens(t *testing.T) {
	t.Parallel()
	const ask = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	t.Run("the backend counts", func(t *testing.T) {
		t.Parallel()
		f := setup(t, llmproxy.Config{}, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if r.URL.Path != "/tokenize" || string(body) != `{"model":"m","messages":[{"role":"user","content":"hi"}],"add_generation_prompt":true}` {
				t.Errorf("%s was asked %s", r.URL, body)
			}
			_, _ = io.WriteString(w, `{"count":31,"max_model_len":4096,"tokens":[1]}`)
		})
		if status, _, body := f.post(t, attempt+"/v1/messages/count_tokens", ask); status != http.StatusOK || body != `{"input_tokens":31}` {
			t.Errorf("answered %d %s", status, body)
		}
		if n := len(f.store.stored()); n != 0 {
			t.Errorf("%d spans for a count", n)
		}
	})
	t.Run("estimated", func(t *testing.T) {
		t.Parallel()
		var tried atomic.Int64
		f := setup(t, llmproxy.Config{}, func(w http.ResponseWriter, r *http.Request) {
			tried.Add(1)
			http.NotFound(w, r)
		})
		for range 2 {
			if status, _, body := f.post(t, "/v1/messages/count_tokens", ask); status != http.StatusOK || body != `{"input_tokens":8}` {
				t.Errorf("answered %d %s", status, body)
			}
		}
		if tried.Load() != 1 {
			t.Errorf("the backend was asked %d times", tried.Load())
		}
	})
	t.Run("Anthropic's", func(t *testing.T) {
		t.Parallel()
		f := spoken(t, agl.BackendAnthropic, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if r.URL.Path != "/v1/messages/count_tokens" || string(body) != ask {
				t.Errorf("%s was asked %s", r.URL, body)
			}
			answers(`{"input_tokens": 5}`)(w, r)
		})
		if status, _, body := f.post(t, attempt+"/v1/messages/count_tokens", ask); status != http.StatusOK || body != `{"input_tokens": 5}` {
			t.Errorf("answered %d %s", status, body)
		}
		if n := len(f.store.stored()); n != 0 {
			t.Errorf("%d spans for a count", n)
		}
	})
}

func TestEmbeddingsPassThrough(t *testing.T) {
	t.Parallel()
	const answer = `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.1, 0.2]}],"model":"served","usage":{"prompt_tokens":2,"total_tokens":2}}`
	f := setup(t, llmproxy.Config{}, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path != "/v1/embeddings" || string(body) != `{"model":"m","input":"hi"}` {
			t.Errorf("%s was asked %s", r.URL, body)
		}
		answers(answer)(w, r)
	})
	for _, at := range []string{"", attempt} {
		if status, _, body := f.post(t, at+"/v1/embeddings", `{"model":"m","input":"hi"}`); status != http.StatusOK || body != answer {
			t.Errorf("answered %d %s", status, body)
		}
	}
	if status, _, body := f.post(t, "/rollout/ro/attempt/a9/v1/embeddings", `{"model":"m"}`); status != http.StatusNotFound {
		t.Errorf("an unknown attempt is answered %d %s", status, body)
	}
	if n := len(f.store.stored()); n != 0 {
		t.Errorf("%d spans for embeddings", n)
	}
}

// Models are listed in the shape that the caller reads.
func TestModelsInBothShapes(t *testing.T) {
	t.Parallel()
	f := setup(t, llmproxy.Config{})
	f.store.models = []agl.Model{{Name: "org/a", Endpoint: "http://127.0.0.1:1/v1"}, {Name: "b", Endpoint: "http://127.0.0.1:1/v1"}}
	const (
		openA      = `{"id":"org/a","object":"model","created":1677610602,"owned_by":"openai"}`
		anthropicA = `{"type":"model","id":"org/a","display_name":"org/a","created_at":"2023-02-28T18:56:42Z"}`
		anthropicB = `{"type":"model","id":"b","display_name":"b","created_at":"2023-02-28T18:56:42Z"}`
	)
	of := map[string]string{"Anthropic-Version": "2023-06-01"}
	tests := []struct {
		path   string
		header map[string]string
		status int
		want   string
	}{
		{"/v1/models", of, 200, `{"data":[` + anthropicA + `,` + anthropicB + `],"has_more":false,"first_id":"org/a","last_id":"b"}`},
		{attempt + "/models/org/a", nil, 200, openA},
		{"/v1/models/org%2Fa", of, 200, anthropicA},
		{"/v1/models/c", of, 404, `{"type":"error","error":{"type":"not_found_error","message":"model \"c\" is not registered; registered: org/a, b"}}`},
	}
	for _, tt := range tests {
		status, body := f.do(t, http.MethodGet, tt.path, nil, tt.header)
		if status != tt.status || string(body) != tt.want {
			t.Errorf("GET %s is answered %d %s, want %d %s", tt.path, status, body, tt.status, tt.want)
		}
	}
	f.store.models = nil
	if err := f.proxy.Refresh(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	if _, body := f.do(t, http.MethodGet, "/v1/models", nil, of); string(body) != `{"data":[],"has_more":false,"first_id":null,"last_id":null}` {
		t.Errorf("no models are listed as %s", body)
	}
}
