package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/semconv"
	"agentlightning/store"
	"agentlightning/storehttp"
)

// exportKinds are the things that can be exported.
func exportKinds() []string {
	return []string{"rollouts", "spans", "rows", "triplets", "proxy-triplets", "messages", "conversations"}
}

func newRolloutsExport(o *clientOptions) *cobra.Command {
	var (
		filter   rolloutFilter
		training trainingOptions
		e        export
		to       string
	)
	cmd := &cobra.Command{
		Use:   "export [ROLLOUT…]",
		Short: "Write rollouts, or what training reads of them, as JSON lines",
		Long: "Write one JSON object a line:\n\n" +
			"  rollouts        a rollout with its attempts and spans\n" +
			"  spans           a span\n" +
			"  rows            a training row: token ids, mask and log-probabilities of calls that continue one another\n" +
			"  triplets        a model call with its prompt, answer and reward, as TracerTraceToTriplet reads it\n" +
			"  proxy-triplets  the same, as LlmProxyTraceToTriplet reads it\n" +
			"  messages        the conversation of a model call, as TraceToMessages reads it\n" +
			"  conversations   the same of every call once, whoever recorded it: the proxy, OpenInference, OpenLLMetry, Logfire\n\n" +
			"All but the first two are made of the latest attempt of rollouts that succeeded, rows of those that were rewarded; --all takes the others too.",
		Example: "  agl rollouts export --status succeeded --limit 0 --to rollouts.jsonl\n" +
			"  agl rollouts export --what rows --run run-0123456789ab > rows.jsonl",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			filter.ids = args
			if !slices.Contains(exportKinds(), e.what) {
				return usageError{fmt.Errorf("--what %s: must be one of %s", e.what, strings.Join(exportKinds(), ", "))}
			}
			if e.how, err = training.config(); err != nil {
				return err
			}
			e.tracer.AgentMatch = training.agent
			if _, err := filter.query(); err != nil {
				return err
			}
			if err := checkRewardSet(e.set); err != nil {
				return usageError{err}
			}
			if rewarded := e.what == "rows" || e.what == "triplets" || e.what == "proxy-triplets"; !rewarded && cmd.Flags().Changed(rewardSetFlag) {
				return usageError{fmt.Errorf("--reward-set: --what %s does not look at it", e.what)}
			}
			return o.with(func(client *storehttp.Client) error { return exportTo(cmd, client, &filter, &e, to) })
		},
	}
	filter.bind(cmd, 0)
	training.bind(cmd)
	bindRewardSet(cmd, &e.set)
	cmd.Flags().StringVar(&e.what, "what", "rollouts", "what to write: "+strings.Join(exportKinds(), ", "))
	cmd.Flags().BoolVar(&e.all, "all", false, "also rollouts that did not succeed, and rows without a reward")
	cmd.Flags().StringVar(&to, "to", "", "file to write; it must not exist (default: standard output)")
	return cmd
}

// export writes lines about rollouts.
type export struct {
	what   string
	how    adapter.ExplainConfig
	tracer adapter.TracerOptions
	all    bool
	set    string

	w     *bufio.Writer
	lines int
}

// exportTo writes to a file or to the output of the command.
func exportTo(cmd *cobra.Command, client *storehttp.Client, filter *rolloutFilter, e *export, to string) (err error) {
	out := cmd.OutOrStdout()
	if to != "" {
		file, failed := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(failed, os.ErrExist) {
			return usageError{fmt.Errorf("--to %s: the file exists; remove it or choose another", to)}
		}
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		out = file
	}
	e.w = bufio.NewWriter(out)
	rollouts := 0
	_, err = filter.each(cmd.Context(), client, func(r *agl.AttemptedRollout) error {
		if rollouts++; rollouts%1000 == 0 && to != "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "%d rollouts, %d lines\n", rollouts, e.lines)
		}
		if err := e.rollout(cmd.Context(), client, r); err != nil {
			return fmt.Errorf("rollout %s: %w", r.RolloutID, err)
		}
		return nil
	})
	if err = errors.Join(err, e.w.Flush()); err != nil {
		return err
	}
	if to != "" {
		fmt.Fprintf(cmd.OutOrStdout(), "%s holds %s of %s\n", to, counted(e.lines, "line"), counted(rollouts, "rollout"))
	}
	return nil
}

// line writes the JSON of v on a line.
func (e *export) line(v any) error {
	e.lines++
	return json.NewEncoder(e.w).Encode(v)
}

func (e *export) rollout(ctx context.Context, s store.Store, r *agl.AttemptedRollout) error {
	switch e.what {
	case "rollouts":
		attempts, err := s.QueryAttempts(ctx, store.AttemptQuery{RolloutID: r.RolloutID, Paging: store.Paging{SortBy: "sequence_id"}})
		if err != nil {
			return err
		}
		e.lines++
		return writeRollout(ctx, e.w, s, &r.Rollout, attempts.Items)
	case "spans":
		return eachSpan(ctx, s, r.RolloutID, nil, func(span *agl.Span) error { return e.line(span) })
	}
	if r.Attempt == nil || r.Status != agl.RolloutSucceeded && !e.all {
		return nil
	}
	if e.what == "rows" {
		var recording adapter.Recording
		if err := eachSpan(ctx, s, r.RolloutID, &r.Attempt.AttemptID, func(span *agl.Span) error {
			recording.Add(agl.SpanInRewardSet(span, e.set))
			return nil
		}); err != nil {
			return err
		}
		return e.rows(r, &recording)
	}
	var spans []agl.Span
	if err := eachSpan(ctx, s, r.RolloutID, &r.Attempt.AttemptID, func(span *agl.Span) error {
		spans = append(spans, agl.SpanInRewardSet(span, e.set))
		return nil
	}); err != nil {
		return err
	}
	return e.read(r, spans)
}

// exported is a line of what training reads.
type exported struct {
	RolloutID string `json:"rollout_id"`
	AttemptID string `json:"attempt_id"`
	*agl.Triplet
	*adapter.Conversation
}

// read writes what an adapter makes of the spans of an attempt.
func (e *export) read(r *agl.AttemptedRollout, spans []agl.Span) error {
	line := exported{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID}
	if e.what == "messages" || e.what == "conversations" {
		read := adapter.Messages
		if e.what == "conversations" {
			read = adapter.Conversations
		}
		conversations, err := read(spans)
		for i := range conversations {
			line.Conversation = &conversations[i]
			err = errors.Join(err, e.line(line))
		}
		return err
	}
	var triplets []agl.Triplet
	var err error
	switch {
	case e.what == "proxy-triplets":
		triplets, err = adapter.ProxyTriplets(spans)
	case len(spans) > 0: // no spans, no tree
		triplets, err = adapter.TracerTriplets(spans, e.tracer)
	}
	for i := range triplets {
		line.Triplet = &triplets[i]
		err = errors.Join(err, e.line(line))
	}
	return err
}

// exportedRow is a training row as it is written.
type exportedRow struct {
	RolloutID   string    `json:"rollout_id"`
	AttemptID   string    `json:"attempt_id"`
	Group       string    `json:"group,omitempty"`
	Reward      *float64  `json:"reward"`
	PromptIDs   []int32   `json:"prompt_ids"`
	ResponseIDs []int32   `json:"response_ids"`
	Mask        []int     `json:"response_mask"`
	Logprobs    []float32 `json:"response_logprobs"` // null when they are missing
	Weight      float64   `json:"token_weight"`
	Images      []string  `json:"image_urls,omitempty"`
	Calls       []string  `json:"span_ids"`
	PromptCut   bool      `json:"prompt_cut,omitempty"`
	ResponseCut bool      `json:"response_cut,omitempty"`
}

// rows writes the training rows of an attempt.
func (e *export) rows(r *agl.AttemptedRollout, recording *adapter.Recording) error {
	calls, err := recording.Calls()
	if err != nil {
		return err
	}
	explained := recording.Explain(adapter.Circumstances{
		AttemptID: r.Attempt.AttemptID, Status: r.Attempt.Status, Rollout: r.Status,
	}, e.how)
	if explained.Reason != "" && !e.all {
		return nil
	}
	if e.how.Agent != nil {
		calls = slices.DeleteFunc(calls, func(c adapter.Call) bool { return !e.how.Agent.MatchString(c.Agent) })
	}
	group, _ := metadataOf(r)[semconv.MetadataGroup].(string)
	trajectories, _ := adapter.Trajectories(calls, e.how.TrajectoryConfig)
	for i := range trajectories {
		t := &trajectories[i]
		if (t.Logprobs == nil && !e.how.LogprobsOptional || t.Sampled() == 0) && !e.all {
			continue
		}
		row := exportedRow{
			RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, Group: group, Reward: explained.Reward,
			PromptIDs: t.IDs[:t.PromptLength], ResponseIDs: t.IDs[t.PromptLength:], Mask: []int{}, Weight: t.TokenWeight,
			Images: t.Images, PromptCut: t.PromptCut, ResponseCut: t.ResponseCut,
		}
		for _, m := range t.Mask[t.PromptLength:] {
			row.Mask = append(row.Mask, int(m))
		}
		if t.Logprobs != nil {
			row.Logprobs = t.Logprobs[t.PromptLength:]
		}
		for _, c := range t.Calls {
			row.Calls = append(row.Calls, calls[c].SpanID)
		}
		if err := e.line(row); err != nil {
			return err
		}
	}
	return nil
}
