package cli

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestHeapPercent(t *testing.T) {
	for _, tt := range []struct {
		live uint64
		want int
	}{
		{0, 1200}, {4 << 20, 1200}, {16 << 20, 300}, {48 << 20, 100}, {1 << 40, 100},
	} {
		if got := heapPercent(tt.live); got != tt.want {
			t.Errorf("heapPercent(%d) = %d, want %d", tt.live, got, tt.want)
		}
	}
}

// TestHeapRoomEnds checks that the setting, which is the process's, is restored.
func TestHeapRoomEnds(t *testing.T) {
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	giveHeapRoom()()
	if got := debug.SetGCPercent(100); got != 100 {
		t.Errorf("GC percent = %d afterwards, want 100", got)
	}
	t.Setenv("GOGC", "50")
	giveHeapRoom()()
	if got := debug.SetGCPercent(100); got != 100 {
		t.Errorf("GC percent = %d with GOGC set, want 100", got)
	}
}

// TestHeapRoom lets the rule see a heap that is small, then large, then small.
func TestHeapRoom(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	ticks := make(chan time.Time)
	stop := keepHeapRoom(ticks)
	defer stop()
	// The second tick is only taken once the first is dealt with.
	adjusted := func() int {
		runtime.GC()
		ticks <- time.Time{}
		ticks <- time.Time{}
		percent := debug.SetGCPercent(100)
		return percent
	}
	small := adjusted()
	ballast := make([]byte, 4*heapRoom)
	if large := adjusted(); large != 100 || small < 2*large {
		t.Errorf("the heap may grow by %d %% when it is small and by %d %% when it is large, want more than 200 and 100", small, large)
	}
	runtime.KeepAlive(ballast)
	if again := adjusted(); again < 200 {
		t.Errorf("the heap may grow by %d %% once it is small again, want more than 200", again)
	}
}
