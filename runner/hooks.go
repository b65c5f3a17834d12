package runner

import (
	"context"
	"fmt"
	"runtime/debug"

	"agentlightning/agent"
)

// hooks calls one callback of every hook in order. What goes wrong in a hook is
// logged and has no other effect.
func (r *Runner) hooks(ctx context.Context, c *agent.Call, name string, run func(agent.Hook) error) {
	for i, h := range r.cfg.Hooks {
		if err := guarded(h, run); err != nil {
			c.Logger.WarnContext(ctx, "hook failed", "hook", i, "callback", name, "err", err)
		}
	}
}

func guarded(h agent.Hook, run func(agent.Hook) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return run(h)
}

func callHook(ctx context.Context, f func(context.Context, *agent.Call) error, c *agent.Call) error {
	if f == nil {
		return nil
	}
	return f(ctx, c)
}
