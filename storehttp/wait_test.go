package storehttp_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/storehttp"
)

// counting counts the requests for a path and tells each.
func counting(path string, n *atomic.Int32, seen chan<- struct{}) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, path) && n.Add(1) == 3 {
				close(seen)
			}
			next.ServeHTTP(w, r)
		})
	}
}

// TestWaitInChunks waits longer than a server is asked to at a time.
func TestWaitInChunks(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	third := make(chan struct{})
	b := setup(t, counting("/waits/rollouts", &asked, third), storehttp.WithWaitChunk(30*time.Millisecond))
	id := enqueue(t, b.client, "1")[0].RolloutID
	go func() {
		<-third
		_, _ = b.store.UpdateRollout(t.Context(), id, store.RolloutUpdate{Status: store.To(agl.RolloutSucceeded)})
	}()
	done, err := b.client.WaitForRollouts(t.Context(), []string{id, "ro-unknown"}, -1)
	if err != nil || len(done) != 1 || asked.Load() < 3 {
		t.Errorf("WaitForRollouts = %v, %v after %d requests, want the rollout after 3 or more", done, err, asked.Load())
	}
	start := time.Now()
	open := enqueue(t, b.client, "2")[0].RolloutID
	done, err = b.client.WaitForRollouts(t.Context(), []string{open}, 100*time.Millisecond)
	if err != nil || len(done) != 0 || time.Since(start) < 100*time.Millisecond {
		t.Errorf("WaitForRollouts = %v, %v after %v, want nothing after 100ms", done, err, time.Since(start))
	}
}

func TestDequeueInChunks(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	third := make(chan struct{})
	b := setup(t, counting("/dequeue", &asked, third), storehttp.WithWaitChunk(30*time.Millisecond))
	go func() {
		<-third
		_, _ = b.store.EnqueueRollouts(t.Context(), []store.EnqueueRequest{{}})
	}()
	if got := dequeue(t, b.client, time.Minute); len(got) != 1 || asked.Load() < 3 {
		t.Errorf("dequeue = %v after %d requests, want a rollout after 3 or more", got, asked.Load())
	}
	if got := dequeue(t, b.client, 70*time.Millisecond); len(got) != 0 {
		t.Errorf("dequeue of an empty queue = %v", got)
	}
}

// TestPolling waits for work at a server that does not let requests wait.
func TestPolling(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	third := make(chan struct{})
	count := counting("/dequeue", &asked, third)
	b := setup(t, func(next http.Handler) http.Handler { return count(pythonLike(next)) },
		storehttp.WithPollInterval(10*time.Millisecond))
	go func() {
		<-third
		_, _ = b.store.EnqueueRollouts(t.Context(), []store.EnqueueRequest{{}})
	}()
	if got := dequeue(t, b.client, time.Minute); len(got) != 1 || asked.Load() < 3 {
		t.Errorf("dequeue = %v after %d requests, want a rollout after 3 or more", got, asked.Load())
	}
}

// TestWaitForShare finishes a tenth of thirty rollouts, which is three.
func TestWaitForShare(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	made := enqueue(t, b.store, slices.Repeat([]string{"1"}, 30)...)
	ids := make([]string, len(made))
	for i := range made {
		ids[i] = made[i].RolloutID
	}
	list, err := json.Marshal(ids)
	if err != nil {
		t.Fatal(err)
	}
	h := storehttp.NewHandler(b.store, storehttp.Config{})
	ask := func(timeout string) int {
		w := call(t, h, "POST", "/v1/agl/waits/count", `{"rollout_ids":`+string(list)+`,"share":0.1,"timeout":`+timeout+`}`)
		var done []agl.Rollout
		if err := json.Unmarshal(w.Body.Bytes(), &done); err != nil || w.Code != http.StatusOK {
			t.Fatalf("waits/count = %d %s", w.Code, w.Body)
		}
		return len(done)
	}
	for i := range 3 {
		if got := ask("0"); got != i {
			t.Errorf("%d are answered as done, want %d", got, i)
		}
		if _, err := b.store.UpdateRollout(t.Context(), ids[i], store.RolloutUpdate{Status: store.To(agl.RolloutFailed)}); err != nil {
			t.Fatal(err)
		}
	}
	if got := ask("null"); got != 3 {
		t.Errorf("%d are answered as done, want 3", got)
	}
}
