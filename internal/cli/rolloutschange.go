package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/storehttp"
)

// changed is what a change does to a rollout in a status.
type changed struct {
	to      agl.RolloutStatus // empty leaves it as it is
	why     string            // it is left as it is
	refused bool              // and that is not what was asked for
}

func newRolloutsRetry(o *clientOptions) *cobra.Command {
	var force bool
	cmd := newRolloutsChange(o, func(s agl.RolloutStatus) changed {
		switch {
		case s.Queueing():
			return changed{why: "waits for a runner already"}
		case !s.Terminal():
			return changed{why: "is not finished; cancel it first", refused: true}
		case s == agl.RolloutSucceeded && !force:
			return changed{why: "succeeded; --force runs it again all the same", refused: true}
		}
		return changed{to: agl.RolloutRequeuing}
	})
	cmd.Use = "retry [ROLLOUT…]"
	cmd.Short = "Queue finished rollouts for another attempt"
	cmd.Example = "  agl rollouts retry ro-0123456789ab\n  agl rollouts retry --status failed --since 2h"
	cmd.Flags().BoolVar(&force, "force", false, "also those that succeeded")
	return cmd
}

func newRolloutsCancel(o *clientOptions) *cobra.Command {
	cmd := newRolloutsChange(o, func(s agl.RolloutStatus) changed {
		switch {
		case s == agl.RolloutCancelled:
			return changed{why: "is cancelled already"}
		case s.Terminal():
			return changed{why: "is finished", refused: true}
		}
		return changed{to: agl.RolloutCancelled}
	})
	cmd.Use = "cancel [ROLLOUT…]"
	cmd.Short = "Cancel rollouts that are not finished"
	cmd.Example = "  agl rollouts cancel ro-0123456789ab\n  agl rollouts cancel --status queuing,requeuing --run run-0123456789ab"
	return cmd
}

// newRolloutsChange returns a command that puts rollouts into another status.
func newRolloutsChange(o *clientOptions, rule func(agl.RolloutStatus) changed) *cobra.Command {
	var (
		filter rolloutFilter
		dry    bool
	)
	cmd := &cobra.Command{
		RunE: func(cmd *cobra.Command, args []string) error {
			filter.ids = args
			if !filter.chosen() {
				return usageError{fmt.Errorf("give rollout ids, or choose rollouts by --status, --mode, --run, --worker, --id or --since; see '%s --help'", cmd.CommandPath())}
			}
			if len(args) == 0 {
				if _, err := filter.query(); err != nil {
					return err
				}
			}
			return o.with(func(client *storehttp.Client) error { return changeRollouts(cmd, client, &filter, rule, dry) })
		},
		Args: cobra.ArbitraryArgs,
	}
	filter.bind(cmd, 0)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only say what would be done")
	return cmd
}

// changeRollouts puts the rollouts that are meant into another status. They are
// chosen before the first is changed, since a change moves them between the
// pages of the list.
func changeRollouts(cmd *cobra.Command, client *storehttp.Client, filter *rolloutFilter, rule func(agl.RolloutStatus) changed, dry bool) error {
	type chosen struct {
		id   string
		from agl.RolloutStatus
	}
	var all []chosen
	if _, err := filter.each(cmd.Context(), client, func(r *agl.AttemptedRollout) error {
		all = append(all, chosen{r.RolloutID, r.Status})
		return nil
	}); err != nil {
		return err
	}
	done, refused := 0, 0
	for _, r := range all {
		c := rule(r.from)
		switch {
		case c.to == "":
			fmt.Fprintf(cmd.OutOrStdout(), "%s\t%s\t%s\n", r.id, r.from, c.why)
			if c.refused && len(filter.ids) > 0 { // what a filter finds may be a mixture
				refused++
			}
			continue
		case dry:
			fmt.Fprintf(cmd.OutOrStdout(), "%s\t%s\twould be %s\n", r.id, r.from, c.to)
		default:
			if err := setStatus(cmd.Context(), client, r.id, c.to); err != nil {
				return errors.Join(fmt.Errorf("%s: %w", r.id, err), stoppedAfter(done, len(all)))
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s\t%s\tis now %s\n", r.id, r.from, c.to)
		}
		done++
	}
	if refused > 0 {
		return fmt.Errorf("%s left as it was; the lines above say why", counted(refused, "rollout"))
	}
	if len(all) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "no rollout fits")
	}
	return nil
}

func setStatus(ctx context.Context, s store.Store, id string, to agl.RolloutStatus) error {
	_, err := s.UpdateRollout(ctx, id, store.RolloutUpdate{Status: store.To(to)})
	return err
}

func stoppedAfter(done, of int) error {
	if done == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d were changed before that", done, of)
}
