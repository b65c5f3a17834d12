package rescore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/algorithm/prompt"
	"agentlightning/rescore"
	"agentlightning/semconv"
	"agentlightning/store"
)

func TestHTTP(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := calls.Add(1)
		body, err := io.ReadAll(r.Body)
		var a rescore.Attempt
		if err = errors.Join(err, json.Unmarshal(body, &a)); err != nil || r.Header.Get("Authorization") != "Bearer k" {
			t.Errorf("asked with %s, %v, %v", body, r.Header, err)
		}
		switch {
		case n == 1:
			http.Error(w, "busy", http.StatusServiceUnavailable)
		case strings.Contains(a.Answer, "2"):
			http.Error(w, "no such rubric", http.StatusUnprocessableEntity)
		default:
			fmt.Fprintf(w, `{"reward":%d,"rewards":{"style":0.5}}`, len(a.Messages))
		}
	}))
	defer server.Close()
	b := setup(t, 4)
	h := &rescore.HTTP{URL: server.URL, Header: map[string]string{"Authorization": "Bearer k"}, Client: server.Client(), Pause: time.Millisecond}
	c := b.config(h)
	c.DryRun = true
	got, err := rescore.Run(t.Context(), c)
	if err != nil || got.Asked != 4 || calls.Load() != 0 || got.Scored != 0 {
		t.Fatalf("a dry run = %+v, %v after %d calls, want none", got, err, calls.Load())
	}
	c.DryRun = false
	got, err = rescore.Run(t.Context(), c)
	if err != nil || got.Scored != 3 || got.Failed["the service answered 422"] != 1 || *got.MeanNew != 2 || calls.Load() != 5 {
		t.Errorf("Run = %+v, %v after %d calls; want 3 scored, one refused, one call tried again", got, err, calls.Load())
	}
}

// scripted is a judge that counts and answers as it is told.
type scripted struct {
	calls  atomic.Int64
	answer func(call int64, r prompt.Request) (string, error)
}

func (s *scripted) Complete(_ context.Context, r prompt.Request) (prompt.Answer, error) {
	text, err := s.answer(s.calls.Add(1), r)
	return prompt.Answer{Text: text, InputTokens: 100, OutputTokens: 10, Cost: 0.5}, err
}

func TestJudge(t *testing.T) {
	t.Parallel()
	b := setup(t, 4)
	model := &scripted{answer: func(_ int64, r prompt.Request) (string, error) {
		var shown struct {
			Task         string `json:"task"`
			Conversation string `json:"conversation"`
		}
		question := r.Messages[1].Content
		if err := json.Unmarshal([]byte(question), &shown); err != nil || !strings.Contains(r.Messages[0].Content, "Prefer short answers.") {
			t.Errorf("asked %s with %q: %v", question, r.Messages[0].Content, err)
		}
		switch {
		case strings.HasSuffix(shown.Conversation, "answer 3"):
			return "I cannot say.", nil
		case strings.HasSuffix(shown.Conversation, "answer 2"):
			return `{"score": 11}`, nil
		}
		return `Hm {"score": 1}? No: {"reason": "right {and} short", "score": 7.5}`, nil
	}}
	j := &rescore.Judge{Asking: rescore.Asking{Completer: model, Model: "m", Rubric: "Prefer short answers."}}
	if err := j.Validate(); err != nil {
		t.Fatal(err)
	}
	got, err := rescore.Run(t.Context(), b.config(j))
	if err != nil || got.Scored != 2 || got.Failed["the judge's answer cannot be read"] != 2 || *got.MeanNew != 0.75 {
		t.Errorf("Run = %+v, %v", got, err)
	}
	// Two answers at once, two asked for twice.
	if got.InputTokens != 600 || got.OutputTokens != 60 || got.Cost != 3 || model.calls.Load() != 6 {
		t.Errorf("%d tokens in, %d out, cost %v, %d calls; want 600, 60, 3, 6", got.InputTokens, got.OutputTokens, got.Cost, model.calls.Load())
	}
	if note := b.note(t, 0); note != "right {and} short" {
		t.Errorf("note = %q", note)
	}
	for field, bad := range map[string]*rescore.Judge{
		"Completer": {Asking: rescore.Asking{Rubric: "r"}}, "Rubric": {Asking: rescore.Asking{Completer: model}},
		"Low":         {Asking: rescore.Asking{Completer: model, Rubric: "r"}, Low: 2, High: 1},
		"Temperature": {Asking: rescore.Asking{Completer: model, Rubric: "r", Temperature: 3}},
	} {
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("Validate of a judge with a bad %s = %v", field, err)
		}
	}
}

// note is what the judge of the last span of a rollout said.
func (b *bundle) note(t *testing.T, i int) string {
	t.Helper()
	page, err := b.store.QuerySpans(t.Context(), store.SpanQuery{RolloutID: b.ids[i], Paging: store.Paging{SortBy: "sequence_id"}})
	if err != nil {
		t.Fatal(err)
	}
	note, _ := page.Items[len(page.Items)-1].Attributes.String(semconv.RescoreNote)
	return note
}

// Ranks do not depend on where an entry stood in the question, ties share their
// places, and a group that grew since is not ranked in parts.
func TestRanking(t *testing.T) {
	t.Parallel()
	b := setup(t, 8) // two groups of four: 0 2 4 6 and 1 3 5 7
	b.ids = append(b.ids, b.add(t, `"alone"`, agl.AttemptSucceeded, 9))
	model := &scripted{answer: func(_ int64, r prompt.Request) (string, error) {
		type entry struct {
			Entry        int    `json:"entry"`
			Conversation string `json:"conversation"`
		}
		var entries []entry
		for line := range strings.Lines(r.Messages[1].Content) {
			var e entry
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				return "", err
			}
			entries = append(entries, e)
		}
		slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.Conversation, b.Conversation) })
		// The worst first in text; the two in the middle are as good as one another.
		return fmt.Sprintf(`{"reason":"by number","ranking":[[%d],[%d,%d],%d]}`, entries[3].Entry, entries[1].Entry, entries[2].Entry, entries[0].Entry), nil
	}}
	rank := &rescore.Ranking{Asking: rescore.Asking{Completer: model, Model: "m", Rubric: "Prefer the larger number."}, Orders: 2}
	got, err := rescore.Run(t.Context(), b.config(rank))
	if err != nil || got.Scored != 8 || got.Failed["a group of one cannot be ranked"] != 1 || model.calls.Load() != 4 || got.InputTokens != 400 {
		t.Fatalf("Run = %+v, %v after %d calls", got, err, model.calls.Load())
	}
	if r := fmt.Sprint(b.rewards(t, "new")); r != "[0 0 0.5 0.5 0.5 0.5 1 1 NaN]" {
		t.Errorf("rewards = %v", r)
	}
	b.ids = append(b.ids, b.add(t, `"task 0"`, agl.AttemptSucceeded, 8))
	got, err = rescore.Run(t.Context(), b.config(rank))
	if err != nil || got.Already != 8 || got.Skipped["others of its group were scored without it"] != 1 || model.calls.Load() != 4 {
		t.Errorf("with one more: %+v, %v", got, err)
	}
}

func TestRankingRefusesHalfARanking(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		`{"ranking":[1,2,3]}`: "3 of 4", `{"ranking":[1,2,3,3]}`: "occurs twice", `{"ranking":[1,2,3,5]}`: "no entry 5",
		`{"ranking":["a"]}`: "neither an entry", `no`: "no JSON object",
	} {
		model := &scripted{answer: func(int64, prompt.Request) (string, error) { return answer, nil }}
		rank := &rescore.Ranking{Asking: rescore.Asking{Completer: model, Rubric: "r", Tries: 1}}
		for _, s := range rank.Score(t.Context(), make([]rescore.Attempt, 4)) {
			if s.Err == nil || !strings.Contains(s.Err.Error(), want) {
				t.Errorf("%s: %v, want %s", answer, s.Err, want)
			}
		}
	}
	down := &scripted{answer: func(int64, prompt.Request) (string, error) { return "", errors.New("401 no key") }}
	rank := &rescore.Ranking{Asking: rescore.Asking{Completer: down, Rubric: "r"}}
	if s := rank.Score(t.Context(), make([]rescore.Attempt, 2)); s[1].Err == nil || !strings.Contains(s[1].Err.Error(), "401") || down.calls.Load() != 1 {
		t.Errorf("a judge that is down: %v after %d calls", s[1].Err, down.calls.Load())
	}
}
