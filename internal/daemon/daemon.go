// Package daemon assembles the server: every protocol on one port over one store.
package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"agentlightning/gateway"
	"agentlightning/internal/access"
	"agentlightning/llmproxy"
	"agentlightning/store"
	"agentlightning/storehttp"
)

// shutdownGrace is how long requests may go on after the server was asked to stop.
const shutdownGrace = 8 * time.Second

// errStopping is why a request was ended whose caller is still there.
var errStopping = fmt.Errorf("%w: the server is stopping (%w)", store.ErrClosed, context.Canceled)

// Config says what to serve and where.
type Config struct {
	// Store is what everything is kept in. The daemon does not close it.
	Store store.Store
	// Host is the address to listen on; empty means 127.0.0.1. One that is not
	// loopback needs AuthToken or Insecure.
	Host string
	// Port is the port to listen on; 0 takes any free one.
	Port int
	// OTLPGRPCPort is a second port, for OTLP over gRPC; nil opens none.
	OTLPGRPCPort *int
	// AuthToken must come with every request except health checks and the
	// dashboard's files; empty asks for none.
	AuthToken string
	// TLSCert and TLSKey are files in PEM with which the port speaks TLS; both or
	// neither. When they change, connections made later get what they hold then.
	TLSCert, TLSKey string
	// Insecure permits a public address without a token.
	Insecure bool
	// CORSOrigins are the origins that browsers may call from; "*" means all.
	CORSOrigins []string
	// Proxy is the configuration of the model proxy; Sink, Attempts, Models,
	// Logger and Metrics are the server's own. Its Static are backends beside those
	// kept in the store.
	Proxy llmproxy.Config
	// PublicURL is the address by which agents reach the server, which resources
	// and answers name. Empty means the one it listens on, with an address of this
	// machine in place of all of them.
	PublicURL string
	// MaxBody bounds the bodies of requests in bytes, below the limits that each
	// protocol has anyway; 0 leaves it to those.
	MaxBody int64
	// Calls says how model calls of the 1.0 protocol are made; nil means as
	// [gateway.DefaultCalls].
	Calls *gateway.CallConfig
	// Version is that of the program, for people who look.
	Version string
	// Checks looks at what the server needs; nil means that it does not.
	Checks storehttp.Checker
	// Metrics are served; nil means those that the server sees by itself.
	Metrics *Metrics
	// Log returns the logger of an area of the server, see package logs, or of
	// the server itself for the empty one. Nil means Logger for all.
	Log func(area string) *slog.Logger
	// Logger receives life events; nil discards.
	Logger *slog.Logger

	pace pace // of clients; tests have no half a minute
}

func (c Config) withDefaults() Config {
	if c.Host == "" {
		c.Host = "127.0.0.1"
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Log == nil {
		c.Log = func(string) *slog.Logger { return c.Logger }
	}
	if c.Calls == nil {
		c.Calls = new(gateway.DefaultCalls())
	}
	c.pace = c.pace.withDefaults()
	return c
}

// Validate returns an error naming the field that is wrong and what to do.
func (c Config) Validate() error {
	if c.Store == nil {
		return errors.New("daemon: Store: must be set")
	}
	if _, ok := c.Store.(store.ControlStore); !ok {
		return fmt.Errorf("daemon: Store: %T lacks what the 1.0 protocol needs, store.ControlStore", c.Store)
	}
	return c.ValidateAddress()
}

// ValidateAddress checks where the server would listen, before anything is opened.
func (c Config) ValidateAddress() error {
	if c.Port < 0 || c.Port > 65535 {
		return fmt.Errorf("port %d: must be between 0 and 65535", c.Port)
	}
	if p := c.OTLPGRPCPort; p != nil && (*p < 0 || *p > 65535 || *p == c.Port && *p != 0) {
		return fmt.Errorf("--otlp-grpc-port %d: must be between 1 and 65535, and not that of --port", *p)
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return errors.New("--tls-cert and --tls-key go together: give both files, or neither")
	}
	if c.MaxBody < 0 {
		return fmt.Errorf("--max-body %d: must not be negative", c.MaxBody)
	}
	if c.PublicURL != "" {
		if u, err := url.Parse(c.PublicURL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.User != nil {
			return fmt.Errorf("--public-url %s: must be an address such as https://agl.example.com", c.PublicURL)
		}
	}
	if c.Host != "" && !loopback(c.Host) && c.AuthToken == "" && !c.Insecure {
		return &OpenAddressError{c.Host}
	}
	return nil
}

// OpenAddressError is an address that others reach and that nothing guards.
type OpenAddressError struct{ Host string }

func (e *OpenAddressError) Error() string {
	return fmt.Sprintf("host %s is reachable by others: set --auth-token (or AGL_AUTH_TOKEN), or pass --insecure", e.Host)
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
	tls      *tls.Config   // nil speaks plain HTTP
	guard    *access.Guard // nil asks for no token
	routed   *routed
	grpc     *grpcPort // nil without OTLP over gRPC
}

// Listen binds the port and assembles the routes. Requests are answered once
// [Server.Run] runs.
func Listen(ctx context.Context, c Config) (*Server, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	listener, err := listen(ctx, net.JoinHostPort(c.Host, strconv.Itoa(c.Port)), "--port")
	if err != nil {
		return nil, err
	}
	s := &Server{config: c, listener: listener}
	if err := s.assemble(ctx); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return s, nil
}

// listen binds an address; flag is what chooses another one.
func listen(ctx context.Context, address, flag string) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("cannot listen on %s: address in use; stop the other process or pass another %s", address, flag)
	case err != nil:
		return nil, fmt.Errorf("cannot listen on %s: %w", address, err)
	}
	return listener, nil
}

// assemble prepares everything but the port.
func (s *Server) assemble(ctx context.Context) (err error) {
	c := s.config
	if c.TLSCert != "" {
		pair, err := loadCertificate(c.TLSCert, c.TLSKey, c.pace.certificate, c.Logger)
		if err != nil {
			return err
		}
		s.tls = &tls.Config{GetCertificate: pair.get, MinVersion: tls.VersionTLS12}
	}
	if c.Metrics == nil {
		if c.Metrics, err = NewMetrics(); err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
	}
	signer, err := newSigner(ctx, c)
	if err != nil {
		return fmt.Errorf("secret of the tokens of attempts: %w", err)
	}
	if c.AuthToken != "" {
		s.guard = access.NewGuard(c.AuthToken, signer)
	}
	if c.PublicURL == "" {
		c.PublicURL = s.reachableURL(ctx)
	}
	c.PublicURL = strings.TrimRight(c.PublicURL, "/")
	s.config = c
	if s.routed, err = routes(c, s.guard, signer); err != nil {
		return err
	}
	if err := s.listenGRPC(ctx, s.routed.traces); err != nil {
		return errors.Join(err, s.routed.release())
	}
	return nil
}

// URL is the root address for clients on this machine.
func (s *Server) URL() string { return s.at("127.0.0.1") }

// Store is [Config.Store] as callers of the store protocol have it: the proxy
// knows of models that are registered there before the call returns. Work in the
// same process should use it. It is not for closing.
func (s *Server) Store() store.Store { return s.routed.store }

// PublicURL is the root address for agents.
func (s *Server) PublicURL() string { return s.config.PublicURL }

// reachableURL is the root address for clients elsewhere, as far as this machine
// can tell.
func (s *Server) reachableURL(ctx context.Context) string {
	// Nothing is sent: the system is asked which address it would send from.
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp4", "192.0.2.1:9")
	if err != nil {
		return s.URL()
	}
	defer func() { _ = conn.Close() }()
	host, _, err := net.SplitHostPort(conn.LocalAddr().String())
	if err != nil {
		return s.URL()
	}
	return s.at(host)
}

// at is the root address of the server; all is what stands for all addresses.
func (s *Server) at(all string) string {
	host, port, _ := net.SplitHostPort(s.listener.Addr().String())
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = all
	}
	scheme := "http://"
	if s.tls != nil {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(host, port)
}

// OTLPGRPCAddress is where OTLP over gRPC is served, empty when it is not.
func (s *Server) OTLPGRPCAddress() string {
	if s.grpc == nil {
		return ""
	}
	return s.grpc.listener.Addr().String()
}

// Handler is what the server answers with.
func (s *Server) Handler() http.Handler { return s.routed.handler }

// Run serves until ctx ends, then stops within ten seconds: it takes no new
// requests, ends those that wait, and lets the others finish.
func (s *Server) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, s.routed.release()) }()
	requests, endRequests := context.WithCancelCause(context.WithoutCancel(ctx))
	defer endRequests(errStopping)
	looking, endLooking := context.WithCancel(ctx)
	var past sync.WaitGroup
	past.Go(func() { s.routed.history.Run(looking) })
	defer past.Wait()
	defer endLooking()
	server := &http.Server{
		Handler:           s.routed.handler,
		ReadHeaderTimeout: s.config.pace.header,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ErrorLog:          slog.NewLogLogger(s.config.Logger.Handler(), slog.LevelDebug),
	}
	listener := storehttp.WatchConns(server, s.listener)
	if s.tls != nil {
		// No HTTP/2: its streams share a connection, so that the loss of one
		// answer could not be told, and each would need limits of its own.
		listener = tls.NewListener(listener, s.tls)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	exports := make(chan error, 1) // stays empty without OTLP over gRPC
	if s.grpc != nil {
		go func() { exports <- s.grpc.server.Serve(s.grpc.listener) }()
	}
	select {
	case err = <-served:
		err = fmt.Errorf("server on %s: %w", s.listener.Addr(), err)
		served <- nil
	case err = <-exports:
		err = fmt.Errorf("OTLP over gRPC on %s: %w", s.grpc.listener.Addr(), err)
		exports <- nil
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	var calls sync.WaitGroup
	calls.Go(func() { s.endRequests(stop, endRequests) })
	var exporting sync.WaitGroup
	var exported error
	if s.grpc != nil {
		exporting.Go(func() {
			exported = s.grpc.server.Shutdown(stop)
			<-exports //nolint:errcheck // the end that Shutdown asked for
		})
	}
	stopped := server.Shutdown(stop)
	if errors.Is(stopped, context.DeadlineExceeded) {
		stopped = server.Close()
	}
	exporting.Wait()
	cancel()
	calls.Wait()
	<-served //nolint:errcheck // http.ErrServerClosed
	if stopped != nil {
		err = errors.Join(err, fmt.Errorf("stop server on %s: %w", s.listener.Addr(), stopped))
	}
	if exported != nil {
		err = errors.Join(err, fmt.Errorf("stop OTLP over gRPC on %s: %w", s.grpc.listener.Addr(), exported))
	}
	return err
}

// endRequests ends the requests that are still there a moment after the server
// was asked to stop: long polls and open streams would hold that up. Requests
// whose body is still arriving were accepted, so they get longer, and then the
// moment that their answer takes. It returns when stop ends.
func (s *Server) endRequests(stop context.Context, end context.CancelCauseFunc) {
	const moment = shutdownGrace / 8
	tick := time.NewTicker(moment / 20)
	defer tick.Stop()
	for began, arrived := time.Now(), time.Now(); ; {
		select {
		case <-stop.Done():
			return
		case now := <-tick.C:
			if s.routed.arriving.Load() > 0 && now.Sub(began) < shutdownGrace-2*moment {
				arrived = now
			}
			if now.Sub(arrived) >= moment {
				end(errStopping)
			}
		}
	}
}
