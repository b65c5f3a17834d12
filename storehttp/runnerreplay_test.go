package storehttp_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	agl "agentlightning"
	"agentlightning/otlp"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/storehttp"
)

// noTraffic are recordings that are not a whole conversation with a server.
var noTraffic = map[string]string{
	"apo_small": "only the algorithm's half of the requests was recorded, so a server has no spans to answer with",
}

// TestRunnerReplay sends our server what the Python runner sent to its own, in
// the order of arrival, and compares the answers and what is stored in the end.
func TestRunnerReplay(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../testdata/vectors/runner/traces/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		if noTraffic[name] != "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newConversation(t, file)
			c.prepare(t)
			for i, e := range c.Exchanges {
				for range max(e.Repeated, 1) {
					c.exchange(t, i, &e)
				}
			}
			c.compareStored(t)
		})
	}
}

type runnerExchange struct {
	Method      string          `json:"method"`
	Path        string          `json:"path"`
	Query       string          `json:"query"`
	Request     json.RawMessage `json:"request"`
	RequestOTLP json.RawMessage `json:"request_otlp"`
	Status      int             `json:"status"`
	Response    json.RawMessage `json:"response"`
	Repeated    int             `json:"repeated"`
}

// conversation is a recording whose ids and times are written as <kind-n>.
type conversation struct {
	Exchanges []runnerExchange `json:"exchanges"`
	Final     []struct {
		Rollout  json.RawMessage   `json:"rollout"`
		Attempts []json.RawMessage `json:"attempts"`
		Spans    []json.RawMessage `json:"spans"`
	} `json:"final"`

	store store.Store
	url   string
	names map[string]string // what a name stands for here
}

func newConversation(t *testing.T, file string) *conversation {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c := &conversation{names: map[string]string{}}
	if err := json.Unmarshal(raw, c); err != nil {
		t.Fatal(err)
	}
	s := engine.New(memory.New(), engine.Config{})
	t.Cleanup(func() { _ = s.Close() })
	c.store = s
	traces := otlp.NewHandler(s, otlp.Config{})
	protocol := storehttp.NewHandler(s, storehttp.Config{})
	c.url = serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if otlp.Serves(r.URL.Path) {
			traces.ServeHTTP(w, r)
			return
		}
		protocol.ServeHTTP(w, r)
	}), "").URL
	return c
}

// prepare does what was done before the recording began: it adds the resources
// and enqueues the rollouts that no recorded request makes.
func (c *conversation) prepare(t *testing.T) {
	t.Helper()
	made := map[string]bool{}
	for _, e := range c.Exchanges {
		var answer any
		_ = json.Unmarshal(e.Response, &answer)
		switch {
		case strings.HasSuffix(e.Path, "/dequeue"):
			for _, item := range answer.([]any) {
				c.enqueue(t, item.(map[string]any), made)
			}
		case e.Method == http.MethodGet && strings.Contains(e.Path, "/resources/") && answer != nil:
			var u agl.ResourcesUpdate
			if id := answer.(map[string]any)["resources_id"].(string); !made[id] {
				made[id] = true
				timeless := strings.ReplaceAll(string(e.Response), `"<time>"`, "0")
				if err := json.Unmarshal([]byte(timeless), &u); err != nil {
					t.Fatal(err)
				}
				c.addResources(t, id, u.Resources)
			}
		default:
			for _, id := range namePattern.FindAllString(string(e.Response), -1) {
				made[id] = true
			}
			made[e.Path[strings.LastIndexByte(e.Path, '/')+1:]] = true
		}
	}
}

func (c *conversation) enqueue(t *testing.T, r map[string]any, made map[string]bool) {
	t.Helper()
	id := r["rollout_id"].(string)
	if made[id] {
		return
	}
	made[id] = true
	var req startBody
	if err := json.Unmarshal(mustJSON(r), &req); err != nil {
		t.Fatal(err)
	}
	ask := req.request()
	if ask.ResourcesID != nil {
		ask.ResourcesID = new(cmp.Or(c.names[*ask.ResourcesID], *ask.ResourcesID))
		if strings.HasPrefix(*ask.ResourcesID, "<") {
			ask.ResourcesID = nil // added below, and then the latest
			for _, e := range c.Exchanges {
				if e.Method == http.MethodGet && strings.HasSuffix(e.Path, "/resources/"+*req.ResourcesID) {
					var u agl.ResourcesUpdate
					if err := json.Unmarshal([]byte(strings.ReplaceAll(string(e.Response), `"<time>"`, "0")), &u); err != nil {
						t.Fatal(err)
					}
					made[*req.ResourcesID] = true
					c.addResources(t, *req.ResourcesID, u.Resources)
					break
				}
			}
		}
	}
	if _, err := c.store.EnqueueRollouts(t.Context(), []store.EnqueueRequest{ask}); err != nil {
		t.Fatal(err)
	}
}

func (c *conversation) addResources(t *testing.T, id string, r agl.NamedResources) {
	t.Helper()
	var u agl.ResourcesUpdate
	var err error
	if strings.HasPrefix(id, "<") {
		u, err = c.store.AddResources(t.Context(), r)
		c.names[id] = u.ResourcesID
	} else {
		_, err = c.store.UpdateResources(t.Context(), id, r)
	}
	if err != nil {
		t.Fatal(err)
	}
}

var namePattern = regexp.MustCompile(`<[a-z-]+(?:-\d+)?>`)

// ours writes what the names stand for here, making up what a runner makes up.
func (c *conversation) ours(text string) string {
	text = strings.ReplaceAll(text, `"<time>"`, "1700000000.5")
	return namePattern.ReplaceAllStringFunc(text, func(name string) string {
		if c.names[name] == "" {
			switch n := len(c.names) + 1; {
			case strings.HasPrefix(name, "<trace-"):
				c.names[name] = fmt.Sprintf("%032x", n)
			case strings.HasPrefix(name, "<span-"):
				c.names[name] = fmt.Sprintf("%016x", n)
			case name == "<unix-nano>":
				return "1700000000500000000"
			default:
				return name
			}
		}
		return c.names[name]
	})
}

func (c *conversation) exchange(t *testing.T, i int, e *runnerExchange) {
	t.Helper()
	body := e.Request
	if e.RequestOTLP != nil {
		body = e.RequestOTLP
	}
	address := c.url + c.ours(e.Path)
	if e.Query != "" {
		address += "?" + c.ours(e.Query)
	}
	r, err := http.NewRequestWithContext(t.Context(), e.Method, address, bytes.NewReader([]byte(c.ours(string(body)))))
	if err != nil {
		t.Fatal(err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != e.Status {
		t.Fatalf("step %d, %s %s: status %d %s, recorded %d", i, e.Method, e.Path, resp.StatusCode, answer, e.Status)
	}
	if e.RequestOTLP != nil {
		if string(answer) != "{}" {
			t.Errorf("step %d: traces are answered %s", i, answer)
		}
		return
	}
	if wrong := c.same(e.Response, answer); wrong != "" {
		t.Errorf("step %d, %s %s: %s\n got %s\nwant %s", i, e.Method, e.Path, wrong, answer, e.Response)
	}
}

// same compares our JSON to the recorded, learning what new names stand for.
func (c *conversation) same(recorded, have []byte) string {
	var want, got any
	for raw, into := range map[*[]byte]*any{&recorded: &want, &have: &got} {
		d := json.NewDecoder(bytes.NewReader(*raw))
		d.UseNumber()
		if err := d.Decode(into); err != nil {
			return err.Error()
		}
	}
	return c.sameValue("", want, got)
}

func (c *conversation) sameValue(at string, want, got any) string {
	switch want := want.(type) {
	case map[string]any:
		have, ok := got.(map[string]any)
		if !ok || len(have) != len(want) {
			return fmt.Sprintf("%s: %v, recorded %v", at, got, want)
		}
		for _, key := range slices.Sorted(maps.Keys(want)) {
			if wrong := c.sameValue(at+"/"+key, want[key], have[key]); wrong != "" {
				return wrong
			}
		}
		return ""
	case []any:
		have, ok := got.([]any)
		if !ok || len(have) != len(want) {
			return fmt.Sprintf("%s: %v, recorded %v", at, got, want)
		}
		for i := range want {
			if wrong := c.sameValue(fmt.Sprintf("%s/%d", at, i), want[i], have[i]); wrong != "" {
				return wrong
			}
		}
		return ""
	case string:
		if want == "<time>" {
			if _, ok := got.(json.Number); ok {
				return ""
			}
		}
		if name := namePattern.FindString(want); name == want && name != "" && c.names[name] == "" {
			id, _ := got.(string)
			c.names[name] = id
		}
		if got == c.ours(want) {
			return ""
		}
		return fmt.Sprintf("%s: %v, recorded %v", at, got, c.ours(want))
	}
	if got != want {
		return fmt.Sprintf("%s: %v, recorded %v", at, got, want)
	}
	return ""
}

// compareStored compares what the store holds to what the recorded one held.
func (c *conversation) compareStored(t *testing.T) {
	t.Helper()
	for i, f := range c.Final {
		var r struct {
			ID string `json:"rollout_id"`
		}
		if err := json.Unmarshal(f.Rollout, &r); err != nil {
			t.Fatal(err)
		}
		id := c.ours(r.ID)
		rollout, err := c.store.Rollout(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if wrong := c.same(f.Rollout, rollout.AppendJSON(nil)); wrong != "" {
			t.Errorf("rollout %d%s", i, wrong)
		}
		attempts, err := c.store.QueryAttempts(t.Context(), store.AttemptQuery{RolloutID: id, Paging: store.Paging{SortBy: "sequence_id"}})
		if err != nil || len(attempts.Items) != len(f.Attempts) {
			t.Fatalf("attempts %+v, %v, recorded %d", attempts.Items, err, len(f.Attempts))
		}
		for j := range f.Attempts {
			if wrong := c.same(f.Attempts[j], attempts.Items[j].AppendJSON(nil)); wrong != "" {
				t.Errorf("attempt %d%s", j, wrong)
			}
		}
		spans, err := c.store.QuerySpans(t.Context(), store.SpanQuery{RolloutID: id, Paging: store.Paging{SortBy: "sequence_id"}})
		if err != nil || len(spans.Items) != len(f.Spans) {
			t.Fatalf("spans %+v, %v, recorded %d", spans.Items, err, len(f.Spans))
		}
		for j := range f.Spans {
			if wrong := c.same(f.Spans[j], spans.Items[j].AppendJSON(nil)); wrong != "" {
				t.Errorf("span %d%s", j, wrong)
			}
		}
	}
}
