package cli

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// heapRoom is what may be allocated between two garbage collections, in
	// bytes. What the server keeps on the heap is a few megabytes, so the usual
	// rule, to collect when it has doubled, has it collect all the time under
	// load: that took a quarter of the processor.
	heapRoom = 48 << 20
	// heapLook is how often the rule is adjusted to what is kept.
	heapLook = time.Second
)

// giveHeapRoom lets the heap grow by heapRoom, or double, whichever is more,
// before it is collected. Who sets GOGC decides alone. The function that it
// returns ends it and waits.
func giveHeapRoom() (stop func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	tick := time.NewTicker(heapLook)
	end := keepHeapRoom(tick.C)
	return func() {
		tick.Stop()
		end()
	}
}

// keepHeapRoom adjusts the rule now and at every tick.
func keepHeapRoom(ticks <-chan time.Time) (stop func()) {
	usual := debug.SetGCPercent(heapPercent(0))
	done := make(chan struct{})
	var owned sync.WaitGroup
	owned.Go(func() {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		for {
			select {
			case <-ticks:
				metrics.Read(live)
				debug.SetGCPercent(heapPercent(live[0].Value.Uint64()))
			case <-done:
				debug.SetGCPercent(usual)
				return
			}
		}
	})
	return func() {
		close(done)
		owned.Wait()
	}
}

// heapPercent is by how much a heap with so many live bytes may grow.
func heapPercent(live uint64) int {
	const least = 4 << 20 // below it the runtime's own minimum holds
	return int(max(100, heapRoom*100/max(live, least)))
}
