// Package daemon assembles the server: every protocol on one port over one store.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/storehttp"
)

const (
	// shutdownGrace is how long requests may go on after the server was asked to stop.
	shutdownGrace = 8 * time.Second
	// maxHeaderBytes lets query strings be long: at least 1 MiB of request line.
	maxHeaderBytes = 2 << 20
)

// Config says what to serve and where.
type Config struct {
	// Store is what everything is kept in. The daemon does not close it.
	Store store.Store
	// Host is the address to listen on; empty means 127.0.0.1. One that is not
	// loopback needs AuthToken or Insecure.
	Host string
	// Port is the port to listen on; 0 takes any free one.
	Port int
	// AuthToken must come with every request except health checks and the
	// dashboard's files; empty asks for none.
	AuthToken string
	// Insecure permits a public address without a token.
	Insecure bool
	// CORSOrigins are the origins that browsers may call from; "*" means all.
	CORSOrigins []string
	// Models are backends of the proxy beside those kept in the store.
	Models []agl.Model
	// Logger receives life events; nil discards.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Host == "" {
		c.Host = "127.0.0.1"
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate returns an error naming the field that is wrong and what to do.
func (c Config) Validate() error {
	if c.Store == nil {
		return errors.New("daemon: Store: must be set")
	}
	return c.ValidateAddress()
}

// ValidateAddress checks where the server would listen, before anything is opened.
func (c Config) ValidateAddress() error {
	if c.Port < 0 || c.Port > 65535 {
		return fmt.Errorf("port %d: must be between 0 and 65535", c.Port)
	}
	if c.Host != "" && !loopback(c.Host) && c.AuthToken == "" && !c.Insecure {
		return fmt.Errorf("host %s is reachable by others: set --auth-token (or AGL_AUTH_TOKEN), or pass --insecure", c.Host)
	}
	return nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// Server is a server that listens. Make one with [Listen].
type Server struct {
	config   Config
	listener net.Listener
	handler  http.Handler
	release  func() error // ends what the handler holds
}

// Listen binds the port and assembles the routes. Requests are answered once
// [Server.Run] runs.
func Listen(ctx context.Context, c Config) (*Server, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	address := net.JoinHostPort(c.Host, strconv.Itoa(c.Port))
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("cannot listen on %s: address in use; stop the other process or pass another --port", address)
	case err != nil:
		return nil, fmt.Errorf("cannot listen on %s: %w", address, err)
	}
	s := &Server{config: c, listener: listener}
	s.handler, s.release, err = routes(c, prometheus.NewRegistry())
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return s, nil
}

// URL is the root address for clients on this machine.
func (s *Server) URL() string {
	host, port, _ := net.SplitHostPort(s.listener.Addr().String())
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// Handler is what the server answers with.
func (s *Server) Handler() http.Handler { return s.handler }

// Run serves until ctx ends, then stops within ten seconds: it takes no new
// requests, ends those that wait, and lets the others finish.
func (s *Server) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, s.release()) }()
	requests, endRequests := context.WithCancel(context.WithoutCancel(ctx))
	defer endRequests()
	server := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: 30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ErrorLog:          slog.NewLogLogger(s.config.Logger.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(storehttp.WatchConns(server, s.listener)) }()
	select {
	case err := <-served:
		return fmt.Errorf("server on %s: %w", s.listener.Addr(), err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	// Long polls and open streams would hold the shutdown up: they get a moment
	// to end by themselves, then their contexts end.
	release := time.AfterFunc(shutdownGrace/8, endRequests)
	defer release.Stop()
	err = server.Shutdown(stop)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	<-served
	if err != nil {
		return fmt.Errorf("stop server on %s: %w", s.listener.Addr(), err)
	}
	return nil
}
