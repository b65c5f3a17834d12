package lesson

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	agl "agentlightning"
	"agentlightning/internal/daemon"
	"agentlightning/learner/native"
	"agentlightning/llmproxy"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/sqlite"
)

// scanInterval is how often attempts are checked for time-outs.
const scanInterval = time.Second

// Site is a server of this process.
type Site struct {
	Store store.Store
	URL   string

	stop     context.CancelFunc
	served   chan error
	logger   *slog.Logger
	policies []*Policy
	// folder is removed at the end; empty when the caller keeps the database.
	folder string
}

// OpenOver starts a server as the options say, over their database or one that is
// removed at the end, with models behind its proxy, and says on out where it is.
// Work that an earlier run left there is cancelled.
func OpenOver(ctx context.Context, o *Options, out io.Writer, logger *slog.Logger, models ...agl.Model) (*Site, error) {
	path, folder, kept := o.DB, "", o.DB
	if path == "" {
		var err error
		if folder, err = os.MkdirTemp("", "agl-example-"); err != nil {
			return nil, err
		}
		path, kept = filepath.Join(folder, "agl.db"), "a temporary file; --db FILE keeps it"
	}
	backend, err := sqlite.Open(ctx, sqlite.Config{Path: path, Logger: logger})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	s, err := OpenSite(ctx, o.Port, backend, models, logger)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	s.folder = folder
	fmt.Fprintf(out, "server and dashboard on %s, data in %s\n", s.URL, kept)
	if err := s.AbandonOpenWork(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// StartPolicy makes an untrained model that the server offers until it is closed.
func (s *Site) StartPolicy(ctx context.Context, name string, config native.Config, tok *native.Tokenizer) (*native.Model, error) {
	p, err := StartPolicy(ctx, name, config, tok, s.logger)
	if err != nil {
		return nil, err
	}
	s.policies = append(s.policies, p)
	return p.Model, p.Offer(ctx, s.URL, "")
}

// OpenSite starts a server over a backend; a port that is taken is replaced by a
// free one.
func OpenSite(ctx context.Context, port int, backend engine.Backend, models []agl.Model, logger *slog.Logger) (*Site, error) {
	metrics, err := daemon.NewMetrics()
	if err != nil {
		return nil, err
	}
	st := engine.New(backend, engine.Config{HealthScanInterval: scanInterval, Logger: logger, OnChange: metrics.OnChange})
	config := daemon.Config{Store: st, Port: port, Proxy: llmproxy.Config{Static: models}, Logger: logger, Metrics: metrics}
	server, err := daemon.Listen(ctx, config)
	if err != nil {
		config.Port = 0
		server, err = daemon.Listen(ctx, config)
	}
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	// The server outlives the interrupt: agents that stop report to it.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &Site{Store: st, URL: server.URL(), stop: stop, served: make(chan error, 1), logger: logger}
	go func() { s.served <- server.Run(serving) }()
	return s, nil
}

// Close stops the server and the policies and closes the store.
func (s *Site) Close() error {
	s.stop()
	err := errors.Join(<-s.served, s.Store.Close())
	for _, p := range s.policies {
		err = errors.Join(err, p.Close())
	}
	return errors.Join(err, os.RemoveAll(s.folder))
}

// AbandonOpenWork cancels what an earlier run left in the queue: its model is
// gone.
func (s *Site) AbandonOpenWork(ctx context.Context) error {
	page, err := s.Store.QueryRollouts(ctx, store.RolloutQuery{StatusIn: []agl.RolloutStatus{
		agl.RolloutQueuing, agl.RolloutRequeuing, agl.RolloutPreparing, agl.RolloutRunning,
	}})
	if err != nil {
		return err
	}
	for i := range page.Items {
		_, err := s.Store.UpdateRollout(ctx, page.Items[i].RolloutID, store.RolloutUpdate{Status: store.To(agl.RolloutCancelled)})
		if err != nil {
			return err
		}
	}
	return nil
}
