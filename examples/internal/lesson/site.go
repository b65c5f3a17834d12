package lesson

import (
	"context"
	"errors"
	"log/slog"
	"time"

	agl "agentlightning"
	"agentlightning/internal/daemon"
	"agentlightning/llmproxy"
	"agentlightning/store"
	"agentlightning/store/engine"
)

// scanInterval is how often attempts are checked for time-outs.
const scanInterval = time.Second

// Site is a server of this process.
type Site struct {
	Store store.Store
	URL   string

	stop   context.CancelFunc
	served chan error
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
	s := &Site{Store: st, URL: server.URL(), stop: stop, served: make(chan error, 1)}
	go func() { s.served <- server.Run(serving) }()
	return s, nil
}

// Close stops the server and closes the store.
func (s *Site) Close() error {
	s.stop()
	return errors.Join(<-s.served, s.Store.Close())
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
