package native

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRender(t *testing.T) {
	t.Parallel()
	tok := NewTokenizer([]string{" be", "hi"})
	messages := []Message{{RoleSystem, "a be"}, {RoleUser, "hi"}, {RoleAssistant, "f(x)"}, {RoleTool, "7"}, {RoleAssistant, ""}}
	ids, mask, err := tok.Render(messages)
	if err != nil {
		t.Fatalf("Render: %v", err)
	}
	wantIDs := []int32{
		SystemToken, 'a', firstWord, EndToken, UserToken, firstWord + 1, EndToken,
		AssistantToken, 'f', '(', 'x', ')', EndToken, ToolToken, '7', EndToken, AssistantToken, EndToken,
	}
	wantMask := []float32{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1}
	if !slices.Equal(ids, wantIDs) || !slices.Equal(mask, wantMask) {
		t.Errorf("Render = %v %v, want %v %v", ids, mask, wantIDs, wantMask)
	}
	prompt, err := tok.Prompt(messages[:2])
	if err != nil || !slices.Equal(prompt, wantIDs[:8]) {
		t.Errorf("Prompt = %v, %v, want %v", prompt, err, wantIDs[:8])
	}
	if _, _, err := tok.Render([]Message{{"judge", ""}}); err == nil {
		t.Errorf("Render of an unknown role succeeded")
	}
}

func TestParseCall(t *testing.T) {
	t.Parallel()
	tools := []tool{
		newTool("calc", json.RawMessage(`{"type":"object","properties":{"expression":{"type":"string"}}}`)),
		newTool("find", json.RawMessage(`{"properties":{"a":{"type":"integer"},"b":{"type":"string"}}}`)),
		newTool("count", json.RawMessage(`{"properties":{"n":{"type":"integer"}}}`)),
		newTool("now", nil),
	}
	for text, want := range map[string]string{
		"calc(1+2)":             `calc {"expression":"1+2"}`,
		"calc((1+2)*3)":         `calc {"expression":"(1+2)*3"}`,
		"calc()":                `calc {"expression":""}`,
		`calc(a"<b>\)`:          `calc {"expression":"a\"<b>\\"}`,
		"calc(1+2":              "",
		"calc 1+2)":             "",
		"calc(1+2) ":            "",
		" calc(1+2)":            "",
		"so calc(1+2)":          "",
		"other(1)":              "",
		`find({"a":1})`:         `find {"a":1}`,
		`find({"a":1}`:          "",
		`find([1])`:             "",
		`find(7)`:               "",
		`count({"n": 3})`:       `count {"n": 3}`,
		"count(3)":              "",
		"now()":                 "now {}",
		"now(1)":                "",
		`now({})`:               "now {}",
		"":                      "",
		"calc":                  "",
		"calc(1+2)\ncalc(3+4)":  "calc {\"expression\":\"1+2)\\ncalc(3+4\"}",
		"calculator(1)":         "",
		"calc(" + "\x00" + ")":  `calc {"expression":"\u0000"}`,
		"find({\"a\":1})\u00a0": "",
	} {
		got := ""
		if c, arguments, ok := parseCall(text, tools); ok {
			got = c.name + " " + arguments
			if back := callText(c.name, arguments, tools); back != text && text != "now({})" {
				t.Errorf("callText of %q = %q", text, back)
			}
			for i := range text {
				if !mayBecomeCall(text[:i], tools) {
					t.Errorf("mayBecomeCall(%q) = false on the way to %q", text[:i], text)
				}
			}
		}
		if got != want {
			t.Errorf("parseCall(%q) = %q, want %q", text, got, want)
		}
	}
	if mayBecomeCall("hello", tools) {
		t.Errorf("mayBecomeCall(hello) = true")
	}
	// Without the definition a single string is taken for the bare form.
	if got := callText("calc", `{"expression":"1+2"}`, nil); got != "calc(1+2)" {
		t.Errorf("callText without tools = %q", got)
	}
}

// Whatever was sampled, the prompt of the next turn begins with exactly those
// tokens: bytes that are no text, special tokens in the middle, words spelled
// out, calls well-formed and not, completions cut by length.
func TestPromptIsAppendOnly(t *testing.T) {
	t.Parallel()
	m := smallModel(t, Config{})
	s := NewServer(m, ServerConfig{})
	schema := json.RawMessage(`{"properties":{"e":{"type":"string"}}}`)
	tools := []tool{newTool("calc", schema), newTool("find", json.RawMessage(`{"properties":{"a":{},"b":{}}}`))}
	r := rand.New(rand.NewPCG(1, 2))
	kinds := map[FinishReason]int{}
	for range 3000 {
		messages := []wireMessage{{Role: "user", Content: wireContent(randomText(r))}}
		var said []int32
		for turn := range 3 {
			prompt, err := s.prompt(messages, tools)
			if err != nil {
				t.Fatalf("prompt: %v", err)
			}
			if !slices.Equal(prompt[:len(said)], said) {
				t.Fatalf("turn %d: prompt %v does not begin with %v", turn, prompt, said)
			}
			ids, reason := randomSample(r, m.tok)
			c := &chatCall{s: s, req: Request{Prompt: prompt}, tools: tools}
			res := &Result{FinishReason: reason}
			for _, id := range ids {
				res.Tokens = append(res.Tokens, Token{ID: id})
			}
			answer := c.whole(res)
			kinds[*answer.Choices[0].FinishReason]++
			said = slices.Concat(prompt, ids)
			messages = append(messages, roundTrip(t, answer.Choices[0].Message), wireMessage{Role: "tool", Content: wireContent(randomText(r))})
		}
	}
	if kinds[FinishStop] < 100 || kinds[FinishLength] < 100 || kinds[finishTools] < 100 {
		t.Errorf("finish reasons seen: %v, want plenty of each", kinds)
	}
}

// roundTrip is the message as a client sends it back.
func roundTrip(t *testing.T, a *answer) wireMessage {
	t.Helper()
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatalf("Marshal: %v", err)
	}
	var client map[string]any
	if err := json.Unmarshal(text, &client); err != nil {
		t.Fatalf("Unmarshal: %v", err)
	}
	if text, err = json.Marshal(client); err != nil {
		t.Fatalf("Marshal: %v", err)
	}
	var back wireMessage
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatalf("Unmarshal: %v", err)
	}
	return back
}

func randomText(r *rand.Rand) string {
	return strings.Repeat(string(rune('a'+r.IntN(26))), r.IntN(4))
}

func randomSample(r *rand.Rand, tok *Tokenizer) ([]int32, FinishReason) {
	var ids []int32
	switch r.IntN(4) {
	case 0: // anything at all
		for range r.IntN(12) {
			ids = append(ids, r.Int32N(int32(tok.Size())))
		}
		ids = slices.DeleteFunc(ids, func(id int32) bool { return id == EndToken })
	case 1: // a word spelled out
		for _, b := range []byte("no one" + randomText(r)) {
			ids = append(ids, int32(b))
		}
	case 2: // a call, with a special token or a broken byte now and then
		for _, b := range []byte("calc(" + randomText(r)) {
			ids = append(ids, int32(b))
		}
		switch r.IntN(4) {
		case 0:
			ids = append(ids, UserToken)
		case 1:
			ids = append(ids, 0xc3)
		}
		if r.IntN(4) > 0 {
			ids = append(ids, ')')
		}
	case 3:
		for _, b := range []byte(`find({ "b":"\u0061", "a":1.0 })`) {
			ids = append(ids, int32(b))
		}
	}
	if r.IntN(3) == 0 && len(ids) > 0 {
		return ids, FinishLength
	}
	return append(ids, EndToken), FinishStop
}

// Two samples of one prompt with the same text but different tokens are told
// apart by the id of their call.
func TestCallIDsTellSamplesApart(t *testing.T) {
	t.Parallel()
	s := NewServer(smallModel(t, Config{}), ServerConfig{})
	tools := []tool{newTool("calc", json.RawMessage(`{"properties":{"e":{"type":"string"}}}`))}
	user := wireMessage{Role: "user", Content: "x"}
	prompt, err := s.prompt([]wireMessage{user}, tools)
	if err != nil {
		t.Fatalf("prompt: %v", err)
	}
	samples := [][]int32{
		append(s.m.tok.Encode("calc( one)"), EndToken),
		{'c', 'a', 'l', 'c', '(', ' ', 'o', 'n', 'e', ')', EndToken},
	}
	var answers []wireMessage
	for _, ids := range samples {
		res := &Result{FinishReason: FinishStop}
		for _, id := range ids {
			res.Tokens = append(res.Tokens, Token{ID: id})
		}
		c := &chatCall{s: s, req: Request{Prompt: prompt}, tools: tools}
		answers = append(answers, roundTrip(t, c.whole(res).Choices[0].Message))
	}
	for i, a := range answers {
		got, err := s.prompt([]wireMessage{user, a}, tools)
		if err != nil {
			t.Fatalf("prompt: %v", err)
		}
		if want := slices.Concat(prompt, samples[i], []int32{AssistantToken}); !slices.Equal(got, want) {
			t.Errorf("prompt after sample %d = %v, want %v", i, got, want)
		}
	}
	// A framework that renames the call still gets the tokens of one of them.
	renamed := answers[1]
	renamed.ToolCalls[0].ID = "renamed"
	got, err := s.prompt([]wireMessage{user, renamed}, tools)
	if want := slices.Concat(prompt, samples[1], []int32{AssistantToken}); err != nil || !slices.Equal(got, want) {
		t.Errorf("prompt after a renamed call = %v, %v, want %v", got, err, want)
	}
}

func TestMemoryForgetsTheLongestUnused(t *testing.T) {
	t.Parallel()
	m := newMemory(2)
	p := []int32{1}
	m.put(p, []int32{10}, "a")
	m.put(p, []int32{20}, "b")
	if _, ok := m.get(p, "a"); !ok {
		t.Errorf("a is gone")
	}
	m.put(p, []int32{30}, "c")
	_, a := m.get(p, "a")
	_, b := m.get(p, "b")
	ids, c := m.get(p, "c")
	if !a || b || !c || !slices.Equal(ids, []int32{30}) {
		t.Errorf("remembered a, b, c = %v, %v, %v, want true, false, true", a, b, c)
	}
}

func TestTextOut(t *testing.T) {
	t.Parallel()
	tok := NewTokenizer([]string{"stop"})
	for _, tt := range []struct {
		name  string
		stops []string
		ids   []int32
		want  []string // after each token, and at the end
	}{
		{"plain", nil, []int32{'a', 'b'}, []string{"a", "b", ""}},
		{"a character in pieces", nil, []int32{0xe2, 0x82, 0xac, 'x'}, []string{"", "", "€", "x", ""}},
		{"a broken character", nil, []int32{0xe2, 0x82, 'x'}, []string{"", "", "\ufffd\ufffdx", ""}},
		{"cut in a character", nil, []int32{'a', 0xe2, 0x82}, []string{"a", "", "", "\ufffd\ufffd"}},
		{"lone continuation", nil, []int32{0x82, 'a'}, []string{"\ufffd", "a", ""}},
		{"special", nil, []int32{'a', UserToken, 'b'}, []string{"a", "", "b", ""}},
		{"stop in pieces", []string{"xyz"}, []int32{'a', 'x', 'y', 'z'}, []string{"a", "", "", "", ""}},
		{"nearly a stop", []string{"xyz"}, []int32{'x', 'y', 'a'}, []string{"", "", "xya", ""}},
		{"stop within a word", []string{"to"}, []int32{'a', firstWord}, []string{"a", "s", ""}},
		{"the first of two", []string{"op", "to"}, []int32{firstWord}, []string{"s", ""}},
	} {
		o := &textOut{tok: tok, stops: tt.stops}
		var got []string
		for _, id := range tt.ids {
			o.add(id)
			got = append(got, o.take(false))
		}
		got = append(got, o.take(true))
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		if whole := validText(o.raw.String()); whole != strings.Join(got, "") {
			t.Errorf("%s: pieces %q, whole %q", tt.name, got, whole)
		}
	}
}
