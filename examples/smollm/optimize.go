package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/algorithm"
	"agentlightning/algorithm/baseline"
	"agentlightning/algorithm/gepa"
	"agentlightning/emit"
	"agentlightning/examples/internal/lesson"
	"agentlightning/store/memory"
	"agentlightning/trainer"
	oai "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"agentlightning/examples/smollm/compose"
)

//go:embed texts.jsonl
var texts []byte

// How the 120 texts are divided: by their 24 towns, five texts each, so that no
// town of a test was seen in training.
const (
	each      = 5
	trainSize = 8 * each
	valSize   = 6 * each
	testSize  = 10 * each
)

// resource is the prompt that is optimised.
const resource = "find"

// figures are what a run comes to.
type figures struct {
	Seed     int64    `json:"seed"`
	Budget   int      `json:"budget"` // rollouts
	Before   accuracy `json:"before"`
	After    accuracy `json:"after"`
	Prompt   string   `json:"prompt"` // the one that was found
	Spent    int      `json:"rollouts"`
	Proposed int      `json:"proposals"`
	Kept     int      `json:"kept"`
	Seconds  float64  `json:"seconds"` // in all
	Calls    int      `json:"calls"`   // of the model
}

// accuracy is how good a prompt is.
type accuracy struct {
	Validation float64 `json:"validation"` // mean reward
	Test       float64 `json:"test"`       // mean reward
	Exact      float64 `json:"exact"`      // the part of test tasks with a reward of 1
}

// optimize searches for a prompt and compares it with the first one on texts that the
// search never saw.
func optimize(ctx context.Context, args []string, out io.Writer) (err error) {
	var o options
	f := flag.NewFlagSet("optimize", flag.ContinueOnError)
	o.add(f, out)
	seed := f.Int64("seed", 1, "how texts are divided and what is proposed")
	budget := f.Int("budget", 450, "rollouts that the search may take")
	val := f.Int("val", valSize, "validation tasks to use, at most "+strconv.Itoa(valSize))
	test := f.Int("test", testSize, "test tasks to use, at most "+strconv.Itoa(testSize))
	report := f.String("report", "", "file for the figures, JSON")
	if err := parse(f, args); err != nil {
		return err
	}
	if *val < 1 || *val > valSize || *test < 1 || *test > testSize {
		return fmt.Errorf("--val %d, --test %d: must be from 1 to %d and %d", *val, *test, valSize, testSize)
	}
	b, err := o.start(ctx, "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close(ctx)) }()
	site, err := lesson.OpenSite(ctx, 0, memory.New(), []agl.Model{{Name: name, Endpoint: b.url}}, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, site.Close()) }()
	fmt.Fprintf(out, "model at %s, server and dashboard on %s\n", b.url, site.URL)
	s := &study{site: site, out: out, figures: figures{Seed: *seed, Budget: *budget}, client: &http.Client{Transport: &http.Transport{}}}
	defer s.client.CloseIdleConnections()
	if err := s.divide(); err != nil {
		return err
	}
	s.val, s.test = s.val[:*val], s.test[:*test]
	began := time.Now()
	if err := s.run(ctx); err != nil {
		return err
	}
	s.Seconds = time.Since(began).Seconds()
	fmt.Fprintf(out, "%d calls of the model in %.0f s, %.2f s each\n", s.Calls, s.Seconds, s.Seconds/float64(s.Calls))
	if *report == "" {
		return nil
	}
	text, err := json.MarshalIndent(s.figures, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(*report, append(text, '\n'), 0o644)
}

// study is a search with what is measured before and after it.
type study struct {
	figures
	site   *lesson.Site
	out    io.Writer
	client *http.Client

	examples         []compose.Task // the training tasks
	train, val, test []json.RawMessage
}

func (s *study) divide() error {
	all := map[string][]compose.Task{}
	lines := json.NewDecoder(bytes.NewReader(texts))
	for lines.More() {
		var t compose.Task
		if err := lines.Decode(&t); err != nil {
			return fmt.Errorf("texts.jsonl: %w", err)
		}
		all[t.Town] = append(all[t.Town], t)
	}
	r := rand.New(rand.NewPCG(uint64(s.Seed), 8))
	towns := slices.Sorted(maps.Keys(all))
	r.Shuffle(len(towns), func(i, j int) { towns[i], towns[j] = towns[j], towns[i] })
	var ordered []compose.Task
	for _, town := range towns {
		if len(all[town]) != each {
			return fmt.Errorf("texts.jsonl: %s is in %d texts, want %d", town, len(all[town]), each)
		}
		ordered = append(ordered, all[town]...)
	}
	if len(ordered) != trainSize+valSize+testSize {
		return fmt.Errorf("texts.jsonl: %d texts, want %d", len(ordered), trainSize+valSize+testSize)
	}
	tasks, err := algorithm.Tasks(ordered)
	if err != nil {
		return err
	}
	s.examples = ordered[:trainSize]
	s.train, s.val, s.test = tasks[:trainSize], tasks[trainSize:trainSize+valSize], tasks[trainSize+valSize:]
	return nil
}

func (s *study) run(ctx context.Context) error {
	first := compose.Parts{}.String()
	before, err := s.judge(ctx, first)
	if err != nil {
		return err
	}
	s.tell("before", first, before)
	g, err := gepa.New(gepa.Config{
		Completer: &compose.Composer{Tasks: s.examples, Seed: s.Seed}, Model: "compose", Minibatch: 6, MaxEvaluations: s.Budget,
		MaxFailures: 20, Seed: s.Seed, OnIteration: s.iteration,
	})
	if err != nil {
		return err
	}
	if err := trainer.Fit(ctx, s.config(g, first), s.train, s.val); err != nil {
		return err
	}
	result, ok := g.Result()
	if !ok {
		return errors.New("the search came to nothing")
	}
	s.Spent, s.Proposed, s.Kept = result.Spent.Evaluations, result.Spent.Calls, len(result.Candidates)-1
	s.Calls += s.Spent
	s.Prompt = result.Best.Templates[resource].Template
	after, err := s.judge(ctx, s.Prompt)
	if err != nil {
		return err
	}
	s.Before, s.After = before, after
	s.tell("after", s.Prompt, after)
	return nil
}

func (s *study) config(a algorithm.Algorithm, template string) trainer.Config {
	return trainer.Config{
		Agent: finder(s.client), Algorithm: a, Store: s.site.Store,
		InitialResources: agl.NamedResources{
			{Name: resource, Resource: agl.PromptTemplate{Template: template, Engine: agl.EngineFString}},
			{Name: "llm", Resource: agl.ProxyLLM{Endpoint: s.site.URL + "/v1", Model: name}},
		},
		Logger: slog.New(slog.DiscardHandler),
	}
}

func (s *study) iteration(it gepa.Iteration) {
	what := "kept, as candidate "
	if it.Accepted != nil {
		score, _ := it.Accepted.Score()
		what += fmt.Sprintf("%d with %.2f", it.Accepted.ID, score)
	} else {
		what = it.Reason
	}
	fmt.Fprintf(s.out, "iteration %-3d %3d of %d rollouts  best %.2f  %s\n", it.Number, it.Spent.Evaluations, s.Budget, it.Best, what)
}

func (s *study) tell(when, template string, a accuracy) {
	fmt.Fprintf(s.out, "\n%s: reward %.2f on %d validation tasks, %.2f on %d test tasks, of which %.0f %% were answered exactly\n%s\n\n",
		when, a.Validation, len(s.val), a.Test, len(s.test), 100*a.Exact, indent(template))
}

func indent(text string) string { return "  | " + strings.ReplaceAll(text, "\n", "\n  | ") }

// judge runs a prompt on all validation and test tasks.
func (s *study) judge(ctx context.Context, template string) (accuracy, error) {
	results, err := trainer.Dev(ctx, s.config(nil, template), s.val, s.test)
	if err != nil {
		return accuracy{}, err
	}
	s.Calls += len(results)
	val, _, err := rewards(results[:len(s.val)])
	if err != nil {
		return accuracy{}, err
	}
	test, exact, err := rewards(results[len(s.val):])
	return accuracy{val, test, exact}, err
}

// rewards returns the mean reward, and how many were 1. A rollout without a reward
// is an error here, not a wrong answer.
func rewards(results []baseline.Result) (mean, exact float64, err error) {
	for i := range results {
		r := &results[i]
		if r.Reward == nil {
			return 0, 0, fmt.Errorf("task %d: the agent failed: %s", r.Index, r.Failure)
		}
		mean += *r.Reward
		if *r.Reward == 1 {
			exact++
		}
	}
	n := float64(len(results))
	return mean / n, exact / n, nil
}

// finder is the agent: it asks the model which town a text names, with the prompt
// that it is given. The town earns 1, the town among other words 0.5.
func finder(client *http.Client) agent.Agent {
	return agent.New(func(ctx context.Context, t compose.Task, c *agent.Call) (float64, error) {
		template, err := c.Prompt(resource)
		if err != nil {
			return 0, err
		}
		prompt, err := template.Format(map[string]string{"text": t.Text})
		if err != nil {
			return 0, err
		}
		llm, err := c.LLM("llm")
		if err != nil {
			return 0, err
		}
		chat := oai.NewChatCompletionService(option.WithBaseURL(llm.Endpoint), option.WithAPIKey("any"), option.WithHTTPClient(client))
		got, err := chat.New(ctx, oai.ChatCompletionNewParams{
			Model: llm.Model, Messages: messages(prompt), Temperature: oai.Float(0), MaxTokens: oai.Int(8),
		})
		if err != nil {
			return 0, err
		}
		said := got.Choices[0].Message.Content
		switch {
		case strings.EqualFold(strings.Trim(said, " \n.,!\""), t.Town):
			return 1, nil
		case strings.Contains(strings.ToLower(said), strings.ToLower(t.Town)):
			return 0.5, emit.Message(ctx, fmt.Sprintf("%s: %q", compose.MoreSaid, said))
		}
		return 0, emit.Message(ctx, fmt.Sprintf("%s: %q", compose.NotNamed, said))
	}, agent.NeedPrompt(resource), agent.NeedLLM("llm"))
}

// messages makes a conversation of the turns of a prompt.
func messages(prompt string) []oai.ChatCompletionMessageParamUnion {
	var out []oai.ChatCompletionMessageParamUnion
	for i, turn := range compose.Turns(prompt) {
		if i%2 == 0 {
			out = append(out, oai.UserMessage(turn))
		} else {
			out = append(out, oai.AssistantMessage(turn))
		}
	}
	return out
}
