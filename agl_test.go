package agl_test

import (
	"encoding/json"
	"regexp"
	"testing"
	"time"

	agl "agentlightning"
)

func TestIDs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		make func() string
		form string
	}{
		{agl.NewRolloutID, `^ro-[0-9a-f]{12}$`},
		{agl.NewAttemptID, `^at-[0-9a-f]{8}$`},
		{agl.NewResourcesID, `^rs-[0-9a-f]{12}$`},
		{agl.NewRunID, `^run-[0-9a-f]{12}$`},
		{agl.NewTraceID, `^[0-9a-f]{32}$`},
		{agl.NewSpanID, `^[0-9a-f]{16}$`},
	} {
		a, b := tt.make(), tt.make()
		if !regexp.MustCompile(tt.form).MatchString(a) || a == b {
			t.Errorf("ids %q and %q, want two different ones like %s", a, b, tt.form)
		}
	}
}

func TestSecondsAreExactToTheMicrosecond(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 29, 14, 28, 43, 0, time.UTC)
	for range 1000 {
		at = at.Add(1000003 * time.Microsecond)
		if got := agl.Time(agl.Seconds(at)); !got.Equal(at) {
			t.Fatalf("Time(Seconds(%v)) = %v", at, got.UTC())
		}
	}
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	groups := map[agl.RolloutStatus]string{
		agl.RolloutQueuing: "queueing", agl.RolloutRequeuing: "queueing",
		agl.RolloutPreparing: "active", agl.RolloutRunning: "active",
		agl.RolloutFailed: "terminal", agl.RolloutSucceeded: "terminal", agl.RolloutCancelled: "terminal",
	}
	for _, st := range agl.RolloutStatuses() {
		g := groups[st]
		if !st.Valid() || st.Queueing() != (g == "queueing") || st.Active() != (g == "active") || st.Terminal() != (g == "terminal") {
			t.Errorf("%s: queueing %v, active %v, terminal %v, want it %s only", st, st.Queueing(), st.Active(), st.Terminal(), g)
		}
	}
	if len(groups) != len(agl.RolloutStatuses()) || agl.RolloutStatus("").Valid() || agl.RolloutStatus("Failed").Valid() {
		t.Error("the statuses of rollouts are wrong")
	}
	if agl.AttemptStatus("x").Valid() || agl.AttemptUnresponsive.Finished() || !agl.AttemptTimeout.Finished() {
		t.Error("the statuses of attempts are wrong")
	}
	if !agl.Mode("").Valid() || agl.Mode("x").Valid() || agl.WorkerStatus("x").Valid() {
		t.Error("modes or statuses of workers are wrong")
	}
}

func TestProxyRoute(t *testing.T) {
	t.Parallel()
	for endpoint, want := range map[string]string{
		"http://h:1":        "http://h:1/rollout/R/attempt/A",
		"http://h:1/":       "http://h:1/rollout/R/attempt/A",
		"http://h:1/v1":     "http://h:1/rollout/R/attempt/A/v1",
		"http://h:1/v1/":    "http://h:1/rollout/R/attempt/A/v1",
		"http://h:1/api/v1": "http://h:1/api/rollout/R/attempt/A/v1",
		"http://h:1/v1//":   "http://h:1/v1//rollout/R/attempt/A",
	} {
		if got := (agl.ProxyLLM{Endpoint: endpoint, Model: "m"}).Route("R", "A"); got.Endpoint != want || got.Model != "m" {
			t.Errorf("Route of %q = %q, want %q", endpoint, got.Endpoint, want)
		}
	}
}

func TestResourcesAreTyped(t *testing.T) {
	t.Parallel()
	const text = `{"z":{"resource_type":"llm","endpoint":"e","model":"m","api_key":"k","sampling_parameters":{"t":1.0,"a":1}},` +
		`"p":{"resource_type":"proxy_llm","endpoint":"e","model":"m","api_key":null,"sampling_parameters":{}},` +
		`"a":{"resource_type":"prompt_template","template":"{q}","engine":"f-string"}}`
	var n agl.NamedResources
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		t.Fatal(err)
	}
	if got := string(n.AppendJSON(nil)); got != text {
		t.Errorf("got  %s\nwant %s", got, text)
	}
	if _, ok := n.Get("z").(agl.LLM); !ok {
		t.Errorf("z is a %T, want an LLM", n.Get("z"))
	}
	if n.Get("nobody") != nil {
		t.Error("Get finds what is not there")
	}
	if err := json.Unmarshal([]byte(`{"x":{"resource_type":"tool"}}`), &n); err == nil {
		t.Error("an unknown type of resource is taken")
	}
}

func TestRolloutReaders(t *testing.T) {
	t.Parallel()
	ro := agl.Rollout{RolloutID: "ro-1", Input: json.RawMessage(`{"q":"2+2"}`), Metadata: json.RawMessage(`{"agl.run_id":"run-1"}`)}
	var task struct{ Q string }
	if err := ro.DecodeInput(&task); err != nil || task.Q != "2+2" {
		t.Errorf("DecodeInput = %v, %v", task, err)
	}
	if err := ro.DecodeInput(new(int)); err == nil {
		t.Error("DecodeInput into the wrong type: no error")
	}
	if got := string(ro.MetadataValue("agl.run_id")); got != `"run-1"` {
		t.Errorf("MetadataValue = %s, want \"run-1\"", got)
	}
	if got := ro.MetadataValue("x"); got != nil {
		t.Errorf("MetadataValue(x) = %s, want nil", got)
	}
}

func TestModelJSON(t *testing.T) {
	t.Parallel()
	const text = `{"model":"m","endpoint":"http://x/v1","version":3}`
	var m agl.Model
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	if got, err := json.Marshal(m); err != nil || string(got) != text {
		t.Errorf("Marshal = %s, %v, want %s", got, err, text)
	}
}
