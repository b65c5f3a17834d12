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
	"log/slog"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/encoding/gzip" // exporters compress with it
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"agentlightning/otlp"
	"agentlightning/store"
)

// Method is the full name of the only call that is served.
const Method = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"

// Config configures [NewServer]. The zero value serves.
type Config struct {
	// Logger gets faults of the store; nil discards.
	Logger *slog.Logger
	// MaxMessage limits an export in bytes, unpacked; 0 means 256 MiB.
	MaxMessage int
	// TLS is what the server speaks; nil speaks plain text.
	TLS *tls.Config
	// Admit looks at the authorization and the x-api-key of a call and returns
	// the context that it goes on with, or why it may not. Nil admits all.
	Admit func(ctx context.Context, authorization, apiKey string) (context.Context, error)
	// Done is told how long a call took and how it ended; nil for nobody.
	Done func(code codes.Code, took time.Duration)
}

// What a peer may take its time with, as on the port for HTTP.
const (
	handshakeTimeout = 30 * time.Second
	idleTimeout      = 10 * time.Minute
	pingTime         = time.Minute
	pingTimeout      = 20 * time.Second
	// maxCalls is how many calls one connection may have at once.
	maxCalls = 256
	// maxHeader bounds the metadata of a call in bytes.
	maxHeader = 64 << 10
)

// NewServer returns a gRPC server whose traces go to in. It is the caller's to
// serve and to stop.
func NewServer(in *otlp.Receiver, c Config) *grpc.Server {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(cmp.Or(c.MaxMessage, 256<<20)),
		grpc.MaxConcurrentStreams(maxCalls),
		grpc.MaxHeaderListSize(maxHeader),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTimeout, Time: pingTime, Timeout: pingTimeout}),
		grpc.UnaryInterceptor(c.intercept),
		grpc.ForceServerCodecV2(newCodec()),
	}
	if c.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(c.TLS.Clone())))
	}
	s := grpc.NewServer(options...)
	ptraceotlp.RegisterGRPCServer(s, &receiver{in: in, log: c.Logger})
	return s
}

// intercept admits, counts and times calls.
func (c *Config) intercept(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (answer any, err error) {
	began := time.Now()
	if c.Done != nil {
		defer func() { c.Done(status.Code(err), time.Since(began)) }()
	}
	if c.Admit != nil {
		fields, _ := metadata.FromIncomingContext(ctx)
		if ctx, err = c.Admit(ctx, first(fields, "authorization"), first(fields, "x-api-key")); err != nil {
			return nil, status.Error(codes.Unauthenticated, err.Error())
		}
	}
	return next(ctx, req)
}

func first(fields metadata.MD, name string) string {
	if values := fields.Get(name); len(values) > 0 {
		return values[0]
	}
	return ""
}

// receiver implements the service.
type receiver struct {
	ptraceotlp.UnimplementedGRPCServer

	in  *otlp.Receiver
	log *slog.Logger
}

// Export implements [ptraceotlp.GRPCServer].
func (r *receiver) Export(ctx context.Context, req ptraceotlp.ExportRequest) (ptraceotlp.ExportResponse, error) {
	answer := ptraceotlp.NewExportResponse()
	rejected, err := r.in.Receive(ctx, req.Traces())
	if err == nil {
		if rejected.Spans > 0 {
			answer.PartialSuccess().SetRejectedSpans(rejected.Spans)
			answer.PartialSuccess().SetErrorMessage(rejected.Reason)
		}
		return answer, nil
	}
	if ctx.Err() != nil {
		return answer, status.FromContextError(ctx.Err()).Err()
	}
	r.log.ErrorContext(ctx, "cannot store an export", "err", err)
	switch {
	case errors.Is(err, store.ErrClosed):
		return answer, status.Error(codes.Unavailable, "the server is shutting down; try again in a moment")
	case errors.Is(err, store.ErrFull):
		return answer, status.Error(codes.ResourceExhausted, "the disk of the server is full; nothing was stored")
	}
	return answer, status.Error(codes.Internal, "internal error")
}
