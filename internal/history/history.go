// Package history remembers how a server fared: what its store held, and what
// went through its model backends. It looks every five seconds and keeps the last
// quarter of an hour of that, and one sample a minute of the last 24 hours, in
// memory only: it begins anew with the process.
//
// Its memory is bounded: 28 bytes a sample and backend, 48 for the store, which is
// 45 KB a backend and 3 MB for the 64 that it follows at the most.
package history

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	agl "agentlightning"
	"agentlightning/llmproxy"
	"agentlightning/storehttp"
)

const (
	// step is the time between two looks, and steps how many are kept.
	step  = 5 * time.Second
	steps = 180
	// joined is how many looks the long memory takes together, which is a minute,
	// and minutes how many of these are kept.
	joined  = 12
	minutes = 24 * 60
	// mostBackends is how many backends are followed.
	mostBackends = 64
)

// Store is what a store holds, as a sample. Commits only grow.
type Store struct {
	Bytes, Rollouts, Spans, Queue, Commits int64
}

// Config says what is looked at.
type Config struct {
	// Store looks at the store. A look that fails leaves a gap.
	Store func(context.Context) (Store, error)
	// Backends tells what went through the model backends.
	Backends func() []llmproxy.Traffic
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Every is the time between two looks; 0 means five seconds.
	Every time.Duration
}

// History takes the samples in [History.Run] and shows them. Its methods are safe
// for concurrent use.
type History struct {
	config  Config
	started time.Time

	mu    sync.Mutex
	rings [2]*ring // of the last minutes, of the day
}

// New returns an empty history.
func New(c Config) *History {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Every <= 0 {
		c.Every = step
	}
	recent := &ring{every: c.Every, slack: c.Every / 2, most: steps}
	day := &ring{every: joined * c.Every, slack: c.Every / 2, most: minutes}
	return &History{config: c, started: c.Now(), rings: [2]*ring{recent, day}}
}

// Run looks until ctx ends.
func (h *History) Run(ctx context.Context) {
	tick := time.NewTicker(h.config.Every)
	defer tick.Stop()
	for {
		h.look(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// look takes a sample.
func (h *History) look(ctx context.Context) {
	looking, cancel := context.WithTimeout(ctx, h.config.Every)
	defer cancel()
	s := sample{at: h.config.Now(), backends: h.config.Backends()}
	var err error
	s.store, err = h.config.Store(looking)
	s.noStore = err != nil
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.rings {
		r.offer(s)
	}
}

// sample is one look. Its counts only grow.
type sample struct {
	at       time.Time
	store    Store
	noStore  bool
	backends []llmproxy.Traffic
}

func (s *sample) find(k key) *llmproxy.Traffic {
	for i := range s.backends {
		if b := &s.backends[i]; b.Model == k.model && b.Endpoint == k.endpoint {
			return b
		}
	}
	return nil
}

type key struct{ model, endpoint string }

// storeRow is what is kept of the store; NaN where nothing is known.
type storeRow struct {
	at                            float64
	bytes, rollouts, spans, queue float64
	commits                       float64 // a second
}

// backendRow is what is kept of a backend: rates a second since the row before,
// and seconds. NaN where nothing is known.
type backendRow struct {
	calls, failures, prompt, answer float32
	p50, p95                        float32
	open                            float32
}

// unknown is the row of a time at which a backend was not there.
var unknown = backendRow{nan, nan, nan, nan, nan, nan, nan}

var nan = float32(math.NaN())

// ring keeps the last rows of one step.
type ring struct {
	every    time.Duration
	slack    time.Duration // by which a look may be early
	most     int
	next     int // place of the next row
	store    []storeRow
	backends []*followed
	last     sample // that the newest row was made of
}

// followed are the rows of a backend, at the places of those of the store.
type followed struct {
	key
	rows []backendRow
	left time.Time // when it was there last
}

// offer takes a sample when it is time for the next one.
func (r *ring) offer(s sample) {
	if r.last.at.IsZero() {
		r.last = s
		return
	}
	// Ticks come a little early and late.
	if s.at.Sub(r.last.at) < r.every-r.slack {
		return
	}
	r.add(s)
	r.last = s
}

func (r *ring) add(s sample) {
	seconds := s.at.Sub(r.last.at).Seconds()
	row := storeRow{at: agl.Seconds(s.at), bytes: math.NaN(), rollouts: math.NaN(), spans: math.NaN(), queue: math.NaN(), commits: math.NaN()}
	if !s.noStore {
		row.bytes, row.rollouts, row.spans, row.queue = float64(s.store.Bytes), float64(s.store.Rollouts), float64(s.store.Spans), float64(s.store.Queue)
		if !r.last.noStore {
			row.commits = float64(s.store.Commits-r.last.store.Commits) / seconds
		}
	}
	place := r.next
	if len(r.store) < r.most {
		r.store = append(r.store, row)
	} else {
		r.store[place] = row
	}
	r.follow(s)
	for _, f := range r.backends {
		for len(f.rows) < len(r.store) {
			f.rows = append(f.rows, unknown)
		}
		f.rows[place] = unknown
		if now, before := s.find(f.key), r.last.find(f.key); now != nil {
			f.left = s.at
			if before == nil {
				before = &llmproxy.Traffic{} // it is new: all of it was since
			}
			f.rows[place] = between(before, now, float32(seconds))
		}
	}
	r.next = (place + 1) % r.most
}

// follow begins to follow backends that are new. When there are too many, those
// that are gone for longest make room.
func (r *ring) follow(s sample) {
	for i := range s.backends {
		k := key{s.backends[i].Model, s.backends[i].Endpoint}
		if slices.ContainsFunc(r.backends, func(f *followed) bool { return f.key == k }) {
			continue
		}
		if len(r.backends) == mostBackends {
			gone := -1
			for j, f := range r.backends {
				if s.find(f.key) == nil && (gone < 0 || f.left.Before(r.backends[gone].left)) {
					gone = j
				}
			}
			if gone < 0 {
				return
			}
			r.backends = slices.Delete(r.backends, gone, gone+1)
		}
		r.backends = append(r.backends, &followed{key: k})
	}
}

// between makes a row of what went through a backend between two looks.
func between(before, now *llmproxy.Traffic, seconds float32) backendRow {
	if now.Calls < before.Calls { // it was registered anew
		before = &llmproxy.Traffic{}
	}
	rate := func(b, n int64) float32 { return float32(n-b) / seconds }
	row := backendRow{
		calls: rate(before.Calls, now.Calls), failures: rate(before.Failures, now.Failures),
		prompt: rate(before.PromptTokens, now.PromptTokens), answer: rate(before.AnswerTokens, now.AnswerTokens),
		open: float32(now.Open),
	}
	var in [llmproxy.DurationBuckets]int64
	for i := range in {
		in[i] = now.Durations[i] - before.Durations[i]
	}
	row.p50, row.p95 = quantile(&in, 0.5), quantile(&in, 0.95)
	return row
}

// quantile is the duration, in seconds, within which a part of the calls ended:
// between the bounds of a bucket as if they were spread evenly.
func quantile(in *[llmproxy.DurationBuckets]int64, q float64) float32 {
	total := int64(0)
	for _, n := range in {
		total += n
	}
	if total == 0 {
		return nan
	}
	want, before, low := q*float64(total), 0.0, 0.0
	for i, n := range in {
		high := llmproxy.DurationBound(i).Seconds()
		if before += float64(n); n > 0 && before >= want {
			if i == llmproxy.DurationBuckets-1 {
				return float32(low) // longer than that, nobody knows by how much
			}
			return float32(high - (high-low)*(before-want)/float64(n))
		}
		low = high
	}
	return float32(low)
}

// Show returns the samples of the last minutes, or of the day, no more than points:
// several that follow one another are then joined, rates to their mean, latencies
// to the highest, and of what is held the last counts.
func (h *History) Show(day bool, points int) storehttp.History {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.rings[0]
	if day {
		r = h.rings[1]
	}
	n := len(r.store)
	width := max((n+points-1)/max(points, 1), 1)
	out := storehttp.History{Started: agl.Seconds(h.started), Step: r.every.Seconds() * float64(width), Times: []float64{}}
	place := func(i int) int { return (r.next - n + i + 2*r.most) % r.most } // the oldest first
	if n < r.most {
		place = func(i int) int { return i }
	}
	// Groups end with the newest sample, so that it is seen at once.
	ends := []int{}
	for end := n; end > 0; end -= width {
		ends = append(ends, end)
	}
	slices.Reverse(ends)
	out.Store = storehttp.StoreHistory{Bytes: series{}, Rollouts: series{}, Spans: series{}, Queue: series{}, Commits: series{}}
	for _, end := range ends {
		last := r.store[place(end-1)]
		out.Times = append(out.Times, last.at)
		out.Store.Bytes = append(out.Store.Bytes, known(last.bytes))
		out.Store.Rollouts = append(out.Store.Rollouts, known(last.rollouts))
		out.Store.Spans = append(out.Store.Spans, known(last.spans))
		out.Store.Queue = append(out.Store.Queue, known(last.queue))
		out.Store.Commits = append(out.Store.Commits, mean(end-width, end, func(i int) float64 { return r.store[place(i)].commits }))
	}
	out.Backends = []storehttp.BackendHistory{}
	for _, f := range r.backends {
		b := storehttp.BackendHistory{
			Model: f.model, Endpoint: f.endpoint, Calls: series{}, Failures: series{}, PromptTokens: series{}, AnswerTokens: series{}, P50: series{}, P95: series{}, Open: series{},
		}
		for _, end := range ends {
			of := func(get func(*backendRow) float32) func(int) float64 {
				return func(i int) float64 { return float64(get(&f.rows[place(i)])) }
			}
			b.Calls = append(b.Calls, mean(end-width, end, of(func(r *backendRow) float32 { return r.calls })))
			b.Failures = append(b.Failures, mean(end-width, end, of(func(r *backendRow) float32 { return r.failures })))
			b.PromptTokens = append(b.PromptTokens, mean(end-width, end, of(func(r *backendRow) float32 { return r.prompt })))
			b.AnswerTokens = append(b.AnswerTokens, mean(end-width, end, of(func(r *backendRow) float32 { return r.answer })))
			b.P50 = append(b.P50, highest(end-width, end, of(func(r *backendRow) float32 { return r.p50 })))
			b.P95 = append(b.P95, highest(end-width, end, of(func(r *backendRow) float32 { return r.p95 })))
			b.Open = append(b.Open, mean(end-width, end, of(func(r *backendRow) float32 { return r.open })))
		}
		out.Backends = append(out.Backends, b)
	}
	return out
}

// series are the values at the times of a history; nil where nothing is known.
type series = []*float64

func known(v float64) *float64 {
	if math.IsNaN(v) {
		return nil
	}
	// Four digits are more than a curve shows; the whole is a third as long.
	if v != 0 && math.Abs(v) < 1e6 && v != math.Trunc(v) {
		unit := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(v))))
		v = math.Round(v*unit) / unit
	}
	return &v
}

func mean(from, to int, at func(int) float64) *float64 {
	sum, n := 0.0, 0
	for i := max(from, 0); i < to; i++ {
		if v := at(i); !math.IsNaN(v) {
			sum += v
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return known(sum / float64(n))
}

func highest(from, to int, at func(int) float64) *float64 {
	top := math.NaN()
	for i := max(from, 0); i < to; i++ {
		if v := at(i); !math.IsNaN(v) && (math.IsNaN(top) || v > top) {
			top = v
		}
	}
	return known(top)
}
