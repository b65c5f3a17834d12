package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/rl"
	"agentlightning/store"
	"agentlightning/storehttp"
)

// explainedAtATime is how many rollouts one request explains.
const explainedAtATime = 20

// trainingOptions say how training is to be imagined.
type trainingOptions struct {
	joining, agent string
	onFailure      string
	noLogprobs     bool
	limits         adapter.Limits
}

func (o *trainingOptions) bind(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&o.joining, "joining", "lineages", "how calls become rows: lineages, linear or separate")
	fs.StringVar(&o.agent, "agent", "", "only calls of agents whose name matches this regular expression are trained on")
	fs.StringVar(&o.onFailure, "on-failure", string(rl.DropFailed), "what becomes of attempts that failed: drop, keep (with their reward) or zero")
	fs.BoolVar(&o.noLogprobs, "logprobs-optional", false, "the trainer computes log-probabilities again")
	fs.IntVar(&o.limits.Prompt, "prompt-limit", 0, "tokens of a row before the first answer; 0 is no limit")
	fs.IntVar(&o.limits.Response, "response-limit", 0, "tokens of a row from the first answer on; 0 is no limit")
	fs.IntVar(&o.limits.Total, "total-limit", 0, "tokens of a row; 0 is no limit")
}

func (o *trainingOptions) config() (adapter.ExplainConfig, error) {
	how := adapter.ExplainConfig{LogprobsOptional: o.noLogprobs, OnFailure: rl.OnFailure(o.onFailure)}
	how.Limits = o.limits
	switch how.OnFailure {
	case rl.DropFailed, rl.KeepFailed, rl.ZeroFailed:
	default:
		return how, usageError{fmt.Errorf("--on-failure %s: must be drop, keep or zero", o.onFailure)}
	}
	switch o.joining {
	case "lineages":
	case "linear":
		how.Joining = adapter.Linear
	case "separate":
		how.Joining = adapter.Separate
	default:
		return how, usageError{fmt.Errorf("--joining %s: must be lineages, linear or separate", o.joining)}
	}
	for _, l := range []struct {
		flag string
		n    int
	}{{"prompt", o.limits.Prompt}, {"response", o.limits.Response}, {"total", o.limits.Total}} {
		if l.n < 0 {
			return how, usageError{fmt.Errorf("--%s-limit %d: must not be negative; 0 is no limit", l.flag, l.n)}
		}
	}
	if o.agent != "" {
		var err error
		if how.Agent, err = regexp.Compile(o.agent); err != nil {
			return how, usageError{fmt.Errorf("--agent %s: %w", o.agent, err)}
		}
	}
	return how, nil
}

func newRolloutsExplain(o *clientOptions) *cobra.Command {
	var (
		filter        rolloutFilter
		training      trainingOptions
		asJSON, calls bool
	)
	cmd := &cobra.Command{
		Use:   "explain [ROLLOUT…]",
		Short: "Say of every model call whether it is trained on, and why not",
		Example: "  agl rollouts explain ro-0123456789ab\n" +
			"  agl rollouts explain --run run-0123456789ab\n" +
			"  agl rollouts explain --since 1h --json | jq .sums",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			filter.ids = args
			if !filter.chosen() {
				return usageError{fmt.Errorf("give rollout ids, or choose rollouts by --status, --mode, --run, --worker, --id or --since; see '%s --help'", cmd.CommandPath())}
			}
			how, err := training.config()
			if err != nil {
				return err
			}
			if len(args) == 0 {
				if _, err := filter.query(); err != nil {
					return err
				}
			}
			return o.with(func(client *storehttp.Client) error {
				return explainRollouts(cmd, client, &filter, how, calls || len(args) > 0, asJSON)
			})
		},
	}
	filter.bind(cmd, 0)
	training.bind(cmd)
	bindTable(cmd)
	cmd.Flags().BoolVar(&calls, "calls", false, "show every call also of rollouts that were not named")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line, for each rollout")
	return cmd
}

// explainRollouts prints the explanations of rollouts as they come: in full for
// those with calls, on a line otherwise, and in the end the sums of several.
func explainRollouts(cmd *cobra.Command, client *storehttp.Client, filter *rolloutFilter, how adapter.ExplainConfig, calls, asJSON bool) error {
	w := cmd.OutOrStdout()
	list := newListing(cmd, "", "ROLLOUT", "STATUS", "REWARD", "CALLS", "USED", "ROWS", "TOKENS", "MOSTLY")
	var sums adapter.Sums
	var ids []string
	ask := func() error {
		if len(ids) == 0 {
			return nil
		}
		page, err := client.ExplainRollouts(cmd.Context(), store.RolloutQuery{RolloutIDIn: ids, Paging: store.Paging{Limit: len(ids)}}, how, calls)
		if err != nil {
			return err
		}
		sums.Add(page.Sums)
		order := map[string]int{}
		for i, id := range ids {
			order[id] = i
		}
		slices.SortFunc(page.Items, func(a, b adapter.Explanation) int { return order[a.RolloutID] - order[b.RolloutID] })
		for i := range page.Items {
			e := &page.Items[i]
			switch {
			case asJSON:
				err = json.NewEncoder(w).Encode(e)
			case calls:
				if i > 0 || sums.Rollouts > len(page.Items) {
					fmt.Fprintln(w)
				}
				err = printExplanation(cmd, e)
			default:
				addExplanation(list, e)
			}
			if err != nil {
				return err
			}
		}
		ids = ids[:0]
		return list.flush()
	}
	_, err := filter.each(cmd.Context(), client, func(r *agl.AttemptedRollout) error {
		if ids = append(ids, r.RolloutID); len(ids) == explainedAtATime {
			return ask()
		}
		return nil
	})
	if err == nil {
		err = ask()
	}
	if err != nil || asJSON {
		return err
	}
	if sums.Rollouts == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "no rollout fits")
		return nil
	}
	if sums.Rollouts > 1 && (calls || forPeople(cmd)) {
		printSums(w, &sums)
	}
	return nil
}

func trainedOn(s *adapter.Sums) string {
	return fmt.Sprintf("%d of %s trained on, in %s of %s", s.CallsUsed, counted(s.Calls, "call"), counted(s.Rows, "row"), counted(s.Tokens, "sampled token"))
}

// addExplanation adds the line of a rollout.
func addExplanation(list *listing, e *adapter.Explanation) {
	reward := "-"
	if n := len(e.Attempts); n > 0 {
		reward = number(e.Attempts[n-1].Reward)
	}
	list.add(e.RolloutID, string(e.Status), reward, strconv.Itoa(e.Sums.Calls), strconv.Itoa(e.Sums.CallsUsed),
		strconv.Itoa(e.Sums.Rows), strconv.Itoa(e.Sums.Tokens), mostly(e))
}

// mostly is the most frequent reason why calls of a rollout are not used.
func mostly(e *adapter.Explanation) string {
	if e.Sums.Calls == 0 {
		return "no model call was seen"
	}
	reasons := byCount(e.Sums.Reasons)
	if len(reasons) == 0 {
		return "-"
	}
	return fmt.Sprintf("%s (%d)", reasons[0], e.Sums.Reasons[reasons[0]])
}

func byCount(counts map[string]int) []string {
	return slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		if counts[a] != counts[b] {
			return counts[b] - counts[a]
		}
		if a < b {
			return -1
		}
		return 1
	})
}

func number(v *float64) string {
	if v == nil {
		return "-"
	}
	return strconv.FormatFloat(*v, 'g', 6, 64)
}

// printExplanation prints all that is known of one rollout.
func printExplanation(cmd *cobra.Command, e *adapter.Explanation) error {
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "%s  %s  %s\n", e.RolloutID, e.Status, trainedOn(&e.Sums))
	for i := range e.Attempts {
		a := &e.Attempts[i]
		fmt.Fprintf(w, "\nattempt %d  %s  %s  reward %s", a.Number, a.AttemptID, a.Status, number(a.Reward))
		if a.Rewards > 1 {
			fmt.Fprintf(w, " (the last of %d)", a.Rewards)
		}
		fmt.Fprintln(w)
		if a.Reason != "" {
			fmt.Fprintf(w, "  left out: %s, %s\n", a.Reason, a.Detail)
		}
		if len(a.Calls) == 0 {
			fmt.Fprintf(w, "  no model call among %s\n", counted(a.Spans, "span"))
			continue
		}
		list := newListing(cmd, "  ", "CALL", "BY", "AGENT", "MODEL", "PROMPT", "ANSWER", "REWARD", "USED", "ROW", "WHY")
		for j := range a.Calls {
			addCall(list, &a.Calls[j])
		}
		if err := list.flush(); err != nil {
			return err
		}
	}
	if len(e.Advice) > 0 {
		fmt.Fprintln(w)
	}
	for _, line := range e.Advice {
		fmt.Fprintf(w, "→ %s\n", line)
	}
	return nil
}

func addCall(list *listing, c *adapter.ExplainedCall) {
	used, row, why := "yes", "-", ""
	if !c.Used {
		used, why = "no", c.Reason
		if c.Detail != "" && c.Detail != c.Reason {
			why += ": " + c.Detail
		}
	}
	if c.Row != nil {
		row = strconv.Itoa(*c.Row)
	}
	if c.Mismatch != nil {
		if why != "" {
			why += "; "
		}
		why += "a row of its own: " + c.Mismatch.String()
	}
	list.add(strconv.FormatInt(c.SequenceID, 10), c.Source, dash(c.Agent), dash(c.Model), strconv.Itoa(c.PromptTokens),
		strconv.Itoa(c.ResponseTokens), number(c.Reward), used, row, dash(list.cut(why, 120)))
}

// printSums prints what became of several rollouts together.
func printSums(w io.Writer, s *adapter.Sums) {
	fmt.Fprintf(w, "\n%s, %d of them with something to train on, %d without a model call\n", counted(s.Rollouts, "rollout"), s.Used, s.WithoutCalls)
	fmt.Fprintf(w, "%s; %s with a row of its own\n", trainedOn(s), counted(s.Mismatches, "later call"))
	for _, reason := range byCount(s.Reasons) {
		fmt.Fprintf(w, "%8d  %s\n", s.Reasons[reason], reason)
	}
}
