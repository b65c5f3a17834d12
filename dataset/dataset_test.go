package dataset_test

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	agl "agentlightning"
	"agentlightning/adapter/credit"
	"agentlightning/algorithm"
	"agentlightning/dataset"
	"agentlightning/learner"
	"agentlightning/learner/native"
	"agentlightning/rl"
	"agentlightning/semconv"
)

func scored(group string, rewards ...float64) []dataset.Scored {
	var out []dataset.Scored
	for _, r := range rewards {
		out = append(out, dataset.Scored{Group: group, Reward: &r})
	}
	return out
}

func TestSelection(t *testing.T) {
	t.Parallel()
	rollouts := slices.Concat(scored("a", .5, 1, .25, 1), scored("b", 0, math.NaN(), .75), []dataset.Scored{{Group: "b"}})
	for _, tt := range []struct {
		name string
		s    dataset.Selection
		want []int
	}{
		{"all with a reward", dataset.Selection{}, []int{0, 1, 2, 3, 4, 6}},
		{"threshold", dataset.Selection{Min: new(.5)}, []int{0, 1, 3, 6}},
		{"best half", dataset.Selection{Top: .5}, []int{1, 3, 6}},
		{"at least one", dataset.Selection{Top: .01}, []int{1}},
		{"best of each group", dataset.Selection{Top: .01, PerGroup: true}, []int{1, 6}},
		{"best half of each group above a threshold", dataset.Selection{Min: new(.3), Top: .5, PerGroup: true}, []int{1, 6}},
	} {
		got, err := tt.s.Select(rollouts)
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, %v, want %v", tt.name, got, err, tt.want)
		}
	}
	if got, err := (dataset.Selection{Top: .29}).Select(scored("a", make([]float64, 100)...)); err != nil || len(got) != 29 {
		t.Errorf("0.29 of 100: %d, %v, want 29", len(got), err)
	}
	for want, s := range map[string]dataset.Selection{"top 2": {Top: 2}, "NaN": {Min: new(math.NaN())}, "per group": {PerGroup: true}} {
		if _, err := s.Select(rollouts); !errors.Is(err, dataset.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want ErrInvalid that says %q", s, err, want)
		}
	}
}

func TestPreferenceSelection(t *testing.T) {
	t.Parallel()
	rollouts := slices.Concat(scored("a", .5, 1, .25, 0), scored("b", 1, 1), scored("c", 1))
	for _, tt := range []struct {
		p    dataset.Preferences
		want []dataset.Pair
	}{
		{dataset.Preferences{}, []dataset.Pair{{1, 3}}},
		{dataset.Preferences{Most: 5}, []dataset.Pair{{1, 3}, {0, 2}}},
		{dataset.Preferences{Most: 5, Margin: .5}, []dataset.Pair{{1, 3}}},
		{dataset.Preferences{Margin: 2}, nil},
	} {
		got, err := tt.p.Select(rollouts)
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%+v: %v, %v, want %v", tt.p, got, err, tt.want)
		}
	}
	// The doubles 0.9 and 0.8 are a little less than 0.1 apart.
	if got, err := (dataset.Preferences{Margin: .1}).Select(scored("a", .9, .8)); err != nil || len(got) != 1 {
		t.Errorf("margin 0.1 of 0.9 and 0.8: %v, %v, want the pair", got, err)
	}
	for _, p := range []dataset.Preferences{{Margin: -1}, {Margin: math.NaN()}, {Most: -1}} {
		if _, err := p.Select(rollouts); !errors.Is(err, dataset.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", p, err)
		}
	}
}

// attempt is two calls, of which the second goes on from the first, and a
// reward.
func attempt(answer string, reward float64) []agl.Span {
	call := func(id string, sequence int64, prompt, response []int64, messages ...string) agl.Span {
		s := agl.Span{SpanID: id, SequenceID: sequence, Name: semconv.SpanModelCall, Attributes: agl.Attributes{
			{Key: semconv.PromptTokenIDs, Value: prompt},
			{Key: semconv.ResponseTokenIDs, Value: response},
			{Key: semconv.ResponseLogprobs, Value: make([]float64, len(response))},
		}}
		n := len(messages)/2 - 1
		for i := range n {
			s.Attributes = append(s.Attributes,
				agl.Attribute{Key: semconv.PromptKey(i, "role"), Value: messages[2*i]}, agl.Attribute{Key: semconv.PromptKey(i, "content"), Value: messages[2*i+1]})
		}
		s.Attributes = append(s.Attributes,
			agl.Attribute{Key: semconv.CompletionKey(0, "role"), Value: messages[2*n]}, agl.Attribute{Key: semconv.CompletionKey(0, "content"), Value: messages[2*n+1]})
		return s
	}
	return []agl.Span{
		call("1", 1, []int64{1, 2}, []int64{3}, "user", "How?", "assistant", "Like this."),
		call("2", 2, []int64{1, 2, 3, 4}, []int64{5, 6}, "user", "How?", "assistant", "Like this.", "user", "And?", "assistant", answer),
		{SpanID: "3", SequenceID: 3, Name: semconv.SpanAnnotation, Attributes: agl.Attributes{
			{Key: semconv.RewardName(0), Value: semconv.PrimaryReward}, {Key: semconv.RewardValue(0), Value: reward},
		}},
	}
}

// What is said beside a call of a tool does not split a conversation, and a
// picture stays one.
func TestConversationsWithToolsAndPictures(t *testing.T) {
	t.Parallel()
	spans := attempt("So.", 1)
	call := func(key func(member string) string) agl.Attributes {
		return agl.Attributes{
			{Key: key("tool_calls.0.id"), Value: "c"}, {Key: key("tool_calls.0.name"), Value: "look"}, {Key: key("tool_calls.0.arguments"), Value: "{}"},
		}
	}
	spans[0].Attributes = append(spans[0].Attributes, call(func(m string) string { return semconv.CompletionKey(0, m) })...)
	spans[1].Attributes = append(spans[1].Attributes, call(func(m string) string { return semconv.PromptKey(1, m) })...)
	picture := `[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]`
	for i := range 2 {
		spans[i].Attributes.Set(semconv.PromptKey(0, "content"), picture)
	}
	got, err := dataset.Conversations(spans)
	if err != nil || len(got) != 1 || len(got[0].Messages) != 4 {
		t.Fatalf("Conversations = %+v, %v, want one of four messages", got, err)
	}
	for i, want := range []string{`"content":` + picture, `"content":"Like this."`} {
		if !strings.Contains(string(got[0].Messages[i]), want) {
			t.Errorf("message %d is %s, want %s in it", i, got[0].Messages[i], want)
		}
	}
}

func TestConversationsRoundTrip(t *testing.T) {
	t.Parallel()
	good, err := dataset.Conversations(attempt("So.", 1))
	if err != nil {
		t.Fatal(err)
	}
	if len(good) != 1 || len(good[0].Messages) != 4 {
		t.Fatalf("Conversations = %+v, want one with the messages of both calls", good)
	}
	bad, err := dataset.Conversations(attempt("No.", 0))
	if err != nil {
		t.Fatal(err)
	}
	good[0].RolloutID, good[0].Reward = "ro-1", new(1.0)

	var b bytes.Buffer
	if err := dataset.WriteOpenAI(&b, good); err != nil {
		t.Fatal(err)
	}
	want := `{"messages":[{"content":"How?","role":"user"},{"content":"Like this.","role":"assistant"},{"content":"And?","role":"user"},{"content":"So.","role":"assistant"}]}` + "\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("OpenAI's lines (-want +got):\n%s", diff)
	}
	b.Reset()
	if err := dataset.WriteConversations(&b, good); err != nil {
		t.Fatal(err)
	}
	again, err := dataset.ReadConversations(&b, "c.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(good, again); diff != "" {
		t.Errorf("conversations read again (-want +got):\n%s", diff)
	}

	p, err := dataset.Prefer(good[0], bad[0])
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Prompt) != 3 || len(p.Chosen) != 1 || !strings.Contains(string(p.Rejected[0]), "No.") {
		t.Errorf("Prefer = %+v, want three messages in common and the two answers", p)
	}
	b.Reset()
	if err := dataset.WritePreferences(&b, []dataset.Preference{p}); err != nil {
		t.Fatal(err)
	}
	pairs, err := dataset.ReadPreferences(&b, "p.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]dataset.Preference{p}, pairs); diff != "" {
		t.Errorf("preferences read again (-want +got):\n%s", diff)
	}
	if _, err := dataset.Prefer(good[0], good[0]); !errors.Is(err, dataset.ErrNoPrompt) {
		t.Errorf("a conversation preferred to itself: %v", err)
	}
}

func TestReadersNameTheLine(t *testing.T) {
	t.Parallel()
	ok := `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}` + "\n"
	read := func(text string) error {
		_, err := dataset.ReadConversations(strings.NewReader(text), "c.jsonl")
		return err
	}
	for text, want := range map[string]string{
		ok + `{"messages":[]}`:                            "c.jsonl:2: messages: must be a list of at least one",
		ok + `{"messages":[{"role":"boss"}]}`:             `c.jsonl:2: messages: message 0: role "boss"`,
		ok + `{"messages":7}`:                             "c.jsonl:2: messages: a JSON number does not fit",
		`{"messages":[{"role":"user"}]}`:                  "c.jsonl:1: messages: no message of role assistant",
		ok + "\n":                                         "c.jsonl:2: the line is empty",
		ok + `{"messages":[{"role":"user","content":"a"}`: "c.jsonl:2: the JSON object does not end",
	} {
		if err := read(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	_, err := dataset.ReadPreferences(strings.NewReader(`{"prompt":[{"role":"user"}],"chosen":[{"role":"assistant"}]}`), "p.jsonl")
	if err == nil || !strings.Contains(err.Error(), "p.jsonl:1: rejected") {
		t.Errorf("no rejected answer: %v", err)
	}
}

// rows are those of two attempts, with advantages.
func rows(t *testing.T) []dataset.Row {
	t.Helper()
	rollouts := []credit.Rollout{credit.Read("ro-1", "g", attempt("So.", 1)), credit.Read("ro-2", "g", attempt("No.", 0))}
	assigned, err := credit.Assign(rollouts, credit.Discounted{Gamma: .5}, rl.AdvantageConfig{WithoutStd: true})
	if err != nil {
		t.Fatal(err)
	}
	var out []dataset.Row
	for i := range rollouts {
		out = append(out, dataset.Rows(&rollouts[i], assigned.Calls[i])...)
	}
	return out
}

func TestRowsRoundTrip(t *testing.T) {
	t.Parallel()
	want := rows(t)
	if len(want) != 2 {
		t.Fatalf("%d rows, want one a rollout", len(want))
	}
	first := dataset.Row{
		RolloutID: "ro-1", Group: "g", Reward: new(1.0), PromptLength: 2, IDs: []int32{1, 2, 3, 4, 5, 6}, Mask: []float32{0, 0, 1, 0, 1, 1},
		Logprobs: make([]float32, 6), Advantages: []float32{0, 0, .125, 0, .625, .625},
	}
	if diff := cmp.Diff(first, want[0]); diff != "" {
		t.Errorf("first row (-want +got):\n%s", diff)
	}
	bare := want[1]
	bare.Logprobs, bare.Advantages, bare.Reward = nil, nil, nil
	want = append(want, bare)
	var file bytes.Buffer
	if err := dataset.WriteParquet(&file, want); err != nil {
		t.Fatal(err)
	}
	got, err := dataset.ReadParquet(bytes.NewReader(file.Bytes()), int64(file.Len()), "rows.parquet")
	if err != nil {
		t.Fatal(err)
	}
	empty := cmp.Transformer("", func(v []float32) []float32 { return append([]float32{}, v...) })
	if diff := cmp.Diff(want, got, empty); diff != "" {
		t.Errorf("rows read from Parquet (-want +got):\n%s", diff)
	}
	var lines bytes.Buffer
	if err := dataset.WriteRows(&lines, want); err != nil {
		t.Fatal(err)
	}
	got, err = dataset.ReadRows(&lines, "rows.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, empty); diff != "" {
		t.Errorf("rows read from JSONL (-want +got):\n%s", diff)
	}
}

// The built-in model trains on rows that were written and read again.
func TestTrainsOnWhatWasRead(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	if err := dataset.WriteParquet(&file, rows(t)); err != nil {
		t.Fatal(err)
	}
	read, err := dataset.ReadParquet(bytes.NewReader(file.Bytes()), int64(file.Len()), "rows.parquet")
	if err != nil {
		t.Fatal(err)
	}
	model, err := native.New(native.Config{Dim: 32, Layers: 1, Heads: 2, Hidden: 64, Context: 8}, native.NewTokenizer(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := model.Close(); err != nil {
			t.Error(err)
		}
	}()
	var batch learner.Batch
	for i := range read {
		batch.Rows = append(batch.Rows, read[i].Learner())
	}
	for _, o := range []learner.Objective{learner.Imitation, learner.PolicyGradient} {
		batch.Options = learner.Options{Objective: o, LearningRate: 1e-3}
		metrics, err := model.Update(t.Context(), batch)
		if err != nil || metrics["tokens"] != 6 {
			t.Errorf("%s: %v, %v, want six tokens trained on", o, metrics, err)
		}
	}
}

func TestRowsRefuse(t *testing.T) {
	t.Parallel()
	good := dataset.Row{IDs: []int32{1, 2}, Mask: []float32{0, 1}, PromptLength: 1}
	for want, change := range map[string]func(*dataset.Row){
		"input_ids: is empty":     func(r *dataset.Row) { r.IDs = nil },
		"input_ids: -1 at 1":      func(r *dataset.Row) { r.IDs = []int32{1, -1} },
		"prompt_length: 3":        func(r *dataset.Row) { r.PromptLength = 3 },
		"loss_mask: 1 values":     func(r *dataset.Row) { r.Mask = r.Mask[1:] },
		"logprobs: 1 values":      func(r *dataset.Row) { r.Logprobs = []float32{1} },
		"advantages: NaN at 0":    func(r *dataset.Row) { r.Advantages = []float32{float32(math.NaN()), 0} },
		"logprobs: -Inf at 1":     func(r *dataset.Row) { r.Logprobs = []float32{0, float32(math.Inf(-1))} },
		"advantages: 3 values fo": func(r *dataset.Row) { r.Advantages = make([]float32, 3) },
	} {
		bad := good
		change(&bad)
		if err := dataset.WriteParquet(&bytes.Buffer{}, []dataset.Row{good, bad}); err == nil || !strings.Contains(err.Error(), "row 2: "+want) {
			t.Errorf("WriteParquet: %v, want an error that says %q", err, want)
		}
		if err := dataset.WriteRows(&bytes.Buffer{}, []dataset.Row{good, bad}); err == nil || !strings.Contains(err.Error(), "row 2: "+want) {
			t.Errorf("WriteRows: %v, want an error that says %q", err, want)
		}
	}
	// A file of somebody else with a bad row, one without the columns, no file.
	type loose struct {
		IDs  []int32   `parquet:"input_ids,list"`
		Mask []float32 `parquet:"loss_mask,list"`
	}
	read := func(rows any) error {
		var b bytes.Buffer
		if err := parquet.Write(&b, rows.([]loose)); err != nil {
			return err
		}
		_, err := dataset.ReadParquet(bytes.NewReader(b.Bytes()), int64(b.Len()), "x.parquet")
		return err
	}
	if err := read([]loose{{[]int32{1}, []float32{1}}, {[]int32{1, 2}, []float32{1}}}); err == nil || !strings.Contains(err.Error(), "x.parquet:2: loss_mask: 1 values for 2 ids") {
		t.Errorf("a bad row: %v, want it named", err)
	}
	var other bytes.Buffer
	if err := parquet.Write(&other, []struct {
		Text string `parquet:"text"`
	}{{"a"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := dataset.ReadParquet(bytes.NewReader(other.Bytes()), int64(other.Len()), "x.parquet"); err == nil || !strings.Contains(err.Error(), "no column input_ids") {
		t.Errorf("other columns: %v", err)
	}
	if _, err := dataset.ReadParquet(strings.NewReader("not parquet"), 11, "x.parquet"); err == nil || !strings.Contains(err.Error(), "x.parquet") {
		t.Errorf("no Parquet file: %v", err)
	}
}

func TestTasks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var file bytes.Buffer
	type task struct {
		Question string   `parquet:"question"`
		Answer   *float64 `parquet:"answer,optional"`
		Tags     []string `parquet:"tags,list"`
	}
	if err := parquet.Write(&file, []task{{"1+1", new(2.0), []string{"sum"}}, {"?", nil, nil}}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]string{
		write("a.jsonl", `{"q":1}`+"\n"):                                                {`{"q":1}`},
		write("b.csv", "\xef\xbb\xbfq,n,ok,id\n\"a, \"\"b\"\"\",1.5,true,007\nc,,,8\n"): {`{"q":"a, \"b\"","n":1.5,"ok":true,"id":"007"}`, `{"q":"c","n":null,"ok":null,"id":"8"}`},
		write("c.parquet", file.String()):                                               {`{"answer":2,"question":"1+1","tags":["sum"]}`, `{"answer":null,"question":"?","tags":[]}`},
	} {
		tasks, err := dataset.LoadTasks(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		var got []string
		for _, raw := range tasks {
			got = append(got, string(raw))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	var bad bytes.Buffer
	if err := parquet.Write(&bad, []task{{"a", new(1.0), nil}, {"b", new(math.NaN()), nil}}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		write("d.csv", "a,b\n1,2\n1,2,3\n"):      "d.csv:3: wrong number of fields",
		write("e.csv", "a,a\n1,2\n"):             `e.csv:1: column 2: name "a"`,
		write("f.csv", "a,b\n"):                  "there are no tasks",
		write("g.csv", ""):                       "the file is empty",
		write("h.csv", "a\n\"x\n"):               "h.csv:",
		write("i.csv", "a\nok\n\xff\n"):          `i.csv:3: column "a" is not UTF-8`,
		write("j.parquet", bad.String()):         "j.parquet:2: column answer: NaN",
		write("k.parquet", "nothing"):            "k.parquet",
		write("l.txt", "a"):                      `files that end in ".txt"`,
		write("m.jsonl", "{\"a\":1}\n{\"a\":\n"): "m.jsonl:2:",
		filepath.Join(dir, "none.csv"):           "none.csv",
	} {
		_, err := dataset.LoadTasks(path)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error that says %q", path, err, want)
		}
	}
	_, err := dataset.ReadCSV(strings.NewReader("a,b\n1\n"), "x.csv")
	if line, ok := errors.AsType[*algorithm.LineError](err); !ok || line.Line != 2 {
		t.Errorf("ReadCSV = %v, want a LineError of line 2", err)
	}
}

// A Parquet file that is broken anywhere is read or refused, never a panic.
func TestBrokenParquet(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	if err := dataset.WriteParquet(&file, rows(t)); err != nil {
		t.Fatal(err)
	}
	whole := file.Bytes()
	refused := 0
	for i := 0; i < len(whole); i += 5 {
		for _, bad := range [][]byte{whole[:i], slices.Concat(whole[:i], []byte{whole[i] ^ 0x81}, whole[i+1:])} {
			if _, err := dataset.ReadParquet(bytes.NewReader(bad), int64(len(bad)), "x.parquet"); err != nil {
				refused++
			}
			if _, err := dataset.ReadParquetTasks(bytes.NewReader(bad), int64(len(bad)), "x.parquet"); err != nil {
				refused++
			}
		}
	}
	if refused < len(whole)/5 {
		t.Errorf("%d of %d broken files were refused", refused, 4*len(whole)/5)
	}
}
