package store

import agl "agentlightning"

// Bounds of the log of a run.
const (
	// LogLines is how many lines the log of a run keeps, and LogBytes how much
	// they may take, see [agl.LogLine.Size]. The oldest go first; the last one stays.
	LogLines = 20_000
	LogBytes = 16 << 20
	// LogLineBytes is how much one line may take.
	LogLineBytes = 8 << 10
	// LogPageLines is how many lines are read at a time at the most, and how many
	// when nothing is said.
	LogPageLines = 10_000
)

// LogQuery selects lines of the log of a run. Conditions are joined by "and".
type LogQuery struct {
	RunID string
	// After and Before bound the position, both excluded; 0 is no bound.
	After, Before int64
	// Level is the least level; empty means all.
	Level agl.LogLevel
	// Text is a part of the message or of the attributes as JSON, without regard
	// to case.
	Text string
	// Limit is the length of the page; 0 or less means [LogPageLines].
	Limit int
	// Newest asks for the last lines that match rather than the first ones; they
	// come in the order of their positions all the same.
	Newest bool
}

// LogPage is a part of the log of a run.
type LogPage struct {
	Lines []agl.LogLine `json:"lines"` // by position
	// First is the position of the oldest line that is kept, Last that of the
	// newest; without any, First is the one after Last.
	First int64 `json:"first"`
	Last  int64 `json:"last"`
	// Dropped is how many lines the log has lost at its beginning.
	Dropped int64 `json:"dropped"`
	// More says that further lines match.
	More bool `json:"more"`
}
