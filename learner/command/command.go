// Package command trains with any program: a [Learner] whose updates are a
// process each.
//
// The process finds files in its environment: the rows of the batch as JSONL
// (AGL_TRAIN_ROWS) and as Parquet (AGL_TRAIN_PARQUET), with token ids, masks,
// log-probabilities and advantages, as package dataset writes them, and the
// options of the update (AGL_TRAIN_OPTIONS, see [Options]). It trains the model
// AGL_TRAIN_MODEL and leaves the new one in the folder AGL_TRAIN_OUTPUT, or says
// where it is. AGL_SERVER and AGL_AUTH_TOKEN let it reach the server.
//
// On its standard output a line that is a JSON object counts; others are for
// people. Numbers in it are metrics, and the last value of each is recorded with
// the step; "model" is the path of the new model, "endpoint" and "target" a server
// that serves it and its name there:
//
//	{"loss": 0.52, "grad_norm": 1.1}
//	{"model": "/models/step-7"}
//
// It may also write what the policy thought of the tokens of each row when it took
// its first gradient of them, natural logarithms, one entry a token, to the file
// AGL_TRAIN_LOGPROBS, one row a line in any order; entries off the mask may be
// null. They are kept with the rollouts, for people to see where the policy that
// is trained differs from the one that sampled:
//
//	{"row": 0, "logprobs": [null, null, -0.31, -1.7]}
//
// Both streams are kept in the folder of the update. A trainer that does not end
// with status 0 has failed, and the model is the one of before. When the update
// is stopped, the trainer and all that it started end, too.
package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"agentlightning/dataset"
	"agentlightning/internal/proc"
	"agentlightning/learner"
)

// Learner is a [learner.Learner]. It is safe for concurrent use.
type Learner struct {
	cfg   Config
	group proc.Group
	turn  chan struct{} // holds one token; whoever has it may change the model

	model chan Model // holds the model in hand
}

var _ learner.Learner = (*Learner)(nil)

// Names of files.
const (
	currentFile    = "current.json"
	checkpointFile = "command.json"
	modelFolder    = "model"
	logprobsFile   = "logprobs.jsonl"
)

// Open returns the learner of a folder, with the model that it had in hand. Close
// it when it is not needed any more.
func Open(c Config) (*Learner, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("command: Dir: %w", err)
	}
	c.Dir = dir
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("command: Dir: %w", err)
	}
	current, err := Current(dir)
	if errors.Is(err, fs.ErrNotExist) {
		current, err = Model{Path: c.Model}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("command: %w", err)
	}
	l := &Learner{cfg: c, turn: make(chan struct{}, 1), model: make(chan Model, 1)}
	l.turn <- struct{}{}
	l.model <- current
	return l, nil
}

// Current returns the model that the learner of a folder has in hand,
// [fs.ErrNotExist] before its first update.
func Current(dir string) (Model, error) {
	var m Model
	text, err := os.ReadFile(filepath.Join(dir, currentFile))
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("%s: %w", filepath.Join(dir, currentFile), err)
	}
	return m, nil
}

// Model returns the model in hand.
func (l *Learner) Model() Model {
	m := <-l.model
	l.model <- m
	return m
}

// Version implements [learner.Learner].
func (l *Learner) Version() int64 { return l.Model().Version }

// lock waits for its turn.
func (l *Learner) lock(ctx context.Context) error {
	select {
	case <-l.turn:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *Learner) unlock() { l.turn <- struct{}{} }

// Close implements [learner.Learner]. It waits for an update that is under way.
func (l *Learner) Close() error {
	<-l.turn
	defer l.unlock()
	return l.group.Close()
}

// Update implements [learner.Learner].
func (l *Learner) Update(ctx context.Context, b learner.Batch) (learner.Metrics, error) {
	if err := b.Validate(); err != nil {
		return nil, err
	}
	if len(b.Rows) == 0 {
		return learner.Metrics{}, nil
	}
	options, err := l.cfg.options(b)
	if err != nil {
		return nil, err
	}
	if err := l.lock(ctx); err != nil {
		return nil, err
	}
	defer l.unlock()
	before := l.Model()
	version := before.Version + 1
	step := filepath.Join(l.cfg.Dir, fmt.Sprintf("update-%06d", version))
	// What a trainer left that did not come to its end is of no use.
	if err := os.RemoveAll(step); err != nil {
		return nil, fmt.Errorf("command: %w", err)
	}
	if err := write(step, b.Rows, options); err != nil {
		return nil, fmt.Errorf("command: write the rows: %w", err)
	}
	started := time.Now()
	said, err := l.run(ctx, step, before, version)
	if err != nil {
		return nil, fmt.Errorf("command: %w", err)
	}
	if err := tell(filepath.Join(step, logprobsFile), b); err != nil {
		return nil, fmt.Errorf("command: the trainer's log-probabilities: %w", err)
	}
	made := Model{Version: version, Path: said.model, Endpoint: said.endpoint, Target: said.target}
	if err := made.locate(step); err != nil {
		return nil, fmt.Errorf("command: %w", err)
	}
	if err := l.adopt(ctx, before, made); err != nil {
		return nil, fmt.Errorf("command: %w", err)
	}
	metrics := said.metrics
	if metrics == nil {
		metrics = learner.Metrics{}
	}
	metrics["rows"], metrics["tokens"] = float64(len(b.Rows)), masked(b.Rows)
	metrics["seconds"] = time.Since(started).Seconds()
	l.cfg.Logger.InfoContext(ctx, "update done", "version", version, "model", made.Path, "elapsed", time.Since(started))
	return metrics, l.prune()
}

func masked(rows []learner.Row) float64 {
	n := 0
	for i := range rows {
		for _, m := range rows[i].Mask {
			if m > 0 {
				n++
			}
		}
	}
	return float64(n)
}

// write leaves what the trainer reads in the folder of the update.
func write(step string, rows []learner.Row, o Options) error {
	if err := os.MkdirAll(step, 0o755); err != nil {
		return err
	}
	out := make([]dataset.Row, len(rows))
	for i := range rows {
		r := &rows[i]
		out[i] = dataset.Row{RolloutID: r.Rollout, IDs: r.IDs, Mask: r.Mask, PromptLength: int64(promptLength(r.Mask))}
		if o.Objective == learner.PolicyGradient {
			out[i].Logprobs, out[i].Advantages = r.Logprobs, r.Advantages
		}
	}
	for name, f := range map[string]func(io.Writer) error{
		"rows.jsonl":   func(w io.Writer) error { return dataset.WriteRows(w, out) },
		"rows.parquet": func(w io.Writer) error { return dataset.WriteParquet(w, out) },
		"options.json": func(w io.Writer) error { return json.NewEncoder(w).Encode(o) },
	} {
		file, err := os.Create(filepath.Join(step, name))
		if err != nil {
			return err
		}
		if err := errors.Join(f(file), file.Close()); err != nil {
			return err
		}
	}
	return nil
}

func promptLength(mask []float32) int {
	for i, m := range mask {
		if m > 0 {
			return i
		}
	}
	return len(mask)
}

// run starts the trainer and waits for its end.
func (l *Learner) run(ctx context.Context, step string, before Model, version int64) (result, error) {
	var none result
	if l.cfg.Limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, l.cfg.Limit, fmt.Errorf("the trainer ran for %v, its Limit", l.cfg.Limit))
		defer cancel()
	}
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	stdout, err := os.Create(filepath.Join(step, "stdout.log"))
	if err != nil {
		return none, err
	}
	defer func() { _ = stdout.Close() }() // a log
	stderr, err := os.Create(filepath.Join(step, "stderr.log"))
	if err != nil {
		return none, err
	}
	defer func() { _ = stderr.Close() }() // a log
	copied := &shared{w: l.cfg.Log}
	wrote := &told{ctx: ctx, log: l.cfg.Logger, stream: "stdout"}
	complained := &told{ctx: ctx, log: l.cfg.Logger, stream: "stderr"}
	out := &reader{log: io.MultiWriter(stdout, copied, wrote), onMetrics: l.cfg.OnMetrics}
	problems := &tail{log: io.MultiWriter(stderr, copied, complained)}
	env := append(proc.Environ(EnvToken, EnvServer), l.cfg.Env...)
	env = append(env,
		EnvRows+"="+filepath.Join(step, "rows.jsonl"), EnvParquet+"="+filepath.Join(step, "rows.parquet"),
		EnvOptions+"="+filepath.Join(step, "options.json"), EnvModel+"="+before.Path,
		EnvOutput+"="+filepath.Join(step, modelFolder), EnvLogprobs+"="+filepath.Join(step, logprobsFile), EnvVersion+"="+strconv.FormatInt(version, 10),
		EnvServer+"="+l.cfg.ServerURL, EnvToken+"="+l.cfg.Token)
	p, err := l.group.Start(proc.Spec{Command: l.cfg.Command, Dir: l.cfg.WorkDir, Env: env, Stdout: out, Stderr: problems})
	if err != nil {
		return none, fmt.Errorf("start the trainer %s: %w", l.cfg.Command[0], err)
	}
	l.cfg.Logger.InfoContext(ctx, "trainer started", "command", l.cfg.Command[0], "pid", p.PID(), "version", version, "dir", step)
	defer func() {
		wrote.end()
		complained.end()
	}()
	select {
	case <-p.Done():
	case <-ctx.Done():
		p.Stop(l.cfg.Grace)
		return none, fmt.Errorf("trainer stopped: %w", context.Cause(ctx))
	}
	exit := p.Wait()
	out.end()
	if exit.Code != 0 || exit.Err != nil {
		why := problems.String()
		if why == "" {
			why = "it wrote nothing to standard error"
		}
		return none, fmt.Errorf("the trainer %s ended with %v; its output is in %s; last it said: %s", l.cfg.Command[0], exit, step, why)
	}
	if out.err != nil {
		return none, fmt.Errorf("the trainer %s: %w", l.cfg.Command[0], out.err)
	}
	return out.result, nil
}

// locate completes where a model is and checks that it is there.
func (m *Model) locate(step string) error {
	output := filepath.Join(step, modelFolder)
	switch {
	case m.Target != "" && m.Endpoint == "":
		return errors.New("the trainer named a target and no endpoint that has it")
	case m.Path == "" && m.Endpoint != "":
		return nil
	case m.Path == "":
		entries, err := os.ReadDir(output)
		if err != nil || len(entries) == 0 {
			return fmt.Errorf("the trainer ended well and left no model: there is nothing in %s, and no line of its output named a model or an endpoint", output)
		}
		m.Path = output
	case !filepath.IsAbs(m.Path):
		return fmt.Errorf("the trainer named the model %q: must be an absolute path", m.Path)
	default:
		if _, err := os.Stat(m.Path); err != nil {
			return fmt.Errorf("the trainer named a model that is not there: %w", err)
		}
	}
	return nil
}

// adopt makes a model the one in hand, or leaves everything as it was.
func (l *Learner) adopt(ctx context.Context, before, made Model) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// Written first: whoever serves the models of the folder looks at the file.
	if err := l.keep(made); err != nil {
		return err
	}
	if l.cfg.Serve != nil {
		if err := l.cfg.Serve(ctx, made); err != nil {
			return errors.Join(fmt.Errorf("serve model %d: %w", made.Version, err), l.keep(before))
		}
	}
	<-l.model
	l.model <- made
	return nil
}

// keep writes which model is in hand.
func (l *Learner) keep(m Model) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(l.cfg.Dir, currentFile), append(text, '\n'))
}

// replaceFile writes a file that is whole or as it was before, also after a loss
// of power.
func replaceFile(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// prune removes the folders of updates that are not kept any more.
func (l *Learner) prune() error {
	current := l.Model()
	entries, err := os.ReadDir(l.cfg.Dir)
	if err != nil {
		return fmt.Errorf("command: %w", err)
	}
	var failures []error
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), "update-")
		version, err := strconv.ParseInt(digits, 10, 64)
		if !ok || err != nil || version > current.Version-int64(l.cfg.Keep) {
			continue
		}
		step := filepath.Join(l.cfg.Dir, e.Name())
		if current.Path == step || strings.HasPrefix(current.Path, step+string(filepath.Separator)) {
			continue
		}
		failures = append(failures, os.RemoveAll(step))
	}
	return errors.Join(failures...)
}
