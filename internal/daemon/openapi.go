package daemon

import (
	"maps"
	"net/http"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/internal/openapi"
	"agentlightning/llmproxy"
	"agentlightning/rl"
	"agentlightning/store"
	"agentlightning/storehttp"
)

// apiVersion is what clients of the 1.0 protocol look for.
const apiVersion = "1.0.0"

// openAPI describes everything that the server answers but pages.
func openAPI() *openapi.Document {
	d := &openapi.Document{
		Title: "Agent Lightning", Version: apiVersion, Schemas: schemas(),
		Description: "Store, model proxy, OTLP and metrics on one port. With a server token every operation asks for it, " +
			"except those without security; the token of an attempt opens that attempt's model calls and spans, that of a reader what only looks.",
	}
	for _, r := range storehttp.Routes() {
		d.Operations = append(d.Operations, openapi.Operation{
			Method: r.Method, Path: r.Path, Tag: "store", Summary: r.Summary,
			In: r.In, Out: r.Out, OutType: r.OutType, Query: r.Query, Status: r.Status, Open: r.Open, Failure: "Failure",
		})
	}
	d.Operations = append(d.Operations, controlOperations()...)
	d.Operations = append(d.Operations, otherOperations()...)
	maps.Copy(d.Schemas, controlSchemas())
	return d
}

// otherOperations are those of the other protocols.
func otherOperations() []openapi.Operation {
	const get, post, protobuf, text = http.MethodGet, http.MethodPost, "application/x-protobuf", "text/plain"
	out := []openapi.Operation{
		{
			Method: post, Path: "/v1/traces", Tag: "otlp", Summary: "Store the spans of an OTLP export, as protobuf or as JSON, gzip or not",
			In: "any", InType: protobuf, Out: "any", OutType: protobuf, Status: 200,
		},
		{Method: post, Path: "/v1/metrics", Tag: "otlp", Summary: "Not supported", Status: http.StatusNotImplemented},
		{Method: post, Path: "/v1/logs", Tag: "otlp", Summary: "Not supported", Status: http.StatusNotImplemented},
		{Method: post, Path: "/v1/development/profiles", Tag: "otlp", Summary: "Not supported", Status: http.StatusNotImplemented},

		{Method: get, Path: "/metrics", Tag: "operation", Summary: "Metrics for Prometheus", Out: "string", OutType: text, Status: 200},
		{Method: get, Path: "/v1/prometheus", Tag: "operation", Summary: "Metrics for Prometheus, where release 0.3 has them", Out: "string", OutType: text, Status: 200},
		{Method: get, Path: openAPIPath, Tag: "operation", Summary: "This document", Out: "object", Status: 200},
	}
	for _, at := range []struct{ prefix, of string }{
		{"/v1", "; nothing is recorded"},
		{"/rollout/{rollout_id}/attempt/{attempt_id}/v1", " of an attempt, recorded as one span"},
	} {
		for _, route := range llmproxy.Routes() {
			summary := "Call a model by " + route.API + at.of
			if !route.Recorded {
				summary = "Call " + route.API + "; nothing is recorded"
			}
			out = append(out, openapi.Operation{
				Method: post, Path: at.prefix + route.Path, Tag: "proxy", Summary: summary,
				In: "object", Out: "object", Status: 200, Failure: "ModelFailure",
			})
		}
		out = append(out,
			openapi.Operation{
				Method: get, Path: at.prefix + "/models", Tag: "proxy", Summary: "List the models that are served",
				Out: "object", Status: 200, Failure: "ModelFailure",
			},
			openapi.Operation{
				Method: get, Path: at.prefix + "/models/{model}", Tag: "proxy", Summary: "Tell whether a model is served",
				Out: "object", Status: 200, Failure: "ModelFailure",
			})
	}
	return out
}

// schemas are the objects of the protocol.
func schemas() map[string]openapi.Schema {
	const (
		paging  = " limit=:integer offset=:integer sort_by=:string? sort_order=:SortOrder"
		logic   = " filter_logic=:FilterLogic"
		enqueue = "input:any mode=:Mode? resources_id=:string? config=:RolloutConfig? metadata=:object?"
		rollout = "rollout_id:string input:any start_time:number end_time:number? mode:Mode? resources_id:string? " +
			"status:RolloutStatus config:RolloutConfig metadata:object?"
		explain = "joining=:Joining agent=:string logprobs=:LogprobsNeed on_failure=:OnFailure prompt_limit=:integer response_limit=:integer total_limit=:integer"
		model   = "endpoint:string model:string api_key=:string? sampling_parameters=:object"
	)
	return map[string]openapi.Schema{
		"RolloutStatus": openapi.Enum(agl.RolloutStatuses()...),
		"AttemptStatus": openapi.Enum(agl.AttemptStatuses()...),
		"WorkerStatus":  openapi.Enum(agl.WorkerIdle, agl.WorkerBusy, agl.WorkerUnknown),
		"Mode":          openapi.Enum(agl.ModeTrain, agl.ModeVal, agl.ModeTest),
		"StatusCode":    openapi.Enum(agl.StatusUnset, agl.StatusOK, agl.StatusError),
		"RunStatus":     openapi.Enum(agl.RunRunning, agl.RunSucceeded, agl.RunFailed, agl.RunInterrupted),
		"SortOrder":     openapi.Enum("asc", "desc"),
		"FilterLogic":   openapi.Enum("and", "or"),

		"Statistics":   openapi.Object("name:string total_rollouts:integer total_attempts:integer total_spans:integer total_resources:integer total_workers:integer uptime:number"),
		"Failure":      openapi.Object("detail:any error_type=:string traceback=:string request_id=:string"),
		"ModelFailure": openapi.Object("error:object"),
		"Paging":       openapi.Object(paging),

		"RolloutConfig":    openapi.Object("timeout_seconds=:number? unresponsive_seconds=:number? max_attempts=:integer retry_condition=:[]AttemptStatus"),
		"Rollout":          openapi.Object(rollout),
		"AttemptedRollout": openapi.Object(rollout + " attempt=:Attempt"),
		"Attempt": openapi.Object("rollout_id:string attempt_id:string sequence_id:integer start_time:number end_time:number? " +
			"status:AttemptStatus worker_id:string? last_heartbeat_time:number? metadata:object?"),
		"RolloutPage":    openapi.Page("AttemptedRollout"),
		"AttemptPage":    openapi.Page("Attempt"),
		"RolloutSearch":  openapi.Object("status_in=:[]RolloutStatus? rollout_id_in=:[]string? rollout_id_contains=:string?" + paging + logic),
		"ExplainRequest": openapi.Object("status_in=:[]RolloutStatus? rollout_id_in=:[]string? rollout_id_contains=:string? calls=:boolean " + explain + paging + logic),
		"Joining":        openapi.Enum("lineages", "linear", "separate"),
		"LogprobsNeed":   openapi.Enum("required", "optional"),
		"OnFailure":      openapi.Enum(rl.DropFailed, rl.KeepFailed, rl.ZeroFailed),
		"Explanation": openapi.Object("rollout_id:string status:RolloutStatus mode=:Mode models:[]HandedModel attempts:[]ExplainedAttempt " +
			"sums:ExplanationSums advice:[]string"),
		"ExplanationPage": openapi.Object("items:[]Explanation sums:ExplanationSums limit:integer offset:integer total:integer"),
		"HandedModel":     openapi.Object("name:string kind:ModelKind url:string model:string"),
		"ExplainedAttempt": openapi.Object("attempt_id:string sequence_id:integer status:AttemptStatus reason=:string detail=:string reward:number? " +
			"reward_span=:string rewards:integer spans:integer rows:integer tokens:integer calls:[]ExplainedCall"),
		"ExplainedCall": openapi.Object("span_id:string sequence_id:integer response_id=:string source:string agent=:string model=:string version:integer " +
			"finish_reason=:string prompt_tokens:integer response_tokens:integer logprobs:boolean reward:number? used:boolean reason=:string detail=:string " +
			"row:integer? mismatch=:ExplainedMismatch"),
		"ExplainedMismatch": openapi.Object("with_span_id:string with_sequence_id:integer position:integer want:integer got:integer where:MismatchPlace"),
		"MismatchPlace":     openapi.Enum(adapter.InPrompt, adapter.InAnswer, adapter.InContext, adapter.AtEnd, adapter.InImages),
		"ExplanationSums": openapi.Object("rollouts:integer rollouts_used:integer rollouts_without_calls:integer attempts:integer calls:integer " +
			"calls_used:integer rows:integer tokens:integer mismatches:integer reasons:object attempt_reasons:object"),
		"Capabilities":  openapi.Object("browse:boolean events:boolean delete:boolean sorts:[]string browse_limit:integer browse_spans_limit:integer version:string rescore:[]string checks:boolean prune:boolean history:boolean backends:boolean"),
		"Overview":      openapi.Object("time:number rollouts:object queue:OverviewQueue"),
		"OverviewQueue": openapi.Object("length:integer waiting_seconds:number"),
		"BrowseMode":    openapi.Enum("train", "val", "test", "none"),
		"SampleOrder":   openapi.Enum(store.SampleOrders()...),
		"SamplesPage": openapi.Object("mode:BrowseMode items:[]TaskChange total:integer improved:integer worsened:integer unchanged:integer unrewarded:integer " +
			"once:integer stepless:integer steps:[]integer modes:[]BrowseMode before:number? after:number? examined:integer complete:boolean"),
		"TaskChange":  openapi.Object("task:any before:TaskTried after:TaskTried change:number?"),
		"TaskTried":   openapi.Object("step:integer reward:number? tried:integer rewarded:integer rollouts:[]Sample"),
		"Sample":      openapi.Object("rollout_id:string attempt_id:string status:RolloutStatus reward:number?"),
		"BrowsePage":  openapi.Object("items:[]Browsed total:integer examined:integer complete:boolean limit:integer offset:integer"),
		"Browsed":     openapi.Object(rollout + " attempt=:Attempt digest:Digest"),
		"OutlinePage": openapi.Object("items:[]SpanOutline limit:integer offset:integer total:integer"),
		"SpanOutline": openapi.Object("sequence_id:integer span_id:string trace_id:string parent_id=:string name:string start_time:number? end_time:number? status:StatusCode " +
			"kind:SpanKind prompt_tokens=:integer answer_tokens=:integer reward_set=:string rewards=:[]RewardDimension events=:[]EventMark"),
		"RescoreRequest": openapi.Object("set:string expression:string rollout_ids:[]string base=:string unsuccessful=:boolean"),
		"Check":          openapi.Object("level:CheckLevel name:string text:string fix:string"),
		"CheckLevel":     openapi.Enum("ok", "warn", "bad"),
		"RescoreStatus":  openapi.Enum(storehttp.RescoreRunning, storehttp.RescoreSucceeded, storehttp.RescoreFailed, storehttp.RescoreStopped),
		"Rescoring": openapi.Object("rescore_id:string set:string scorer:string status:RescoreStatus done:integer of:integer scored:integer already:integer failed:integer " +
			"skipped:object last_failure:string error:string mean_new:number? mean_old:number? start_time:number end_time:number?"),
		"HistoryWindow": openapi.Enum("recent", "day"),
		"Series":        {"type": "array", "items": openapi.Schema{"type": []string{"number", "null"}}},
		"History":       openapi.Object("started:number step:number times:[]number store:StoreHistory backends:[]BackendHistory"),
		"StoreHistory":  openapi.Object("bytes:Series rollouts:Series spans:Series queue:Series commits_per_second:Series"),
		"BackendHistory": openapi.Object("model:string endpoint:string calls_per_second:Series failures_per_second:Series prompt_tokens_per_second:Series " +
			"answer_tokens_per_second:Series latency_p50:Series latency_p95:Series open:Series"),
		"BackendReport": openapi.Object("time:number started:number backends:[]Backend changes:[]BackendChange"),
		"Backend": openapi.Object("model:string endpoint:string condition:BackendCondition since:number? reason:string avoided:boolean open:integer waiting:integer " +
			"calls:integer failures:integer prompt_tokens:integer answer_tokens:integer"),
		"BackendCondition": openapi.Enum(llmproxy.Paused, llmproxy.KeyMissing, llmproxy.Unreachable, llmproxy.Failing, llmproxy.Unseen, llmproxy.Fine),
		"BackendChange":    openapi.Object("time:number model:string endpoint:string event:BackendEvent reason:string seconds:number?"),
		"BackendEvent":     openapi.Enum("paused", "drained", "resumed", "unreachable", "failing", "recovered"),
		"BackendName":      openapi.Object("model:string endpoint:string"),
		"BackendPause":     openapi.Object("model:string endpoint:string reason=:string drain_seconds=:number"),
		"PruneRequest":     openapi.Object("before:number"),
		"PruneStatus":      openapi.Enum(storehttp.PruneRunning, storehttp.PruneSucceeded, storehttp.PruneFailed, storehttp.PruneStopped),
		"PruneStayed":      openapi.Object("open:integer later:integer runs:integer resources:integer workers:integer"),
		"Prunable": openapi.Object("before:number rollouts:integer attempts:integer spans:integer log_lines:integer bytes:integer oldest:number? newest:number? " +
			"complete:boolean looked:integer stays:PruneStayed"),
		"Pruning": openapi.Object("prune_id:string before:number status:PruneStatus rollouts:integer attempts:integer spans:integer log_lines:integer bytes:integer of:integer? " +
			"error:string start_time:number end_time:number?"),
		"SpanKind":            openapi.Enum(store.SpanKinds()...),
		"RewardDimension":     openapi.Object("name:string value:number"),
		"EventMark":           openapi.Object("name:string timestamp:number?"),
		"Digest":              openapi.Object("reward:number? rewards:object calls:integer tokens:integer spans:integer model:string problem:string gap=:TokenGap large:boolean"),
		"TokenGap":            openapi.Object("run_id:string step:integer tokens:integer sum:number largest:number span_id:string position:integer"),
		"EnqueueRollout":      openapi.Object(enqueue),
		"EnqueueRequest":      openapi.Object("rollouts:[]EnqueueRollout"),
		"DequeueRequest":      openapi.Object("limit=:integer worker_id=:string?"),
		"ReleaseRequest":      openapi.Object("rollouts:[]AttemptedRollout"),
		"StartRequest":        openapi.Object(enqueue + " worker_id=:string?"),
		"StartAttemptRequest": openapi.Object("worker_id=:string?"),
		"RolloutUpdate":       openapi.Object("input=:any mode=:Mode? resources_id=:string? status=:RolloutStatus config=:RolloutConfig metadata=:object?"),
		"AttemptUpdate":       openapi.Object("status=:AttemptStatus worker_id=:string last_heartbeat_time=:number metadata=:object"),
		"WaitRequest":         openapi.Object("rollout_ids:[]string timeout=:number?"),
		"WaitForCountRequest": openapi.Object("rollout_ids:[]string count=:integer share=:number timeout=:number?"),
		"TokenRequest":        openapi.Object("lifetime_seconds=:number"),
		"ReaderToken":         openapi.Object("token:string expires_at:number"),
		"Token":               openapi.Object("token:string rollout_id:string attempt_id:string expires_at:number"),

		"Span": openapi.Object("rollout_id:string attempt_id:string sequence_id:integer trace_id:string span_id:string parent_id:string? " +
			"name:string status:TraceStatus attributes:Attributes events:[]Event links:[]Link start_time:number? end_time:number? " +
			"context:SpanContext? parent:SpanContext? resource:OtelResource"),
		"TraceStatus":    openapi.Object("status_code:StatusCode description=:string?"),
		"Attributes":     {"type": "object", "description": "strings, booleans, numbers, and lists of one of these", "additionalProperties": true},
		"Event":          openapi.Object("name:string attributes:Attributes timestamp=:number?"),
		"Link":           openapi.Object("context:SpanContext attributes=:Attributes?"),
		"SpanContext":    openapi.Object("trace_id:string span_id:string is_remote:boolean trace_state:object"),
		"OtelResource":   openapi.Object("attributes:Attributes schema_url:string"),
		"SpanPage":       openapi.Page("Span"),
		"SpanBatch":      openapi.Object("spans:[]Span"),
		"AddedSpan":      openapi.Object("stored:boolean status=:integer error=:Failure"),
		"Attempted":      openapi.Object("rollout_id:string attempt_id:string"),
		"AttemptedBatch": openapi.Object("attempts:[]Attempted"),
		"SequenceID":     openapi.Object("sequence_id:integer"),
		"SequenceIDs":    openapi.Object("sequence_ids:[]integer"),
		"SpanSearch": openapi.Object("rollout_id:string attempt_id=:string? trace_id=:string? trace_id_contains=:string? span_id=:string? " +
			"span_id_contains=:string? parent_id=:string? parent_id_contains=:string? name=:string? name_contains=:string?" + paging + logic),

		"NamedResources":  {"type": "object", "additionalProperties": openapi.Type("Resource")},
		"Resource":        {"oneOf": []openapi.Schema{openapi.Type("LLM"), openapi.Type("PromptTemplate")}},
		"LLM":             openapi.Object("resource_type:ModelKind " + model),
		"ModelKind":       openapi.Enum(agl.KindLLM, agl.KindProxyLLM),
		"PromptTemplate":  openapi.Object("resource_type:PromptKind template:string engine:PromptEngine"),
		"PromptKind":      openapi.Enum(agl.KindPromptTemplate),
		"PromptEngine":    openapi.Enum("jinja", "f-string", "poml"),
		"ResourcesUpdate": openapi.Object("resources_id:string create_time:number update_time:number version:integer resources:NamedResources"),
		"ResourcesPage":   openapi.Page("ResourcesUpdate"),

		"Worker": openapi.Object("worker_id:string status:WorkerStatus heartbeat_stats:object? last_heartbeat_time:number? last_dequeue_time:number? " +
			"last_busy_time:number? last_idle_time:number? current_rollout_id:string? current_attempt_id:string?"),
		"WorkerPage":   openapi.Page("Worker"),
		"WorkerSearch": openapi.Object("status_in=:[]WorkerStatus? worker_id_contains=:string?" + paging + logic),
		"Heartbeat":    openapi.Object("heartbeat_stats=:object?"),

		"Run":         openapi.Object("run_id=:string algorithm:string config=:object seed=:integer status=:RunStatus start_time=:number end_time=:number? error=:string"),
		"RunUpdate":   openapi.Object("status=:RunStatus config=:object error=:string"),
		"StepMetrics": openapi.Object("step:integer time:number values:object"),
		"Checkpoint":  openapi.Object("step:integer time:number path:string score=:number? state=:object"),
		"LogLevel":    openapi.Enum(agl.LogLevels()...),
		"LogLine":     openapi.Object("position=:integer time=:number level:LogLevel message:string attributes=:object"),
		"LogPage":     openapi.Object("lines:[]LogLine first:integer last:integer dropped:integer more:boolean"),
		"BackendKind": openapi.Enum(agl.BackendKinds()...),
		"Model": openapi.Object("model:string endpoint:string version=:integer target=:string api_key=:string key_given=:boolean api_key_env=:string kind=:BackendKind " +
			"api_version=:string weight=:integer retries=:integer concurrency=:integer rpm=:integer tpm=:integer"),
	}
}

// openAPIPath is where the document is.
const openAPIPath = "/openapi.json"

// document serves the document, which is made once.
func document() (http.Handler, error) {
	body, err := openAPI().JSON()
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", http.MethodGet)
			refuse(w, r, http.StatusMethodNotAllowed, "Method Not Allowed")
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body) // a caller that is gone needs no answer
	}), nil
}
