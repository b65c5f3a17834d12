package pg_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"agentlightning/adapter/credit"
	"agentlightning/gateway"
	"agentlightning/internal/daemon"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// readDifferently are cases of which training makes something else, and why.
var readDifferently = map[string]string{
	"duplicate_prompt_keeps_last":       "both calls were sampled and may have been used; the triplet view of the 1.0 protocol drops the first",
	"later_empty_retry_hides_good_call": "a call that failed does not make the one before it untrue",
	"bad_last_reward_hides_earlier":     "an event without a value is no reward, so that the one before it is the last",
}

type turn struct {
	Prompt   []int32   `json:"prompt_token_ids"`
	Response []int32   `json:"response_token_ids"`
	Logprobs []float32 `json:"response_log_probs"`
}

// TestVectorTurns posts the events of events_to_triplets.json over the 1.0
// protocol, and reads from the spans that they became what training reads of a
// rollout: its turns and its final reward, exactly.
func TestVectorTurns(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "testdata", "vectors", "rl", "events_to_triplets.json"))
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Cases []struct {
			Name   string `json:"name"`
			Events []struct {
				Type string          `json:"event_type"`
				Data json.RawMessage `json:"data"`
			} `json:"events"`
			Expected struct {
				Turns []turn   `json:"triplets"`
				Final *float64 `json:"final_reward"`
			} `json:"expected"`
		} `json:"cases"`
	}
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Cases) != 22 {
		t.Fatalf("%d cases, want 22", len(v.Cases))
	}
	st := engine.New(memory.New(), engine.Config{})
	server, err := daemon.Listen(t.Context(), daemon.Config{Store: st})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := server.Run(ctx); err != nil {
			t.Errorf("server: %v", err)
		}
	})
	t.Cleanup(func() {
		stop()
		running.Wait()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	client := &gateway.Client{BaseURL: server.URL()}
	for _, c := range v.Cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			if _, err := client.CreateRollouts(t.Context(), gateway.RolloutCreate{RolloutID: c.Name}); err != nil {
				t.Fatal(err)
			}
			for _, e := range c.Events {
				if _, err := client.PostEvent(t.Context(), c.Name, "0", e.Type, e.Data); err != nil {
					t.Fatal(err)
				}
			}
			spans, err := st.QuerySpans(t.Context(), store.SpanQuery{RolloutID: c.Name, Paging: store.Paging{SortBy: "sequence_id"}})
			if err != nil {
				t.Fatal(err)
			}
			got := credit.Read(c.Name, "", spans.Items)
			var turns []turn
			for _, call := range got.Calls {
				if call.Usable() {
					turns = append(turns, turn{call.PromptIDs, call.ResponseIDs, call.Logprobs})
				}
			}
			diff := cmp.Diff(c.Expected.Turns, turns, cmpopts.EquateEmpty()) + cmp.Diff(c.Expected.Final, got.Final)
			if why := readDifferently[c.Name]; (why != "") != (diff != "") {
				t.Errorf("turns and final reward (-want +got):\n%s\nknown difference: %q", diff, why)
			}
		})
	}
}
