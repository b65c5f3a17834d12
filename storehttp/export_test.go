package storehttp

import "time"

// WithWaitChunk makes long waits short.
func WithWaitChunk(d time.Duration) Option { return option(func(c *Client) { c.chunk = d }) }
