package storehttp_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"agentlightning/internal/jsonx"
	"agentlightning/store"
	"agentlightning/storehttp"
)

// TestClientReplay plays the recordings the other way round: the test is the
// recorded server, and our client makes the call whose request was recorded. The
// request has to say the same, what the client makes of the answer has to give
// the recorded JSON again, and a refusal has to become the right error. Only
// the steps of notCallable are left out, which the client must be unable to send.
func TestClientReplay(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../testdata/vectors/store/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	unsendable := map[string]string{}
	for why, names := range notCallable {
		for _, name := range names {
			unsendable[name] = why
		}
	}
	var mu sync.Mutex
	played, left := 0, 0
	t.Run("files", func(t *testing.T) {
		for _, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".json")
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				raw, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				var script transcript
				if err := json.Unmarshal(raw, &script); err != nil {
					t.Fatal(err)
				}
				p := &player{}
				server := serve(t, p, "")
				p.client = newClient(t, server.URL, storehttp.WithRetryWindow(0))
				for i := range script.Steps {
					s := &script.Steps[i]
					full := name + "/" + s.Name
					asked, wrong := p.play(t.Context(), s)
					mu.Lock()
					switch why := unsendable[full]; {
					case why == "" && !asked:
						t.Errorf("%s: no call sends it: %s", full, wrong)
					case why == "" && wrong != "":
						t.Errorf("%s: %s", full, wrong)
					case why == "":
						played++
					case asked:
						t.Errorf("%s is sent; take it off the list (%s)", full, why)
					default:
						left++
					}
					delete(unsendable, full)
					mu.Unlock()
				}
			})
		}
	})
	for name := range unsendable {
		t.Errorf("%s is on the list and in no recording", name)
	}
	t.Logf("%d steps played, %d that no call sends", played, left)
}

// player is the recorded server.
type player struct {
	client *storehttp.Client

	mu    sync.Mutex
	step  *step
	seen  int    // requests of the recorded route
	wrong string // what the last of them has other than recorded
}

// ours are routes that the recorded server does not have.
var ours = map[string]bool{"/spans/batch": true, "/spans/next/batch": true, "/waits/count": true}

func (p *player) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	p.mu.Lock()
	defer p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if ours[strings.TrimPrefix(r.URL.Path, storehttp.Prefix)] {
		w.Header().Set("Allow", http.MethodGet)
		w.WriteHeader(http.StatusMethodNotAllowed)
		_, _ = io.WriteString(w, `{"detail":"Method Not Allowed"}`)
		return
	}
	p.seen++
	if err == nil {
		err = sameRequest(p.step, r, body)
	}
	if err != nil {
		p.wrong = err.Error()
	}
	for name, v := range p.step.Response.Headers {
		w.Header().Set(name, v)
	}
	w.WriteHeader(p.step.Response.Status)
	if p.step.Response.BodyText != nil {
		_, _ = io.WriteString(w, *p.step.Response.BodyText)
	} else if p.step.Response.BodyBase64 != nil {
		raw, _ := base64.StdEncoding.DecodeString(*p.step.Response.BodyBase64)
		_, _ = w.Write(raw)
	}
}

// play makes the call of a step. asked is whether the client can make it at all;
// wrong is what came out otherwise than recorded, empty for nothing.
func (p *player) play(ctx context.Context, s *step) (asked bool, wrong string) {
	call, err := callOf(s)
	if err != nil {
		return false, err.Error()
	}
	p.mu.Lock()
	p.step, p.seen, p.wrong = s, 0, ""
	p.mu.Unlock()
	got, err := call(ctx, p.client)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.seen > 1:
		return true, fmt.Sprintf("%d requests, want one", p.seen)
	case p.seen == 0:
		return false, fmt.Sprintf("the client sends nothing: %s, %v", got, err)
	case p.wrong != "":
		return false, p.wrong
	}
	if s.Response.Status >= http.StatusMultipleChoices || deref(s.Response.BodyText) == "null" && !strings.HasSuffix(s.Request.Path, "/spans") {
		return true, wrongRefusal(s, got, err)
	}
	if err != nil {
		return true, "error: " + err.Error()
	}
	for _, same := range []func(raw []byte) string{
		func(raw []byte) string { return string(raw) },
		func(raw []byte) string { return string((&replayer{transcript: &transcript{}}).reduce(nil, raw, true)) },
	} {
		have, want := same(got), same([]byte(deref(s.Response.BodyText)))
		if have == want {
			return true, ""
		}
		wrong = fmt.Sprintf("result\n got %s\nwant %s", have, want)
	}
	return true, wrong
}

// wrongRefusal says what is wrong with the error that an answer became.
func wrongRefusal(s *step, got []byte, err error) string {
	if err == nil {
		return fmt.Sprintf("result %s instead of an error", got)
	}
	var answer struct {
		Detail    json.RawMessage `json:"detail"`
		ErrorType string          `json:"error_type"`
		Traceback string          `json:"traceback"`
	}
	_ = json.Unmarshal([]byte(deref(s.Response.BodyText)), &answer)
	var kind error
	var text string
	switch status := s.Response.Status; {
	case status == http.StatusOK, answer.ErrorType == "ResponseValidationError":
		kind = store.ErrNotFound
	case status == http.StatusBadRequest, status == http.StatusUnprocessableEntity:
		kind = store.ErrInvalid
		if jsonx.KindOf(answer.Detail) == jsonx.String {
			text, _ = jsonx.Text(answer.Detail)
		}
	case answer.ErrorType == "ValueError":
		kind = store.ErrNotFound
		_, text, _ = strings.Cut(strings.TrimSpace(answer.Traceback), "ValueError: ")
	}
	for _, sentinel := range []error{
		store.ErrNotFound, store.ErrInvalid, store.ErrConflict, store.ErrClosed,
		store.ErrFull, store.ErrKeyReused, store.ErrDenied,
	} {
		if is := errors.Is(err, sentinel); is != (kind != nil && errors.Is(kind, sentinel)) {
			return fmt.Sprintf("error %q is %v: %t", err, sentinel, is)
		}
	}
	if status, ok := errors.AsType[*storehttp.StatusError](err); kind == nil && (!ok || status.Status != s.Response.Status) {
		return fmt.Sprintf("error %v is not a status of %d", err, s.Response.Status)
	}
	if !strings.Contains(err.Error(), text) {
		return fmt.Sprintf("error %q does not say %q", err, text)
	}
	return ""
}

// sameRequest compares what the client sends to what was recorded. A list that
// was asked for by query may be asked for by the search of the same route.
func sameRequest(s *step, r *http.Request, body []byte) error {
	want, have := s.Request.Path, r.URL.EscapedPath()
	if s.Request.Method == http.MethodGet && r.Method == http.MethodPost {
		want += "/search"
	} else if s.Request.Method != r.Method {
		return fmt.Errorf("sent %s, recorded %s", r.Method, s.Request.Method)
	}
	if want != have {
		return fmt.Errorf("sent to %s, recorded %s", have, want)
	}
	if len(body) > 0 && r.Header.Get("Content-Type") != "application/json" {
		return fmt.Errorf("content type %q", r.Header.Get("Content-Type"))
	}
	recorded, err := meaning(want, s.Request.Query, recordedBody(s))
	if err != nil {
		return err
	}
	sent, err := meaning(have, r.URL.RawQuery, body)
	if err != nil {
		return err
	}
	if err := sameTimeout(sent, recorded); err != nil {
		return err
	}
	a, b := mustJSON(sent), mustJSON(recorded)
	if !bytes.Equal(a, b) {
		return fmt.Errorf("sent %s, recorded %s", a, b)
	}
	return nil
}

// sameTimeout takes the timeouts away. The client asks for part of a long wait
// at a time, and for what is left of a short one.
func sameTimeout(sent, recorded map[string]any) error {
	limit, waits := sent["timeout"].(json.Number)
	if !waits {
		return nil
	}
	asked, err := limit.Float64()
	if err != nil || asked < 0 {
		return fmt.Errorf("timeout %s", limit)
	}
	const chunk = 20
	most := float64(chunk)
	if n, ok := recorded["timeout"].(json.Number); ok {
		if most, err = n.Float64(); err != nil {
			return err
		}
	}
	if most = max(0, min(most, chunk)); asked > most || asked < most/2 {
		return fmt.Errorf("timeout %v, recorded %v", asked, recorded["timeout"])
	}
	delete(sent, "timeout")
	delete(recorded, "timeout")
	return nil
}

// recordedBody is the body of a step as it was sent.
func recordedBody(s *step) []byte {
	if s.Request.BodyText != nil {
		return []byte(*s.Request.BodyText)
	}
	return s.Request.Body
}

// meaning writes a request with the members that may be left out.
func meaning(path, query string, body []byte) (map[string]any, error) {
	route := routeOf(path)
	if route == "resources" && len(body) == 0 {
		route = "resources/list"
	}
	m := map[string]any{}
	if len(body) > 0 && string(body) != "null" {
		// NaN and its like are no JSON, though the protocol takes them.
		d := json.NewDecoder(bytes.NewReader(notFinite.ReplaceAll(body, []byte(`$1"$2"`))))
		d.UseNumber()
		if err := d.Decode(&m); err != nil {
			return nil, err
		}
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, err
	}
	for name, list := range values {
		switch {
		case strings.HasSuffix(name, "_in"):
			items := make([]any, len(list))
			for i := range list {
				items[i] = list[i]
			}
			m[name] = items
		case name == "limit" || name == "offset":
			m[name] = json.Number(list[len(list)-1])
		default:
			m[name] = list[len(list)-1]
		}
	}
	return fill(route, m).(map[string]any), nil
}

var notFinite = regexp.MustCompile(`([:,\[] ?)(NaN|-?Infinity)`)

// routeOf names a path by its last word that is not an id.
func routeOf(path string) string {
	parts := strings.Split(strings.TrimPrefix(path, storehttp.Prefix+"/"), "/")
	switch {
	case len(parts) == 4 && parts[3] == "search":
		return "attempts/search"
	case len(parts) == 4:
		return "attempt"
	case len(parts) == 3 && parts[0] == "rollouts":
		return "attempts"
	case len(parts) == 2 && parts[0] == "rollouts" && parts[1] != "search":
		return "rollout"
	case len(parts) == 2 && parts[0] == "workers" && parts[1] != "search":
		return "worker"
	case len(parts) == 2 && parts[0] == "resources":
		return "named"
	}
	return strings.Join(parts, "/")
}

// defaults are what the protocol takes for a member that is left out.
var defaults = map[string]map[string]any{
	"queues/rollouts/dequeue": {"limit": json.Number("1"), "worker_id": nil},
	"request":                 {"mode": nil, "resources_id": nil, "config": nil, "metadata": nil},
	"rollouts":                {"mode": nil, "resources_id": nil, "config": nil, "metadata": nil, "worker_id": nil},
	"attempts":                {"worker_id": nil},
	"waits/rollouts":          {"timeout": nil},
	"config":                  {"timeout_seconds": nil, "unresponsive_seconds": nil, "max_attempts": json.Number("1"), "retry_condition": []any{}},
	"status":                  {"description": nil},
	"event":                   {"timestamp": nil},
	"link":                    {"attributes": nil},
	"llm":                     {"api_key": nil, "sampling_parameters": map[string]any{}},
	"rollouts/search":         {"limit": json.Number("-1"), "offset": json.Number("0"), "sort_by": nil, "sort_order": "asc", "filter_logic": "and"},
	"workers/search":          {"limit": json.Number("-1"), "offset": json.Number("0"), "sort_by": nil, "sort_order": "asc", "filter_logic": "and"},
	"resources/list":          {"limit": json.Number("-1"), "offset": json.Number("0"), "sort_by": nil, "sort_order": "asc"},
	"attempts/search":         {"limit": json.Number("-1"), "offset": json.Number("0"), "sort_by": "sequence_id", "sort_order": "asc"},
	"spans/search":            {"limit": json.Number("-1"), "offset": json.Number("0"), "sort_by": "sequence_id", "sort_order": "asc", "filter_logic": "and"},
}

// floats are the members whose numbers are written as floats.
var floats = map[string]bool{
	"timeout_seconds": true, "unresponsive_seconds": true, "timestamp": true, "start_time": true, "end_time": true,
	"last_heartbeat_time": true, "timeout": true,
}

// fill adds what is left out, and gives typed floats one spelling.
func fill(route string, v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	for name, value := range defaults[route] {
		if _, given := m[name]; !given {
			m[name] = value
		}
	}
	for name, value := range m {
		if n, isNumber := value.(json.Number); isNumber && floats[name] {
			f, _ := n.Float64()
			m[name] = json.Number(jsonx.AppendFloat(nil, f))
		}
		if value == nil && strings.HasSuffix(route, "search") && name != "sort_by" {
			delete(m, name) // no condition
		}
	}
	each := func(name, kind string) {
		list, _ := m[name].([]any)
		for _, item := range list {
			fill(kind, item)
		}
	}
	switch route {
	case "queues/rollouts/enqueue":
		each("rollouts", "request")
	case "request", "rollouts", "rollout":
		fill("config", m["config"])
	case "spans":
		fill("status", m["status"])
		fill("span", m)
		each("events", "event")
		each("links", "link")
	case "resources", "named":
		for _, resource := range m {
			if r, ok := resource.(map[string]any); ok && r["resource_type"] != "prompt_template" {
				fill("llm", r)
			}
		}
	}
	return m
}

func mustJSON(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		return []byte(strconv.Quote(err.Error()))
	}
	return raw
}
