package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	agl "agentlightning"
	"agentlightning/semconv"
	"agentlightning/store"
	"agentlightning/storehttp"
)

// clientOptions say which server a command talks to.
type clientOptions struct{ server, token string }

func (o *clientOptions) bind(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVar(&o.server, "server", "", "address of the server (AGL_SERVER; default http://127.0.0.1:4747)")
	cmd.PersistentFlags().StringVar(&o.token, "token", "", "the server's token (AGL_AUTH_TOKEN)")
}

// address returns the server and its token, of the flags or the environment.
func (o *clientOptions) address() (server, token string) {
	return cmp.Or(o.server, os.Getenv("AGL_SERVER"), "http://127.0.0.1:4747"), cmp.Or(o.token, os.Getenv("AGL_AUTH_TOKEN"))
}

func (o *clientOptions) open() (*storehttp.Client, error) {
	server, token := o.address()
	client, err := storehttp.NewClient(server, storehttp.WithToken(token), storehttp.WithRetryWindow(0))
	if err != nil {
		return nil, usageError{fmt.Errorf("--server %s: %w", server, err)}
	}
	return client, nil
}

// with runs a command that asks a server.
func (o *clientOptions) with(do func(*storehttp.Client) error) error {
	client, err := o.open()
	if err != nil {
		return err
	}
	return errors.Join(do(client), client.Close())
}

func newRollouts() *cobra.Command {
	var o clientOptions
	cmd := &cobra.Command{
		Use:   "rollouts",
		Short: "Look at rollouts, the tasks that agents were given, and at what became of them",
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	o.bind(cmd)
	cmd.AddCommand(newRolloutsList(&o), newRolloutsShow(&o), newRolloutsExplain(&o),
		newRolloutsRetry(&o), newRolloutsCancel(&o), newRolloutsExport(&o))
	return cmd
}

func newRolloutsList(o *clientOptions) *cobra.Command {
	var (
		filter  rolloutFilter
		db, set string
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List rollouts, the newest first",
		Example: "  agl rollouts ls --status failed --since 2h\n  agl rollouts ls --limit 0 --json | jq .status\n" +
			"  agl rollouts ls --run run-0123456789ab --reward-set strict\n  agl rollouts ls --db sqlite:/backups/monday.db",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := filter.query(); err != nil {
				return err
			}
			if err := checkRewardSet(set); err != nil {
				return usageError{err}
			}
			if !cmd.Flags().Changed(rewardSetFlag) {
				set = ""
			}
			return o.reading(cmd.Context(), db, func(s store.Store) error { return listRollouts(cmd, s, &filter, set, asJSON) })
		},
	}
	filter.bind(cmd, 20)
	bindTable(cmd)
	bindDB(cmd, &db)
	cmd.Flags().StringVar(&set, rewardSetFlag, "", "show the final reward of this set too; default are those that agents gave")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	return cmd
}

// listRollouts lists rollouts, with their rewards of a set unless it is empty.
func listRollouts(cmd *cobra.Command, client store.Store, filter *rolloutFilter, set string, asJSON bool) error {
	head := []string{"ROLLOUT", "STATUS", "MODE", "ATTEMPT", "WORKER", "STARTED", "TOOK"}
	if set != "" {
		head = append(head, "REWARD")
	}
	list := newListing(cmd, "", append(head, "TASK")...)
	more, err := filter.each(cmd.Context(), client, func(r *agl.AttemptedRollout) error {
		var reward *float64
		if set != "" && r.Attempt != nil {
			rewards, err := readRewards(cmd.Context(), client, r.RolloutID, r.Attempt.AttemptID)
			if err != nil {
				return err
			}
			reward = rewards.of(set)
		}
		if asJSON {
			line := r.AppendJSON(nil)
			if set != "" {
				line = appendReward(line, set, reward)
			}
			_, err := cmd.OutOrStdout().Write(append(line, '\n'))
			return err
		}
		attempt, worker := "-", "-"
		if r.Attempt != nil {
			attempt = fmt.Sprintf("%d %s", r.Attempt.SequenceID, r.Attempt.Status)
			if r.Attempt.WorkerID != nil {
				worker = *r.Attempt.WorkerID
			}
		}
		cells := []string{
			r.RolloutID, string(r.Status), dash(string(r.Mode)), attempt, worker,
			list.when(r.StartTime), took(r.StartTime, r.EndTime),
		}
		if set != "" {
			cells = append(cells, number(reward))
		}
		list.add(append(cells, list.cut(string(r.Input), 60))...)
		if list.rows%rolloutsAtATime == 0 {
			return list.flush()
		}
		return nil
	})
	if err != nil || asJSON {
		return err
	}
	if err := list.flush(); err != nil || list.table == nil {
		return err
	}
	switch {
	case list.rows == 0:
		fmt.Fprintln(cmd.OutOrStdout(), "no rollouts")
	case more > 0:
		fmt.Fprintf(cmd.OutOrStdout(), "%d shown, up to %d more; see them with --limit\n", list.rows, more)
	}
	return nil
}

// oneRollout wants one argument, the id of a rollout.
func oneRollout(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usageError{fmt.Errorf("give one rollout id, as in '%s ro-0123456789ab'", cmd.CommandPath())}
	}
	return nil
}

func newRolloutsShow(o *clientOptions) *cobra.Command {
	var (
		db, set string
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:     "show ROLLOUT",
		Short:   "Show one rollout: its attempts and what was recorded",
		Example: "  agl rollouts show ro-0123456789ab",
		Args:    oneRollout,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkRewardSet(set); err != nil {
				return usageError{err}
			}
			if asJSON && set != "" {
				return usageError{errors.New("--reward-set: --json writes the spans of all sets")}
			}
			return o.reading(cmd.Context(), db, func(client store.Store) error {
				rollout, err := client.Rollout(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				attempts, err := client.QueryAttempts(cmd.Context(), store.AttemptQuery{RolloutID: args[0], Paging: store.Paging{SortBy: "sequence_id"}})
				if err != nil {
					return err
				}
				if asJSON {
					return writeRollout(cmd.Context(), cmd.OutOrStdout(), client, &rollout.Rollout, attempts.Items)
				}
				return showRollout(cmd, client, &rollout.Rollout, attempts.Items, set)
			})
		},
	}
	bindTable(cmd)
	bindDB(cmd, &db)
	cmd.Flags().StringVar(&set, rewardSetFlag, "", "show the rewards of this set only; default are those that agents gave")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object with everything")
	return cmd
}

// spansAtATime is how many spans are asked for at a time: each may hold a whole
// history.
const spansAtATime = 64

// eachSpan calls visit with the spans of a rollout, or of one attempt of it when
// attemptID is not nil, by sequence id and a page at a time.
func eachSpan(ctx context.Context, s store.Store, rolloutID string, attemptID *string, visit func(*agl.Span) error) error {
	for offset := 0; ; {
		page, err := s.QuerySpans(ctx, store.SpanQuery{
			RolloutID: rolloutID, AttemptID: attemptID,
			Paging: store.Paging{SortBy: "sequence_id", Limit: spansAtATime, Offset: offset},
		})
		if err != nil {
			return err
		}
		for i := range page.Items {
			if err := visit(&page.Items[i]); err != nil {
				return err
			}
		}
		if offset += len(page.Items); len(page.Items) == 0 || offset >= page.Total {
			return nil
		}
	}
}

// writeRollout writes everything that is known of a rollout as one JSON object
// on one line, without holding its spans.
func writeRollout(ctx context.Context, w io.Writer, s store.Store, r *agl.Rollout, attempts []agl.Attempt) error {
	head := r.AppendJSON([]byte(`{"rollout":`))
	head = append(head, `,"attempts":[`...)
	for i := range attempts {
		if i > 0 {
			head = append(head, ',')
		}
		head = attempts[i].AppendJSON(head)
	}
	if _, err := w.Write(append(head, `],"spans":[`...)); err != nil {
		return err
	}
	first := true
	err := eachSpan(ctx, s, r.RolloutID, nil, func(span *agl.Span) error {
		var line []byte
		if !first {
			line = append(line, ',')
		}
		first = false
		_, err := w.Write(span.AppendJSON(line))
		return err
	})
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, "]}\n")
	return err
}

// showRollout shows a rollout with its rewards of a set, or of all when it is
// empty.
func showRollout(cmd *cobra.Command, s store.Store, r *agl.Rollout, attempts []agl.Attempt, set string) error {
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "%s  %s  %s\n", r.RolloutID, r.Status, took(r.StartTime, r.EndTime))
	fmt.Fprintf(w, "task      %s\n", short(string(r.Input), 400))
	if len(r.Metadata) > 0 {
		fmt.Fprintf(w, "metadata  %s\n", short(string(r.Metadata), 400))
	}
	var final rewards
	for i := range attempts {
		a := &attempts[i]
		fmt.Fprintf(w, "\nattempt %d  %s  %s  %s\n", a.SequenceID, a.AttemptID, a.Status, took(a.StartTime, a.EndTime))
		if len(a.Metadata) > 0 {
			fmt.Fprintf(w, "  %s\n", short(string(a.Metadata), 400))
		}
		final = rewards{}
		var written []agl.Span
		list := newListing(cmd, "  ", "SPAN", "NAME", "STATUS", "TOOK", "WHAT")
		err := eachSpan(cmd.Context(), s, r.RolloutID, &a.AttemptID, func(span *agl.Span) error {
			final.add(span)
			if _, ok := span.Attributes.String(semconv.ProgramStream); ok {
				written = append(written, *span)
			}
			if set != "" {
				seen := agl.SpanInRewardSet(span, set)
				span = &seen
			}
			list.add(strconv.FormatInt(span.SequenceID, 10), span.Name, string(span.Status.StatusCode), spanTime(span), list.cut(spanNote(span), 80))
			if list.rows%spansAtATime == 0 {
				return list.flush()
			}
			return nil
		})
		if err = errors.Join(err, list.flush()); err != nil {
			return err
		}
		for i := range written {
			if err := showOutput(w, &written[i]); err != nil {
				return err
			}
		}
	}
	fmt.Fprintln(w)
	shown := final.sets()
	if set != "" {
		shown = []string{set}
	}
	for _, name := range shown {
		text := "reward    "
		if name != agl.DefaultRewardSet {
			text = "reward of set " + name + "  "
		}
		value := final.of(name)
		if value == nil {
			fmt.Fprintf(w, "no reward was recorded in the latest attempt%s\n", inSet(name))
			continue
		}
		fmt.Fprintf(w, "%s%g\n", text, *value)
	}
	return nil
}

func spanTime(s *agl.Span) string {
	if s.StartTime == nil {
		return "-"
	}
	return took(*s.StartTime, s.EndTime)
}

// spanNote is what a person wants to know of a span in one line.
func spanNote(s *agl.Span) string {
	if v, err := agl.RewardValue(s); err == nil && v != nil {
		return fmt.Sprintf("reward %g", *v)
	}
	if set, ok := agl.RewardSetOf(s); ok {
		in := agl.SpanInRewardSet(s, set)
		if v, err := agl.RewardValue(&in); err == nil && v != nil {
			return fmt.Sprintf("reward %g of set %s", *v, set)
		}
	}
	if s.Status.Description != nil {
		return *s.Status.Description
	}
	for _, key := range [...]string{"agentlightning.call.problem", "agentlightning.message.body", "gen_ai.completion.0.content"} {
		if text, ok := s.Attributes.String(key); ok && text != "" {
			return text
		}
	}
	return ""
}

// outputLines is how much is shown of what a program wrote, the last of it.
const outputLines = 50

// showOutput shows the end of what a program wrote to a stream.
func showOutput(w io.Writer, s *agl.Span) error {
	stream, _ := s.Attributes.String(semconv.ProgramStream)
	text, _ := s.Attributes.String(semconv.MessageBody)
	text = strings.Map(func(r rune) rune { // it must not move the cursor of who reads it
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return '\uFFFD'
		}
		return r
	}, text)
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	head := "\n  " + stream
	if more := len(lines) - outputLines; more > 0 {
		head += fmt.Sprintf(", the last %d lines; %d more with --json", outputLines, more)
		lines = lines[more:]
	}
	_, err := fmt.Fprintf(w, "%s\n    %s\n", head, strings.Join(lines, "\n    "))
	return err
}
