package daemon

import (
	"net/http"

	"agentlightning/gateway"
	"agentlightning/internal/openapi"
)

// controlOperations are those of the 1.0 protocol.
func controlOperations() []openapi.Operation {
	const get, post, put, patch, remove = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete
	const one, models = "/api/rollouts/{rollout_id}", "/api/models"
	out := []openapi.Operation{
		{Method: get, Path: "/healthz", Summary: "Tell that the server is there", Out: "Health", Status: 200, Open: true},
		{
			Method: post, Path: "/api/rollouts", Summary: "Make rollouts that a controller starts; one whose id is known is returned as it is",
			In: "[]ControlledCreate", Out: "[]ControlledRollout", Status: 201,
		},
		{
			Method: get, Path: "/api/rollouts", Summary: "List rollouts for controllers, the oldest first",
			Query: "state_in:ControlStates limit=:integer", Out: "[]ControlledRollout", Status: 200,
		},
		{
			Method: get, Path: "/api/rollouts/terminal", Summary: "Read the log of rollouts that ended, waiting for an entry if asked to",
			Query: "after=:integer limit=:integer wait=:number", Out: "TerminalPage", Status: 200,
		},
		{Method: get, Path: one, Summary: "Look up a rollout, with the attempts that have events", Out: "ControlledDetail", Status: 200},
		{Method: patch, Path: one, Summary: "Say where a rollout stands", In: "ControlledPatch", Out: "ControlledRollout", Status: 200},
		{Method: remove, Path: one, Summary: "Delete a rollout with all that belongs to it", Status: 204},
		{
			Method: get, Path: one + "/events", Summary: "List the events of the last attempt; the format triplet is what training reads",
			Query: "event_type=:string format=:string include_routed_experts=:boolean", Out: "[]ControlEvent", Status: 200,
		},
		{
			Method: post, Path: one + "/attempt/{attempt_id}/events", Summary: "Add an event to an attempt",
			In: "ControlEventCreate", Out: "ControlEvent", Status: 200,
		},
		{Method: get, Path: models, Summary: "List model backends", Out: "[]Model", Status: 200},
		{
			Method: post, Path: models, Summary: "Add model backends, or replace those of the same name and endpoint",
			In: "[]Model", Out: "[]Model", Status: 201,
		},
		{Method: put, Path: models, Summary: "Make these the backends of their names, at once", In: "[]Model", Out: "[]Model", Status: 200},
		{Method: remove, Path: models, Summary: "Forget the backends of a name, or all", Query: "model=:string", Out: "object", Status: 200},
		{Method: post, Path: "/proxy/pause", Summary: "Pause model calls, for ever or for a time", In: "PauseRequest", Out: "PauseState", Status: 200},
		{Method: post, Path: "/proxy/resume", Summary: "End the pause", In: "ResumeRequest?", Out: "PauseState", Status: 200},
		{
			Method: get, Path: "/proxy/state", Summary: "Tell whether model calls are paused, waiting until none is under way if asked to",
			Query: "wait=:number", Out: "PauseState", Status: 200,
		},
		{
			Method: post, Path: "/proxy/rollout/{rollout_id}/attempt/{attempt_id}/mode/{mode}/openai/v1/{upstream_path}",
			Summary: "Call the model that the server is configured with, recorded as an event", In: "object", Out: "object", Status: 200,
		},
	}
	for i := range out {
		out[i].Tag, out[i].Failure = "gateway", "Failure"
	}
	return out
}

// controlSchemas are the objects of the 1.0 protocol.
func controlSchemas() map[string]openapi.Schema {
	return map[string]openapi.Schema{
		"Health":        openapi.Object("status:string"),
		"ControlState":  openapi.Enum(gateway.Queuing, gateway.Running, gateway.Succeeded, gateway.Failed),
		"ControlStates": {"type": "array", "items": openapi.Type("ControlState")},
		"ControlConfig": openapi.Object("timeout_seconds=:integer local=:LocalConfig? k8s=:K8sConfig?"),
		"LocalConfig":   openapi.Object("agent_class=:string? env_map=:object"),
		"K8sConfig":     openapi.Object("job_template=:string?"),
		"ControlStatus": openapi.Object("state:ControlState k8s_job_name:string? last_attempt_id:string? error_message:string? " +
			"version:integer created_at:number updated_at:number"),
		"ControlStatusPatch": openapi.Object("state=:ControlState? k8s_job_name=:string? last_attempt_id=:string? error_message=:string?"),
		"ControlledCreate":   openapi.Object("input:any is_train=:boolean config=:ControlConfig? metadata=:object? rollout_id=:string?"),
		"ControlledRollout":  openapi.Object("rollout_id:string input:any is_train:boolean config:ControlConfig metadata:object status:ControlStatus"),
		"ControlledDetail":   openapi.Object("rollout:ControlledRollout attempts:[]string"),
		"ControlledPatch":    openapi.Object("status=:ControlStatusPatch?"),
		"TerminalRollout":    openapi.Object("rollout_id:string state:ControlState data_id:string is_train:boolean"),
		"TerminalPage":       openapi.Object("items:[]TerminalRollout next_after:integer total_terminal:integer"),
		"ControlEvent":       openapi.Object("event_type:string rollout_id:string attempt_id:string timestamp:number data:object"),
		"ControlEventCreate": openapi.Object("event_type:string data=:object"),
		"PauseRequest":       openapi.Object("retry_after_seconds=:integer reason=:string? owner=:string? lease_seconds=:number? hold=:boolean"),
		"ResumeRequest":      openapi.Object("owner=:string?"),
		"PauseState": openapi.Object("paused:boolean retry_after_seconds:integer reason:string? inflight:integer " +
			"owner=:string lease_seconds=:number hold=:boolean held=:integer"),
	}
}
