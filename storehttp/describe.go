package storehttp

import "net/http"

// Route describes one method of one path of the protocol, for documents.
type Route struct {
	Method  string
	Path    string // with parameters in braces
	Summary string
	// In is what the body is, empty when there is none; Out what is answered.
	// They are names of schemas, see package openapi for how they are written.
	In, Out string
	// OutType is the media type of the answer; empty means JSON.
	OutType string
	// Query are the parameters of the query string, written as the members of an object.
	Query  string
	Status int // of success
	// Open is true when no token is asked for.
	Open bool
}

// Parameters that several routes take.
const (
	pagingQuery = "limit=:integer offset=:integer sort_by=:string sort_order=:SortOrder"
	logicQuery  = " filter_logic=:FilterLogic"
	browseQuery = "status_in=:[]RolloutStatus mode_in=:[]BrowseMode attempt_status_in=:[]AttemptStatus id=:string text=:string tag=:string run_id=:string " +
		"group=:string step=:integer resources_id=:string same_task=:string worker_id=:string model=:string problem=:string from=:number to=:number " +
		"rewarded=:boolean reward_min=:number reward_max=:number "
	explainQuery = "joining=:Joining agent=:string logprobs=:LogprobsNeed on_failure=:OnFailure prompt_limit=:integer response_limit=:integer total_limit=:integer"
	spanQuery    = "rollout_id:string attempt_id=:string trace_id=:string trace_id_contains=:string span_id=:string " +
		"span_id_contains=:string parent_id=:string parent_id_contains=:string name=:string name_contains=:string "
)

// descriptions says what routes are for, by method and pattern.
func descriptions() map[string]Route {
	const ok, created = http.StatusOK, http.StatusCreated
	return map[string]Route{
		"GET health":     {Summary: "Tell that the server is there", Out: "Health", Status: ok, Open: true},
		"GET statistics": {Summary: "Count what the store holds", Out: "Statistics", Status: ok},

		"GET capabilities":                    {Summary: "Tell what the server can show and do", Out: "Capabilities", Status: ok},
		"GET overview":                        {Summary: "Count the rollouts in each status, and the queue", Out: "Overview", Status: ok},
		"GET events":                          {Summary: "Tell what changes, as server-sent events named change; much at once is one event", Out: "string", OutType: "text/event-stream", Status: ok},
		"GET browse/rollouts":                 {Summary: "Find rollouts by what their tasks, metadata and spans say; the work is bounded", Query: browseQuery + pagingQuery, Out: "BrowsePage", Status: ok},
		"GET browse/spans":                    {Summary: "List the spans of an attempt in outline, without attributes, by sequence id", Query: "rollout_id:string attempt_id:string limit=:integer offset=:integer", Out: "OutlinePage", Status: ok},
		"GET browse/spans/whole":              {Summary: "Get spans of an attempt by their ids, in the order of the ids; those that are not there are left out", Query: "rollout_id:string attempt_id:string span_id:[]string", Out: "[]Span", Status: ok},
		"DELETE browse/rollouts/{rollout_id}": {Summary: "Remove a rollout with its attempts and spans", Out: "object", Status: ok},

		"GET checks":                   {Summary: "Look at what the server needs, as agl doctor does: database, disk, clock, open files, model backends", Out: "[]Check", Status: ok},
		"GET rescores":                 {Summary: "List the work that scores rollouts again, the newest first", Out: "[]Rescoring", Status: ok},
		"POST rescores":                {Summary: "Begin to score rollouts again, into a set of rewards of its own", In: "RescoreRequest", Out: "Rescoring", Status: http.StatusAccepted},
		"DELETE rescores/{rescore_id}": {Summary: "Stop work that scores rollouts again; what was scored stays", Out: "Rescoring", Status: ok},

		"GET history":                {Summary: "Tell how the server fared: every 5 s of the last 15 minutes, or every minute of the last day, since it started", Query: "window=:HistoryWindow points=:integer", Out: "History", Status: ok},
		"GET backends":               {Summary: "Tell how model backends fare, since when and why, and what happened to them lately", Out: "BackendReport", Status: ok},
		"POST backends/pause":        {Summary: "Keep new calls from a model backend until it is resumed, and wait for those it has", In: "BackendPause", Out: "Backend", Status: ok},
		"POST backends/resume":       {Summary: "Let calls go to a model backend again", In: "BackendName", Out: "Backend", Status: ok},
		"GET prunings/preview":       {Summary: "Tell what deleting what ended longer ago than an age would delete, and what stays", Query: "older_than_seconds:number", Out: "Prunable", Status: ok},
		"GET prunings":               {Summary: "List the work that deletes what ended long ago, the newest first", Out: "[]Pruning", Status: ok},
		"POST prunings":              {Summary: "Begin to delete rollouts that ended before a moment, with their attempts and spans", In: "PruneRequest", Out: "Pruning", Status: http.StatusAccepted},
		"DELETE prunings/{prune_id}": {Summary: "Stop work that deletes; what is deleted stays so", Out: "Pruning", Status: ok},

		"POST queues/rollouts/enqueue": {Summary: "Add rollouts to the queue, all or none", In: "EnqueueRequest", Out: "[]Rollout", Status: created},
		"POST queues/rollouts/dequeue": {Summary: "Claim rollouts, first in, first out; Prefer: wait=SECONDS waits for work", In: "DequeueRequest?", Out: "[]AttemptedRollout", Status: ok},
		"POST queues/rollouts/release": {Summary: "Undo claims as if they had never been made", In: "ReleaseRequest", Out: "object", Status: ok},

		"POST rollouts":                     {Summary: "Start a rollout that is never queued, with its first attempt", In: "StartRequest", Out: "AttemptedRollout", Status: created},
		"GET rollouts":                      {Summary: "List rollouts", Query: "status_in=:[]RolloutStatus rollout_id_in=:[]string rollout_id_contains=:string " + pagingQuery + logicQuery, Out: "RolloutPage", Status: ok},
		"POST rollouts/search":              {Summary: "List rollouts", In: "RolloutSearch", Out: "RolloutPage", Status: ok},
		"GET rollouts/{rollout_id}":         {Summary: "Get a rollout with its latest attempt; null when it does not exist", Out: "AttemptedRollout?", Status: ok},
		"POST rollouts/{rollout_id}":        {Summary: "Change the members of a rollout that are given", In: "RolloutUpdate", Out: "Rollout", Status: ok},
		"POST rollouts/explain":             {Summary: "Say of each rollout whether its model calls are trained on and why not, with sums", In: "ExplainRequest", Out: "ExplanationPage", Status: ok},
		"GET rollouts/{rollout_id}/explain": {Summary: "Say of each model call of a rollout whether it is trained on and why not", Query: explainQuery, Out: "Explanation", Status: ok},
		"POST waits/rollouts":               {Summary: "Wait until all of the rollouts are finished", In: "WaitRequest", Out: "[]Rollout", Status: ok},
		"POST waits/count":                  {Summary: "Wait until a count, or a share, of the rollouts is finished", In: "WaitForCountRequest", Out: "[]Rollout", Status: ok},

		"POST rollouts/{rollout_id}/attempts":                    {Summary: "Start the next attempt of a rollout", In: "StartAttemptRequest?", Out: "AttemptedRollout", Status: created},
		"GET rollouts/{rollout_id}/attempts":                     {Summary: "List the attempts of a rollout", Query: pagingQuery, Out: "AttemptPage", Status: ok},
		"POST rollouts/{rollout_id}/attempts/search":             {Summary: "List the attempts of a rollout", In: "Paging", Out: "AttemptPage", Status: ok},
		"POST rollouts/{rollout_id}/attempts/{attempt_id}":       {Summary: "Change the members of an attempt that are given; attempt_id may be latest", In: "AttemptUpdate", Out: "Attempt", Status: ok},
		"GET rollouts/{rollout_id}/attempts/latest":              {Summary: "Get the newest attempt of a rollout; null when there is none", Out: "Attempt?", Status: ok},
		"POST rollouts/{rollout_id}/attempts/{attempt_id}/token": {Summary: "Issue a token that opens the model calls and the spans of this attempt, and nothing else", In: "TokenRequest?", Out: "Token", Status: created},

		"POST spans":            {Summary: "Store a span; null when it is stored already", In: "Span", Out: "Span?", Status: created},
		"GET spans":             {Summary: "List spans of a rollout", Query: spanQuery + pagingQuery + logicQuery, Out: "SpanPage", Status: ok},
		"POST spans/search":     {Summary: "List spans of a rollout", In: "SpanSearch", Out: "SpanPage", Status: ok},
		"POST spans/next":       {Summary: "Take the next sequence id of an attempt", In: "Attempted", Out: "SequenceID", Status: ok},
		"POST spans/batch":      {Summary: "Store spans in one transaction, and tell of each whether it was stored", In: "SpanBatch", Out: "[]AddedSpan", Status: created},
		"POST spans/next/batch": {Summary: "Take a sequence id for each attempt", In: "AttemptedBatch", Out: "SequenceIDs", Status: ok},

		"GET resources":                 {Summary: "List versions of resources", Query: "resources_id=:string resources_id_contains=:string " + pagingQuery, Out: "ResourcesPage", Status: ok},
		"POST resources":                {Summary: "Publish resources as a new version, the latest", In: "NamedResources", Out: "ResourcesUpdate", Status: created},
		"GET resources/latest":          {Summary: "Get the resources published last; null when there are none", Out: "ResourcesUpdate?", Status: ok},
		"POST resources/{resources_id}": {Summary: "Replace or create a version of resources", In: "NamedResources", Out: "ResourcesUpdate", Status: ok},
		"GET resources/{resources_id}":  {Summary: "Get a version of resources; null when it does not exist", Out: "ResourcesUpdate?", Status: ok},

		"GET workers":              {Summary: "List workers", Query: "status_in=:[]WorkerStatus worker_id_contains=:string " + pagingQuery + logicQuery, Out: "WorkerPage", Status: ok},
		"POST workers/search":      {Summary: "List workers", In: "WorkerSearch", Out: "WorkerPage", Status: ok},
		"GET workers/{worker_id}":  {Summary: "Get a worker; null when it does not exist", Out: "Worker?", Status: ok},
		"POST workers/{worker_id}": {Summary: "Record a heartbeat of a worker", In: "Heartbeat?", Out: "Worker", Status: ok},

		"POST tokens/reader":                   {Summary: "Issue a token that lets its holder look at everything in the store and change nothing", In: "TokenRequest?", Out: "ReaderToken", Status: created},
		"GET runs":                             {Summary: "List runs of algorithms, newest first", Query: "limit=:integer", Out: "[]Run", Status: ok},
		"POST runs":                            {Summary: "Record the start of a run", In: "Run", Out: "Run", Status: created},
		"GET runs/{run_id}":                    {Summary: "Get a run; null when it does not exist", Out: "Run?", Status: ok},
		"POST runs/{run_id}":                   {Summary: "Change the members of a run that are given", In: "RunUpdate", Out: "Run", Status: ok},
		"GET runs/{run_id}/samples":            {Summary: "Tell how the tasks of a run went early and late in it, by the mean reward of each; the work is bounded", Query: "mode=:BrowseMode before=:integer after=:integer order=:SampleOrder limit=:integer offset=:integer", Out: "SamplesPage", Status: ok},
		"GET runs/{run_id}/metrics":            {Summary: "List the metrics of the steps after a step", Query: "after=:integer", Out: "[]StepMetrics", Status: ok},
		"POST runs/{run_id}/metrics":           {Summary: "Append metrics; those of a step that exists are replaced", In: "[]StepMetrics", Out: "object", Status: ok},
		"POST runs/{run_id}/checkpoints":       {Summary: "Record a checkpoint", In: "Checkpoint", Out: "object", Status: ok},
		"GET runs/{run_id}/checkpoints":        {Summary: "List checkpoints by step, without their state", Out: "[]Checkpoint", Status: ok},
		"GET runs/{run_id}/checkpoints/latest": {Summary: "Get the checkpoint of the highest step; null when there is none", Out: "Checkpoint?", Status: ok},
		"GET runs/{run_id}/log":                {Summary: "Read the log of a run, or a part of it; the oldest lines of a long one are dropped, and it says how many", Query: "after=:integer before=:integer level=:LogLevel text=:string limit=:integer newest=:boolean", Out: "LogPage", Status: ok},
		"POST runs/{run_id}/log":               {Summary: "Append lines to the log of a run, all or none; positions are given by the server", In: "[]LogLine", Out: "object", Status: ok},
		"DELETE runs/{run_id}":                 {Summary: "Remove a run with its metrics, records of checkpoints and log; rollouts stay. A running one is 409 unless forced", Query: "force=:boolean", Out: "object", Status: ok},
		"GET models":                           {Summary: "List model backends", Query: "keys=:boolean", Out: "[]Model", Status: ok},
		"POST models":                          {Summary: "Add model backends, or replace those of the same name and endpoint", In: "[]Model", Out: "object", Status: ok},
		"PUT models":                           {Summary: "Make the backends of each name that is given exactly these, at once", In: "[]Model", Out: "object", Status: ok},
		"DELETE models":                        {Summary: "Forget the backends of a name, only those at the endpoints when any are given, or all", Query: "name=:string endpoint=:[]string", Out: "object", Status: ok},
	}
}

// Routes describes every route of the protocol, in the order of the table.
func Routes() []Route {
	known := descriptions()
	table := routes()
	out := make([]Route, len(table))
	for i, r := range table {
		d := known[r.method+" "+r.pattern]
		d.Method, d.Path = r.method, Prefix+"/"+r.pattern
		out[i] = d
	}
	return out
}
