package crash

import (
	"syscall"
	"testing"

	"agentlightning/store"
	"agentlightning/store/storetest"
)

// TestQueueIsLinearizable checks the histories of clients of the real server,
// over HTTP, on a database with an fsync per group of writes.
func TestQueueIsLinearizable(t *testing.T) {
	storetest.Linearizable(t, func(t *testing.T, _ storetest.Options) store.Store {
		t.Helper()
		s := newServer(t)
		client := newTestClient(t, s.url)
		process := s.start(t, client)
		t.Cleanup(func() { stop(t, process, syscall.SIGTERM) })
		return client
	})
}
