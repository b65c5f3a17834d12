package storehttp

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"agentlightning/store"
)

// Client is a store at the other end of the protocol. It is safe for concurrent
// use and meant to be shared: one client serves any number of runners.
//
// Calls are repeated while the server cannot be reached, so that a restart of
// the server is a pause and not a failure; what must not be done twice carries
// a key by which a server of ours knows the repetition. Against the Python
// server, which knows neither keys nor waiting nor requests in bulk, the client
// asks one by one and polls.
type Client struct {
	base   string // without a slash at the end
	http   *http.Client
	token  string
	window time.Duration
	poll   time.Duration
	chunk  time.Duration // how long a server is asked to wait at a time
	log    *slog.Logger

	// noBulk is set once the server turns out to lack our routes.
	noBulk atomic.Bool

	mu     sync.Mutex
	closed bool
	calls  map[*context.CancelCauseFunc]struct{}
}

var _ store.Store = (*Client)(nil)

// Option changes how a [Client] calls.
type Option interface{ apply(*Client) }

type option func(*Client)

func (o option) apply(c *Client) { o(c) }

// WithHTTPClient replaces the HTTP client, whose own is sized for many runners.
// It must not have a timeout: calls wait for work.
func WithHTTPClient(h *http.Client) Option { return option(func(c *Client) { c.http = h }) }

// WithToken sends a bearer token with every request.
func WithToken(token string) Option { return option(func(c *Client) { c.token = token }) }

// WithRetryWindow sets how long a call goes on trying while the server cannot
// be reached, 30 seconds otherwise. 0 tries once.
func WithRetryWindow(d time.Duration) Option { return option(func(c *Client) { c.window = d }) }

// WithPollInterval sets how often to ask a server for work that cannot let a
// request wait, 250 milliseconds otherwise.
func WithPollInterval(d time.Duration) Option { return option(func(c *Client) { c.poll = d }) }

// WithLogger sets where retries are reported; they are discarded otherwise.
func WithLogger(l *slog.Logger) Option { return option(func(c *Client) { c.log = l }) }

// NewClient returns a client of the server at baseURL, which is the address
// without /v1/agl. It does not call the server; [Client.Health] does.
func NewClient(baseURL string, opts ...Option) (*Client, error) {
	base := strings.TrimSuffix(strings.TrimRight(baseURL, "/"), Prefix)
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("server address %q: must look like http://127.0.0.1:4747", baseURL)
	}
	// A token in the address, as in http://agl:TOKEN@host, is sent as any other.
	password, _ := u.User.Password()
	u.User = nil
	c := &Client{
		token: password, base: strings.TrimSuffix(u.String(), "/"), window: 30 * time.Second, poll: 250 * time.Millisecond, chunk: waitChunk,
		log: slog.New(slog.DiscardHandler), calls: map[*context.CancelCauseFunc]struct{}{},
	}
	for _, o := range opts {
		o.apply(c)
	}
	if c.http == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConns = 0
		transport.MaxIdleConnsPerHost = 1024
		c.http = &http.Client{Transport: transport}
	}
	return c, nil
}

// URL returns the address of the server, without a slash at the end.
func (c *Client) URL() string { return c.base }

// Close ends waiting calls with [store.ErrClosed]. The server goes on.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	for cancel := range c.calls {
		(*cancel)(store.ErrClosed)
	}
	c.mu.Unlock()
	c.http.CloseIdleConnections()
	return nil
}

// Health asks the server once whether it is there.
func (c *Client) Health(ctx context.Context) error {
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	_, err = c.try(ctx, &request{method: http.MethodGet, path: "/health"})
	return err
}

// begin binds a call to the life of the client.
func (c *Client) begin(ctx context.Context) (context.Context, func(), error) {
	ctx, cancel := context.WithCancelCause(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		cancel(nil)
		return nil, nil, store.ErrClosed
	}
	c.calls[&cancel] = struct{}{}
	return ctx, func() {
		c.mu.Lock()
		delete(c.calls, &cancel)
		c.mu.Unlock()
		cancel(nil)
	}, nil
}
