package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"agentlightning/learner/native"
)

// builtinPrefix marks a backend that this process serves itself: what follows is
// the folder of a checkpoint.
const builtinPrefix = "builtin:"

// builtins are the built-in models that a server serves beside itself. Each has a
// port of its own on loopback, so that the proxy calls it as it calls any other.
type builtins struct {
	models  []*native.Model
	servers []*http.Server
	served  chan error // one of each server, when it ends
}

// startBuiltins opens the checkpoints that entries of --model name and serves
// them. It returns the entries with their addresses; close what it returns.
func startBuiltins(ctx context.Context, entries []string, logger *slog.Logger) (_ *builtins, _ []string, err error) {
	b := &builtins{served: make(chan error, len(entries))}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	out := make([]string, len(entries))
	for i, entry := range entries {
		name, rest, _ := strings.Cut(entry, "=")
		dir, found := strings.CutPrefix(rest, builtinPrefix)
		if !found {
			out[i] = entry
			continue
		}
		dir, options, more := strings.Cut(dir, ",")
		address, version, err := b.start(ctx, name, dir, logger)
		if err != nil {
			return nil, nil, fmt.Errorf("--model %s: %w", entry, err)
		}
		out[i] = fmt.Sprintf("%s=http://%s/v1,version=%d", name, address, version)
		if more {
			out[i] += "," + options
		}
	}
	return b, out, nil
}

func (b *builtins) start(ctx context.Context, name, dir string, logger *slog.Logger) (address string, version int64, err error) {
	model, err := native.Open(dir, native.Config{})
	if err != nil {
		return "", 0, err
	}
	b.models = append(b.models, model)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", 0, err
	}
	server := &http.Server{
		Handler:           native.NewServer(model, native.ServerConfig{Name: name, Logger: logger}),
		ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	b.servers = append(b.servers, server)
	go func() { b.served <- server.Serve(listener) }()
	return listener.Addr().String(), model.Version(), nil
}

// close ends the servers, then the models.
func (b *builtins) close() (err error) {
	for _, s := range b.servers {
		err = errors.Join(err, s.Close())
	}
	for range b.servers {
		if served := <-b.served; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
	}
	for _, m := range b.models {
		err = errors.Join(err, m.Close())
	}
	return err
}
