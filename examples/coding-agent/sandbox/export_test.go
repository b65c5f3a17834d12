package sandbox

import (
	"context"

	"agentlightning/internal/proc"
)

// Run runs any command as the agent's code is run.
func (f *Folder) Run(ctx context.Context, command ...string) (output string, passed bool, err error) {
	w := f.workshop
	return w.run(ctx, job{
		dir: f.dir, env: []string{"HOME=" + f.temp(), "TMPDIR=" + f.temp()}, time: w.limits.Time,
		limits: proc.Limits{Memory: w.limits.Memory, Processes: w.limits.Processes}, command: command,
	})
}

// Dir is where the repository is.
func (f *Folder) Dir() string { return f.dir }

// ToolEnv is the environment of the compiler.
func (f *Folder) ToolEnv() []string { return f.workshop.toolEnv }
