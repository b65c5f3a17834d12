package gateway_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentlightning/gateway"
	"agentlightning/internal/daemon"
)

// vectorEvent is an event of a vector; timestamps there count the events.
type vectorEvent struct {
	EventType string          `json:"event_type"`
	Timestamp float64         `json:"timestamp"`
	Data      json.RawMessage `json:"data"`
}

type vectorCase struct {
	Name     string
	Events   []vectorEvent
	Expected struct {
		TripletEvents []vectorEvent `json:"triplet_events"`
	}
	ExpectedStored []struct {
		EventType string `json:"event_type"`
		HasRoutes bool   `json:"has_routed_experts"`
	} `json:"expected_stored"`
}

func readVector(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "testdata", "vectors", "rl", name))
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// post makes a rollout with these events.
func (c *vectorCase) post(t *testing.T, client *gateway.Client) {
	t.Helper()
	if _, err := client.CreateRollouts(t.Context(), gateway.RolloutCreate{RolloutID: c.Name}); err != nil {
		t.Fatal(err)
	}
	for _, e := range c.Events {
		if _, err := client.PostEvent(t.Context(), c.Name, "0", e.EventType, e.Data); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTripletVectors posts the recorded events and reads them as triplets. Of the
// cases of which 1.0.2 made something else, its results count.
func TestTripletVectors(t *testing.T) {
	t.Parallel()
	var of100 struct{ Cases []vectorCase }
	var of102 struct {
		Changed []vectorCase `json:"triplet_cases_that_changed"`
	}
	readVector(t, "events_to_triplets.json", &of100)
	readVector(t, "events_v1_0_2.json", &of102)
	newer := map[string]vectorCase{}
	for _, c := range of102.Changed {
		newer[c.Name] = c
	}
	s := serve(t, daemon.Config{})
	for _, c := range of100.Cases {
		if changed, ok := newer[c.Name]; ok {
			c = changed
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			c.post(t, s.client)
			events, err := s.client.Events(t.Context(), c.Name, gateway.EventQuery{Triplets: true})
			if err != nil {
				t.Fatal(err)
			}
			want, got := []any{}, []any{}
			for _, e := range c.Expected.TripletEvents {
				want = append(want, e.EventType, plain(t, e.Data))
			}
			for _, e := range events {
				got = append(got, e.EventType, plain(t, e.Data))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("triplets (-recorded +ours):\n%s", diff)
			}
		})
	}
}

func TestRoutedExpertVectors(t *testing.T) {
	t.Parallel()
	var v struct {
		Cases []vectorCase `json:"superseded_routed_experts"`
	}
	readVector(t, "events_v1_0_2.json", &v)
	if len(v.Cases) == 0 {
		t.Fatal("no cases")
	}
	s := serve(t, daemon.Config{})
	for _, c := range v.Cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			c.post(t, s.client)
			events, err := s.client.Events(t.Context(), c.Name, gateway.EventQuery{})
			if err != nil {
				t.Fatal(err)
			}
			if len(events) != len(c.ExpectedStored) {
				t.Fatalf("%d events, want %d", len(events), len(c.ExpectedStored))
			}
			for i, want := range c.ExpectedStored {
				var data map[string]json.RawMessage
				if err := json.Unmarshal(events[i].Data, &data); err != nil {
					t.Fatal(err)
				}
				// The vector counts a null as routes that are there.
				if _, has := data["routed_experts"]; events[i].EventType != want.EventType || has != want.HasRoutes {
					t.Errorf("event %d is %s with routes %v, want %s, %v", i, events[i].EventType, has, want.EventType, want.HasRoutes)
				}
			}
		})
	}
}

func plain(t *testing.T, raw json.RawMessage) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}
