package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"agentlightning/internal/access"
	"agentlightning/internal/logs"
	"agentlightning/otlp"
	"agentlightning/otlp/otlpgrpc"
)

// grpcPort is the second port of a server, for OTLP over gRPC.
type grpcPort struct {
	listener net.Listener
	server   *otlpgrpc.Server
}

// listenGRPC binds the port for OTLP over gRPC.
func (s *Server) listenGRPC(ctx context.Context, in *otlp.Receiver) (err error) {
	c := s.config
	if c.OTLPGRPCPort == nil {
		return nil
	}
	listener, err := listen(ctx, net.JoinHostPort(c.Host, strconv.Itoa(*c.OTLPGRPCPort)), "--otlp-grpc-port")
	if err != nil {
		return err
	}
	s.grpc = &grpcPort{listener, otlpgrpc.NewServer(in, otlpgrpc.Config{
		Logger: c.Log("otlp"), MaxMessage: int(c.MaxBody), TLS: s.tls, Admit: s.admitGRPC,
		Done: func(code connect.Code, took time.Duration) {
			c.Metrics.request(otlpgrpc.Method, http.MethodPost, httpStatus(code), took)
		},
	})}
	return nil
}

// admitGRPC is what withGuard does, for calls of gRPC.
func (s *Server) admitGRPC(ctx context.Context, authorization, apiKey string) (context.Context, error) {
	ctx = logs.WithRequestID(ctx, rand.Text())
	if s.guard == nil {
		return ctx, nil
	}
	grant, ok, err := s.guard.Admit(access.Presented(authorization, apiKey), time.Now())
	switch {
	case !ok:
		return nil, errors.New(unauthorized(err))
	case grant.Attempt != nil:
		ctx = access.WithScope(ctx, *grant.Attempt)
	}
	return ctx, nil
}

// httpStatus is the status that an answer of gRPC would have over HTTP, so that
// both are counted alike.
func httpStatus(code connect.Code) int {
	switch code { //nolint:exhaustive // the others are faults of ours
	case 0:
		return http.StatusOK
	case connect.CodeUnauthenticated:
		return http.StatusUnauthorized
	case connect.CodeCanceled:
		return statusClientClosed
	case connect.CodeResourceExhausted:
		return http.StatusInsufficientStorage
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
