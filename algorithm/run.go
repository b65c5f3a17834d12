package algorithm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	agl "agentlightning"
	"agentlightning/algorithm/stage"
	"agentlightning/internal/runlog"
	"agentlightning/store"
)

// finishLimit bounds how long a run that ended may take to say so in the store.
const finishLimit = 10 * time.Second

// noteLimit bounds how long a run may take to say which stage is silent.
const noteLimit = 5 * time.Second

// Run is the record of one execution in the store: its configuration, the
// metrics of its steps, and the checkpoints from which it can go on. It is used
// by one goroutine.
//
// What is said to Logger goes to the logger of the environment and, from info on,
// to the log of the run; so does what other parts of the process say to the
// logger that a trainer made for them.
type Run struct {
	agl.Run
	Logger *slog.Logger
	store  store.RunStore
	watch  *stage.Watch
	log    *runlog.Log
}

// Begin opens the run that env names, or a new one when it names none. The
// configuration is any value whose JSON is an object; it is kept for people to
// read and replaces that of a run that is resumed. [Run.Finish] ends it.
func Begin(ctx context.Context, env Env, name string, config any, seed int64) (*Run, error) {
	kept, err := keptConfig(config)
	if err != nil {
		return nil, fmt.Errorf("%s: configuration: %w", name, err)
	}
	r := &Run{store: env.Store}
	r.Logger, r.log = runlog.Join(env.Logger)
	r.watch = r.watched(env)
	if err := r.begin(ctx, env, name, kept, seed); err != nil {
		return nil, err
	}
	r.log.Open(env.Store, r.RunID)
	r.log.Add(ctx, r.RunID, slog.LevelInfo, "algorithm started", slog.String("run_id", r.RunID), slog.String("algorithm", name),
		slog.Int64("seed", seed), slog.String(ConfigCodeVersion, codeVersion()))
	return r, nil
}

// begin stores the run as one that is running.
func (r *Run) begin(ctx context.Context, env Env, name string, kept json.RawMessage, seed int64) (err error) {
	if env.RunID == "" {
		r.Run, err = env.Store.CreateRun(ctx, agl.Run{Algorithm: name, Config: kept, Seed: seed, Status: agl.RunRunning})
		if err != nil {
			return fmt.Errorf("%s: create run: %w", name, err)
		}
		return nil
	}
	if r.Run, err = env.Store.Run(ctx, env.RunID); err != nil {
		return fmt.Errorf("%s: resume run %s: %w", name, env.RunID, err)
	}
	if r.Algorithm != name {
		return fmt.Errorf("%s: run %s is one of %s and cannot be resumed by this algorithm", name, r.RunID, r.Algorithm)
	}
	if r.Seed != seed {
		return fmt.Errorf("%s: run %s began with seed %d; resume it with that seed instead of %d", name, r.RunID, r.Seed, seed)
	}
	r.Run, err = env.Store.UpdateRun(ctx, r.RunID, store.RunUpdate{
		Status: store.To(agl.RunRunning), Config: store.To(kept), Error: store.To(""),
	})
	if err != nil {
		return fmt.Errorf("%s: resume run %s: %w", name, r.RunID, err)
	}
	return nil
}

// ConfigCodeVersion is the member of the kept configuration of a run that names
// the code it last ran with.
const ConfigCodeVersion = "code_version"

// keptConfig is the configuration as an object, with the version of the code.
func keptConfig(config any) (json.RawMessage, error) {
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	if text = bytes.TrimSpace(text); len(text) < 2 || text[0] != '{' {
		return nil, fmt.Errorf("%s is not an object", text)
	}
	version, err := json.Marshal(codeVersion())
	if err != nil {
		return nil, err
	}
	out := append([]byte(`{"`+ConfigCodeVersion+`":`), version...)
	if rest := bytes.TrimSpace(text[1:]); rest[0] != '}' {
		out = append(out, ',')
	}
	return append(out, text[1:]...), nil
}

// codeVersion names the code of this program: its commit, marked when the tree
// had changes, otherwise the version of its main module.
func codeVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	commit, changed := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+changes"
		}
	}
	if commit == "" {
		return cmp.Or(info.Main.Version, "unknown")
	}
	return commit + changed
}

// watched is the watch of env, which also keeps in the run what is silent.
func (r *Run) watched(env Env) *stage.Watch {
	c := env.Watch
	c.Logger = cmp.Or(c.Logger, r.Logger)
	c.OnStall = func(ctx context.Context, s stage.Status, ok bool) {
		note := s.String()
		if ok {
			note = ""
		}
		// A store that does not answer may be why nothing moves.
		ctx, cancel := context.WithTimeout(ctx, noteLimit)
		defer cancel()
		if _, err := r.store.UpdateRun(ctx, r.RunID, store.RunUpdate{Error: store.To(note)}); err != nil {
			r.Logger.WarnContext(ctx, "the run does not say which stage is silent", "run_id", r.RunID, "err", err)
		}
		if env.Watch.OnStall != nil {
			env.Watch.OnStall(ctx, s, ok)
		}
	}
	return stage.New(c)
}

// Stage does a part of the run under a name, such as [stage.Collect]. What takes
// long in it calls [stage.Progress]; [Collect] does. While nothing moves, the error
// of the run in the store says so, although it is running.
func (r *Run) Stage(ctx context.Context, name string, f func(context.Context) error) error {
	return r.watch.Do(ctx, name, f)
}

// Latest returns the checkpoint with the highest step; ok is false when there
// is none yet.
func (r *Run) Latest(ctx context.Context) (c agl.Checkpoint, ok bool, err error) {
	c, err = r.store.LatestCheckpoint(ctx, r.RunID)
	if errors.Is(err, store.ErrNotFound) {
		return agl.Checkpoint{}, false, nil
	}
	return c, err == nil, err
}

// Record stores the metrics of a step under their recorded names, see
// [MetricName], with the number of the step among them.
func (r *Run) Record(ctx context.Context, step int, values map[string]float64) error {
	kept := map[string]float64{"training/global_step": float64(step)}
	for name, v := range values {
		kept[MetricName(r.Algorithm, name)] = v
	}
	err := r.store.AddStepMetrics(ctx, r.RunID, agl.StepMetrics{Step: step, Time: agl.Seconds(time.Now()), Values: kept})
	if err != nil {
		return fmt.Errorf("metrics of step %d: %w", step, err)
	}
	r.Logger.LogAttrs(ctx, slog.LevelInfo, "step recorded", slog.String("run_id", r.RunID), slog.Int("step", step), mainMetrics(kept))
	return nil
}

// mainMetrics are the metrics that a line of a log has room for.
func mainMetrics(values map[string]float64) slog.Attr {
	var out []any
	for _, name := range []string{MetricReward, MetricValidationReward, "actor/pg_loss", "training/loss", "training/best_score", MetricFailed, MetricStepSeconds} {
		if v, ok := values[name]; ok {
			out = append(out, slog.Float64(name, v))
		}
	}
	return slog.Group("", out...)
}

// Checkpoint stores that step is complete, with the weights at path and what
// else is needed to go on as any JSON object.
func (r *Run) Checkpoint(ctx context.Context, step int, path string, score *float64, state any) error {
	kept, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("state of step %d: %w", step, err)
	}
	err = r.store.PutCheckpoint(ctx, r.RunID, agl.Checkpoint{
		Step: step, Time: agl.Seconds(time.Now()), Path: path, Score: score, State: kept,
	})
	if err != nil {
		return fmt.Errorf("checkpoint of step %d: %w", step, err)
	}
	return nil
}

// Finish stores how the run ended and returns err. A run that was told to stop
// is interrupted, not failed. The store is told even when ctx has ended. How it
// ended is the last line of its log.
func (r *Run) Finish(ctx context.Context, err error) error {
	u := store.RunUpdate{Status: store.To(agl.RunSucceeded), Error: store.To("")}
	switch {
	case err != nil && ctx.Err() != nil:
		u.Status = store.To(agl.RunInterrupted)
	case err != nil:
		u.Status, u.Error = store.To(agl.RunFailed), store.To(err.Error())
	}
	r.log.Close(ctx, r.RunID, u.Status.Value, err)
	say, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishLimit)
	defer cancel()
	if _, failed := r.store.UpdateRun(say, r.RunID, u); failed != nil {
		return errors.Join(err, fmt.Errorf("end of run %s: %w", r.RunID, failed))
	}
	return err
}
