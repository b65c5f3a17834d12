//go:build race

package scale

// raceEnabled tells that the race detector is on, which is slow.
const raceEnabled = true
