package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	agl "agentlightning"
	"agentlightning/semconv"
	"agentlightning/store"
)

// rolloutsAtATime is how many rollouts are asked for at a time.
const rolloutsAtATime = 200

// rolloutFilter chooses rollouts, by id or by what they are.
type rolloutFilter struct {
	ids []string // of the command line

	statuses, modes, match, run, worker string
	since                               time.Duration
	limit                               int
}

func (f *rolloutFilter) bind(cmd *cobra.Command, limit int) {
	fs := cmd.Flags()
	fs.StringVar(&f.statuses, "status", "", "only these statuses, separated by commas")
	fs.StringVar(&f.modes, "mode", "", "only these modes, separated by commas")
	fs.StringVar(&f.match, "id", "", "only ids that contain this text")
	fs.StringVar(&f.run, "run", "", "only rollouts that this run of an algorithm asked for")
	fs.StringVar(&f.worker, "worker", "", "only rollouts whose latest attempt this worker has")
	fs.DurationVar(&f.since, "since", 0, "only rollouts that started this long ago at the most, as in 90m")
	fs.IntVar(&f.limit, "limit", limit, "how many at the most; 0 for all")
}

// chosen reports whether anything was said about which rollouts are meant.
func (f *rolloutFilter) chosen() bool {
	return len(f.ids) > 0 || f.statuses != "" || f.modes != "" || f.match != "" || f.run != "" || f.worker != "" || f.since > 0
}

// query checks the filter and returns the part of it that the server knows.
func (f *rolloutFilter) query() (store.RolloutQuery, error) {
	q := store.RolloutQuery{Paging: store.Paging{SortBy: "start_time", Desc: true}}
	switch {
	case f.limit < 0:
		return q, usageError{fmt.Errorf("--limit %d: must not be negative; 0 is no limit", f.limit)}
	case f.since < 0:
		return q, usageError{fmt.Errorf("--since %v: must not be negative", f.since)}
	}
	for _, s := range commas(f.statuses) {
		if !agl.RolloutStatus(s).Valid() {
			return q, usageError{fmt.Errorf("--status %s: must be one of %v", s, agl.RolloutStatuses())}
		}
		q.StatusIn = append(q.StatusIn, agl.RolloutStatus(s))
	}
	known := []string{string(agl.ModeTrain), string(agl.ModeVal), string(agl.ModeTest)}
	for _, m := range commas(f.modes) {
		if !slices.Contains(known, m) {
			return q, usageError{fmt.Errorf("--mode %s: must be one of %v", m, known)}
		}
	}
	if f.match != "" {
		q.RolloutIDContains = &f.match
	}
	return q, nil
}

func commas(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// fits tells whether a rollout is meant, as far as the server does not know.
func (f *rolloutFilter) fits(r *agl.AttemptedRollout) bool {
	if f.modes != "" && !slices.Contains(commas(f.modes), string(r.Mode)) {
		return false
	}
	if f.worker != "" && (r.Attempt == nil || r.Attempt.WorkerID == nil || *r.Attempt.WorkerID != f.worker) {
		return false
	}
	return f.run == "" || metadataOf(r)[semconv.MetadataRunID] == f.run
}

func metadataOf(r *agl.AttemptedRollout) map[string]any {
	var m map[string]any
	if json.Unmarshal(r.Metadata, &m) != nil {
		return nil
	}
	return m
}

// each calls visit with the rollouts that are meant, the newest first or in the
// order of the ids, a page at a time. It returns how many more there are, as
// far as the server knows: 0 unless the limit cut the list.
func (f *rolloutFilter) each(ctx context.Context, s store.Store, visit func(*agl.AttemptedRollout) error) (more int, err error) {
	if len(f.ids) > 0 {
		return 0, f.named(ctx, s, visit)
	}
	q, err := f.query()
	if err != nil {
		return 0, err
	}
	oldest := 0.0
	if f.since > 0 {
		oldest = agl.Seconds(time.Now().Add(-f.since))
	}
	q.Limit = rolloutsAtATime
	if f.limit > 0 && f.modes == "" && f.run == "" && f.worker == "" {
		q.Limit = min(q.Limit, f.limit)
	}
	shown := 0
	var before map[string]bool // the last page: new rollouts push it down
	for {
		page, err := s.QueryRollouts(ctx, q)
		if err != nil {
			return 0, err
		}
		seen := make(map[string]bool, len(page.Items))
		for i := range page.Items {
			r := &page.Items[i]
			seen[r.RolloutID] = true
			if r.StartTime < oldest {
				return 0, nil // and so are those that follow
			}
			if before[r.RolloutID] || !f.fits(r) {
				continue
			}
			if f.limit > 0 && shown == f.limit {
				return page.Total - q.Offset - i, nil
			}
			shown++
			if err := visit(r); err != nil {
				return 0, err
			}
		}
		if q.Offset += len(page.Items); len(page.Items) == 0 || q.Offset >= page.Total {
			return 0, nil
		}
		if f.limit > 0 && shown == f.limit {
			return page.Total - q.Offset, nil
		}
		before = seen
	}
}

// named visits the rollouts of the command line.
func (f *rolloutFilter) named(ctx context.Context, s store.Store, visit func(*agl.AttemptedRollout) error) error {
	for ids := range slices.Chunk(f.ids, rolloutsAtATime) {
		page, err := s.QueryRollouts(ctx, store.RolloutQuery{RolloutIDIn: ids})
		if err != nil {
			return err
		}
		byID := make(map[string]*agl.AttemptedRollout, len(page.Items))
		for i := range page.Items {
			byID[page.Items[i].RolloutID] = &page.Items[i]
		}
		for _, id := range ids {
			r := byID[id]
			if r == nil {
				return fmt.Errorf("there is no rollout %s; 'agl rollouts ls' lists them", id)
			}
			if err := visit(r); err != nil {
				return err
			}
		}
	}
	return nil
}
