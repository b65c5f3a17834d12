package llmproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

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
	if c.recorded() {
		if c.answer, err = openai.ParseAnswer(body); err != nil {
			c.answer, c.problem, c.message = nil, semconv.ProblemUpstreamError, err.Error()
		} else {
			c.checkAnswer()
		}
	}
	if err := c.record(); err != nil {
		c.storeFailed(err)
		return
	}
	c.writeAnswer(resp, body)
}

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
	if err := c.record(); err != nil {
		c.storeFailed(err)
		return
	}
	c.writeAnswer(resp, body)
}

var errAnswerTooLong = errors.New("the answer is longer than the proxy takes")

func (c *call) readAnswer(resp *http.Response) ([]byte, error) {
	limit := c.p.cfg.MaxAnswerBytes
	body, err := readAll(io.LimitReader(resp.Body, limit+1), resp.ContentLength)
	if err == nil && int64(len(body)) > limit {
		err = fmt.Errorf("%w: more than %d bytes", errAnswerTooLong, limit)
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
	prompt, first, sampled := c.answer.PromptTokenIDs, c.answer.Choices[0].TokenIDs, int64(0)
	some := prompt != nil
	all := some
	for i := range c.answer.Choices {
		ids := c.answer.Choices[i].TokenIDs
		some = some || ids != nil
		all = all && ids != nil
		sampled += int64(len(ids))
	}
	usage := c.answer.Usage
	switch {
	case !some:
		c.problem, c.message = semconv.ProblemTokenIDsMissing, "the backend returned no token ids; it has to support return_token_ids, as vLLM does"
	case prompt == nil, first == nil:
		c.problem, c.message = semconv.ProblemTokenIDsIncomplete, "the backend returned token ids of only one of prompt and answer"
	case usage == nil: // nothing to compare with
	case int64(len(prompt)) != usage.Prompt:
		c.problem, c.message = semconv.ProblemTokenIDsIncomplete, fmt.Sprintf("%d prompt token ids, but usage counts %d", len(prompt), usage.Prompt)
	case all && sampled != usage.Completion:
		c.problem, c.message = semconv.ProblemTokenIDsIncomplete, fmt.Sprintf("%d token ids in the answer, but usage counts %d", sampled, usage.Completion)
	}
}
