// Package otlpgrpc receives traces over OTLP/gRPC, for exporters that do not
// speak OTLP/HTTP. What is received is treated as in package otlp: the same
// conversion, numbering and partial success.
//
// Only traces are served. Metrics and logs are answered with Unimplemented,
// which exporters take as a no for good.
package otlpgrpc

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"agentlightning/otlp"
	"agentlightning/store"
)

// Method is the full name of the only call that is served.
const Method = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"

// Config configures [NewServer]. The zero value serves.
type Config struct {
	// Logger gets faults of the store; nil discards.
	Logger *slog.Logger
	// MaxMessage limits an export in bytes, as sent and unpacked; 0 means 256 MiB.
	MaxMessage int
	// TLS is what the server speaks; nil speaks plain text.
	TLS *tls.Config
	// Admit looks at the authorization and the x-api-key of a call, before its
	// message is read, and returns the context that it goes on with, or why it may
	// not. Nil admits all.
	Admit func(ctx context.Context, authorization, apiKey string) (context.Context, error)
	// Done is told how long a call that could be read took and how it ended, 0
	// being OK, and of calls that were not admitted; nil for nobody.
	Done func(code connect.Code, took time.Duration)
}

// codeOK is the code of gRPC that connect has no name for.
const codeOK connect.Code = 0

// What a peer may take its time with, as on the port for HTTP.
const (
	handshakeTimeout = 30 * time.Second
	messageTimeout   = 10 * time.Minute
	writeTimeout     = time.Minute // without progress
	idleTimeout      = 10 * time.Minute
	pingTime         = time.Minute
	pingTimeout      = 20 * time.Second
	// maxCalls is how many calls one connection may have at once.
	maxCalls = 256
	// maxHeader bounds the metadata of a call in bytes.
	maxHeader = 64 << 10
	// compressFrom is the size of answers from which packing them is of use.
	compressFrom = 1 << 10
)

// Server receives exports. Make one with [NewServer]. Its methods may be called
// at the same time.
type Server struct {
	in     *otlp.Receiver
	config Config
	http   *http.Server
	errors *connect.ErrorWriter

	mu      sync.Mutex
	stopped bool
	calls   sync.WaitGroup // no more are added once stopped
}

// NewServer returns a server whose traces go to in.
func NewServer(in *otlp.Receiver, c Config) *Server {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.MaxMessage = cmp.Or(c.MaxMessage, 256<<20)
	s := &Server{in: in, config: c, errors: connect.NewErrorWriter()}
	var protocols http.Protocols // gRPC is HTTP/2 only
	protocols.SetHTTP2(c.TLS != nil)
	protocols.SetUnencryptedHTTP2(c.TLS == nil)
	s.http = &http.Server{
		Handler: s.handler(),
		// The handshake takes the shortest of these.
		ReadHeaderTimeout: handshakeTimeout,
		ReadTimeout:       messageTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		Protocols:         &protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxCalls, SendPingTimeout: pingTime, PingTimeout: pingTimeout, WriteByteTimeout: writeTimeout,
		},
		ErrorLog: slog.NewLogLogger(c.Logger.Handler(), slog.LevelDebug),
	}
	if c.TLS != nil {
		s.http.TLSConfig = c.TLS.Clone()
	}
	return s
}

// Serve answers calls on the connections of a listener, which it closes. It
// returns nil after [Server.Shutdown] or [Server.Close].
func (s *Server) Serve(listener net.Listener) error {
	var err error
	if s.config.TLS != nil {
		err = s.http.ServeTLS(listener, "", "")
	} else {
		err = s.http.Serve(listener)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Shutdown takes no new calls and lets those that are there finish until ctx
// ends; then it cuts them off, which is no error.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if ctx.Err() != nil {
		err = s.http.Close()
	}
	s.wait()
	return err
}

// Close cuts off the calls that are there, and waits until they have noticed.
func (s *Server) Close() error {
	err := s.http.Close()
	s.wait()
	return err
}

// wait waits for the calls once no more can come.
func (s *Server) wait() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.calls.Wait()
}

// begin counts a call, and is false when the server has stopped.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.calls.Add(1)
	}
	return !s.stopped
}

// handler sorts out what is no call of ours.
func (s *Server) handler() http.Handler {
	export := connect.NewUnaryHandler(Method, s.export,
		connect.WithCodec(codec{}), connect.WithReadMaxBytes(s.config.MaxMessage), connect.WithCompressMinBytes(compressFrom),
		connect.WithRequestGate(s.admit))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.begin() {
			return // its connection is closed
		}
		defer s.calls.Done()
		kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
		switch {
		case kind != "application/grpc" && kind != "application/grpc+proto":
			http.Error(w, "this port is for gRPC in protobuf; OTLP over HTTP has another", http.StatusUnsupportedMediaType)
		case r.URL.Path != Method:
			// A caller that is gone needs no answer.
			_ = s.errors.Write(w, r, connect.NewError(connect.CodeUnimplemented, fmt.Errorf("unknown method %s; traces are all that is served", r.URL.Path)))
		default:
			export.ServeHTTP(w, r)
		}
	})
}

// admit is called before the message of a call is read.
func (s *Server) admit(ctx context.Context, _ connect.Spec, _ connect.Peer, header http.Header) (context.Context, error) {
	if s.config.Admit == nil {
		return ctx, nil
	}
	began := time.Now()
	ctx, err := s.config.Admit(ctx, header.Get("Authorization"), header.Get("X-Api-Key"))
	if err != nil {
		s.done(connect.CodeUnauthenticated, began)
		return nil, connect.NewError(connect.CodeUnauthenticated, err)
	}
	return ctx, nil
}

// export is the call.
func (s *Server) export(ctx context.Context, req *connect.Request[request]) (*connect.Response[otlp.Rejected], error) {
	began := time.Now()
	traces := req.Msg.traces
	if traces == (ptrace.Traces{}) { // a message without bytes is not decoded
		traces = ptrace.NewTraces()
	}
	rejected, err := s.in.Receive(ctx, traces)
	if err != nil {
		failed := s.failure(ctx, err)
		s.done(failed.Code(), began)
		return nil, failed
	}
	s.done(codeOK, began)
	return connect.NewResponse(&rejected), nil
}

func (s *Server) done(code connect.Code, began time.Time) {
	if s.config.Done != nil {
		s.config.Done(code, time.Since(began))
	}
}

// failure is what a caller is told of an error of the store.
func (s *Server) failure(ctx context.Context, err error) *connect.Error {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, ctx.Err())
	case ctx.Err() != nil:
		return connect.NewError(connect.CodeCanceled, ctx.Err())
	}
	s.config.Logger.ErrorContext(ctx, "cannot store an export", "err", err)
	switch {
	case errors.Is(err, store.ErrClosed):
		return connect.NewError(connect.CodeUnavailable, errors.New("the server is shutting down; try again in a moment"))
	case errors.Is(err, store.ErrFull):
		return connect.NewError(connect.CodeResourceExhausted, errors.New("the disk of the server is full; nothing was stored"))
	}
	return connect.NewError(connect.CodeInternal, errors.New("internal error"))
}
