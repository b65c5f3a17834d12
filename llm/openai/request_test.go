package openai_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"agentlightning/llm/openai"
)

func containsAny(b []byte, words ...string) bool {
	for _, w := range words {
		if bytes.Contains(b, []byte(w)) {
			return true
		}
	}
	return false
}

func TestEdit(t *testing.T) {
	t.Parallel()
	const body = ` { "model" : "m", "messages":[ {"content":"\u00e9"} ], "n":1.0, "big": 123456789012345678901234567890 } `
	tests := []struct {
		name  string
		edits []openai.Edit
		want  string
	}{
		{"nothing", nil, `{"model":"m","messages":[ {"content":"\u00e9"} ],"n":1.0,"big":123456789012345678901234567890}`},
		{"replace", []openai.Edit{{Key: "model", Value: openai.Text("a\"b")}}, `{"model":"a\"b","messages":[ {"content":"\u00e9"} ],"n":1.0,"big":123456789012345678901234567890}`},
		{
			"add",
			[]openai.Edit{{Key: "x", Value: []byte("true")}, {Key: "y", Value: []byte("1")}},
			`{"model":"m","messages":[ {"content":"\u00e9"} ],"n":1.0,"big":123456789012345678901234567890,"x":true,"y":1}`,
		},
		{"remove", []openai.Edit{{Key: "model"}, {Key: "messages"}, {Key: "none"}}, `{"n":1.0,"big":123456789012345678901234567890}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, err := openai.ParseRequest([]byte(body))
			if err != nil {
				t.Fatal(err)
			}
			if got := string(r.Edit(tt.edits...)); got != tt.want {
				t.Errorf("Edit(%v) =\n%s, want\n%s", tt.edits, got, tt.want)
			}
		})
	}
}

func TestParseRequest(t *testing.T) {
	t.Parallel()
	tests := []struct {
		body          string
		model         string
		stream, usage bool
		options       string
	}{
		{`{"model":"m\u00e9","stream":true,"stream_options":{"include_usage":true}}`, "mé", true, true, `{"include_usage":true}`},
		{`{"stream":"true","stream_options":null}`, "", false, false, `{"include_usage":true}`},
		{`{"model":null,"stream":false,"stream_options":{"a":[1]}}`, "", false, false, `{"a":[1],"include_usage":true}`},
		{`{"model":"a","model":"b"}`, "b", false, false, `{"include_usage":true}`},
	}
	for _, tt := range tests {
		r, err := openai.ParseRequest([]byte(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		if r.Model != tt.model || r.Stream != tt.stream || r.IncludeUsage != tt.usage || string(r.UsageOptions()) != tt.options {
			t.Errorf("ParseRequest(%s) = %q, stream %t, usage %t, options %s", tt.body, r.Model, r.Stream, r.IncludeUsage, r.UsageOptions())
		}
	}
	for _, body := range []string{``, `null`, `[]`, `{"model":1}`, `{"model":"m"`, `{"model":"m"}x`} {
		if _, err := openai.ParseRequest([]byte(body)); err == nil {
			t.Errorf("ParseRequest(%s) succeeds", body)
		}
	}
}

func FuzzEdit(f *testing.F) {
	f.Add([]byte(`{"model":"m","x":{"y":[1,2.0,null]}}`))
	f.Add([]byte(`{"a\u0062":1,"ab":2}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := openai.ParseRequest(body)
		if err != nil || !json.Valid(body) {
			return
		}
		got := r.Edit(openai.Edit{Key: "logprobs", Value: []byte("true")})
		var before, after map[string]any
		if json.Unmarshal(body, &before) != nil {
			return
		}
		if err := json.Unmarshal(got, &after); err != nil {
			t.Fatalf("Edit(%s) = %s: %v", body, got, err)
		}
		before["logprobs"] = true
		a, _ := json.Marshal(before)
		b, _ := json.Marshal(after)
		if !bytes.Equal(a, b) {
			t.Errorf("Edit(%s) = %s", body, got)
		}
	})
}
