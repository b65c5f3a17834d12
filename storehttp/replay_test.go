package storehttp_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"agentlightning/internal/jsonx"
	"agentlightning/otlp"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/storehttp"
)

// transcript is a recording of the Python implementation; see the README beside the files.
type transcript struct {
	Server struct {
		CLIArgs      []string `json:"cli_args"`
		ScanDebounce float64  `json:"scan_debounce_seconds"`
	} `json:"server"`
	Volatile     []string `json:"volatile_fields"`
	GeneratedIDs map[string]struct {
		Step    int    `json:"step"`
		Pointer string `json:"pointer"`
	} `json:"generated_ids"`
	Steps []step `json:"steps"`
}

type step struct {
	Name       string  `json:"name"`
	Sleep      float64 `json:"sleep_before_s"`
	Concurrent bool    `json:"concurrent_with_previous_step"`
	SortedBy   string  `json:"sorted_by_generated_id"`
	Request    struct {
		Method     string            `json:"method"`
		Path       string            `json:"path"`
		Query      string            `json:"query"`
		Headers    map[string]string `json:"headers"`
		Body       json.RawMessage   `json:"body"`
		BodyText   *string           `json:"body_text"`
		BodyBase64 *string           `json:"body_base64"`
	} `json:"request"`
	Response struct {
		Status     int               `json:"status"`
		Headers    map[string]string `json:"headers"`
		BodyText   *string           `json:"body_text"`
		BodyBase64 *string           `json:"body_base64"`
	} `json:"response"`
}

// got is what our server answered.
type got struct {
	status int
	header http.Header
	body   []byte
}

// replayer plays one transcript against a fresh server.
type replayer struct {
	*transcript
	url string
	ids []string // recorded id, our id, …

	mu    sync.Mutex
	ahead time.Duration // of the real clock
}

func (r *replayer) now() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Add(r.ahead)
}

// ours replaces recorded ids by those that our server made.
func (r *replayer) ours(s string) string { return strings.NewReplacer(r.ids...).Replace(s) }

// oursInQuery also replaces parts of ids that a condition looks for.
func (r *replayer) oursInQuery(query string) string {
	params := strings.Split(r.ours(query), "&")
	for i, p := range params {
		name, part, _ := strings.Cut(p, "=")
		if name != "rollout_id_contains" || part == "" {
			continue
		}
		for n := 0; n < len(r.ids); n += 2 {
			if at := strings.Index(r.ids[n], part); at > 2 { // after the kind of the id
				params[i] = name + "=" + r.ids[n+1][at:at+len(part)]
			}
		}
	}
	return strings.Join(params, "&")
}

func newReplayer(t *testing.T, file string) *replayer {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r := &replayer{transcript: &transcript{}}
	if err := json.Unmarshal(raw, r.transcript); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	s := engine.New(memory.New(), engine.Config{
		Now:                r.now,
		HealthScanInterval: time.Duration(r.Server.ScanDebounce * float64(time.Second)),
	})
	t.Cleanup(func() { _ = s.Close() })
	var origins []string
	for i, arg := range r.Server.CLIArgs {
		if arg == "--cors-origin" {
			origins = append(origins, r.Server.CLIArgs[i+1])
		}
	}
	traces := otlp.NewHandler(s, otlp.Config{})
	protocol := storehttp.NewHandler(s, storehttp.Config{})
	server := httptest.NewServer(storehttp.CORS(origins, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodPost && otlp.Serves(req.URL.Path) {
			traces.ServeHTTP(w, req)
			return
		}
		protocol.ServeHTTP(w, req)
	})))
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func (r *replayer) body(t *testing.T, s *step) []byte {
	t.Helper()
	q := &s.Request
	switch {
	case q.BodyBase64 != nil:
		raw, err := base64.StdEncoding.DecodeString(*q.BodyBase64)
		if err != nil {
			t.Fatal(err)
		}
		if plain, err := gunzip(raw); err == nil {
			var b bytes.Buffer
			w := gzip.NewWriter(&b)
			_, _ = w.Write([]byte(r.ours(string(plain))))
			_ = w.Close()
			return b.Bytes()
		}
		return []byte(r.ours(string(raw))) // ids are replaced by ids of their length
	case q.BodyText != nil:
		return []byte(r.ours(*q.BodyText))
	case q.Body != nil:
		var b bytes.Buffer
		if err := json.Compact(&b, q.Body); err != nil {
			t.Fatal(err)
		}
		return []byte(r.ours(b.String()))
	}
	return nil
}

func gunzip(raw []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

func (r *replayer) send(t *testing.T, s *step) got {
	t.Helper()
	address := r.url + r.ours(s.Request.Path)
	if s.Request.Query != "" {
		address += "?" + r.oursInQuery(s.Request.Query)
	}
	req, err := http.NewRequestWithContext(t.Context(), s.Request.Method, address, bytes.NewReader(r.body(t, s)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "identity")
	for k, v := range s.Request.Headers {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatalf("%s: %v", s.Name, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s: %v", s.Name, err)
	}
	return got{resp.StatusCode, resp.Header, body}
}

// learn takes the ids that an answer shows for the first time.
func (r *replayer) learn(t *testing.T, index int, g got) {
	t.Helper()
	for id, at := range r.GeneratedIDs {
		if at.Step != index {
			continue
		}
		made, err := pointer(g.body, at.Pointer)
		if err != nil {
			t.Fatalf("step %d: no id at %s of %s: %v", index, at.Pointer, g.body, err)
		}
		r.ids = append(r.ids, id, made)
	}
}

// pointer follows a JSON pointer to a string.
func pointer(raw []byte, path string) (string, error) {
	for part := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		switch jsonx.KindOf(raw) {
		case jsonx.Object:
			members, _ := jsonx.Members(raw)
			raw = jsonx.Get(members, part)
		case jsonx.Array:
			elements, _ := jsonx.Elements(raw)
			i, err := strconv.Atoi(part)
			if err != nil || i >= len(elements) {
				return "", fmt.Errorf("no element %q", part)
			}
			raw = elements[i]
		default:
			return "", fmt.Errorf("nothing at %q", part)
		}
	}
	return jsonx.Text(raw)
}

// reduce writes JSON with the volatile members as null or "set". When numbers
// is true it also gives floats with an exponent one spelling, which the
// protocol leaves open.
func (r *replayer) reduce(dst, raw []byte, numbers bool) []byte {
	switch jsonx.KindOf(raw) {
	case jsonx.Object:
		members, _ := jsonx.Members(raw)
		dst = append(dst, '{')
		for i, m := range members {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(jsonx.AppendString(dst, m.Key), ':')
			if slices.Contains(r.Volatile, m.Key) && !isText(m.Value) {
				if string(m.Value) != "null" {
					m.Value = []byte(`"set"`)
				}
				dst = append(dst, m.Value...)
				continue
			}
			dst = r.reduce(dst, m.Value, numbers)
		}
		return append(dst, '}')
	case jsonx.Array:
		elements, _ := jsonx.Elements(raw)
		dst = append(dst, '[')
		for i, e := range elements {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = r.reduce(dst, e, numbers)
		}
		return append(dst, ']')
	case jsonx.Number:
		if numbers && bytes.ContainsAny(raw, "eE") {
			f, _ := strconv.ParseFloat(string(raw), 64)
			return jsonx.AppendFloat(dst, f)
		}
	default:
	}
	return append(dst, raw...)
}

func isText(raw []byte) bool { return jsonx.KindOf(raw) == jsonx.String }

// compare returns what is different, empty for nothing.
func (r *replayer) compare(s *step, g got, anyOrder bool) string {
	want := s.Response
	if g.status != want.Status {
		return fmt.Sprintf("status %d, want %d\n got %s\nwant %s", g.status, want.Status, g.body, deref(want.BodyText))
	}
	for name, v := range want.Headers {
		if have := g.header.Get(name); have != v {
			return fmt.Sprintf("header %s is %q, want %q", name, have, v)
		}
	}
	if want.BodyBase64 != nil {
		raw, err := base64.StdEncoding.DecodeString(*want.BodyBase64)
		if err != nil {
			return err.Error()
		}
		have := g.body
		if want.Headers["content-encoding"] == "gzip" {
			raw, _ = gunzip(raw)
			if have, err = gunzip(have); err != nil {
				return "body is not gzip: " + err.Error()
			}
		}
		if !bytes.Equal(have, raw) {
			return fmt.Sprintf("body\n got %q\nwant %q", have, raw)
		}
		return ""
	}
	if want.BodyText == nil || s.Request.Method == http.MethodHead {
		return ""
	}
	text := r.ours(*want.BodyText)
	if !strings.HasPrefix(want.Headers["content-type"], "application/json") {
		if string(g.body) != text {
			return fmt.Sprintf("body\n got %s\nwant %s", g.body, text)
		}
		return ""
	}
	if s.SortedBy != "" {
		return sortedAlike(s, g.body, []byte(text))
	}
	for _, numbers := range []bool{false, true} {
		have, wish := r.reduce(nil, g.body, numbers), r.reduce(nil, []byte(text), numbers)
		if anyOrder {
			have, wish = sortItems(have), sortItems(wish)
		}
		if bytes.Equal(have, wish) {
			return ""
		}
		if numbers {
			return fmt.Sprintf("body\n got %s\nwant %s", have, wish)
		}
	}
	return ""
}

// sortItems brings the items of a page into one order.
func sortItems(page []byte) []byte {
	members, _ := jsonx.Members(page)
	items, _ := jsonx.Elements(jsonx.Get(members, "items"))
	slices.SortFunc(items, bytes.Compare)
	return append(bytes.Join(items, []byte(",")), page[bytes.LastIndexByte(page, ']'):]...)
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// sortedAlike compares pages whose order depends on ids that differ from run to run.
func sortedAlike(s *step, have, want []byte) string {
	var h, w struct {
		Items  []map[string]json.RawMessage `json:"items"`
		Limit  int                          `json:"limit"`
		Offset int                          `json:"offset"`
		Total  int                          `json:"total"`
	}
	if err := json.Unmarshal(have, &h); err != nil {
		return err.Error()
	}
	if err := json.Unmarshal(want, &w); err != nil {
		return err.Error()
	}
	if h.Limit != w.Limit || h.Offset != w.Offset || h.Total != w.Total || len(h.Items) != len(w.Items) {
		return fmt.Sprintf("page\n got %s\nwant %s", have, want)
	}
	order := func(a, b map[string]json.RawMessage) int {
		key := func(m map[string]json.RawMessage) string {
			text, _ := jsonx.Text(m[s.SortedBy])
			return text
		}
		if strings.Contains(s.Request.Query, "sort_order=desc") {
			a, b = b, a
		}
		return strings.Compare(key(a), key(b))
	}
	if !slices.IsSortedFunc(h.Items, order) {
		return fmt.Sprintf("not sorted by %s: %s", s.SortedBy, have)
	}
	return ""
}

// play sends the steps in order and hands each answer to judge.
func (r *replayer) play(t *testing.T, judge func(*step, got)) {
	t.Helper()
	for i := 0; i < len(r.Steps); i++ {
		s := &r.Steps[i]
		r.mu.Lock()
		r.ahead += time.Duration(s.Sleep * float64(time.Second))
		r.mu.Unlock()
		var waiting chan got
		if i+1 < len(r.Steps) && r.Steps[i+1].Concurrent {
			waiting = make(chan got, 1)
			go func() { waiting <- r.send(t, &r.Steps[i+1]) }()
			select { // the other request has to be waiting by now
			case <-time.After(200 * time.Millisecond):
			case g := <-waiting:
				t.Fatalf("%s: answered before its time: %s", r.Steps[i+1].Name, g.body)
			}
		}
		g := r.send(t, s)
		r.learn(t, i, g)
		judge(s, g)
		if waiting != nil {
			i++
			judge(&r.Steps[i], <-waiting)
		}
	}
}

func TestReplay(t *testing.T) {
	files, err := filepath.Glob("../testdata/vectors/store/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	var mu sync.Mutex
	matched, differ := 0, 0
	t.Run("files", func(t *testing.T) {
		for _, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".json")
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				if why := notReplayed[name]; why != "" {
					t.Skip(why)
				}
				r := newReplayer(t, file)
				r.play(t, func(s *step, g got) {
					d, known := differences[name+"/"+s.Name]
					// The Python client probes the health of the server under the name of the call that failed.
					known = known && s.Request.Path != storehttp.Prefix+"/health"
					diff := r.compare(s, g, orderOpen[name+"/"+s.Name])
					mu.Lock()
					defer mu.Unlock()
					switch {
					case known && diff == "":
						t.Errorf("%s matches; take it off the list of differences", s.Name)
					case known:
						differ++
						if wrong := d.check(r, s, g); wrong != "" {
							t.Errorf("%s (%s): %s", s.Name, d.why, wrong)
						}
					case diff != "":
						t.Errorf("%s: %s %s?%s: %s", s.Name, s.Request.Method, s.Request.Path, s.Request.Query, diff)
					default:
						matched++
					}
				})
			})
		}
	})
	t.Logf("%d steps match, %d differ as listed", matched, differ)
}
