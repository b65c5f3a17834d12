package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	agl "agentlightning"
	"agentlightning/algorithm/prompt/openai"
	"agentlightning/rescore"
	"agentlightning/rescore/expr"
	"agentlightning/store"
)

// rescoreOptions are the flags of agl rescore.
type rescoreOptions struct {
	source
	filter  rolloutFilter
	work    rescore.Config
	program []string // after --

	expression string
	lines      bool
	timeout    time.Duration
	url        string
	headers    []string

	judge, judgeURL    string
	rubric, rubricFile string
	rank               bool
	orders             int
	scale              string
	asking             rescore.Asking
	price              openai.Price
	asJSON             bool
}

func newRescore() *cobra.Command {
	var o rescoreOptions
	cmd := &cobra.Command{
		Use:   "rescore --set NAME [ROLLOUT…] [-- COMMAND…]",
		Short: "Compute new rewards of stored rollouts, beside the old ones",
		Long: "Compute rewards of stored rollouts without running an agent, and keep them as a named set beside the rewards that\n" +
			"agents gave, which stay as they are. --reward-set NAME of other commands then reads the new ones. What scores is one of:\n\n" +
			"  --expr EXPRESSION  " + expr.Syntax + "\n" +
			"  -- COMMAND…        a program a rollout, with the attempt as JSON on stdin; with --lines programs that are kept,\n" +
			"                     with an attempt a line. It writes a number, or\n" +
			"                     {\"reward\":0.5,\"rewards\":{\"style\":1},\"calls\":{\"SPAN_ID\":0.1},\"note\":\"…\"}, or {\"error\":\"…\"}\n" +
			"  --http URL         a service that is posted the same and answers the same\n" +
			"  --judge MODEL      a language model that grades by --rubric, or with --rank orders the answers to the same task;\n" +
			"                     its key is in OPENAI_API_KEY\n\n" +
			"Rollouts that have a reward in the set are passed over: start an interrupted command again and it goes on. Failures are\n" +
			"counted by reason and tried again the next time. --dry-run stores nothing and asks no service.",
		Example: "  agl rescore --set brief --run run-0123456789ab --expr 'reward * math.least(1.0, 20.0 / double(response_tokens))'\n" +
			"  agl rescore --set strict --since 24h --lines -- python3 grade.py\n" +
			"  agl rescore --set judged --db sqlite:agl.db --judge gpt-4.1-mini --rubric-file rubric.md --dry-run\n" +
			"  agl rescore --set ranked --run run-0123456789ab --judge gpt-4.1-mini --rank --rubric 'Prefer answers that cite their source.'",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); at >= 0 {
				args, o.program = args[:at], args[at:]
				if len(o.program) == 0 {
					return usageError{errors.New("--: the command is missing, as in '-- python3 grade.py'")}
				}
			}
			o.filter.ids = args
			return o.run(cmd)
		},
	}
	o.bind(cmd)
	o.filter.bind(cmd, 0)
	f := cmd.Flags()
	f.StringVar(&o.work.Set, "set", "", "name of the new reward set (required)")
	f.StringVar(&o.work.Base, "base", agl.DefaultRewardSet, "the set that counts as the old reward")
	f.StringVar(&o.expression, "expr", "", "score by this expression")
	f.BoolVar(&o.lines, "lines", false, "keep the programs of the command: an attempt a line in, a reward a line out")
	f.DurationVar(&o.timeout, "timeout", time.Minute, "how long one answer of a command may take")
	f.StringVar(&o.url, "http", "", "score by this service")
	f.StringArrayVar(&o.headers, "header", nil, "header of its requests as NAME=VALUE, or NAME=env:VARIABLE; repeatable")
	f.StringVar(&o.judge, "judge", "", "score by this language model")
	f.StringVar(&o.judgeURL, "judge-url", "", "where it is asked (OPENAI_BASE_URL; default that of OpenAI)")
	f.StringVar(&o.rubric, "rubric", "", "what it grades by")
	f.StringVar(&o.rubricFile, "rubric-file", "", "the same from a file")
	f.BoolVar(&o.rank, "rank", false, "let it order the rollouts of a task or group, the best first: the best gets 1, the worst 0")
	f.IntVar(&o.orders, "orders", 1, "with --rank: how often, each time shown in another order")
	f.StringVar(&o.scale, "scale", "0,10", "without --rank: ends of its scale, which become the rewards 0 and 1")
	f.Float64Var(&o.asking.Temperature, "temperature", 0, "temperature of its answers")
	f.IntVar(&o.asking.Longest, "judge-bytes", 20_000, "how much of a conversation it is shown; the middle of a longer one is left out")
	f.Float64Var(&o.price.Input, "input-price", 0, "price of a million tokens that it reads, for the sum at the end")
	f.Float64Var(&o.price.Output, "output-price", 0, "price of a million tokens that it writes")
	f.BoolVar(&o.work.Unsuccessful, "all", false, "also rollouts that ended without success")
	f.BoolVar(&o.work.DryRun, "dry-run", false, "store nothing and ask no service; say what would be done")
	f.IntVar(&o.work.Concurrency, "concurrency", 4, "how many are scored at a time")
	f.IntVar(&o.work.StopAfter, "stop-after", 20, "end after this many failures in a row; -1 never")
	f.BoolVar(&o.asJSON, "json", false, "write the summary as one JSON object")
	return cmd
}

func (o *rescoreOptions) run(cmd *cobra.Command) (err error) {
	scorer, err := o.scorer(cmd)
	if err != nil {
		return usageError{err}
	}
	if closer, ok := scorer.(io.Closer); ok {
		defer func() { err = errors.Join(err, closer.Close()) }()
	}
	if _, err := o.filter.query(); err != nil {
		return err
	}
	if o.work.StopAfter == 0 {
		return usageError{errors.New("--stop-after 0: must be at least 1, or -1 for never")}
	}
	ctx := cmd.Context()
	st, err := o.source.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	o.work.Scorer, o.work.Store = scorer, st
	o.work.Each = func(ctx context.Context, visit func(*agl.AttemptedRollout) error) error {
		_, err := o.filter.each(ctx, st, visit)
		return err
	}
	if err := o.work.Validate(); err != nil {
		return usageError{fmt.Errorf("--set %s: %w", o.work.Set, err)}
	}
	o.work.OnProgress = progressOf(cmd.ErrOrStderr())
	summary, err := rescore.Run(ctx, o.work)
	if ctx.Err() == nil && errors.Is(err, store.ErrClosed) {
		return err
	}
	return errors.Join(err, o.report(cmd.OutOrStdout(), &summary))
}

// scorer makes the scorer that was asked for and refuses flags of the others.
func (o *rescoreOptions) scorer(cmd *cobra.Command) (rescore.Scorer, error) {
	if o.work.Set == "" {
		return nil, errors.New("--set: the new reward set needs a name")
	}
	kinds := map[string]bool{"expr": o.expression != "", "command": len(o.program) > 0, "http": o.url != "", "judge": o.judge != ""}
	kind := ""
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		if !kinds[name] {
			continue
		}
		if kind != "" {
			return nil, fmt.Errorf("--%s: %s scores already; give one of --expr, --http, --judge and a command after --", name, kind)
		}
		kind = name
	}
	if kind == "" {
		return nil, errors.New("what scores is missing: give --expr, --http, --judge or a command after --")
	}
	for flag, of := range map[string]string{
		"lines": "command", "timeout": "command", "header": "http", "judge-url": "judge", "rubric": "judge", "rubric-file": "judge",
		"rank": "judge", "orders": "judge", "scale": "judge", "temperature": "judge", "judge-bytes": "judge", "input-price": "judge", "output-price": "judge",
	} {
		if of != kind && cmd.Flags().Changed(flag) {
			return nil, fmt.Errorf("--%s: only a scorer of the kind %s looks at it", flag, of)
		}
	}
	switch kind {
	case "expr":
		return expr.New(o.expression)
	case "command":
		if o.timeout <= 0 {
			return nil, fmt.Errorf("--timeout %v: must be above 0", o.timeout)
		}
		return &rescore.Command{Args: o.program, Lines: o.lines, Timeout: o.timeout}, nil
	case "http":
		return o.service()
	}
	return o.judgeScorer(cmd)
}

func (o *rescoreOptions) service() (rescore.Scorer, error) {
	h := &rescore.HTTP{URL: o.url, Header: map[string]string{}}
	if !strings.HasPrefix(o.url, "http://") && !strings.HasPrefix(o.url, "https://") {
		return nil, fmt.Errorf("--http %s: must begin with http:// or https://", o.url)
	}
	for _, header := range o.headers {
		name, value, ok := strings.Cut(header, "=")
		if !ok || name == "" {
			return nil, errors.New("--header: must be NAME=VALUE or NAME=env:VARIABLE")
		}
		if variable, ok := strings.CutPrefix(value, "env:"); ok {
			if value = os.Getenv(variable); value == "" {
				return nil, fmt.Errorf("--header %s: the variable %s is not set", name, variable)
			}
		}
		h.Header[name] = value
	}
	return h, nil
}

func (o *rescoreOptions) judgeScorer(cmd *cobra.Command) (rescore.Scorer, error) {
	if (o.rubric == "") == (o.rubricFile == "") {
		return nil, errors.New("--judge: needs a rubric: give --rubric or --rubric-file")
	}
	if o.rubricFile != "" {
		text, err := os.ReadFile(o.rubricFile)
		if err != nil {
			return nil, fmt.Errorf("--rubric-file: %w", err)
		}
		o.rubric = string(text)
	}
	if o.price.Input < 0 || o.price.Output < 0 {
		return nil, errors.New("--input-price and --output-price: must not be negative")
	}
	o.asking.Completer, o.asking.Model, o.asking.Rubric = openai.NewAt(o.judgeURL, o.price), o.judge, o.rubric
	if o.rank {
		if cmd.Flags().Changed("scale") {
			return nil, errors.New("--scale: --rank does not look at it")
		}
		if o.orders < 1 {
			return nil, fmt.Errorf("--orders %d: must be at least 1", o.orders)
		}
		r := &rescore.Ranking{Asking: o.asking, Orders: o.orders}
		return r, r.Validate()
	}
	if cmd.Flags().Changed("orders") {
		return nil, errors.New("--orders: only --rank looks at it")
	}
	low, high, ok := strings.Cut(o.scale, ",")
	j := &rescore.Judge{Asking: o.asking}
	var err1, err2 error
	j.Low, err1 = strconv.ParseFloat(low, 64)
	j.High, err2 = strconv.ParseFloat(high, 64)
	if !ok || err1 != nil || err2 != nil || !(j.Low < j.High) {
		return nil, fmt.Errorf("--scale %s: must be two numbers, the lower one first, as in 0,10", o.scale)
	}
	return j, j.Validate()
}

// progressEvery is the time between two lines of progress.
const progressEvery = 2 * time.Second

func progressOf(w io.Writer) func(rescore.Progress) {
	last := time.Now()
	return func(p rescore.Progress) {
		if time.Since(last) < progressEvery {
			return
		}
		last = time.Now()
		fmt.Fprintf(w, "%d of %d rollouts, %d scored, %d failed", p.Done, p.Of, p.Scored, p.Failed)
		if p.InputTokens > 0 {
			fmt.Fprintf(w, ", %d tokens in, %d out", p.InputTokens, p.OutputTokens)
		}
		if p.LastFailure != "" {
			fmt.Fprintf(w, "; last failure: %s", short(p.LastFailure, 120))
		}
		fmt.Fprintln(w)
	}
}

func (o *rescoreOptions) report(w io.Writer, s *rescore.Summary) error {
	if o.asJSON {
		return json.NewEncoder(w).Encode(struct {
			Set    string `json:"set"`
			Scorer string `json:"scorer"`
			DryRun bool   `json:"dry_run"`
			*rescore.Summary
		}{o.work.Set, o.work.Scorer.String(), o.work.DryRun, s})
	}
	verb := "scored"
	if o.work.DryRun {
		verb = "would be scored"
	}
	fmt.Fprintf(w, "set %s: %s of %s %s", o.work.Set, strconv.Itoa(s.Scored), counted(s.Chosen, "rollout"), verb)
	if s.Already > 0 {
		fmt.Fprintf(w, ", %d had a reward in it", s.Already)
	}
	if s.Left > 0 {
		fmt.Fprintf(w, ", %d left: the same command goes on", s.Left)
	}
	fmt.Fprintln(w)
	if s.MeanNew != nil {
		fmt.Fprintf(w, "mean reward %.4f", *s.MeanNew)
		if s.MeanOld != nil {
			fmt.Fprintf(w, ", of the set %s %.4f", cmp.Or(o.work.Base, agl.DefaultRewardSet), *s.MeanOld)
		}
		if s.Correlation != nil {
			fmt.Fprintf(w, ", correlation %.3f over %s", *s.Correlation, counted(s.Compared, "rollout"))
		}
		fmt.Fprintln(w)
	}
	if s.Asked > 0 {
		fmt.Fprintf(w, "%s to the service", counted(s.Asked, "request"))
		if o.work.DryRun {
			fmt.Fprint(w, " would be made")
		}
		if s.InputTokens > 0 {
			fmt.Fprintf(w, ", %d tokens in, %d out", s.InputTokens, s.OutputTokens)
			if o.work.DryRun && s.OutputTokens == 0 {
				fmt.Fprint(w, " by their size, the answers not counted")
				if o.price.Input > 0 {
					fmt.Fprintf(w, ": at least %.4f", float64(s.InputTokens)*o.price.Input/1e6)
				}
			}
		}
		if s.Cost > 0 {
			fmt.Fprintf(w, ", cost %.4f", s.Cost)
		}
		fmt.Fprintln(w)
	}
	for _, reason := range slices.Sorted(maps.Keys(s.Skipped)) {
		fmt.Fprintf(w, "passed over: %d, %s\n", s.Skipped[reason], reason)
	}
	for _, reason := range slices.Sorted(maps.Keys(s.Failed)) {
		fmt.Fprintf(w, "failed: %d, %s; such as %s\n", s.Failed[reason], reason, short(s.Examples[reason], 300))
	}
	return nil
}
