package openai_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"agentlightning/internal/jsonx"
	"agentlightning/llm/openai"
)

func TestAppendLogprobs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, list, want string }{
		{"nothing to leave out", `[{"token":"a", "logprob":-0.5}, {"token":"b","logprob":-1e-3}]`, `[{"token":"a","logprob":-0.5},{"token":"b","logprob":-1e-3}]`},
		{"bytes of the token", `[{"token":"é\n","logprob":-0.5,"bytes":[195, 169,10],"top_logprobs":[]}]`, `[{"token":"é\n","logprob":-0.5}]`},
		{"null", `[{"bytes":null,"token":"a","logprob":0,"top_logprobs":null}]`, `[{"token":"a","logprob":0}]`},
		{"half a letter", `[{"token":"\ufffd","logprob":-0.5,"bytes":[195]}]`, `[{"token":"\ufffd","logprob":-0.5,"bytes":[195]}]`},
		{"more than the token", `[{"token":"a","logprob":-0.5,"bytes":[97,98]}]`, `[{"token":"a","logprob":-0.5,"bytes":[97,98]}]`},
		{"less than the token", `[{"token":"ab","logprob":-0.5,"bytes":[97]}]`, `[{"token":"ab","logprob":-0.5,"bytes":[97]}]`},
		{"no byte", `[{"token":"a","logprob":-0.5,"bytes":[353]}]`, `[{"token":"a","logprob":-0.5,"bytes":[353]}]`},
		{"no token", `[{"logprob":-0.5,"bytes":[97]}]`, `[{"logprob":-0.5,"bytes":[97]}]`},
		{
			"other candidates", `[{"token":"a","logprob":-0.5,"top_logprobs":[{"token":"a","logprob":-0.5,"bytes":[97]},{"token":"b","logprob":-2,"bytes":[98]}]}]`,
			`[{"token":"a","logprob":-0.5,"top_logprobs":[{"token":"a","logprob":-0.5},{"token":"b","logprob":-2}]}]`,
		},
		{"members of engines", `[{"token":"a","logprob":-0.5,"rank":1,"x":[1.0],"bytes":[97]}]`, `[{"token":"a","logprob":-0.5,"rank":1,"x":[1.0]}]`},
		{"empty", `[ ]`, `[]`},
		{"no list", `{"a":1}`, `{"a":1}`},
		{"elements that are none", `[1,null,{}]`, `[1,null,{}]`},
	} {
		if got := string(openai.AppendLogprobs([]byte("x"), []byte(tt.list))); got != "x"+tt.want {
			t.Errorf("%s: %s becomes %s, want %s", tt.name, tt.list, got, tt.want)
		}
	}
}

// Whatever an engine lists: what is kept of it is JSON and reads the same, but
// for what was said twice.
func FuzzAppendLogprobs(f *testing.F) {
	f.Add([]byte(`[{"token":"é","logprob":-0.5,"bytes":[195,169],"top_logprobs":[{"token":"b","logprob":-2,"bytes":[98]}]}]`))
	f.Add([]byte(`[{"bytes":null,"token":"\ud800","logprob":0,"top_logprobs":[]},1]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if jsonx.Check(raw) != nil {
			return
		}
		got := openai.AppendLogprobs(nil, raw)
		if err := jsonx.Check(got); err != nil {
			t.Fatalf("%s becomes %s: %v", raw, got, err)
		}
		type logprob struct {
			Token   any `json:"token"`
			Logprob any `json:"logprob"`
		}
		var was, is []logprob
		if json.Unmarshal(raw, &was) != nil || strings.Contains(strings.ToLower(string(raw)), `\u`) {
			return
		}
		if err := json.Unmarshal(got, &is); err != nil {
			t.Fatalf("%s becomes %s: %v", raw, got, err)
		}
		a, _ := json.Marshal(was)
		b, _ := json.Marshal(is)
		if !bytes.Equal(a, b) {
			t.Errorf("%s becomes %s", raw, got)
		}
	})
}
