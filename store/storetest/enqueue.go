package storetest

import (
	"context"
	"encoding/json"
	"regexp"

	agl "agentlightning"
	"agentlightning/store"
)

func enqueueTests() []test {
	return []test{
		{"a new rollout has the defaults", "", func(f *fixture) {
			ro := f.enqueue(`{"q":1}`)[0]
			if !regexp.MustCompile(`^ro-[0-9a-f]{12}$`).MatchString(ro.RolloutID) {
				f.Errorf("id = %q, want ro- and 12 hex digits", ro.RolloutID)
			}
			f.isNow("start_time", &ro.StartTime)
			want := agl.Rollout{
				RolloutID: ro.RolloutID, Input: json.RawMessage(`{"q":1}`), StartTime: ro.StartTime,
				Status: agl.RolloutQueuing, Config: agl.RolloutConfig{MaxAttempts: 1}, Metadata: json.RawMessage(`{}`),
			}
			f.same("rollout", ro, want)
			f.same("rollout read again", f.rollout(ro.RolloutID), want)
		}},
		{"what is given is kept", "", func(f *fixture) {
			req := store.EnqueueRequest{
				Input: json.RawMessage(`"task"`), Mode: agl.ModeVal, ResourcesID: new("rs-of-mine"),
				Config: &agl.RolloutConfig{
					TimeoutSeconds: new(12.0), UnresponsiveSeconds: new(3.5), MaxAttempts: 3,
					RetryCondition: []agl.AttemptStatus{agl.AttemptTimeout, agl.AttemptFailed},
				},
				Metadata: json.RawMessage(`{"b":1,"a":[1.0,null]}`),
			}
			ro := must(f.EnqueueRollouts(f.Context(), []store.EnqueueRequest{req}))(f)[0]
			want := agl.Rollout{
				RolloutID: ro.RolloutID, Input: req.Input, StartTime: ro.StartTime, Mode: agl.ModeVal,
				ResourcesID: req.ResourcesID, Status: agl.RolloutQueuing, Config: *req.Config, Metadata: req.Metadata,
			}
			f.same("rollout", ro, want)
			f.same("rollout read again", f.rollout(ro.RolloutID), want)
		}},
		{"free JSON survives to the letter", "", func(f *fixture) {
			for in, want := range map[string]string{
				`{"z":1,"a":1.0,"m":-0.0}`:                    `{"z":1,"a":1.0,"m":-0.0}`,
				`123456789012345678901234567890`:              `123456789012345678901234567890`,
				` [ 1 , 2.50 ,"a\u00e9<>&\u2028\/" ] `:        "[1,2.50,\"aé<>&\u2028/\"]",
				`{"a":1,"b":2,"a":{"c":[]}}`:                  `{"a":{"c":[]},"b":2}`,
				`{"nan":NaN,"inf":[Infinity,-Infinity]}`:      `{"nan":null,"inf":[null,null]}`,
				`null`:                                        `null`,
				`"tab\tquote\"back\\slash\u0001\ud83d\ude00"`: `"tab\tquote\"back\\slash\u0001😀"`,
			} {
				ro := f.enqueue(in)[0]
				equal(f, "input "+in, string(ro.Input), want)
				equal(f, "input read again "+in, string(f.rollout(ro.RolloutID).Input), want)
			}
		}},
		{"no input is null, null metadata is an empty object", "", func(f *fixture) {
			ro := must(f.EnqueueRollouts(f.Context(), []store.EnqueueRequest{
				{Input: json.RawMessage("null"), Metadata: json.RawMessage("null")},
			}))(f)[0]
			equal(f, "input", string(ro.Input), "null")
			equal(f, "metadata", string(ro.Metadata), "{}")
		}},
		{"a batch keeps its order", "", func(f *fixture) {
			batch := f.enqueue("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
			for i, ro := range batch {
				equal(f, "input", string(ro.Input), string(rune('0'+i)))
			}
			sameIDs(f, "claims", attemptedIDs(f.dequeue(100)), ids(batch))
		}},
		{"an empty batch is nothing", "", func(f *fixture) {
			equal(f, "rollouts", len(f.enqueue()), 0)
		}},
		{"one bad request refuses the batch", "", func(f *fixture) {
			for name, bad := range map[string]store.EnqueueRequest{
				"mode":            {Input: json.RawMessage("1"), Mode: "practice"},
				"max attempts":    {Input: json.RawMessage("1"), Config: &agl.RolloutConfig{MaxAttempts: -1}},
				"retry condition": {Input: json.RawMessage("1"), Config: &agl.RolloutConfig{RetryCondition: []agl.AttemptStatus{"bored"}}},
			} {
				_, err := f.EnqueueRollouts(f.Context(), []store.EnqueueRequest{{Input: json.RawMessage("1")}, bad})
				f.Log(name, err)
				f.refused(err, store.ErrInvalid, "")
			}
			equal(f, "claims", len(f.dequeue(10)), 0)
			equal(f, "rollouts", must(f.QueryRollouts(f.Context(), store.RolloutQuery{}))(f).Total, 0)
		}},
		{"resources are the latest of the moment unless named", "", func(f *fixture) {
			equal(f, "resources before any", f.enqueue("1")[0].ResourcesID, nil)
			first := must(f.AddResources(f.Context(), prompt("a")))(f)
			a := f.enqueue("1")[0]
			second := must(f.AddResources(f.Context(), prompt("b")))(f)
			b := f.enqueue("1")[0]
			must(f.UpdateResources(f.Context(), first.ResourcesID, prompt("c")))(f)
			c := f.start()
			equal(f, "resources", *a.ResourcesID, first.ResourcesID)
			equal(f, "resources", *b.ResourcesID, second.ResourcesID)
			equal(f, "resources after an update", *c.ResourcesID, first.ResourcesID)
			equal(f, "resources of the first, later", *f.rollout(a.RolloutID).ResourcesID, first.ResourcesID)
		}},
		{"a started rollout is prepared and not queued", "", func(f *fixture) {
			got := must(f.StartRollout(f.Context(), store.StartRequest{
				EnqueueRequest: store.EnqueueRequest{
					Input:  json.RawMessage("1"),
					Config: &agl.RolloutConfig{MaxAttempts: 2, TimeoutSeconds: new(9.0)},
				},
				WorkerID: new("w"),
			}))(f)
			equal(f, "status", got.Status, agl.RolloutPreparing)
			equal(f, "max attempts", got.Config.MaxAttempts, 2)
			if !regexp.MustCompile(`^at-[0-9a-f]{8}$`).MatchString(got.Attempt.AttemptID) {
				f.Errorf("attempt id = %q, want at- and 8 hex digits", got.Attempt.AttemptID)
			}
			f.same("attempt", got.Attempt, agl.Attempt{
				RolloutID: got.RolloutID, AttemptID: got.Attempt.AttemptID, SequenceID: 1,
				StartTime: got.StartTime, Status: agl.AttemptPreparing, WorkerID: new("w"),
			})
			f.same("rollout read again", f.rollout(got.RolloutID), got)
			f.same("latest attempt", must(f.LatestAttempt(f.Context(), got.RolloutID))(f), got.Attempt)
			equal(f, "claims", len(f.dequeue(1)), 0)
		}},
		{"fifty at once have fifty ids", "", func(f *fixture) {
			got := make([]string, 50)
			together(50, func(i int) {
				ros, err := f.EnqueueRollouts(f.Context(), []store.EnqueueRequest{{Input: json.RawMessage("1")}})
				if err != nil {
					f.Error(err)
					return
				}
				got[i] = ros[0].RolloutID
			})
			seen := map[string]bool{}
			for _, id := range got {
				seen[id] = true
			}
			equal(f, "distinct ids", len(seen), 50)
			equal(f, "stored", must(f.QueryRollouts(f.Context(), store.RolloutQuery{RolloutIDIn: got}))(f).Total, 50)
		}},
		{"values belong to the caller", "", func(f *fixture) {
			input, conf := []byte(`"mine"`), agl.RolloutConfig{TimeoutSeconds: new(5.0), MaxAttempts: 1}
			ro := must(f.EnqueueRollouts(f.Context(), []store.EnqueueRequest{{Input: input, Config: &conf}}))(f)[0]
			copy(input, `"else"`)
			*conf.TimeoutSeconds = 6
			copy(ro.Input, `"more"`)
			*ro.Config.TimeoutSeconds = 7
			got := f.rollout(ro.RolloutID)
			equal(f, "input", string(got.Input), `"mine"`)
			equal(f, "timeout", *got.Config.TimeoutSeconds, 5)
		}},
		{"a cancelled context does nothing", "", func(f *fixture) {
			ctx, cancel := context.WithCancel(f.Context())
			cancel()
			if _, err := f.EnqueueRollouts(ctx, []store.EnqueueRequest{{Input: json.RawMessage("1")}}); err == nil {
				f.Error("EnqueueRollouts with a cancelled context succeeded")
			}
			equal(f, "claims", len(f.dequeue(1)), 0)
		}},
	}
}

func prompt(text string) agl.NamedResources {
	return agl.NamedResources{{Name: "prompt", Resource: agl.PromptTemplate{Template: text, Engine: "f-string"}}}
}
