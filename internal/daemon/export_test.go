package daemon

import "time"

// Hurry makes the server expect quick clients.
func Hurry(c Config, body, write time.Duration) Config {
	c.pace = pace{bodyPause: body, body: 10 * body, writePause: write}
	return c
}
