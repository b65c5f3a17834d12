package agl_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
)

// appender is a value that writes its own JSON.
type appender interface{ AppendJSON(dst []byte) []byte }

// decodeAs reads an object of the protocol as what its members say it is, nil
// when it is none of the domain.
func decodeAs(raw []byte) (appender, error) {
	members, err := jsonx.Members(raw)
	if err != nil {
		return nil, err
	}
	has := func(key string) bool { return jsonx.Get(members, key) != nil }
	var v appender
	switch {
	case has("span_id") && has("events"):
		v = new(agl.Span)
	case has("rollout_id") && has("input"):
		v = new(agl.AttemptedRollout)
	case has("attempt_id") && has("start_time"):
		v = new(agl.Attempt)
	case has("worker_id") && has("heartbeat_stats"):
		v = new(agl.Worker)
	case has("resources_id") && has("version"):
		v = new(agl.ResourcesUpdate)
	default:
		return nil, nil
	}
	return v, json.Unmarshal(raw, v)
}

// Every object that the Python implementation was recorded to answer with comes
// out as it went in.
func TestRecordedObjects(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/vectors/store/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	seen := map[string]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var recording struct {
			Steps []struct {
				Name     string `json:"name"`
				Response struct {
					Status   int    `json:"status"`
					BodyText string `json:"body_text"`
				} `json:"response"`
			} `json:"steps"`
		}
		if err := json.Unmarshal(text, &recording); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, step := range recording.Steps {
			if step.Response.Status/100 != 2 {
				continue
			}
			for _, raw := range objects([]byte(step.Response.BodyText)) {
				v, err := decodeAs(raw)
				if err != nil {
					t.Errorf("%s, %s: decode %s: %v", file, step.Name, raw, err)
					continue
				}
				if v == nil {
					continue
				}
				got, want := string(v.AppendJSON(nil)), string(raw)
				if got != want {
					t.Errorf("%s, %s: got %s\nwant %s", file, step.Name, got, want)
				}
				seen[fmt.Sprintf("%T", v)]++
			}
		}
	}
	if len(seen) != 5 {
		t.Errorf("the recordings hold %v, want some of all five types", seen)
	}
}

// objects finds the objects of an answer: itself, the items of a page, or the
// elements of a list.
func objects(body []byte) [][]byte {
	switch jsonx.KindOf(body) {
	case jsonx.Array:
		out, _ := jsonx.Elements(body)
		return out
	case jsonx.Object:
		members, _ := jsonx.Members(body)
		if items := jsonx.Get(members, "items"); items != nil {
			return objects(items)
		}
		return [][]byte{body}
	case jsonx.Invalid, jsonx.Null, jsonx.Bool, jsonx.Number, jsonx.String:
	}
	return nil
}

func TestUnsetMembers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		v    any
		want string
	}{
		{agl.Rollout{}, `{"rollout_id":"","input":null,"start_time":0.0,"end_time":null,"mode":null,"resources_id":null,"status":"",` +
			`"config":{"timeout_seconds":null,"unresponsive_seconds":null,"max_attempts":1,"retry_condition":[]},"metadata":null}`},
		{agl.AttemptedRollout{}, `{"rollout_id":"","input":null,"start_time":0.0,"end_time":null,"mode":null,"resources_id":null,"status":"",` +
			`"config":{"timeout_seconds":null,"unresponsive_seconds":null,"max_attempts":1,"retry_condition":[]},"metadata":null}`},
		{agl.Attempt{}, `{"rollout_id":"","attempt_id":"","sequence_id":0,"start_time":0.0,"end_time":null,"status":"","worker_id":null,"last_heartbeat_time":null,"metadata":null}`},
		{agl.Worker{}, `{"worker_id":"","status":"","heartbeat_stats":null,"last_heartbeat_time":null,"last_dequeue_time":null,"last_busy_time":null,` +
			`"last_idle_time":null,"current_rollout_id":null,"current_attempt_id":null}`},
		{agl.ResourcesUpdate{}, `{"resources_id":"","create_time":0.0,"update_time":0.0,"version":0,"resources":{}}`},
		{
			agl.NamedResources{{Name: "p", Resource: agl.ProxyLLM{}}},
			`{"p":{"resource_type":"proxy_llm","endpoint":"","model":"","api_key":null,"sampling_parameters":{}}}`,
		},
		{agl.Span{}, `{"rollout_id":"","attempt_id":"","sequence_id":0,"trace_id":"","span_id":"","parent_id":null,"name":"",` +
			`"status":{"status_code":"","description":null},"attributes":{},"events":[],"links":[],"start_time":null,"end_time":null,` +
			`"context":null,"parent":null,"resource":{"attributes":{},"schema_url":""}}`},
	} {
		got, err := json.Marshal(tt.v)
		if err != nil || string(got) != tt.want {
			t.Errorf("Marshal(%T) = %s, %v\nwant %s", tt.v, got, err, tt.want)
		}
	}
}

func TestSpanKeepsWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	const text = `{"rollout_id":"r","attempt_id":"a","sequence_id":-3,"trace_id":"t","span_id":"s","parent_id":"","name":"n",` +
		`"status":{"status_code":"ERROR","description":"d","why":{"b":1,"a":1.0}},` +
		`"attributes":{"z":1,"a":1.0,"big":123456789012345678901234567890,"bigs":[1,123456789012345678901234567890],"null":null,"holes":[1.0,null]},` +
		`"events":[{"name":"e","attributes":{},"timestamp":1e+16,"x":[]}],` +
		`"links":[{"context":{"trace_id":"a","span_id":"b","is_remote":true,"trace_state":{"k":"v"},"y":0},"attributes":null,"z":"z"},` +
		`{"context":{"trace_id":"","span_id":"","is_remote":false,"trace_state":{}},"attributes":{}}],` +
		`"start_time":5.0,"end_time":null,"context":null,"parent":{"trace_id":"","span_id":"","is_remote":false,"trace_state":{}},` +
		`"resource":{"attributes":{"k":true},"schema_url":"u"},"kind":"SpanKind.INTERNAL","free":[1.0,{"b":null,"a":-0.0}]}`
	var s agl.Span
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	if got := string(s.AppendJSON(nil)); got != text {
		t.Errorf("got  %s\nwant %s", got, text)
	}
	var lenient agl.Span
	if err := json.Unmarshal([]byte(`{"sequence_id":"7","start_time":"1.5","end_time":true,"context":{"is_remote":"yes"}}`), &lenient); err != nil {
		t.Fatal(err)
	}
	if lenient.SequenceID != 7 || *lenient.StartTime != 1.5 || *lenient.EndTime != 1 || !lenient.Context.IsRemote {
		t.Errorf("numbers as text are read as %s", lenient.AppendJSON(nil))
	}
	if err := lenient.UnmarshalJSON([]byte(`{"start_time":NaN,"events":[{"attributes":{"a":Infinity},"timestamp":-Infinity}]}`)); err != nil {
		t.Error(err)
	}
	if lenient.StartTime != nil || lenient.Events[0].Timestamp != nil {
		t.Errorf("times that are no number are read as %s", lenient.AppendJSON(nil))
	}
	for _, bad := range []string{
		`{"name":1}`, `{"sequence_id":1.5}`, `{"start_time":[]}`, `{"sequence_id":"x"}`, `{"attributes":{"a":{}}}`, `{"events":{}}`, `{"links":[{"context":[]}]}`,
		`{"context":{"trace_state":{"k":1}}}`, `{"status":"OK"}`, `[]`, `{`,
	} {
		if err := json.Unmarshal([]byte(bad), new(agl.Span)); err == nil {
			t.Errorf("a span was read from %s", bad)
		}
	}
}

// FuzzSpan reads any text as a span: what was read once is written the same for ever.
func FuzzSpan(f *testing.F) {
	f.Add([]byte(`{"rollout_id":"r","sequence_id":1,"attributes":{"a":[1,2.5],"b":[true,2],"c":["1.5",1]},"status":{"status_code":"OK","x":1},"k":{"a":1,"a":2}}`))
	f.Add([]byte(`{"attributes":{"nan":NaN,"l":[Infinity]},"links":[{"attributes":null,"context":{"trace_state":{"a":"b"}}}],"events":[{"name":"e","timestamp":1}]}`))
	f.Fuzz(func(t *testing.T, src []byte) {
		var s agl.Span
		if json.Unmarshal(src, &s) != nil {
			if s.UnmarshalJSON(src) != nil {
				return
			}
		}
		text := s.AppendJSON(nil)
		if !json.Valid(text) {
			t.Fatalf("%q is written as %q, which is not JSON", src, text)
		}
		var again agl.Span
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatalf("%q is written as %q, which does not read back: %v", src, text, err)
		}
		if got := again.AppendJSON(nil); string(got) != string(text) {
			t.Fatalf("%q is written as %q, then as %q", src, text, got)
		}
	})
}

// FuzzEntities reads any text as what the protocol passes around beside spans:
// what was read once is written the same for ever.
func FuzzEntities(f *testing.F) {
	for _, seed := range []string{
		`{"rollout_id":"r","input":{"a":1.0},"start_time":1,"status":"queuing","config":{"max_attempts":2,"retry_condition":["failed"]},"metadata":{}}`,
		`{"rollout_id":"r","input":null,"start_time":1,"status":"running","attempt":{"rollout_id":"r","attempt_id":"a","sequence_id":1,"start_time":1,"status":"running"}}`,
		`{"worker_id":"w","status":"busy","heartbeat_stats":{"cpu":0.5},"last_busy_time":2}`,
		`{"resources_id":"rs","create_time":1,"update_time":1,"version":1,"resources":{"m":{"resource_type":"llm","endpoint":"http://x","model":"m","sampling_parameters":{"t":1}}}}`,
		`{"resources_id":"rs","create_time":1,"update_time":1,"version":1,"resources":{"p":{"resource_type":"prompt_template","template":"{x}","engine":"jinja"}}}`,
	} {
		for kind := range uint8(5) {
			f.Add(kind, []byte(seed))
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, src []byte) {
		fresh := func() any {
			switch kind % 5 {
			case 0:
				return new(agl.Rollout)
			case 1:
				return new(agl.AttemptedRollout)
			case 2:
				return new(agl.Attempt)
			case 3:
				return new(agl.Worker)
			}
			return new(agl.ResourcesUpdate)
		}
		v, again := fresh(), fresh()
		if json.Unmarshal(src, v) != nil {
			return
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatalf("%q was read as %T and cannot be written: %v", src, v, err)
		}
		if err := json.Unmarshal(text, again); err != nil {
			t.Fatalf("%q is written as %q, which does not read back: %v", src, text, err)
		}
		if got, err := json.Marshal(again); err != nil || string(got) != string(text) {
			t.Fatalf("%q is written as %q, then as %q, %v", src, text, got, err)
		}
	})
}
