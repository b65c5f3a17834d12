// Command jobs makes better models by a fine-tuning service: agents answer
// tickets, the best conversations become a job, and the model that it makes takes
// over. It is offline: the service is one of its own, see the README.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	oai "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/algorithm"
	"agentlightning/algorithm/finetune"
	"agentlightning/dataset"
	"agentlightning/internal/daemon"
	"agentlightning/learner"
	"agentlightning/learner/openai"
	"agentlightning/learner/openai/openaitest"
	"agentlightning/llmproxy"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/trainer"
)

type options struct {
	seed    int64
	shuffle bool
	report  string
	port    int
	steps   int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "jobs:", strings.ReplaceAll(err.Error(), "\n", "; "))
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var o options
	f := flag.NewFlagSet("jobs", flag.ContinueOnError)
	f.SetOutput(out)
	f.Int64Var(&o.seed, "seed", 1, "where tickets and their order come from")
	f.BoolVar(&o.shuffle, "shuffle-rewards", false, "reward answers by the desk of another ticket: a control that must not learn")
	f.StringVar(&o.report, "report", "", "file for the curve, JSON")
	f.IntVar(&o.port, "port", 0, "port of the server; 0 takes a free one")
	f.IntVar(&o.steps, "iterations", 3, "models to make")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	return o.run(ctx, out)
}

func (o *options) run(ctx context.Context, out io.Writer) (err error) {
	service, closeService, err := startService(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeService()) }()

	st := engine.New(memory.New(), engine.Config{})
	defer func() { err = errors.Join(err, st.Close()) }()
	server, err := daemon.Listen(ctx, daemon.Config{Store: st, Port: o.port, Proxy: llmproxy.Config{Environ: func(name string) string {
		key, _ := lookup(name)
		return key
	}}})
	if err != nil {
		return err
	}
	// The server outlives the interrupt: agents that stop report to it.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- server.Run(serving) }()
	defer func() { stop(); err = errors.Join(err, <-served) }()
	fmt.Fprintf(out, "server and dashboard on %s, a stand-in for a fine-tuning service on %s\n", server.URL(), service)

	tuner, err := openai.New(openai.Config{
		Model: "small", BaseURL: service, Epochs: 2, Suffix: "tickets", PricePerMillion: 5, PollEvery: 10 * time.Millisecond, LookupEnv: lookup,
	})
	if err != nil {
		return err
	}
	var steps []finetune.Step
	right := 1.0
	method, err := finetune.New(finetune.Config{
		Tuner: tuner, Base: agl.Model{Endpoint: service, Target: "small", APIKeyEnv: keyName}, Proxy: server.URL() + "/v1",
		Iterations: o.steps, Selection: dataset.Selection{Min: &right}, Seed: o.seed,
		OnTuning: func(step int, p learner.TuningProgress) {
			if p.Message == "" {
				fmt.Fprintf(out, "  job of iteration %d is %s\n", step, p.Status)
			}
		},
		OnStep: func(s finetune.Step) {
			steps = append(steps, s)
			fmt.Fprintln(out, line(s))
		},
	})
	if err != nil {
		return err
	}
	train, val, err := o.tasks()
	if err != nil {
		return err
	}
	calls := &http.Transport{MaxIdleConnsPerHost: agents}
	defer calls.CloseIdleConnections()
	err = trainer.Fit(ctx, trainer.Config{
		Agent: sorter(&http.Client{Transport: calls}), Algorithm: method, Store: server.Store(), Concurrency: agents, Logger: slog.New(slog.DiscardHandler),
	}, train, val)
	if err != nil {
		return err
	}
	return o.write(steps)
}

// agents is how many tickets are answered at once.
const agents = 8

// keyName is the variable that would hold the key of a real service.
const keyName = "OPENAI_API_KEY"

// lookup stands for the environment: the stand-in takes any key, and a real one
// has no business here.
func lookup(name string) (string, bool) { return "any", name == keyName }

func startService(ctx context.Context) (url string, closeAll func() error, err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: openaitest.New(openaitest.Config{
		Base: map[string]openaitest.Model{"small": guess}, Train: tune, Looks: 2,
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	return "http://" + listener.Addr().String() + "/v1", func() error {
		err := server.Close()
		if end := <-served; !errors.Is(end, http.ErrServerClosed) {
			err = errors.Join(err, end)
		}
		return err
	}, nil
}

// tasks are tickets; those for validation are others than those for training.
func (o *options) tasks() (train, val []json.RawMessage, err error) {
	r := rand.New(rand.NewPCG(uint64(o.seed), 7))
	all := tickets(r, 180)
	if train, err = algorithm.Tasks(o.judged(r, all[:120])); err != nil {
		return nil, nil, err
	}
	val, err = algorithm.Tasks(all[120:])
	return train, val, err
}

// judged is what agents are rewarded for: the right desk, or with shuffled
// rewards that of another ticket.
func (o *options) judged(r *rand.Rand, right []ticket) []ticket {
	if !o.shuffle {
		return right
	}
	out := make([]ticket, len(right))
	for i, j := range r.Perm(len(right)) {
		out[i] = ticket{right[i].Text, right[j].Desk}
	}
	return out
}

// sorter is the agent: it asks the model for a desk and is rewarded for the
// right one. Nothing in it knows of the training.
func sorter(client *http.Client) agent.Agent {
	return agent.New(func(ctx context.Context, t ticket, c *agent.Call) (float64, error) {
		llm, err := c.LLM("")
		if err != nil {
			return 0, err
		}
		chat := oai.NewChatCompletionService(option.WithBaseURL(llm.Endpoint), option.WithAPIKey("any"), option.WithHTTPClient(client))
		got, err := chat.New(ctx, oai.ChatCompletionNewParams{Model: llm.Model, Messages: []oai.ChatCompletionMessageParamUnion{
			oai.SystemMessage("Answer with the desk that a ticket belongs to: " + strings.Join(desks(), ", ") + "."),
			oai.UserMessage(t.Text),
		}})
		if err != nil {
			return 0, err
		}
		if got.Choices[0].Message.Content == t.Desk {
			return 1, nil
		}
		return 0, nil
	}, agent.NeedLLM(""))
}

func line(s finetune.Step) string {
	text := fmt.Sprintf("iteration %d/%d  validation %.2f", s.Number, s.Of, *s.Accuracy)
	if s.Reward != nil {
		text += fmt.Sprintf("  reward %.2f before  %d examples  %d tokens for %.4f  %s", *s.Reward, s.Examples, s.TrainedTokens, s.Cost, name(s.Model))
	}
	return text
}

// name is a model's name without the key of its job, which differs from run to run.
func name(model string) string {
	parts := strings.Split(model, ":")
	if len(parts) == 5 {
		parts[3], _, _ = strings.Cut(parts[3], "-")
	}
	return strings.Join(parts, ":")
}

// point is one of the curve.
type point struct {
	Iteration  int      `json:"iteration"`
	Reward     *float64 `json:"reward"`
	Validation float64  `json:"validation"`
	Examples   int      `json:"examples"`
	Tokens     int64    `json:"trained_tokens"`
	Cost       float64  `json:"cost"`
}

func (o *options) write(steps []finetune.Step) error {
	if o.report == "" {
		return nil
	}
	curve := make([]point, len(steps))
	for i, s := range steps {
		curve[i] = point{s.Number, s.Reward, *s.Accuracy, s.Examples, s.TrainedTokens, s.Cost}
	}
	text, err := json.MarshalIndent(map[string]any{"seed": o.seed, "shuffled_rewards": o.shuffle, "curve": curve}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(o.report, append(text, '\n'), 0o644)
}
