package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	agl "agentlightning"
	"agentlightning/adapter/credit"
	"agentlightning/adapter/credit/expr"
	"agentlightning/algorithm"
	"agentlightning/rl"
	"agentlightning/store"
)

func newCredit() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "credit",
		Short: "Look at which model call earns which part of a reward",
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCreditPreview())
	return cmd
}

// previewOptions are the flags of agl credit preview.
type previewOptions struct {
	source
	rules  []string
	how    rl.AdvantageConfig
	alone  bool
	set    string
	asJSON bool
}

func newCreditPreview() *cobra.Command {
	var o previewOptions
	cmd := &cobra.Command{
		Use:   "preview ROLLOUT…",
		Short: "Show what rules would give each call of a rollout, and their difference",
		Long: "Show what one rule or two would give each model call of a rollout, and the advantage that follows.\n" +
			"The rollouts of the same group (of one run, step and task) are read too, since advantages compare them.\n" +
			"Nothing is changed, and training computes the same numbers with the same function.\n\n" +
			"Rules: " + credit.Syntax + "\n" +
			"or cel:EXPRESSION, " + expr.Syntax + ".",
		Example: "  agl credit preview ro-0123456789ab\n" +
			"  agl credit preview ro-0123456789ab --rule identical --rule discounted:0.9\n" +
			"  agl credit preview ro-0123456789ab --db sqlite:calc.db --rule 'cel:index == count - 1 ? reward : 0.1 * reward' --json",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{fmt.Errorf("give a rollout id, as in '%s ro-0123456789ab'", cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return previewCredit(cmd, args, &o) },
	}
	o.bind(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&o.rules, "rule", []string{"identical"}, "rule of credit; give it twice to compare two")
	f.StringVar((*string)(&o.how.Estimator), "estimator", string(rl.GRPO), "what a reward is compared with: "+joined(rl.Estimators()))
	f.BoolVar(&o.how.WithoutStd, "without-std", false, "do not divide by the standard deviation of the group")
	f.StringVar((*string)(&o.how.OnFailure), "on-failure", string(rl.DropFailed), "what failed rollouts are worth: drop, keep or zero")
	f.BoolVar(&o.how.KeepConstant, "keep-constant", false, "keep groups whose rewards are all equal")
	f.BoolVar(&o.alone, "alone", false, "read the given rollouts only, not the rest of their groups")
	bindRewardSet(cmd, &o.set)
	f.BoolVar(&o.asJSON, "json", false, "one JSON object a call and line")
	return cmd
}

func joined[S ~string](values []S) string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return strings.Join(out, ", ")
}

func previewCredit(cmd *cobra.Command, ids []string, o *previewOptions) (err error) {
	if len(o.rules) > 2 {
		return usageError{fmt.Errorf("--rule: %d rules: give one, or two to compare", len(o.rules))}
	}
	if err := errors.Join(o.how.Validate(), checkRewardSet(o.set)); err != nil {
		return usageError{err}
	}
	rules := make([]credit.Rule, len(o.rules))
	for i, text := range o.rules {
		if rules[i], err = creditRule(text); err != nil {
			return usageError{fmt.Errorf("--rule: %w", err)}
		}
	}
	ctx := cmd.Context()
	st, err := o.source.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	rollouts, err := readGroups(ctx, st, ids, o.alone, o.set)
	if err != nil {
		return err
	}
	p := preview{rollouts: rollouts, rules: o.rules, how: o.how}
	for _, rule := range rules {
		a, err := credit.Assign(rollouts, rule, o.how)
		if err != nil {
			return err
		}
		p.assigned = append(p.assigned, a)
	}
	if o.asJSON {
		return p.json(cmd.OutOrStdout())
	}
	return p.table(cmd.OutOrStdout())
}

func creditRule(text string) (credit.Rule, error) {
	if expression, ok := strings.CutPrefix(text, "cel:"); ok {
		return expr.New(expression)
	}
	return credit.Parse(text)
}

// place is where a rollout belongs in its run; all empty for one without.
type place struct {
	RunID string      `json:"agl.run_id"`
	Step  json.Number `json:"agl.step"`
	Group string      `json:"agl.group"`
}

func placeOf(r *agl.Rollout) place {
	var p place
	if len(r.Metadata) == 0 || json.Unmarshal(r.Metadata, &p) != nil || p.RunID == "" || p.Group == "" {
		return place{}
	}
	return p
}

// readGroups reads the rollouts and, unless alone, the rest of their groups.
func readGroups(ctx context.Context, st store.Store, ids []string, alone bool, set string) ([]credit.Rollout, error) {
	var out []credit.Rollout
	seen := map[string]bool{}
	add := func(r *agl.Rollout, asked bool) error {
		if seen[r.RolloutID] {
			return nil
		}
		seen[r.RolloutID] = true
		if !r.Status.Terminal() {
			if asked {
				return fmt.Errorf("rollout %s is %s: credit is given when it has ended", r.RolloutID, r.Status)
			}
			return nil
		}
		read, err := readRollout(ctx, st, r, set)
		out = append(out, read)
		return err
	}
	for _, id := range ids {
		r, err := st.Rollout(ctx, id)
		if err != nil {
			return nil, err
		}
		if err := add(&r.Rollout, true); err != nil {
			return nil, err
		}
		if alone || placeOf(&r.Rollout) == (place{}) {
			continue
		}
		siblings, err := siblings(ctx, st, &r.Rollout)
		if err != nil {
			return nil, err
		}
		for i := range siblings {
			if err := add(&siblings[i], false); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// readRollout reads a rollout with the rewards of a set.
func readRollout(ctx context.Context, st store.Store, r *agl.Rollout, set string) (credit.Rollout, error) {
	latest := agl.LatestAttempt
	spans, err := st.QuerySpans(ctx, store.SpanQuery{
		RolloutID: r.RolloutID, AttemptID: &latest, Paging: store.Paging{SortBy: "sequence_id"},
	})
	if err != nil {
		return credit.Rollout{}, fmt.Errorf("spans of rollout %s: %w", r.RolloutID, err)
	}
	out := credit.Read(r.RolloutID, algorithm.GroupOf(r), agl.InRewardSet(spans.Items, set))
	out.Failed = r.Status != agl.RolloutSucceeded
	return out, nil
}

// pageOfSiblings is how many rollouts are looked at at once.
const pageOfSiblings = 500

// siblings finds the other rollouts of a group. They were asked for close to one
// another, so only the neighbourhood of the rollout is read: pages before and
// after it until one has no member of the group.
func siblings(ctx context.Context, st store.Store, r *agl.Rollout) ([]agl.Rollout, error) {
	group := algorithm.GroupOf(r)
	page := func(offset int) (store.Page[agl.AttemptedRollout], error) {
		return st.QueryRollouts(ctx, store.RolloutQuery{Paging: store.Paging{SortBy: "start_time", Limit: pageOfSiblings, Offset: offset}})
	}
	first, err := page(0)
	if err != nil {
		return nil, err
	}
	// The first page that may hold the rollout, by halving.
	low, high := 0, (first.Total-1)/pageOfSiblings
	for low < high {
		middle := (low + high) / 2
		p, err := page(middle * pageOfSiblings)
		if err != nil {
			return nil, err
		}
		if n := len(p.Items); n == 0 || p.Items[n-1].StartTime >= r.StartTime {
			high = middle
		} else {
			low = middle + 1
		}
	}
	var out []agl.Rollout
	scan := func(from, step int) error {
		for n := from; n >= 0 && n*pageOfSiblings < first.Total; n += step {
			p, err := page(n * pageOfSiblings)
			if err != nil {
				return err
			}
			found := false
			for i := range p.Items {
				if algorithm.GroupOf(&p.Items[i].Rollout) == group {
					out = append(out, p.Items[i].Rollout)
					found = true
				}
			}
			if !found && n != low {
				return nil
			}
		}
		return nil
	}
	if err := errors.Join(scan(low-1, -1), scan(low, 1)); err != nil {
		return nil, err
	}
	return out, nil
}

// preview is what is shown.
type preview struct {
	rollouts []credit.Rollout
	rules    []string
	how      rl.AdvantageConfig
	assigned []credit.Assignment
}

// previewLine is one call under --json.
type previewLine struct {
	Rollout string   `json:"rollout_id"`
	Group   string   `json:"group"`
	Failed  bool     `json:"failed"`
	Final   *float64 `json:"reward"`
	Call    int      `json:"call"`
	SpanID  string   `json:"span_id"`
	Agent   string   `json:"agent,omitempty"`
	Tokens  int      `json:"response_tokens"`
	Problem string   `json:"problem,omitempty"`
	// Rules has an entry a rule; Difference is the advantage under the second
	// less that under the first.
	Rules      []previewRule `json:"rules"`
	Difference *float64      `json:"difference,omitempty"`
}

type previewRule struct {
	Rule      string   `json:"rule"`
	Credit    *float64 `json:"credit"`
	Bonus     float64  `json:"bonus,omitempty"`
	Role      string   `json:"role,omitempty"`
	Used      bool     `json:"used"`
	Advantage float64  `json:"advantage"`
}

func (p *preview) lines() []previewLine {
	var out []previewLine
	for i, r := range p.rollouts {
		for j, c := range r.Calls {
			line := previewLine{
				Rollout: r.ID, Group: r.Group, Failed: r.Failed, Final: r.Final,
				Call: j, SpanID: c.SpanID, Agent: c.Agent, Tokens: len(c.ResponseIDs), Problem: c.Problem,
			}
			for n, a := range p.assigned {
				got := a.Calls[i][j]
				line.Rules = append(line.Rules, previewRule{p.rules[n], got.Reward, got.Bonus, got.Role, got.Used, got.Advantage})
			}
			if len(line.Rules) == 2 {
				line.Difference = new(line.Rules[1].Advantage - line.Rules[0].Advantage)
			}
			out = append(out, line)
		}
	}
	return out
}

func (p *preview) json(w io.Writer) error {
	out := json.NewEncoder(w)
	for _, line := range p.lines() {
		if err := out.Encode(line); err != nil {
			return err
		}
	}
	return nil
}

func (p *preview) table(w io.Writer) error {
	var groups []string
	for _, r := range p.rollouts {
		if !slices.Contains(groups, r.Group) {
			groups = append(groups, r.Group)
		}
	}
	for _, g := range groups {
		fmt.Fprintln(w, short(g, 80))
	}
	for n, rule := range p.rules {
		s := p.assigned[n].Stats
		fmt.Fprintf(w, "%s, %s: %d of %d rollouts count; %d failed, %d without a reward, %d not finite; %d of %d groups constant, %d too small\n",
			rule, p.how.Estimator, s.Usable, s.Members, s.Failed, s.Unrewarded, s.NonFinite, s.GroupsConstant, s.Groups, s.GroupsSmall)
	}
	for _, r := range p.rollouts {
		for _, err := range r.Unreadable {
			fmt.Fprintf(w, "rollout %s: a reward cannot be read: %v\n", r.ID, err)
		}
	}
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprint(tw, "ROLLOUT\tREWARD\tCALL\tAGENT\tTOKENS")
	for _, rule := range p.rules {
		fmt.Fprintf(tw, "\t%s: CREDIT\tADVANTAGE", short(rule, 30))
	}
	if len(p.rules) == 2 {
		fmt.Fprint(tw, "\tDIFFERENCE")
	}
	fmt.Fprintln(tw)
	for _, l := range p.lines() {
		fmt.Fprintf(tw, "%s\t%s\t%d\t%s\t%d", l.Rollout, number(l.Final)+failedMark(l.Failed), l.Call, dash(l.Agent), l.Tokens)
		for _, r := range l.Rules {
			switch {
			case l.Problem != "":
				fmt.Fprintf(tw, "\t%s\t", l.Problem)
			case !r.Used:
				fmt.Fprintf(tw, "\t%s\tnot trained on", earned(r))
			default:
				fmt.Fprintf(tw, "\t%s\t%+.4f", earned(r), r.Advantage)
			}
		}
		if l.Difference != nil {
			fmt.Fprintf(tw, "\t%+.4f", *l.Difference)
		}
		fmt.Fprintln(tw)
	}
	return tw.Flush()
}

// earned shows the credit of a call and, where it has one, its bonus.
func earned(r previewRule) string {
	if r.Bonus == 0 {
		return number(r.Credit)
	}
	return fmt.Sprintf("%s %+.4f", number(r.Credit), r.Bonus)
}

func failedMark(failed bool) string {
	if failed {
		return " (failed)"
	}
	return ""
}
