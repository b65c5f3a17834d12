package llmproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"agentlightning/llm/genai"
	"agentlightning/llm/openai"
	"agentlightning/semconv"
)

// relayWhole brings back an answer that comes in one piece.
func (c *call) relayWhole(ctx context.Context, resp *http.Response) {
	body, err := c.readAnswer(resp)
	if err != nil {
		c.sendFailed(ctx, err)
		return
	}
	out, ok := c.rewrite(resp, body)
	if !ok {
		return
	}
	if c.gathers() {
		gather := c.plan.gather()
		if err = gather.AddWhole(body); err != nil {
			c.problem, c.message = semconv.ProblemUpstreamError, err.Error()
		} else {
			c.answer = gather.Answer()
			c.checkAnswer()
		}
	}
	c.answerWhole(resp, out)
}

// relayGathered brings back a stream to a caller that wants one answer.
func (c *call) relayGathered(ctx context.Context, resp *http.Response) {
	gather, events, size := c.plan.gather(), openai.NewEventReader(resp.Body), int64(0)
	for done := false; !done; {
		event, err := events.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if size += int64(len(event.Raw)); size > c.p.cfg.MaxAnswerBytes {
			err = tooLong(c.p.cfg.MaxAnswerBytes)
		}
		if err != nil {
			c.answer = gather.Answer()
			c.sendFailed(ctx, err)
			return
		}
		if len(event.Data) == 0 {
			continue
		}
		chunk, err := gather.Add(event.Data)
		if err != nil || chunk.Error != "" {
			c.answer = gather.Answer()
			c.failBackend(semconv.ProblemUpstreamError, cmp.Or(chunk.Error, fmt.Sprint(err)))
			return
		}
		done = chunk.Last
	}
	c.answer, c.chunks = gather.Answer(), gather.Chunks()
	if c.checkAnswer(); c.problem == semconv.ProblemTruncated {
		c.failBackend(c.problem, c.message)
		return
	}
	c.answerWhole(resp, nil)
}

// failBackend answers a call whose backend gave an answer that is none.
func (c *call) failBackend(problem, why string) {
	c.fail(problem, http.StatusBadGateway, &openai.Error{
		Message: fmt.Sprintf("the backend of model %q at %s: %s", c.backend.Name, c.backend.Endpoint, why),
		Type:    openai.TypeServer, Code: "backend_error",
	})
}

// answerWhole records the call and answers it with the body of the backend, or
// with what a translator makes of the answer.
func (c *call) answerWhole(resp *http.Response, body []byte) {
	t := c.plan.translate
	if t == nil {
		if err := c.record(); err != nil {
			c.storeFailed(err)
			return
		}
		c.writeAnswer(resp, body)
		return
	}
	if c.answer == nil || len(c.answer.Choices) == 0 {
		c.failBackend(semconv.ProblemUpstreamError, cmp.Or(c.message, "the answer has no choices"))
		return
	}
	media := "application/json"
	var err error
	if c.req.Stream {
		// The caller waits for a stream, so it is given one of a single chunk.
		media = eventStream
		if body, err = t.AppendChunk(nil, body); err == nil {
			body = t.AppendEnd(body)
		}
	} else {
		body, err = t.AppendAnswer(nil, c.answer)
	}
	if err != nil {
		c.failBackend(semconv.ProblemUpstreamError, "its answer cannot be translated: "+err.Error())
		return
	}
	if err := c.record(); err != nil {
		c.storeFailed(err)
		return
	}
	resp.Header.Set("Content-Type", media)
	c.writeAnswer(resp, body)
}

// eventStream is the media type of streams that the proxy writes itself.
const eventStream = "text/event-stream; charset=utf-8"

// relayFailure brings back an error of the backend as it is.
func (c *call) relayFailure(ctx context.Context, resp *http.Response) {
	body, err := c.readAnswer(resp)
	if err != nil {
		c.sendFailed(ctx, err)
		return
	}
	c.problem = semconv.ProblemUpstreamError
	if resp.StatusCode < 500 && openai.IsContextOverflow(body) {
		c.problem = semconv.ProblemContextOverflow
	}
	c.message = fmt.Sprintf("the backend answered %d: %s", resp.StatusCode, openai.ErrorMessage(body))
	out, ok := c.rewrite(resp, body)
	if !ok {
		return
	}
	if err := c.record(); err != nil {
		c.storeFailed(err)
		return
	}
	c.writeAnswer(resp, out)
}

var errAnswerTooLong = errors.New("the answer is longer than the proxy takes")

func tooLong(limit int64) error { return fmt.Errorf("%w: more than %d bytes", errAnswerTooLong, limit) }

func (c *call) readAnswer(resp *http.Response) ([]byte, error) {
	limit := c.p.cfg.MaxAnswerBytes
	body, err := readAll(io.LimitReader(resp.Body, limit+1), resp.ContentLength)
	if err == nil && int64(len(body)) > limit {
		err = tooLong(limit)
	}
	return body, err
}

func (c *call) writeAnswer(resp *http.Response, body []byte) {
	copyHeaders(c.w.Header(), resp.Header, responseOnly)
	c.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	c.w.WriteHeader(resp.StatusCode)
	_, _ = c.w.Write(body) // the caller is gone if this fails; its call is recorded
}

// checkAnswer looks for a reason to leave a complete answer out of training.
func (c *call) checkAnswer() {
	if !c.answer.Finished() {
		c.problem, c.message = semconv.ProblemTruncated, "the answer ended without a finish reason"
		return
	}
	if !c.recorded() {
		return
	}
	c.problem, c.message = genai.CheckTokenIDs(c.answer)
}
