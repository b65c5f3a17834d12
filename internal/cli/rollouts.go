package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/storehttp"
)

// clientOptions say which server a command talks to.
type clientOptions struct{ server, token string }

func (o *clientOptions) bind(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVar(&o.server, "server", "", "address of the server (AGL_SERVER; default http://127.0.0.1:4747)")
	cmd.PersistentFlags().StringVar(&o.token, "token", "", "the server's token (AGL_AUTH_TOKEN)")
}

func (o *clientOptions) open() (store.Store, error) {
	server, token := o.server, o.token
	if server == "" {
		server = os.Getenv("AGL_SERVER")
	}
	if server == "" {
		server = "http://127.0.0.1:4747"
	}
	if token == "" {
		token = os.Getenv("AGL_AUTH_TOKEN")
	}
	client, err := storehttp.NewClient(server, storehttp.WithToken(token), storehttp.WithRetryWindow(0))
	if err != nil {
		return nil, usageError{fmt.Errorf("--server %s: %w", server, err)}
	}
	return client, nil
}

func newRollouts() *cobra.Command {
	var o clientOptions
	cmd := &cobra.Command{
		Use:   "rollouts",
		Short: "Look at rollouts: the tasks that agents were given",
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	o.bind(cmd)
	cmd.AddCommand(newRolloutsList(&o), newRolloutsShow(&o))
	return cmd
}

func newRolloutsList(o *clientOptions) *cobra.Command {
	var (
		status, match string
		limit         int
		asJSON        bool
	)
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   "List rollouts, the newest first",
		Example: "  agl rollouts ls --status failed --limit 50\n  agl rollouts ls --json | jq .status",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			q := store.RolloutQuery{Paging: store.Paging{SortBy: "start_time", Desc: true, Limit: limit}}
			if limit < 1 {
				return usageError{fmt.Errorf("--limit %d: must be at least 1", limit)}
			}
			for _, s := range strings.FieldsFunc(status, func(r rune) bool { return r == ',' }) {
				if !agl.RolloutStatus(s).Valid() {
					return usageError{fmt.Errorf("--status %s: must be one of %v", s, agl.RolloutStatuses())}
				}
				q.StatusIn = append(q.StatusIn, agl.RolloutStatus(s))
			}
			if match != "" {
				q.RolloutIDContains = &match
			}
			st, err := o.open()
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, st.Close()) }()
			page, err := st.QueryRollouts(cmd.Context(), q)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSONLines(cmd.OutOrStdout(), page.Items)
			}
			return printRollouts(cmd.OutOrStdout(), page)
		},
	}
	cmd.Flags().StringVar(&status, "status", "", "only these statuses, separated by commas")
	cmd.Flags().StringVar(&match, "id", "", "only ids that contain this text")
	cmd.Flags().IntVar(&limit, "limit", 20, "how many to show at the most")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	return cmd
}

func printJSONLines(w io.Writer, items []agl.AttemptedRollout) error {
	for i := range items {
		if _, err := w.Write(append(items[i].AppendJSON(nil), '\n')); err != nil {
			return err
		}
	}
	return nil
}

func printRollouts(w io.Writer, page store.Page[agl.AttemptedRollout]) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "ROLLOUT\tSTATUS\tMODE\tATTEMPT\tWORKER\tSTARTED\tTOOK\tTASK")
	for i := range page.Items {
		r := &page.Items[i]
		attempt, worker := "-", "-"
		if r.Attempt != nil {
			attempt = fmt.Sprintf("%d %s", r.Attempt.SequenceID, r.Attempt.Status)
			if r.Attempt.WorkerID != nil {
				worker = *r.Attempt.WorkerID
			}
		}
		mode := string(r.Mode)
		if mode == "" {
			mode = "-"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.RolloutID, r.Status, mode, attempt, worker,
			agl.Time(r.StartTime).Format(time.DateTime), took(r.StartTime, r.EndTime), short(string(r.Input), 60))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if page.Total > len(page.Items) {
		_, err := fmt.Fprintf(w, "%d of %d; see more with --limit\n", len(page.Items), page.Total)
		return err
	}
	return nil
}

func newRolloutsShow(o *clientOptions) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "show ROLLOUT",
		Short:   "Show one rollout: its attempts and what was recorded",
		Example: "  agl rollouts show ro-0123456789ab",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("give one rollout id, as in '%s ro-0123456789ab'", cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			st, err := o.open()
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, st.Close()) }()
			ctx := cmd.Context()
			rollout, err := st.Rollout(ctx, args[0])
			if err != nil {
				return err
			}
			attempts, err := st.QueryAttempts(ctx, store.AttemptQuery{RolloutID: args[0], Paging: store.Paging{SortBy: "sequence_id"}})
			if err != nil {
				return err
			}
			spans, err := st.QuerySpans(ctx, store.SpanQuery{RolloutID: args[0], Paging: store.Paging{SortBy: "sequence_id"}})
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{
					"rollout": rollout.Rollout, "attempts": attempts.Items, "spans": spans.Items,
				})
			}
			return printRollout(cmd.OutOrStdout(), rollout.Rollout, attempts.Items, spans.Items)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object with everything")
	return cmd
}

func printRollout(w io.Writer, r agl.Rollout, attempts []agl.Attempt, spans []agl.Span) error {
	fmt.Fprintf(w, "%s  %s  %s\n", r.RolloutID, r.Status, took(r.StartTime, r.EndTime))
	fmt.Fprintf(w, "task      %s\n", short(string(r.Input), 400))
	if len(r.Metadata) > 0 {
		fmt.Fprintf(w, "metadata  %s\n", short(string(r.Metadata), 400))
	}
	for _, a := range attempts {
		fmt.Fprintf(w, "\nattempt %d  %s  %s  %s\n", a.SequenceID, a.AttemptID, a.Status, took(a.StartTime, a.EndTime))
		if len(a.Metadata) > 0 {
			fmt.Fprintf(w, "  %s\n", short(string(a.Metadata), 400))
		}
		tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		for i := range spans {
			if s := &spans[i]; s.AttemptID == a.AttemptID {
				fmt.Fprintf(tw, "  %d\t%s\t%s\t%s\t%s\n", s.SequenceID, s.Name, s.Status.StatusCode, spanTime(s), spanNote(s))
			}
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	reward, err := agl.FinalReward(spans)
	if err != nil {
		return err
	}
	if reward == nil {
		_, err = fmt.Fprintln(w, "\nno reward was recorded")
		return err
	}
	_, err = fmt.Fprintf(w, "\nreward    %g\n", *reward)
	return err
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
	if s.Status.Description != nil {
		return short(*s.Status.Description, 80)
	}
	for _, key := range [...]string{"agentlightning.call.problem", "agentlightning.message.body", "gen_ai.completion.0.content"} {
		if text, ok := s.Attributes.String(key); ok && text != "" {
			return short(text, 80)
		}
	}
	return ""
}

func took(start float64, end *float64) string {
	if end == nil {
		return "-"
	}
	return time.Duration((*end - start) * float64(time.Second)).Round(100 * time.Microsecond).String()
}

// short cuts a text to n characters and keeps it on one line.
func short(text string, n int) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return text
}
