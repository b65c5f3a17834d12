package llmproxy

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"agentlightning/semconv"
)

// DurationBuckets is how many buckets [Traffic] has for the durations of calls.
const DurationBuckets = 40

// DurationBound returns the upper bound of a bucket: bounds are a factor of √2
// apart, from a millisecond on; the last one has none.
func DurationBound(bucket int) time.Duration {
	if bucket >= DurationBuckets-1 {
		return math.MaxInt64
	}
	return time.Duration(float64(time.Millisecond) * math.Pow(math.Sqrt2, float64(bucket)))
}

// bucketOf is the bucket of a duration.
func bucketOf(d time.Duration) int {
	if d <= time.Millisecond {
		return 0
	}
	return min(int(math.Ceil(2*math.Log2(float64(d)/float64(time.Millisecond))-1e-9)), DurationBuckets-1)
}

// Condition is how a backend fares.
type Condition string

// The conditions, the first that holds.
const (
	Paused      Condition = "paused"      // somebody keeps calls from it
	KeyMissing  Condition = "key_missing" // it cannot be called without the key that it was registered with
	Unreachable Condition = "unreachable" // the last try found nobody there
	Failing     Condition = "failing"     // three calls in a row failed, or more
	Unseen      Condition = "unseen"      // it was not called yet
	Fine        Condition = "fine"
)

// Traffic is what went through one backend since the proxy has known it. Counts
// only grow, and are those of calls that ended.
type Traffic struct {
	Model, Endpoint string
	Version         int64
	// Calls are those that it was sent, with each try that found nobody there;
	// Failures those of them that it failed.
	Calls, Failures int64
	// Tokens as backends tell them, of answers that the proxy reads: calls of
	// attempts, and of backends with a limit of tokens.
	PromptTokens, AnswerTokens int64
	// Durations counts calls from request to the end of the answer, waiting and
	// tries included; see [DurationBound].
	Durations [DurationBuckets]int64
	// Open are the calls that the backend serves, Waiting those that wait for one
	// of its limits.
	Open, Waiting int64
	Condition     Condition
	// Since is when the condition began, zero when it is fine or unseen; Reason
	// says why, in words.
	Since  time.Time
	Reason string
	// Avoided is true while calls go elsewhere for a moment because it could not
	// be reached.
	Avoided bool
}

// failingAfter is how many calls in a row fail before a backend counts as failing.
const failingAfter = 3

// traffic counts what goes through a backend. A call that goes well costs a few
// atomic additions.
type traffic struct {
	calls, failures atomic.Int64
	prompt, answer  atomic.Int64
	durations       [DurationBuckets]atomic.Int64
	trouble         atomic.Pointer[trouble] // nil while the last call went well

	mu sync.Mutex // held while trouble begins or grows
}

// trouble is a series of calls that failed. It is not changed.
type trouble struct {
	since       time.Time
	row         int
	unreachable bool
	reason      string
}

func (t *trouble) condition() Condition {
	switch {
	case t == nil:
		return Fine
	case t.unreachable:
		return Unreachable
	case t.row >= failingAfter:
		return Failing
	}
	return Fine
}

// observe counts a call that has ended at its backend.
func (c *call) observe(took time.Duration) {
	if c.backend == nil || !c.placed {
		return
	}
	t := &c.backend.traffic
	t.calls.Add(1)
	t.durations[bucketOf(took)].Add(1)
	if c.answer != nil && c.answer.Usage != nil {
		t.prompt.Add(c.answer.Usage.Prompt)
		t.answer.Add(c.answer.Usage.Completion)
	}
	switch c.blames() {
	case blameNobody:
	case blameBackend:
		t.failures.Add(1)
		reason, _ := c.p.privacy.clean(c.message, semconv.CallMessage, c.secrets())
		c.p.inTrouble(c.backend, reason, false)
	case answered:
		if t.trouble.Load() != nil {
			c.p.outOfTrouble(c.backend)
		}
	}
}

// blame says what a call tells of its backend.
type blame int

const (
	blameNobody  blame = iota // nothing: the caller left, or the backend was not asked
	blameBackend              // it failed
	answered                  // it is there and does its work
)

func (c *call) blames() blame {
	switch c.problem {
	case semconv.ProblemCancelled, semconv.ProblemPaused:
		return blameNobody
	case semconv.ProblemUpstreamTimeout, semconv.ProblemTruncated:
		return blameBackend
	case semconv.ProblemUpstreamError:
		switch {
		case c.sent == nil:
			return blameNobody
		case c.status == 400 || c.status == 413 || c.status == 422: // the caller's mistake
			return answered
		}
		return blameBackend
	}
	return answered
}

// notThere notes that a try found nobody at a backend, which is avoided for a
// moment.
func (c *call) notThere(b *backend, err error) {
	b.down()
	b.traffic.calls.Add(1)
	b.traffic.failures.Add(1)
	reason, _ := c.p.privacy.clean(whyUnreachable(err, c.p.cfg.UpstreamConnectTimeout), semconv.CallMessage, c.secrets())
	c.p.inTrouble(b, "it cannot be reached: "+reason, true)
}

// inTrouble notes that a call failed at a backend.
func (p *Proxy) inTrouble(b *backend, reason string, unreachable bool) {
	now := p.cfg.Now()
	t := &b.traffic
	t.mu.Lock()
	before := t.trouble.Load()
	next := &trouble{since: now, row: 1, unreachable: unreachable, reason: reason}
	if before != nil {
		next.since, next.row = before.since, before.row+1
	}
	t.trouble.Store(next)
	t.mu.Unlock()
	if is := next.condition(); is != before.condition() && is != Fine {
		p.journal.add(HealthChange{Time: now, Model: b.Name, Endpoint: b.Endpoint, To: is, Reason: reason})
	}
}

// outOfTrouble notes that a backend answers again.
func (p *Proxy) outOfTrouble(b *backend) {
	t := &b.traffic
	t.mu.Lock()
	before := t.trouble.Swap(nil)
	t.mu.Unlock()
	if before.condition() != Fine {
		p.journal.add(HealthChange{Time: p.cfg.Now(), Model: b.Name, Endpoint: b.Endpoint, To: Fine, From: before.condition(), Lasted: p.cfg.Now().Sub(before.since)})
	}
}

// Traffic tells what went through each backend that is registered, in their order.
func (p *Proxy) Traffic() []Traffic {
	t := p.models.now.Load()
	if t == nil {
		return nil
	}
	var out []Traffic
	now := time.Now()
	for _, name := range t.names {
		for _, b := range t.groups[name].backends {
			out = append(out, b.seen(now))
		}
	}
	return out
}

func (b *backend) seen(now time.Time) Traffic {
	t := &b.traffic
	out := Traffic{
		Model: b.Name, Endpoint: b.Endpoint, Version: b.Version,
		Calls: t.calls.Load(), Failures: t.failures.Load(), PromptTokens: t.prompt.Load(), AnswerTokens: t.answer.Load(),
		Waiting: b.limits.waits(), Avoided: b.rests(now),
	}
	for i := range t.durations {
		out.Durations[i] = t.durations[i].Load()
	}
	out.Open = max(b.load.Load()-out.Waiting, 0)
	trouble := t.trouble.Load()
	switch held := b.held.Load(); {
	case held != nil:
		out.Condition, out.Since, out.Reason = Paused, held.since, held.reason
	case b.lost != "":
		out.Condition, out.Reason = KeyMissing, b.lost
	case trouble.condition() != Fine:
		out.Condition, out.Since, out.Reason = trouble.condition(), trouble.since, trouble.reason
	case out.Calls == 0:
		out.Condition = Unseen
	default:
		out.Condition = Fine
	}
	return out
}

// HealthChange is one thing that happened to a backend, or to all of them.
type HealthChange struct {
	Time time.Time
	// Model and Endpoint are empty for what happened to all model calls.
	Model, Endpoint string
	// To is what the backend became. Fine after Paused is a resumption, after
	// something else that it answers again.
	To, From Condition
	// Drained is true for a backend, or all, that were paused before and now have
	// no open call; To is Paused then.
	Drained bool
	Reason  string        // why, in words; may be empty
	Lasted  time.Duration // of what ended; 0 when something began
}

// keptChanges is how many changes are remembered: as many of backends, and as
// many of all, since a training may pause all at each of its steps.
const keptChanges = 200

// journal remembers the latest changes.
type journal struct {
	mu       sync.Mutex
	ofAll    []HealthChange
	backends []HealthChange
}

func (j *journal) add(c HealthChange) {
	j.mu.Lock()
	defer j.mu.Unlock()
	list := &j.backends
	if c.Endpoint == "" {
		list = &j.ofAll
	}
	if len(*list) == keptChanges {
		*list = slices.Delete(*list, 0, 1)
	}
	*list = append(*list, c)
}

// Changes lists what happened to backends, the newest first: at most 200 changes of
// single ones and 200 of all. They are forgotten with the process.
func (p *Proxy) Changes() []HealthChange {
	j := &p.journal
	j.mu.Lock()
	out := slices.Concat(j.backends, j.ofAll)
	j.mu.Unlock()
	slices.SortStableFunc(out, func(a, b HealthChange) int { return cmp.Compare(b.Time.UnixNano(), a.Time.UnixNano()) })
	return out
}
