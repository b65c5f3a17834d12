// Package baseline runs tasks without learning anything from them: it shows
// that agent, runner and store work together, and what the agent is worth as it
// is. It is what trainer.Dev runs.
package baseline
