package engine

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
	"agentlightning/semconv"
	"agentlightning/store"
)

var _ store.Browser = (*Store)(nil)

const (
	defaultBrowsePage = 100
	maxBrowsePage     = 1000
)

// CountRollouts implements [store.Browser].
func (s *Store) CountRollouts(ctx context.Context) (map[agl.RolloutStatus]int64, error) {
	if err := s.checkHealth(ctx); err != nil {
		return nil, err
	}
	var out map[agl.RolloutStatus]int64
	err := s.view(ctx, func(r Reader) (err error) {
		out, err = r.CountRollouts()
		return err
	})
	return out, err
}

// BrowseRollouts implements [store.Browser].
func (s *Store) BrowseRollouts(ctx context.Context, q store.BrowseQuery) (store.BrowsePage, error) {
	if err := checkBrowse(&q); err != nil {
		return store.BrowsePage{}, err
	}
	if err := s.checkHealth(ctx); err != nil {
		return store.BrowsePage{}, err
	}
	var page store.BrowsePage
	err := s.view(ctx, func(r Reader) (err error) {
		b := browsing{ctx: ctx, r: r, q: q}
		if page, err = b.run(); err != nil {
			return err
		}
		return b.digestAll(page.Items)
	})
	if page.Items == nil {
		page.Items = []store.Browsed{}
	}
	return page, err
}

func checkBrowse(q *store.BrowseQuery) error {
	q.SortBy = cmp.Or(q.SortBy, "start_time")
	switch {
	case !slices.Contains(store.BrowseSorts(), q.SortBy):
		return invalid("Invalid sort_by: %s, allowed fields are: %s", q.SortBy, strings.Join(store.BrowseSorts(), ", "))
	case q.Offset < 0:
		return invalid("Offset must be greater than or equal to 0")
	case q.Limit > maxBrowsePage:
		return invalid("Limit must be at most %d; ask for the next page with offset", maxBrowsePage)
	case q.Any:
		return invalid("filter_logic: conditions are always joined by \"and\" here")
	case q.RewardMin != nil && q.RewardMax != nil && *q.RewardMin > *q.RewardMax:
		return invalid("reward_min %v is above reward_max %v", *q.RewardMin, *q.RewardMax)
	case q.From != nil && q.To != nil && *q.From > *q.To:
		return invalid("from %v is after to %v", *q.From, *q.To)
	}
	if q.Limit <= 0 {
		q.Limit = defaultBrowsePage
	}
	for _, text := range []*string{&q.IDContains, &q.Text, &q.Tag, &q.Model} {
		*text = strings.ToLower(*text)
	}
	return nil
}

// browsing is one call of BrowseRollouts.
type browsing struct {
	ctx context.Context //nolint:containedctx // it lives as long as the call
	r   Reader
	q   store.BrowseQuery
	// read is how many bytes of spans were looked at.
	read int

	task string // key of the task that is asked for; empty means any
}

func (b *browsing) run() (store.BrowsePage, error) {
	if b.unconditional() {
		return b.plain()
	}
	if err := b.narrow(); err != nil {
		return store.BrowsePage{}, err
	}
	if b.q.SameTask != "" {
		r, ok, err := b.r.Rollout(b.q.SameTask)
		if err != nil || !ok {
			return store.BrowsePage{Complete: true}, err
		}
		b.task = taskKey(r.Input)
	}
	if err := b.narrowToStep(); err != nil {
		return store.BrowsePage{}, err
	}
	return b.walk()
}

// unconditional reports whether the question is one that an index answers.
func (b *browsing) unconditional() bool {
	q := &b.q
	return (q.SortBy == "start_time" || q.SortBy == "rollout_id") && !q.InSpans() &&
		q.StatusIn == nil && q.ModeIn == nil && q.AttemptStatusIn == nil && q.Step == nil && q.From == nil && q.To == nil &&
		cmp.Or(q.IDContains, q.Text, q.Tag, q.RunID, q.Group, q.ResourcesID, q.WorkerID, q.SameTask) == ""
}

func (b *browsing) plain() (store.BrowsePage, error) {
	found, err := b.r.QueryRollouts(store.RolloutQuery{Paging: b.q.Paging})
	page := store.BrowsePage{Total: found.Total, Examined: found.Total, Complete: true}
	for _, r := range found.Items {
		page.Items = append(page.Items, store.Browsed{AttemptedRollout: r})
	}
	return page, err
}

// narrow bounds the start by what is known of the run: its rollouts were made
// while it ran, also when it was resumed.
func (b *browsing) narrow() error {
	if b.q.RunID == "" {
		return nil
	}
	run, ok, err := b.r.Run(b.q.RunID)
	if err != nil || !ok {
		return err
	}
	if b.q.From == nil || *b.q.From < run.StartTime {
		b.q.From = new(run.StartTime)
	}
	if run.EndTime != nil && (b.q.To == nil || *b.q.To > *run.EndTime) {
		b.q.To = new(*run.EndTime)
	}
	return nil
}

// stepsAhead is how many steps before its own a rollout may have been made.
const stepsAhead = 2

// narrowToStep bounds the start by when the steps of the run ended. That would
// hide what was made at other times than its metadata say, so it is for
// questions that would have too much to look at otherwise.
func (b *browsing) narrowToStep() error {
	if b.q.RunID == "" || b.q.Step == nil {
		return nil
	}
	w := b.way()
	switch n, err := b.r.WalkLength(w); {
	case err != nil:
		return err
	case n < w.Most:
		return nil
	}
	before := int(*b.q.Step) - stepsAhead - 1
	metrics, err := b.r.StepMetrics(b.q.RunID, before-1)
	if err != nil {
		return err
	}
	for _, m := range metrics {
		switch {
		case m.Step == before && *b.q.From < m.Time:
			b.q.From = new(m.Time)
		case m.Step == int(*b.q.Step) && (b.q.To == nil || *b.q.To > m.Time):
			b.q.To = new(m.Time)
		}
	}
	return nil
}

// candidate is a rollout that matches, with what it is sorted by.
type candidate struct {
	id      string
	key     sortKey
	missing bool // there is nothing to sort it by, so it comes last
}

// way says which rollouts are looked at: one more than may be, to know whether
// there are more.
func (b *browsing) way() Walk {
	sorted := b.q.SortBy != "start_time"
	return Walk{From: b.q.From, To: b.q.To, IDContains: b.q.IDContains, StatusIn: b.q.StatusIn, Desc: b.q.Desc || sorted, Most: store.BrowseLimit + 1}
}

func (b *browsing) walk() (store.BrowsePage, error) {
	var (
		page     = store.BrowsePage{Complete: true}
		found    []candidate
		spans    = b.q.InSpans()
		sorted   = b.q.SortBy != "start_time"
		digested int
	)
	// enough tells whether no further rollout may be looked at.
	enough := func() bool {
		if page.Examined < store.BrowseLimit && digested < store.BrowseSpansLimit && b.read <= store.BrowseSpansBytes && b.ctx.Err() == nil {
			return false
		}
		page.Complete = false
		return true
	}
	w := b.way()
	if !spans { // otherwise digests count, which come later
		w.Keep = func(r *agl.Rollout) (keep, more bool) {
			if enough() {
				return false, false
			}
			page.Examined++
			return b.fits(r), true
		}
	}
	err := b.r.WalkRollouts(w, func(r *agl.AttemptedRollout, read SpansOf) (bool, error) {
		if spans {
			if enough() {
				return false, nil
			}
			page.Examined++
			if !b.fits(&r.Rollout) {
				return true, nil
			}
		}
		if !b.attemptFits(r.Attempt) {
			return true, nil
		}
		item := store.Browsed{AttemptedRollout: *r}
		if spans && r.Attempt != nil {
			digested++
			if err := b.digest(&item, read); err != nil {
				return false, err
			}
		}
		if !b.digestFits(&item.Digest) {
			return true, nil
		}
		c := candidate{id: r.RolloutID}
		if sorted {
			c.key, c.missing = browseKey(b.q.SortBy, &item)
		}
		found = append(found, c)
		return true, nil
	})
	if err == nil {
		err = b.ctx.Err()
	}
	if err != nil {
		return page, err
	}
	if sorted {
		slices.SortStableFunc(found, func(a, c candidate) int {
			switch {
			case a.missing != c.missing:
				return cmp.Compare(btoi(a.missing), btoi(c.missing))
			case b.q.Desc:
				return c.key.compare(a.key)
			}
			return a.key.compare(c.key)
		})
	}
	page.Total = len(found)
	from := min(b.q.Offset, len(found))
	for _, c := range found[from:min(from+b.q.Limit, len(found))] {
		r, ok, err := b.r.Rollout(c.id)
		if err != nil {
			return page, err
		}
		if ok {
			page.Items = append(page.Items, store.Browsed{AttemptedRollout: r})
		}
	}
	return page, nil
}

func btoi(v bool) int {
	if v {
		return 1
	}
	return 0
}

// fits tells whether a rollout matches, as far as neither its attempt nor its
// spans matter.
func (b *browsing) fits(r *agl.Rollout) bool {
	q := &b.q
	switch {
	case q.StatusIn != nil && !slices.Contains(q.StatusIn, r.Status),
		q.ModeIn != nil && !slices.Contains(q.ModeIn, r.Mode),
		!containsFold([]byte(r.RolloutID), q.IDContains),
		q.From != nil && r.StartTime < *q.From,
		q.To != nil && r.StartTime > *q.To,
		q.ResourcesID != "" && (r.ResourcesID == nil || *r.ResourcesID != q.ResourcesID),
		!containsFold(r.Input, q.Text),
		!containsFold(r.Metadata, q.Tag),
		b.task != "" && taskKey(r.Input) != b.task:
		return false
	}
	return (q.RunID == "" || metadataText(r, semconv.MetadataRunID) == q.RunID) &&
		(q.Group == "" || metadataText(r, semconv.MetadataGroup) == q.Group) &&
		(q.Step == nil || metadataText(r, semconv.MetadataStep) == strconv.FormatInt(*q.Step, 10))
}

// attemptFits tells whether the latest attempt matches; nil is that of a rollout
// without one.
func (b *browsing) attemptFits(a *agl.Attempt) bool {
	q := &b.q
	return (q.WorkerID == "" || a != nil && a.WorkerID != nil && *a.WorkerID == q.WorkerID) &&
		(q.AttemptStatusIn == nil || a != nil && slices.Contains(q.AttemptStatusIn, a.Status))
}

// containsFold tells whether a text has a part that is in lower case.
func containsFold(text []byte, part string) bool {
	return part == "" || bytes.Contains(bytes.ToLower(text), []byte(part))
}

// metadataText is a member of the metadata: a string, or another value as JSON.
func metadataText(r *agl.Rollout, key string) string {
	raw := r.MetadataValue(key)
	if jsonx.KindOf(jsonx.Raw(raw)) == jsonx.String {
		if s, err := jsonx.Text(jsonx.Raw(raw)); err == nil {
			return s
		}
	}
	return string(raw)
}

func (b *browsing) digestFits(d *store.Digest) bool {
	q := &b.q
	switch {
	case q.Rewarded != nil && *q.Rewarded != (d.Reward != nil),
		q.RewardMin != nil && (d.Reward == nil || *d.Reward < *q.RewardMin),
		q.RewardMax != nil && (d.Reward == nil || *d.Reward > *q.RewardMax),
		!containsFold([]byte(d.Model), q.Model),
		q.Problem == "any" && d.Problem == "",
		q.Problem != "" && q.Problem != "any" && d.Problem != q.Problem:
		return false
	}
	return true
}

// browseKey returns what a rollout is sorted by, and whether it lacks that.
func browseKey(by string, r *store.Browsed) (sortKey, bool) {
	switch by {
	case "rollout_id":
		return text(r.RolloutID), false
	case "status":
		return text(r.Status), false
	case "mode":
		return text(r.Mode), r.Mode == ""
	case "input":
		return text(string(r.Input)), false
	case "resources_id":
		return optionalText(r.ResourcesID), r.ResourcesID == nil
	case "run_id":
		s := metadataText(&r.Rollout, semconv.MetadataRunID)
		return text(s), s == ""
	case "step", "group":
		s := metadataText(&r.Rollout, "agl."+by)
		n, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return text(s), s == ""
		}
		return number(n), false
	case "duration":
		if r.EndTime == nil {
			return sortKey{}, true
		}
		return number(*r.EndTime - r.StartTime), false
	case "reward":
		if r.Reward == nil {
			return sortKey{}, true
		}
		return number(*r.Reward), false
	case "model":
		return text(r.Model), r.Model == ""
	case "problem":
		return text(r.Problem), r.Problem == ""
	case "calls":
		return whole(r.Calls), r.Large
	case "tokens":
		return whole(r.Tokens), r.Large
	}
	a := r.Attempt
	if a == nil {
		return sortKey{}, true
	}
	switch by {
	case "attempt":
		return whole(a.SequenceID), false
	case "attempt_status":
		return text(a.Status), false
	case "worker_id":
		return optionalText(a.WorkerID), a.WorkerID == nil
	default: // last_heartbeat_time
		return moment(a.LastHeartbeatTime), a.LastHeartbeatTime == nil
	}
}

func (b *browsing) digestAll(items []store.Browsed) error {
	for i := range items {
		if err := b.digestLatest(&items[i]); err != nil {
			return err
		}
	}
	return nil
}

// digestLatest is digest for a rollout that no walk has met.
func (b *browsing) digestLatest(r *store.Browsed) error {
	if r.Attempt == nil {
		return nil
	}
	return b.digest(r, func(limit int) ([]store.SpanJSON, int, error) {
		return b.r.AttemptSpans(store.Attempted{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID}, limit)
	})
}

// digest sums up the latest attempt of a rollout. Spans that the backend has
// dropped leave the rollout without a digest.
func (b *browsing) digest(r *store.Browsed, read SpansOf) error {
	spans, total, err := read(store.DigestSpans)
	if err != nil {
		return err
	}
	for _, s := range spans {
		b.read += len(s)
	}
	r.Digest = digestOf(spans)
	r.Spans, r.Large = total, total > store.DigestSpans
	return nil
}

var (
	rewardMark   = []byte(`"` + semconv.Reward)
	agentOpsMark = []byte(`"agentops.`)
)

// digestOf sums spans up. It steps over what is large in them, such as the token
// ids of calls, and takes apart only those with a reward.
func digestOf(spans []store.SpanJSON) store.Digest {
	var d store.Digest
	for _, span := range spans {
		name, attributes := nameAndAttributes(span)
		var c calling
		rewarded := name == semconv.SpanAnnotation
		if eachMember(attributes, func(key []byte, value jsonx.Raw) {
			c.take(key, value)
			rewarded = rewarded || bytes.HasPrefix(key, rewardMark[1:]) || bytes.HasPrefix(key, agentOpsMark[1:])
		}) != nil {
			continue
		}
		if name == semconv.SpanModelCall {
			d.Calls++
			d.Model = cmp.Or(c.asked, c.model, d.Model)
			d.Problem = cmp.Or(c.problem, d.Problem)
			d.Tokens += cmp.Or(c.answer, c.completion)
		}
		if rewarded {
			addReward(&d, name, attributes)
		}
		if name == semconv.SpanTrained {
			addGap(&d, attributes)
		}
	}
	return d
}

// addGap takes what a step kept of the tokens of the attempt, but for the lists
// of them.
func addGap(d *store.Digest, attributes jsonx.Raw) {
	var g store.TokenGap
	whole := func(v jsonx.Raw) int64 {
		n, _ := strconv.ParseInt(string(v), 10, 64)
		return n
	}
	jsonx.Walk(attributes, func(name []byte, value jsonx.Raw) bool {
		switch string(name) {
		case semconv.TrainedRun:
			g.RunID, _ = jsonx.Text(value)
		case semconv.TrainedStep:
			g.Step = whole(value)
		case semconv.TrainedTokens:
			g.Tokens = whole(value)
		case semconv.TrainedGap:
			g.Sum, _ = strconv.ParseFloat(string(value), 64)
		case semconv.TrainedLargest:
			g.Largest, _ = strconv.ParseFloat(string(value), 64)
		case semconv.TrainedCall:
			g.SpanID, _ = jsonx.Text(value)
		case semconv.TrainedPosition:
			g.Position = whole(value)
		}
		return true
	})
	d.Gap = &g
}

// nameAndAttributes returns two members of a span; no attributes when it cannot
// be read.
func nameAndAttributes(span store.SpanJSON) (name string, attributes jsonx.Raw) {
	_ = eachMember(jsonx.Raw(span), func(key []byte, value jsonx.Raw) {
		switch string(key) {
		case "name":
			name, _ = jsonx.Text(value)
		case "attributes":
			attributes = value
		}
	})
	return name, attributes
}

// addReward takes the reward of a span, when it has one that adds up.
func addReward(d *store.Digest, name string, attributes jsonx.Raw) {
	s := agl.Span{Name: name}
	if s.Attributes.UnmarshalJSON(attributes) != nil {
		return
	}
	v, err := agl.RewardValue(&s)
	if err != nil || v == nil {
		return
	}
	d.Reward = v
	d.Rewards, _ = agl.Rewards(&s)
}

// calling is what a model call says of itself.
type calling struct {
	asked, model, problem string
	answer, completion    int64
}

func (c *calling) take(key []byte, value jsonx.Raw) {
	switch string(key) {
	case "gen_ai.response.model":
		c.model, _ = jsonx.Text(value)
	case "gen_ai.request.model":
		c.asked, _ = jsonx.Text(value)
	case semconv.CallProblem:
		c.problem, _ = jsonx.Text(value)
	case semconv.GenAIOutputTokens:
		c.answer, _ = strconv.ParseInt(string(value), 10, 64)
	case "gen_ai.usage.completion_tokens":
		c.completion, _ = strconv.ParseInt(string(value), 10, 64)
	}
}
