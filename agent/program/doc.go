// Package program makes an agent of any command, in whatever language.
//
// Each rollout starts the command once. It finds the task as JSON on standard
// input and in AGL_TASK, its model in the variables that clients of OpenAI and
// Anthropic read, and ends:
//
//	solver, err := program.New(program.Config{
//		Command: []string{"python", "solve.py"},
//		Server:  "http://127.0.0.1:4747",
//		Reward:  program.RewardStdout,
//	})
//
// What it is given:
//
//	AGL_TASK                               the task, JSON; not set above 96 KiB
//	AGL_ROLLOUT_ID, AGL_ATTEMPT_ID         whose work this is
//	AGL_MODE                               train, val, test, or empty
//	AGL_OPENAI_BASE_URL, OPENAI_BASE_URL   the model, with /v1
//	ANTHROPIC_BASE_URL                     the same, without /v1
//	AGL_MODEL                              the model's name, when the resources name one
//	AGL_KEY                                opens the server for this attempt only
//	OPENAI_API_KEY, ANTHROPIC_API_KEY      the key of the model
//	AGL_EVENT_URL                          where rewards and other events are posted
//	AGL_RESOURCES                          all resources, a JSON object by name
//	AGL_PROMPT                             the first prompt template
//	OTEL_…                                 an OpenTelemetry SDK sends its spans to this attempt
//
// The rest of the environment is ours, without AGL_AUTH_TOKEN. Model calls are
// recorded as calls of the attempt, because the address says so. Where the
// reward comes from is [Config.Reward] or [Config.Grader]. What the command
// writes is kept, bounded, as message spans of the attempt.
//
// With [Config.Pool] processes stay and are given one task after another, a line
// each:
//
//	in   {"rollout_id":…,"attempt_id":…,"mode":…,"task":…,"env":{…}}
//	out  {"attempt_id":…,"reward":0.5}    or    {"attempt_id":…,"error":"what went wrong"}
//
// where env has the variables above. Other lines are output like any other.
//
// Nothing of a command outlives its attempt: see [Config.Grace] and the limits.
// The package runs on Linux, macOS and other Unixes; [New] refuses elsewhere.
package program
