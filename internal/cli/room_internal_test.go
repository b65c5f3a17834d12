package cli

import (
	"runtime/debug"
	"testing"
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
