package storehttp

import (
	"net/http"
	"strings"
)

// Prefix is where the store protocol lives.
const Prefix = "/v1/agl"

// route serves one method of one path below [Prefix].
type route struct {
	method  string
	pattern string // segments in braces are parameters, of one segment each
	serve   func(*handler, *call) answer

	segments []string
}

// routes is the whole interface. Of several patterns that fit a path the first
// one counts, so words stand before parameters, and what a wrong method is told
// to be allowed follows the order too.
func routes() []route {
	const get, post, put, del = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete
	table := []route{
		{method: get, pattern: "health", serve: (*handler).health},
		{method: get, pattern: "statistics", serve: (*handler).statistics},

		{method: get, pattern: "capabilities", serve: (*handler).capabilities},
		{method: get, pattern: "overview", serve: (*handler).overview},
		{method: get, pattern: "events", serve: (*handler).events},
		{method: get, pattern: "browse/rollouts", serve: (*handler).browseRollouts},
		{method: get, pattern: "browse/spans", serve: (*handler).outlineSpans},
		{method: get, pattern: "browse/spans/whole", serve: (*handler).spansByID},
		{method: del, pattern: "browse/rollouts/{rollout_id}", serve: (*handler).deleteRollout},

		{method: get, pattern: "checks", serve: (*handler).checks},
		{method: get, pattern: "rescores", serve: (*handler).listRescores},
		{method: post, pattern: "rescores", serve: (*handler).startRescore},
		{method: del, pattern: "rescores/{rescore_id}", serve: (*handler).stopRescore},

		{method: get, pattern: "history", serve: (*handler).history},
		{method: get, pattern: "backends", serve: (*handler).backends},
		{method: post, pattern: "backends/pause", serve: (*handler).pauseBackend},
		{method: post, pattern: "backends/resume", serve: (*handler).resumeBackend},
		{method: get, pattern: "prunings/preview", serve: (*handler).previewPrune},
		{method: get, pattern: "prunings", serve: (*handler).listPrunes},
		{method: post, pattern: "prunings", serve: (*handler).startPrune},
		{method: del, pattern: "prunings/{prune_id}", serve: (*handler).stopPrune},

		{method: post, pattern: "queues/rollouts/enqueue", serve: (*handler).enqueue},
		{method: post, pattern: "queues/rollouts/dequeue", serve: (*handler).dequeue},
		{method: post, pattern: "queues/rollouts/release", serve: (*handler).release},

		{method: post, pattern: "rollouts", serve: (*handler).startRollout},
		{method: get, pattern: "rollouts", serve: (*handler).listRollouts},
		{method: post, pattern: "rollouts/search", serve: (*handler).searchRollouts},
		{method: post, pattern: "rollouts/explain", serve: (*handler).explainRollouts},
		{method: get, pattern: "rollouts/{rollout_id}/explain", serve: (*handler).explainRollout},
		{method: get, pattern: "rollouts/{rollout_id}", serve: (*handler).rollout},
		{method: post, pattern: "rollouts/{rollout_id}", serve: (*handler).updateRollout},
		{method: post, pattern: "waits/rollouts", serve: (*handler).waitForRollouts},
		{method: post, pattern: "waits/count", serve: (*handler).waitForCount},

		{method: post, pattern: "rollouts/{rollout_id}/attempts", serve: (*handler).startAttempt},
		{method: get, pattern: "rollouts/{rollout_id}/attempts", serve: (*handler).listAttempts},
		{method: post, pattern: "rollouts/{rollout_id}/attempts/search", serve: (*handler).searchAttempts},
		{method: post, pattern: "rollouts/{rollout_id}/attempts/{attempt_id}", serve: (*handler).updateAttempt},
		{method: get, pattern: "rollouts/{rollout_id}/attempts/latest", serve: (*handler).latestAttempt},

		{method: post, pattern: "rollouts/{rollout_id}/attempts/{attempt_id}/token", serve: (*handler).attemptToken},

		{method: post, pattern: "spans", serve: (*handler).addSpan},
		{method: get, pattern: "spans", serve: (*handler).listSpans},
		{method: post, pattern: "spans/search", serve: (*handler).searchSpans},
		{method: post, pattern: "spans/next", serve: (*handler).nextSequenceID},
		{method: post, pattern: "spans/batch", serve: (*handler).addSpans},
		{method: post, pattern: "spans/next/batch", serve: (*handler).nextSequenceIDs},

		{method: post, pattern: "tokens/reader", serve: (*handler).readerToken},

		{method: get, pattern: "resources", serve: (*handler).listResources},
		{method: post, pattern: "resources", serve: (*handler).addResources},
		{method: get, pattern: "resources/latest", serve: (*handler).latestResources},
		{method: post, pattern: "resources/{resources_id}", serve: (*handler).updateResources},
		{method: get, pattern: "resources/{resources_id}", serve: (*handler).resources},

		{method: get, pattern: "workers", serve: (*handler).listWorkers},
		{method: post, pattern: "workers/search", serve: (*handler).searchWorkers},
		{method: get, pattern: "workers/{worker_id}", serve: (*handler).worker},
		{method: post, pattern: "workers/{worker_id}", serve: (*handler).updateWorker},

		{method: get, pattern: "runs", serve: (*handler).listRuns},
		{method: post, pattern: "runs", serve: (*handler).createRun},
		{method: get, pattern: "runs/{run_id}", serve: (*handler).run},
		{method: post, pattern: "runs/{run_id}", serve: (*handler).updateRun},
		{method: get, pattern: "runs/{run_id}/samples", serve: (*handler).samples},
		{method: get, pattern: "runs/{run_id}/metrics", serve: (*handler).stepMetrics},
		{method: post, pattern: "runs/{run_id}/metrics", serve: (*handler).addStepMetrics},
		{method: post, pattern: "runs/{run_id}/checkpoints", serve: (*handler).putCheckpoint},
		{method: get, pattern: "runs/{run_id}/checkpoints", serve: (*handler).checkpoints},
		{method: get, pattern: "runs/{run_id}/checkpoints/latest", serve: (*handler).latestCheckpoint},
		{method: get, pattern: "runs/{run_id}/log", serve: (*handler).runLog},
		{method: post, pattern: "runs/{run_id}/log", serve: (*handler).addLogLines},
		{method: del, pattern: "runs/{run_id}", serve: (*handler).deleteRun},

		{method: get, pattern: "models", serve: (*handler).listModels},
		{method: post, pattern: "models", serve: (*handler).putModels},
		{method: put, pattern: "models", serve: (*handler).replaceModels},
		{method: del, pattern: "models", serve: (*handler).deleteModels},
	}
	for i := range table {
		table[i].segments = strings.Split(table[i].pattern, "/")
	}
	return table
}

// match finds the route of a request. Without one, allow lists the methods of
// the first path that fits; it is empty when no path does.
func match(table []route, method, path string) (r *route, params [2]string, allow string) {
	rest, found := strings.CutPrefix(path, Prefix+"/")
	if !found {
		return nil, params, ""
	}
	var buffer [6]string
	segments := buffer[:0]
	for s := range strings.SplitSeq(rest, "/") {
		if len(segments) == cap(segments) {
			return nil, params, ""
		}
		segments = append(segments, s)
	}
	for i := range table {
		got, fits := table[i].fits(segments)
		switch {
		case !fits:
		case table[i].method == method:
			return &table[i], got, ""
		case allow == "":
			allow = table[i].method
		}
	}
	return nil, params, allow
}

// Templates returns a function that names the route of a request: its path with
// ids replaced by what they are, such as /v1/agl/rollouts/{rollout_id}. The name
// of what is no route is empty.
func Templates() func(method, path string) string {
	table := routes()
	names := make(map[*route]string, len(table))
	for i := range table {
		names[&table[i]] = Prefix + "/" + table[i].pattern
	}
	return func(method, path string) string {
		r, _, _ := match(table, method, path)
		return names[r]
	}
}

func (r *route) fits(segments []string) (params [2]string, ok bool) {
	if len(segments) != len(r.segments) {
		return params, false
	}
	n := 0
	for i, s := range r.segments {
		switch {
		case s[0] != '{':
			if s != segments[i] {
				return params, false
			}
		case segments[i] == "":
			return params, false
		default:
			params[n] = segments[i]
			n++
		}
	}
	return params, true
}
