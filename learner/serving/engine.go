// Package serving runs an inference engine, such as vLLM or SGLang, as a child
// process of which nothing stays: it starts it, waits until it is healthy,
// makes sure that it answers with token ids, registers it with the proxy, serves
// newer models when there are, and starts it again when it crashes.
//
// A new model is served by a restart. An adapter (a folder with
// adapter_config.json) is loaded into the engine that runs, in vLLM's way.
package serving

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	agl "agentlightning"
	"agentlightning/internal/proc"
	"agentlightning/learner/command"
)

// ErrStopped is returned by [Engine.Serve] when Run has ended.
var ErrStopped = errors.New("the engine has been stopped")

// Engine is one engine under supervision. Its methods are safe for concurrent
// use; Run may be called once.
type Engine struct {
	cfg      Config
	port     int // 0 takes a free one at each start
	requests chan request
	done     chan struct{} // closed when Run has ended
}

type request struct {
	model  command.Model
	answer chan error // takes one without a reader
}

// New returns an engine, which [Engine.Run] starts.
func New(c Config) (*Engine, error) {
	c, port, err := c.resolve()
	if err != nil {
		return nil, err
	}
	return &Engine{cfg: c, port: port, requests: make(chan request), done: make(chan struct{})}, nil
}

// Serve makes a model the one that the proxy calls, and returns when it is. On an
// error the model before is started again. Models with an endpoint of their own are
// registered as they are.
func (e *Engine) Serve(ctx context.Context, m command.Model) error {
	r := request{m, make(chan error, 1)}
	select {
	case e.requests <- r:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-e.done:
		return ErrStopped
	}
	select {
	case err := <-r.answer:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-e.done:
		select { // it may have answered last
		case err := <-r.answer:
			return err
		default:
			return ErrStopped
		}
	}
}

// settled is how long an engine must have run for its end not to count as a
// failed start.
const settled = time.Minute

// Run starts the engine and keeps it running until ctx ends, which is no error. It
// returns an error when the first start fails, or too many later ones in a row.
func (e *Engine) Run(ctx context.Context) (err error) {
	s := &supervision{
		Engine: e, base: command.Model{Path: e.cfg.Model, Version: e.cfg.Version},
		tail: &tail{log: e.cfg.Log},
	}
	s.served = s.base
	defer close(e.done)
	defer func() {
		err = errors.Join(err, s.stop(ctx), s.group.Close())
	}()
	failures, served := 0, false
	wait := e.cfg.Backoff
	for {
		err := s.start(ctx)
		began := time.Now()
		if err == nil {
			served = true
			err = s.watch(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil: // another model
			failures, wait = 0, e.cfg.Backoff
			continue
		case !served:
			return err
		}
		if s.pending != nil { // the new model cannot be served; the one before can
			e.cfg.Logger.ErrorContext(ctx, "model cannot be served; the one before is again", "version", s.base.Version, "model", s.base.Path, "err", err)
			s.answer(err)
			s.base = s.before
			continue
		}
		if time.Since(began) >= settled {
			failures, wait = 0, e.cfg.Backoff
		}
		if failures++; failures > e.cfg.Restarts {
			return fmt.Errorf("the engine failed %d times in a row (Restarts %d): %w", failures, e.cfg.Restarts, err)
		}
		e.cfg.Logger.WarnContext(ctx, "engine failed", "again_in", wait, "failures", failures, "err", err)
		if err := s.stop(ctx); err != nil { // so that calls fail at once, and by name
			e.cfg.Logger.WarnContext(ctx, "the engine that failed is still registered", "err", err)
		}
		if err := pause(ctx, wait); err != nil {
			return nil // it was asked to stop
		}
		wait = min(2*wait, time.Minute)
	}
}

// supervision is what Run knows. It is used by the goroutine of Run.
type supervision struct {
	*Engine
	group   proc.Group
	process *proc.Process // nil when none runs
	tail    *tail

	base     command.Model // what the engine is started with
	before   command.Model // base before pending
	served   command.Model // base, or an adapter on it
	pending  *request      // whose model is being started
	endpoint string        // of the process
	target   string        // name of base at the engine
	adapter  string        // name of the adapter that is loaded; empty for none
	listed   string        // endpoint that is registered; empty for none
}

func (s *supervision) answer(err error) {
	if s.pending != nil {
		s.pending.answer <- err
		s.pending = nil
	}
}

// start brings up the engine with the model in hand and registers it.
func (s *supervision) start(ctx context.Context) error {
	if err := s.stop(ctx); err != nil {
		return err
	}
	port := s.port
	if port == 0 {
		var err error
		if port, err = freePort(ctx); err != nil {
			return err
		}
	}
	text := strconv.Itoa(port)
	replace := strings.NewReplacer(modelMark, s.base.Path, portMark, text)
	argv := make([]string, len(s.cfg.Command))
	for i, a := range s.cfg.Command {
		argv[i] = replace.Replace(a)
	}
	s.endpoint = strings.TrimRight(strings.ReplaceAll(s.cfg.Endpoint, portMark, text), "/")
	s.adapter = ""
	s.tail.reset()
	started := time.Now()
	p, err := s.group.Start(proc.Spec{
		Command: argv, Dir: s.cfg.Dir, Env: append(proc.Environ("AGL_AUTH_TOKEN"), s.cfg.Env...), Stdout: s.tail, Stderr: s.tail,
	})
	if err != nil {
		return fmt.Errorf("start the engine %s: %w", argv[0], err)
	}
	s.process = p
	s.cfg.Logger.InfoContext(ctx, "engine started", "command", argv[0], "pid", p.PID(), "model", s.base.Path, "version", s.base.Version, "endpoint", s.endpoint)
	starting, cancel := context.WithTimeoutCause(ctx, s.cfg.StartLimit, fmt.Errorf("the engine was not ready within %v (StartLimit)", s.cfg.StartLimit))
	defer cancel()
	if err := s.healthy(starting); err != nil {
		return err
	}
	if s.target, err = s.probe(starting); err != nil {
		return err
	}
	if s.served.Version != s.base.Version && s.pending == nil && Adapter(s.served) { // after a crash
		if err := s.load(starting, s.served); err != nil {
			return err
		}
	} else {
		s.served = s.base
	}
	if err := s.register(starting); err != nil {
		return err
	}
	s.cfg.Logger.InfoContext(ctx, "engine serves", "model", s.served.Path, "version", s.served.Version, "endpoint", s.endpoint, "elapsed", time.Since(started))
	s.answer(nil)
	return nil
}

// healthy waits for the engine's first good answer.
func (s *supervision) healthy(ctx context.Context) error {
	root, _ := strings.CutSuffix(s.endpoint, "/v1")
	for {
		if status, _, err := s.get(ctx, root+s.cfg.Health); err == nil && status == http.StatusOK {
			return nil
		}
		timer := time.NewTimer(lookEvery)
		select {
		case <-timer.C:
		case <-s.process.Done():
			timer.Stop()
			return s.ended()
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w; last it said: %s", context.Cause(ctx), s.tail)
		}
	}
}

// lookEvery is the time between looks at an engine that starts.
const lookEvery = 100 * time.Millisecond

// ended says how the engine ended.
func (s *supervision) ended() error {
	return fmt.Errorf("the engine ended with %v; last it said: %s", s.process.Wait(), s.tail)
}

// watch returns nil when another model is wanted, and an error when the engine
// ends.
func (s *supervision) watch(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.process.Done():
			return s.ended()
		case r := <-s.requests:
			switch {
			case r.model.Endpoint != "":
				r.answer <- s.put(ctx, agl.Model{Name: s.cfg.Name, Endpoint: r.model.Endpoint, Target: r.model.Target, Version: r.model.Version})
			case Adapter(r.model):
				err := s.load(ctx, r.model)
				if err == nil {
					err = s.register(ctx)
				}
				r.answer <- err
			default:
				s.pending, s.before, s.base = &r, s.base, r.model
				return nil
			}
		}
	}
}

// Adapter reports whether a model is an adapter, as PEFT writes them.
func Adapter(m command.Model) bool {
	_, err := os.Stat(filepath.Join(m.Path, "adapter_config.json"))
	return err == nil
}

// register tells the proxy of the model that is served.
func (s *supervision) register(ctx context.Context) error {
	m := agl.Model{Name: s.cfg.Name, Endpoint: s.endpoint, Target: s.target, Version: s.served.Version}
	if s.adapter != "" {
		m.Target = s.adapter
	}
	if err := s.put(ctx, m); err != nil {
		return err
	}
	s.listed = s.endpoint
	if s.cfg.OnServing != nil {
		s.cfg.OnServing(m)
	}
	return nil
}

func (s *supervision) put(ctx context.Context, m agl.Model) error {
	put := s.cfg.Models.ReplaceModels
	if s.cfg.Shared {
		put = s.cfg.Models.PutModels
	}
	if err := put(ctx, []agl.Model{m}); err != nil {
		return fmt.Errorf("register the engine as %s: %w", m.Name, err)
	}
	return nil
}

// withdrawLimit bounds how long the proxy may take to forget an engine.
const withdrawLimit = 10 * time.Second

// stop withdraws the engine from the proxy, then ends it. It does so although ctx
// may have ended.
func (s *supervision) stop(ctx context.Context) (err error) {
	if s.listed != "" {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawLimit)
		defer cancel()
		if err = s.cfg.Models.DeleteModels(ctx, s.cfg.Name, s.listed); err != nil {
			err = fmt.Errorf("withdraw the engine at %s: %w", s.listed, err)
		}
		s.listed = ""
	}
	if s.process != nil {
		s.process.Stop(s.cfg.Grace)
		s.process = nil
	}
	return err
}

// Await waits until the proxy knows a backend of a model with at least this
// version: a [command.Config].Serve for an engine that another process runs.
func Await(ctx context.Context, models Registry, name string, version int64) error {
	for {
		known, err := models.Models(ctx)
		if err != nil {
			return fmt.Errorf("look for version %d of model %s: %w", version, name, err)
		}
		if slices.ContainsFunc(known, func(m agl.Model) bool { return m.Name == name && m.Version >= version }) {
			return nil
		}
		if err := pause(ctx, lookEvery); err != nil {
			return fmt.Errorf("version %d of model %s is not served: %w", version, name, err)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

func freePort(ctx context.Context) (int, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = l.Close() }() // nobody has used it
	return l.Addr().(*net.TCPAddr).Port, nil
}

// tail passes on what an engine writes and keeps the end of it.
type tail struct {
	log interface{ Write(p []byte) (int, error) }

	mu   sync.Mutex
	last []byte
}

// tailBytes is how much of an engine's output an error shows.
const tailBytes = 2048

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, p...)
	if over := len(t.last) - tailBytes; over > 0 {
		t.last = append(t.last[:0], t.last[over:]...)
	}
	return t.log.Write(p) // in turn, since both streams are written to it
}

func (t *tail) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = t.last[:0]
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if text := strings.TrimSpace(string(t.last)); text != "" {
		return text
	}
	return "nothing"
}
