package lesson

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	agl "agentlightning"
	"agentlightning/gateway"
	"agentlightning/learner/native"
)

// Policy is a built-in model behind an HTTP server of its own, as an inference
// engine would be.
type Policy struct {
	Model *native.Model

	name     string
	endpoint string
	server   *http.Server
	served   chan error
}

// StartPolicy makes an untrained model and serves it under a name on a free
// loopback port.
func StartPolicy(ctx context.Context, name string, config native.Config, tok *native.Tokenizer, logger *slog.Logger) (*Policy, error) {
	model, err := native.New(config, tok)
	if err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("serve the model: %w", err), model.Close())
	}
	p := &Policy{Model: model, name: name, endpoint: "http://" + listener.Addr().String() + "/v1", served: make(chan error, 1)}
	p.server = &http.Server{
		Handler:           native.NewServer(model, native.ServerConfig{Name: name, Logger: logger}),
		ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	go func() { p.served <- p.server.Serve(listener) }()
	return p, nil
}

// Offer registers the model with a server, in place of what an earlier process
// offered under the same name.
func (p *Policy) Offer(ctx context.Context, server, token string) error {
	client := &gateway.Client{BaseURL: server, Token: token}
	if err := client.DeleteModels(ctx, p.name); err != nil {
		return fmt.Errorf("offer the model to %s: %w", server, err)
	}
	if err := client.PutModels(ctx, agl.Model{Name: p.name, Endpoint: p.endpoint}); err != nil {
		return fmt.Errorf("offer the model to %s: %w", server, err)
	}
	return nil
}

// Close stops serving and ends the model.
func (p *Policy) Close() error {
	err := p.server.Close()
	if served := <-p.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return errors.Join(err, p.Model.Close())
}

// Resource leads agents to a model behind the proxy of a server. When that asks
// for a token, runners give each attempt one of its own.
func Resource(name, server, model string) agl.NamedResource {
	return agl.NamedResource{Name: name, Resource: agl.ProxyLLM{Endpoint: server + "/v1", Model: model}}
}
