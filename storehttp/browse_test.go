package storehttp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/storehttp"
)

// looking serves a store with everything that people look by.
func looking(t *testing.T) (*engine.Store, *httptest.Server) {
	t.Helper()
	s := engine.New(memory.New(), engine.Config{})
	t.Cleanup(func() { _ = s.Close() })
	server := httptest.NewServer(storehttp.NewHandler(s, storehttp.Config{
		Browser: s, Feed: s, Delete: s.DeleteRollout, Version: "v1",
		Queue: func(ctx context.Context) (int, float64, error) {
			state, err := s.Queue(ctx)
			return state.Length, state.Waiting.Seconds(), err
		},
	}))
	t.Cleanup(server.Close)
	return s, server
}

func ask(t *testing.T, method, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

func enqueued(t *testing.T, s store.Store, inputs ...string) []string {
	t.Helper()
	reqs := make([]store.EnqueueRequest, len(inputs))
	for i, in := range inputs {
		reqs[i].Input = json.RawMessage(in)
	}
	made, err := s.EnqueueRollouts(t.Context(), reqs)
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]string, len(made))
	for i := range made {
		ids[i] = made[i].RolloutID
	}
	return ids
}

func TestBrowse(t *testing.T) {
	t.Parallel()
	s, server := looking(t)
	var ids []string
	for _, input := range []string{`"apples"`, `"pears"`, `"apple pie"`} {
		ids = append(ids, enqueued(t, s, input)...)
	}
	if _, err := s.UpdateRollout(t.Context(), ids[1], store.RolloutUpdate{Status: store.To(agl.RolloutFailed)}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		query string
		want  []string
	}{
		{"", []string{ids[2], ids[1], ids[0]}},
		{"?sort_order=asc", []string{ids[0], ids[1], ids[2]}},
		{"?text=APPLE", []string{ids[2], ids[0]}},
		{"?status_in=failed&status_in=running", []string{ids[1]}},
		{"?mode_in=none&limit=1&offset=1", []string{ids[1]}},
		{"?id=" + ids[0], []string{ids[0]}},
		{"?rewarded=true", nil},
	} {
		status, body := ask(t, "GET", server.URL+"/v1/agl/browse/rollouts"+tt.query)
		var page struct {
			Items []struct {
				RolloutID string          `json:"rollout_id"`
				Digest    json.RawMessage `json:"digest"`
			} `json:"items"`
		}
		if err := json.Unmarshal([]byte(body), &page); err != nil || status != http.StatusOK {
			t.Fatalf("%s = %d %s (%v)", tt.query, status, body, err)
		}
		var got []string
		for _, item := range page.Items {
			got = append(got, item.RolloutID)
			if diff := cmp.Diff(`{"reward":null,"rewards":{},"calls":0,"tokens":0,"spans":0,"model":"","problem":"","large":false}`, string(item.Digest)); diff != "" {
				t.Errorf("digest (-want +got):\n%s", diff)
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.query, diff)
		}
	}
}

// TestSpansInOutline: what a list of spans needs is there, what is large is not;
// whole spans come in the order of the ids.
func TestSpansInOutline(t *testing.T) {
	t.Parallel()
	s, server := looking(t)
	r := finished(t, s, 2, new(0.5), agl.AttemptSucceeded)
	of := "?rollout_id=" + r.RolloutID + "&attempt_id=" + r.Attempt.AttemptID
	spans, err := s.QuerySpans(t.Context(), store.SpanQuery{RolloutID: r.RolloutID, Paging: store.Paging{SortBy: "sequence_id"}})
	if err != nil {
		t.Fatal(err)
	}
	row := func(i int, more string) string {
		return `{"sequence_id":` + strconv.Itoa(i+1) + `,"span_id":"` + spans.Items[i].SpanID + `","trace_id":"` + spans.Items[i].TraceID + `",` + more + `}`
	}
	const call = `"name":"openai.chat.completion","start_time":1.0,"end_time":null,"status":"OK","kind":"call"`
	want := `{"items":[` + row(0, call) + `,` + row(1, call) + `,` +
		row(2, `"name":"agentlightning.annotation","start_time":1.0,"end_time":null,"status":"OK","kind":"reward","rewards":[{"name":"primary","value":0.5}]`) +
		`],"limit":1000,"offset":0,"total":3}`
	if status, body := ask(t, "GET", server.URL+"/v1/agl/browse/spans"+of); status != http.StatusOK || body != want {
		t.Errorf("outline = %d, diff (-want +got):\n%s", status, cmp.Diff(want, body))
	}
	status, body := ask(t, "GET", server.URL+"/v1/agl/browse/spans/whole"+of+"&span_id="+spans.Items[2].SpanID+"&span_id=gone&span_id="+spans.Items[0].SpanID)
	var whole []agl.Span
	if err := json.Unmarshal([]byte(body), &whole); err != nil || status != http.StatusOK {
		t.Fatalf("whole = %d %s (%v)", status, body, err)
	}
	if diff := cmp.Diff([]agl.Span{spans.Items[2], spans.Items[0]}, whole); diff != "" {
		t.Errorf("whole (-want +got):\n%s", diff)
	}
}

func TestSamples(t *testing.T) {
	t.Parallel()
	s, server := looking(t)
	run, err := s.CreateRun(t.Context(), agl.Run{Algorithm: "pg"})
	if err != nil {
		t.Fatal(err)
	}
	var made [2][]agl.Rollout
	for i, step := range []string{"1", "2"} {
		made[i], err = s.EnqueueRollouts(t.Context(), []store.EnqueueRequest{{
			Input: json.RawMessage(`{"id":"a"}`), Metadata: json.RawMessage(`{"agl.run_id":"` + run.RunID + `","agl.step":` + step + `}`),
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	url := server.URL + "/v1/agl/runs/" + run.RunID + "/samples"
	sample := func(i int) string {
		return `{"rollout_id":"` + made[i][0].RolloutID + `","attempt_id":"","status":"queuing","reward":null}`
	}
	want := `{"mode":"none","items":[{"task":{"id":"a"},` +
		`"before":{"step":1,"reward":null,"tried":1,"rewarded":0,"rollouts":[` + sample(0) + `]},` +
		`"after":{"step":2,"reward":null,"tried":1,"rewarded":0,"rollouts":[` + sample(1) + `]},"change":null}],` +
		`"total":1,"improved":0,"worsened":0,"unchanged":0,"unrewarded":1,"once":0,"stepless":0,"steps":[1,2],"modes":["none"],` +
		`"before":null,"after":null,"examined":2,"complete":true}`
	for _, query := range []string{"?order=unrewarded", "?order=unrewarded&mode=none&before=1&after=2&limit=1&offset=0"} {
		if status, body := ask(t, "GET", url+query); status != http.StatusOK || body != want {
			t.Errorf("%s = %d %s, want\n%s", query, status, body, want)
		}
	}
	for query, says := range map[string]string{
		"?order=best": "order", "?mode=dev": "mode", "?before=early": "before", "?before=2&after=2": "before 2 must be less than after 2",
		"?limit=1001": "Limit must be from 0 to 1000", "?offset=-1": "Offset must be",
	} {
		if status, body := ask(t, "GET", url+query); status/100 != 4 || !strings.Contains(body, says) {
			t.Errorf("%s = %d %s, want 4xx with %q", query, status, body, says)
		}
	}
	if status, _ := ask(t, "GET", server.URL+"/v1/agl/runs/none/samples"); status != http.StatusNotFound {
		t.Errorf("samples of an unknown run = %d, want 404", status)
	}
}

func TestBrowseRefuses(t *testing.T) {
	t.Parallel()
	_, server := looking(t)
	for _, tt := range []struct {
		query  string
		status int
		says   string
	}{
		{"?sort_by=config", 400, "Invalid sort_by: config"},
		{"?limit=0", 400, "Limit must be greater than 0"},
		{"?limit=5000", 400, "Limit must be at most 1000"},
		{"?offset=-1", 400, "Offset must be greater than or equal to 0"},
		{"?reward_min=2&reward_max=1", 400, "reward_min 2 is above reward_max 1"},
		{"?from=2&to=1", 400, "from 2 is after to 1"},
		{"?status_in=lost", 422, "status_in"},
		{"?reward_min=much", 422, "reward_min"},
		{"?step=1.5", 422, "step"},
		{"/spans?rollout_id=r", 422, "attempt_id"},
		{"/spans?attempt_id=a", 422, "rollout_id"},
		{"/spans?rollout_id=r&attempt_id=a&limit=20000", 400, "Limit must be from 1 to 10000"},
		{"/spans?rollout_id=r&attempt_id=a&limit=0", 400, "Limit must be from 1"},
		{"/spans?rollout_id=r&attempt_id=a&offset=-1", 400, "Offset must be greater than or equal to 0"},
		{"/spans/whole?rollout_id=r&attempt_id=a", 422, "span_id"},
		{"/spans/whole?rollout_id=r&attempt_id=a" + strings.Repeat("&span_id=s", 201), 400, "at most 200 spans"},
	} {
		path, more := "/rollouts", tt.query
		if strings.HasPrefix(more, "/") {
			path = ""
		}
		status, body := ask(t, "GET", server.URL+"/v1/agl/browse"+path+more)
		if status != tt.status || !strings.Contains(body, tt.says) {
			t.Errorf("%s = %d %s, want %d with %q", tt.query, status, body, tt.status, tt.says)
		}
	}
}

func TestOverview(t *testing.T) {
	t.Parallel()
	s, server := looking(t)
	enqueued(t, s, "1", "2")
	_, body := ask(t, "GET", server.URL+"/v1/agl/overview")
	var got storehttp.Overview
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if got.Rollouts[agl.RolloutQueuing] != 2 || got.Queue.Length != 2 || len(got.Rollouts) != len(agl.RolloutStatuses()) {
		t.Errorf("overview = %s, want two that wait, and every status", body)
	}
}

func TestDeletingARollout(t *testing.T) {
	t.Parallel()
	s, server := looking(t)
	id := enqueued(t, s, "1")[0]
	url := server.URL + "/v1/agl/browse/rollouts/" + id
	if status, body := ask(t, "DELETE", url); status != http.StatusOK {
		t.Fatalf("first = %d %s, want 200", status, body)
	}
	if status, body := ask(t, "DELETE", url); status != http.StatusNotFound || !strings.Contains(body, id) {
		t.Errorf("second = %d %s, want 404 that names the rollout", status, body)
	}
}

// TestChecks: they are for one caller at a time, for they take a while.
func TestChecks(t *testing.T) {
	t.Parallel()
	s := engine.New(memory.New(), engine.Config{})
	t.Cleanup(func() { _ = s.Close() })
	began, goOn := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(storehttp.NewHandler(s, storehttp.Config{Checks: func(context.Context) ([]storehttp.Check, error) {
		close(began)
		<-goOn
		return []storehttp.Check{{Level: "bad", Name: "disk", Text: "full", Fix: "make room"}}, nil
	}}))
	t.Cleanup(server.Close)
	url := server.URL + "/v1/agl/checks"
	first := make(chan string, 1)
	go func() {
		_, body := ask(t, "GET", url)
		first <- body
	}()
	<-began
	if status, body := ask(t, "GET", url); status != http.StatusConflict || !strings.Contains(body, "in a moment") {
		t.Errorf("meanwhile = %d %s, want 409", status, body)
	}
	close(goOn)
	if got, want := <-first, `[{"level":"bad","name":"disk","text":"full","fix":"make room"}]`; got != want {
		t.Errorf("checks = %s, want %s", got, want)
	}
}

// TestWithoutPowers: a server says what it cannot do.
func TestWithoutPowers(t *testing.T) {
	t.Parallel()
	s := engine.New(memory.New(), engine.Config{})
	t.Cleanup(func() { _ = s.Close() })
	server := httptest.NewServer(storehttp.NewHandler(s, storehttp.Config{}))
	t.Cleanup(server.Close)
	_, body := ask(t, "GET", server.URL+"/v1/agl/capabilities")
	for _, no := range []string{`"browse":false`, `"events":false`, `"delete":false`, `"checks":false`, `"prune":false`, `"history":false`, `"backends":false`, `"rescore":[]`} {
		if !strings.Contains(body, no) {
			t.Errorf("capabilities = %s, want %s", body, no)
		}
	}
	for _, r := range [][2]string{{"GET", "overview"}, {"GET", "browse/rollouts"}, {"GET", "browse/spans"}, {"GET", "browse/spans/whole"}, {"GET", "runs/x/samples"}, {"GET", "events"}, {"GET", "checks"}, {"GET", "rescores"}, {"GET", "history"}, {"GET", "backends"}, {"POST", "backends/pause"}, {"POST", "backends/resume"}, {"GET", "prunings/preview"}, {"GET", "prunings"}, {"POST", "prunings"}, {"DELETE", "prunings/x"}, {"POST", "rescores"}, {"DELETE", "rescores/x"}, {"DELETE", "browse/rollouts/x"}} {
		if status, body := ask(t, r[0], server.URL+"/v1/agl/"+r[1]); status != http.StatusNotImplemented || !strings.Contains(body, "cannot") {
			t.Errorf("%s %s = %d %s, want 501", r[0], r[1], status, body)
		}
	}
}

// TestEvents: what happens is told as it happens, much at once as one event, and
// the stream ends with the store.
func TestEvents(t *testing.T) {
	t.Parallel()
	s, server := looking(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/v1/agl/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got := res.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("Content-Type = %q, want text/event-stream", got)
	}
	lines := bufio.NewScanner(res.Body)
	next := func() string {
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return data
			}
		}
		return ""
	}
	if got := next(); got != "{}" {
		t.Fatalf("first event = %q, want {}", got)
	}
	id := enqueued(t, s, "1")[0]
	if got, want := next(), `{"rollouts":{"n":1,"ids":["`+id+`"]}}`; got != want {
		t.Errorf("event = %s, want %s", got, want)
	}
	var inputs []string
	for range 1000 {
		inputs = append(inputs, "1")
	}
	for range 10 {
		enqueued(t, s, inputs...)
	}
	told, events := 0, 0
	for told < 10_000 {
		var got struct{ Rollouts struct{ N int } }
		if err := json.Unmarshal([]byte(next()), &got); err != nil {
			t.Fatal(err)
		}
		told += got.Rollouts.N
		events++
	}
	if told != 10_000 || events > 5 {
		t.Errorf("%d changes were told by %d events, want 10000 by a few", told, events)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := next(); got != "" {
		t.Errorf("after the end: %q, want the end of the stream", got)
	}
}
