package dataset_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"agentlightning/dataset"
)

// Files of others are read or refused, and what is read keeps the rules.
func FuzzCSV(f *testing.F) {
	f.Add("a,b\n1,x\n")
	f.Add("\xef\xbb\xbfq,\"n\"\n\"a\"\"b\",-1.5e3\n,\n")
	f.Add("a\n\xff\n")
	f.Fuzz(func(t *testing.T, text string) {
		tasks, err := dataset.ReadCSV(strings.NewReader(text), "x.csv")
		if err != nil {
			return
		}
		for _, task := range tasks {
			var m map[string]any
			if err := json.Unmarshal(task, &m); err != nil {
				t.Fatalf("task %q: %v", task, err)
			}
		}
	})
}

func FuzzConversations(f *testing.F) {
	f.Add(`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`)
	f.Add(`{"messages":[null]}`)
	f.Fuzz(func(t *testing.T, text string) {
		conversations, err := dataset.ReadConversations(strings.NewReader(text), "x.jsonl")
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := dataset.WriteConversations(&b, conversations); err != nil {
			t.Fatalf("write what was read: %v", err)
		}
		if _, err := dataset.ReadConversations(&b, "y.jsonl"); err != nil {
			t.Fatalf("read what was written: %v", err)
		}
	})
}

func FuzzParquet(f *testing.F) {
	var b bytes.Buffer
	if err := dataset.WriteParquet(&b, []dataset.Row{{RolloutID: "a", IDs: []int32{1, 2}, Mask: []float32{0, 1}, PromptLength: 1}}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte("PAR1PAR1"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, _ = dataset.ReadParquet(bytes.NewReader(data), int64(len(data)), "x.parquet")
		_, _ = dataset.ReadParquetTasks(bytes.NewReader(data), int64(len(data)), "x.parquet")
	})
}
