//go:build race

package load

// raceEnabled tells that the race detector is on, whose own memory is far more
// than the server's.
const raceEnabled = true
