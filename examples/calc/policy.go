package main

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

// modelName is the name under which the proxy knows the model in training.
const modelName = "calc-policy"

// policy is the model in training behind an HTTP server of its own, as an
// inference engine would be.
type policy struct {
	model    *native.Model
	tok      *native.Tokenizer
	endpoint string
	server   *http.Server
	served   chan error
}

// startPolicy makes an untrained model and serves it on a free loopback port.
func startPolicy(ctx context.Context, config native.Config, logger *slog.Logger) (*policy, error) {
	tok := newTokenizer()
	model, err := native.New(config, tok)
	if err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("serve the model: %w", err), model.Close())
	}
	p := &policy{model: model, tok: tok, endpoint: "http://" + listener.Addr().String() + "/v1", served: make(chan error, 1)}
	p.server = &http.Server{
		Handler:           native.NewServer(model, native.ServerConfig{Name: modelName, Logger: logger}),
		ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	go func() { p.served <- p.server.Serve(listener) }()
	return p, nil
}

// entry is what the proxy is told of the model.
func (p *policy) entry() agl.Model { return agl.Model{Name: modelName, Endpoint: p.endpoint} }

// offer registers the model with a server, in place of what an earlier process
// of this example offered under the same name.
func (p *policy) offer(ctx context.Context, server, token string) error {
	client := &gateway.Client{BaseURL: server, Token: token}
	if err := client.DeleteModels(ctx, modelName); err != nil {
		return fmt.Errorf("offer the model to %s: %w", server, err)
	}
	if err := client.PutModels(ctx, p.entry()); err != nil {
		return fmt.Errorf("offer the model to %s: %w", server, err)
	}
	return nil
}

// close stops serving and ends the model.
func (p *policy) close() error {
	err := p.server.Close()
	if served := <-p.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return errors.Join(err, p.model.Close())
}

// resources lead agents to a model behind the proxy of a server. When that asks
// for a token, runners give each attempt one of its own.
func resources(server, model string) agl.NamedResources {
	return agl.NamedResources{{Name: "main_llm", Resource: agl.ProxyLLM{Endpoint: server + "/v1", Model: model}}}
}
