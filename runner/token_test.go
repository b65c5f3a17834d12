package runner_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/runner"
	"agentlightning/store"
)

// guarded is a store behind a server that asks for tokens.
type guarded struct {
	store.Store

	mu     sync.Mutex
	asked  []store.Attempted
	lives  []time.Duration
	faults int   // how often to fail first
	denied error // for good
}

func (g *guarded) AttemptToken(_ context.Context, at store.Attempted, lifetime time.Duration) (string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.faults > 0 {
		g.faults--
		return "", errors.New("the server is away")
	}
	if g.denied != nil {
		return "", g.denied
	}
	g.asked, g.lives = append(g.asked, at), append(g.lives, lifetime)
	return "token of " + at.AttemptID, nil
}

// TestAgentsGetTheTokenOfTheirAttempt: the key of a model behind the proxy is
// that of the attempt, whatever the resource says; other models keep theirs.
func TestAgentsGetTheTokenOfTheirAttempt(t *testing.T) {
	bubble(t, func(b *bench) {
		secret, own := "the server's token", "the key of another service"
		_, err := b.store.AddResources(b.Context(), agl.NamedResources{
			{Name: "proxied", Resource: agl.ProxyLLM{Endpoint: "http://h/v1", Model: "m", APIKey: &secret}},
			{Name: "direct", Resource: agl.LLM{Endpoint: "http://other/v1", Model: "m", APIKey: &own}},
		})
		if err != nil {
			b.Fatal(err)
		}
		g := &guarded{Store: b.store, faults: 2}
		var mu sync.Mutex
		keys := map[string]string{}
		defer b.start(runner.Config{Store: g, Agent: agent.New(func(_ context.Context, _ task, c *agent.Call) (float64, error) {
			proxied, err := c.LLM("proxied")
			if err != nil {
				return 0, err
			}
			direct, err := c.LLM("direct")
			if err != nil {
				return 0, err
			}
			mu.Lock()
			defer mu.Unlock()
			keys[c.Rollout.Attempt.AttemptID] = *proxied.APIKey + ", " + *direct.APIKey
			return 1, nil
		})})()
		limit := 60.0
		done := b.finish(append(b.enqueue(&agl.RolloutConfig{MaxAttempts: 1, TimeoutSeconds: &limit}, 1), b.enqueue(nil, 2)...)...)
		mu.Lock()
		defer mu.Unlock()
		for i, r := range done {
			want := "token of " + r.Attempt.AttemptID + ", " + own
			if r.Status != agl.RolloutSucceeded || keys[r.Attempt.AttemptID] != want {
				b.Errorf("rollout %d is %s with the keys %q, want %q", i, r.Status, keys[r.Attempt.AttemptID], want)
			}
		}
		if len(g.lives) != 2 || g.lives[0] != 11*time.Minute || g.lives[1] != 0 {
			b.Errorf("lifetimes asked for are %v, want the time limit and ten minutes, and the server's default", g.lives)
		}
	})
}

func TestNoTokenWithoutAModelBehindTheProxy(t *testing.T) {
	bubble(t, func(b *bench) {
		if _, err := b.store.AddResources(b.Context(), agl.NamedResources{{Name: "direct", Resource: agl.LLM{Endpoint: "http://other/v1", Model: "m"}}}); err != nil {
			b.Fatal(err)
		}
		g := &guarded{Store: b.store}
		defer b.start(runner.Config{Store: g, Agent: agent.New(func(context.Context, task, *agent.Call) (float64, error) { return 1, nil })})()
		b.finish(b.enqueue(nil, 1)...)
		if len(g.asked) != 0 {
			b.Errorf("tokens were asked for: %v", g.asked)
		}
	})
}

func TestATokenThatIsRefusedFailsTheAttempt(t *testing.T) {
	bubble(t, func(b *bench) {
		if _, err := b.store.AddResources(b.Context(), agl.NamedResources{{Name: "m", Resource: agl.ProxyLLM{Endpoint: "http://h/v1", Model: "m"}}}); err != nil {
			b.Fatal(err)
		}
		g := &guarded{Store: b.store, denied: store.ErrDenied}
		defer b.start(runner.Config{Store: g, Agent: agent.New(func(context.Context, task, *agent.Call) (float64, error) {
			t.Error("the agent runs")
			return 1, nil
		})})()
		done := b.finish(b.enqueue(nil, 1)...)
		if done[0].Status != agl.RolloutFailed || !strings.Contains(string(done[0].Attempt.Metadata), "get a token for the attempt") {
			b.Errorf("rollout is %s with %s, want failed and the reason", done[0].Status, done[0].Attempt.Metadata)
		}
	})
}
