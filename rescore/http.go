package rescore

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// HTTP scores by a service: the attempt is posted as JSON, the answer is as
// [ParseScore] reads it. Answers 429 and 5xx, and connections that fail, are tried
// again.
type HTTP struct {
	URL    string            // required
	Header map[string]string // such as authorization; no part of the digest
	// Client makes the calls; nil means one with a time limit of a minute.
	Client *http.Client
	// Tries is how often a call is made at the most; 0 means 4.
	Tries int
	// Pause is the time before the second try, twice that before the third; 0
	// means a second. A service's Retry-After counts instead, up to a minute.
	Pause time.Duration
}

var _ Remote = (*HTTP)(nil)

func (h *HTTP) String() string { return "http: " + h.URL }

// Digest implements [Scorer].
func (h *HTTP) Digest() string { return digest("http", h.URL) }

// Estimate implements [Remote]; nobody knows what the service does.
func (h *HTTP) Estimate([]Attempt) int64 { return 0 }

// Score implements [Scorer].
func (h *HTTP) Score(ctx context.Context, attempts []Attempt) []Score {
	return scoreEach(ctx, attempts, h.one)
}

// longestPause bounds what a service may ask for.
const longestPause = time.Minute

func (h *HTTP) one(ctx context.Context, asked []byte) Score {
	tries, pause := h.Tries, h.Pause
	if tries == 0 {
		tries = 4
	}
	if pause == 0 {
		pause = time.Second
	}
	for try := 1; ; try++ {
		score, again, wait := h.post(ctx, asked)
		if !again || try >= tries || ctx.Err() != nil {
			return score
		}
		if wait == 0 {
			wait = pause << (try - 1)
		}
		timer := time.NewTimer(min(wait, longestPause))
		select {
		case <-ctx.Done():
			timer.Stop()
			return failed("interrupted", context.Cause(ctx))
		case <-timer.C:
		}
	}
}

func (h *HTTP) post(ctx context.Context, asked []byte) (s Score, again bool, wait time.Duration) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL, bytes.NewReader(asked))
	if err != nil {
		return failed("the service cannot be asked", err), false, 0
	}
	req.Header.Set("Content-Type", "application/json")
	for name, value := range h.Header {
		req.Header.Set(name, value)
	}
	client := h.Client
	if client == nil {
		client = &http.Client{Timeout: time.Minute}
	}
	resp, err := client.Do(req)
	if err != nil {
		return failed("the service cannot be reached", err), true, 0
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	_ = resp.Body.Close() // what matters has been read
	switch {
	case err != nil:
		return failed("the answer broke off", err), true, 0
	case len(body) > maxAnswer:
		return failed("answer cannot be read", fmt.Errorf("it is longer than %d bytes", maxAnswer)), false, 0
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500:
		if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
			wait = time.Duration(seconds) * time.Second
		}
		return refused(resp.StatusCode, body), true, wait
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return refused(resp.StatusCode, body), false, 0
	}
	return ParseScore(body), false, 0
}

func refused(status int, body []byte) Score {
	return failed("the service answered "+strconv.Itoa(status), fmt.Errorf("%s", clip(string(bytes.TrimSpace(body)), 300)))
}
