package arch

// root is the name of the root package in the table.
const root = "agl"

// longestFile is the length at which a file holds two ideas.
const longestFile = 900

// rule is the line of one package. Keys of imports are folders of ours, or
// paths of modules outside, which cover the packages below them; values are the
// reasons. The standard library is not listed.
type rule struct {
	dir     string // "" is the root
	owns    string
	imports map[string]string
}

type reasons = map[string]string

// Reasons that many lines share.
const (
	words    = "domain words"
	wire     = "writes JSON as the protocol has it"
	names    = "names of spans and attributes"
	contract = "speaks to a store, whichever it is"
	shapes   = "requests, pages and errors of the contract"
	assembly = "puts it behind the port"
	silence  = "silence has a name"
	everyone = "the command line knows every technology"
)

// rules is the layout of the repository. Arrows point inward: technologies
// import the contract, the contract imports the domain, and only commands,
// examples and tests know every technology.
var rules = []rule{
	// Domain.
	{"semconv", "names of spans and attributes that the protocol gives a meaning", nil},
	{"internal/jsonx", "JSON as the protocol writes it: order of members, floats, raw values", nil},
	{"", "domain types with their JSON, statuses, ids, readers of rewards", reasons{
		"semconv":        names,
		"internal/jsonx": wire,
	}},

	// The store.
	{"store", "the contract of every store, requests, pages, filters, errors", reasons{
		root:             words,
		"internal/jsonx": "spans that stay encoded",
	}},
	{"store/engine", "the rules of the contract over a narrow Backend", reasons{
		root:             words,
		"store":          "implements the contract",
		"semconv":        "expert routes of model calls are kept once",
		"internal/jsonx": "metadata must be an object",
	}},
	{"store/memory", "a backend that remembers in memory", reasons{
		root:           words,
		"store":        shapes,
		"store/engine": "implements Backend",
	}},
	{"store/sqlite", "a backend that remembers in a SQLite file", reasons{
		root:                 words,
		"store":              shapes,
		"store/engine":       "implements Backend",
		"internal/jsonx":     "free-form JSON is stored as it came",
		"modernc.org/sqlite": "SQLite without a C compiler",
		"golang.org/x/sys":   "locks the file on Windows",
	}},
	{"store/storetest", "the suite that judges every store", reasons{
		root:                                words,
		"semconv":                           names,
		"store":                             "judges implementations of the contract",
		"github.com/google/go-cmp":          "differences of whole values",
		"github.com/anishathalye/porcupine": "is the queue linearizable",
	}},
	{"store/observed", "counts and times the calls of another store", reasons{
		root:                                  words,
		"store":                               "is a store around a store",
		"store/engine":                        "counts the changes that the rules make",
		"github.com/prometheus/client_golang": "counts and times calls",
	}},
	{"storehttp", "the store protocol over HTTP: handler, client, bodies, errors, retries", reasons{
		root:               words,
		"store":            "serves one store and is another",
		"adapter":          "explains what training makes of rollouts",
		"rl":               "what failures are worth",
		"internal/jsonx":   wire,
		"golang.org/x/sys": "asks Linux whether a peer read its answer",
	}},
	{"otlp", "OpenTelemetry traces in and out", reasons{
		root:                                  words,
		"semconv":                             names,
		"store":                               shapes,
		"internal/jsonx":                      "attributes that are JSON",
		"go.opentelemetry.io/collector/pdata": "the collector's own reading of the protocol",
		"google.golang.org/protobuf":          "writes the answer of a partial success",
	}},

	{"otlp/otlpgrpc", "OpenTelemetry traces in over gRPC", reasons{
		"otlp":                                "receives what came",
		"store":                               "errors of the contract",
		"go.opentelemetry.io/collector/pdata": "hands on what was read",
		"connectrpc.com/connect":              "gRPC over net/http",
	}},

	// Agents.
	{"agent", "what users implement: agents, results, hooks", reasons{
		root: words,
	}},
	{"agent/program", "any command as an agent: one process a rollout, or a pool", reasons{
		root:            words,
		"agent":         "implements Agent",
		"emit":          "keeps what the command writes",
		"internal/proc": "runs it so that nothing stays",
		"semconv":       names,
	}},
	{"internal/proc", "runs programs of others so that nothing of them stays", reasons{
		"golang.org/x/sys": "waits for a child and limits it on Linux",
	}},
	{"tracer", "records the spans of an attempt", reasons{
		root:                       words,
		"semconv":                  names,
		"store":                    shapes,
		"go.opentelemetry.io/otel": "the standard's SDK",
	}},
	{"tracer/modelcall", "records the model calls of a Go program in its HTTP client", reasons{
		root:                       words,
		"semconv":                  names,
		"llm/anthropic":            "reads calls and answers",
		"llm/genai":                "writes the spans of calls",
		"llm/openai":               "reads calls and answers",
		"tracer":                   "finds the attempt of a context",
		"go.opentelemetry.io/otel": "spans are made by the standard's SDK",
	}},
	{"emit", "spans that people write: rewards, messages, objects", reasons{
		root:                       words,
		"semconv":                  names,
		"internal/jsonx":           "objects are flattened in their own order",
		"tracer":                   "finds the attempt of a context",
		"go.opentelemetry.io/otel": "operations are spans of the standard's SDK",
	}},
	{"runner", "claims rollouts, runs agents, reports", reasons{
		root:      words,
		"semconv": names,
		"store":   contract,
		"agent":   "runs agents",
		"tracer":  "records what agents do",
	}},

	// Models.
	{"llm/openai", "OpenAI's bodies and streams", reasons{
		"internal/jsonx": "unknown fields pass through untouched",
	}},
	{"llm/anthropic", "Anthropic's bodies and streams, and chat completions put as them", reasons{
		"internal/jsonx": "unknown fields pass through untouched",
		"llm/openai":     "what it is translated to and from",
	}},
	{"llm/genai", "model calls as attributes of spans", reasons{
		root:             words,
		"semconv":        names,
		"internal/jsonx": "messages and tools without a shape of their own",
		"llm/openai":     "what was asked and answered",
	}},
	{"llm/internal/llmtest", "what the tests of translations share", reasons{
		"internal/jsonx": "requests are shown a member a line",
		"llm/openai":     "reads requests and streams",
	}},
	{"llmproxy", "the model proxy: routing, capture of token ids, one span a call", reasons{
		root:                                  words,
		"semconv":                             names,
		"store":                               shapes,
		"internal/jsonx":                      "reads members without a shape of their own",
		"llm/genai":                           "writes the spans of calls",
		"llm/anthropic":                       "speaks with Anthropic's clients",
		"llm/openai":                          "reads calls and answers",
		"github.com/prometheus/client_golang": "counts calls where they are made",
	}},
	{"gateway", "the 1.0 protocol over the same store: handler, client, events and spans", reasons{
		root:             words,
		"semconv":        names,
		"internal/jsonx": wire,
		"store":          contract,
		"adapter":        "model calls of spans as messages",
		"llm/openai":     "calls are put together member by member",
		"llmproxy":       "makes the model calls, and pauses them",
	}},

	{"controller/local", "queued rollouts of the 1.0 protocol as processes", reasons{
		"gateway":          "asks for rollouts and reports on them",
		"internal/jsonx":   "parts of an input as Python writes them",
		"internal/proc":    "runs agents that outlive it",
		"golang.org/x/sys": "one controller a folder",
	}},

	// Learning.
	{"adapter", "spans to what training reads: calls, triplets, messages, training rows (pure)", reasons{
		root:             words,
		"rl":             "what failures are worth",
		"semconv":        names,
		"internal/jsonx": "attributes that hold JSON",
	}},
	{"adapter/credit", "which call of a rollout earned what (pure)", reasons{
		root:      words,
		"adapter": "model calls of an attempt",
		"rl":      "advantages",
		"semconv": names,
	}},
	{"adapter/credit/expr", "credit as an expression, apart for the weight of its library", reasons{
		"adapter/credit":           "makes its rules",
		"github.com/google/cel-go": "safe, typed expressions",
	}},
	{"dataset", "training data between the store, files and learners", reasons{
		root:                               words,
		"adapter":                          "calls and conversations of an attempt",
		"adapter/credit":                   "advantages of rows",
		"algorithm":                        "tasks, and errors that name a line",
		"learner":                          "rows as learners take them",
		"store":                            contract,
		"github.com/parquet-go/parquet-go": "Parquet in pure Go",
	}},
	{"rl", "advantages, masks and losses (pure)", nil},
	{"learner", "the contract to whatever updates weights", reasons{
		root: "models that the proxy calls",
		"rl": "losses are described there",
	}},
	{"learner/command", "weights that any program updates, a process an update", reasons{
		"dataset":       "rows in files",
		"internal/proc": "runs trainers so that nothing of them stays",
		"learner":       "implements the contract",
		"rl":            "losses are handed on",
	}},
	{"learner/serving", "inference engines as child processes, registered with the proxy", reasons{
		root:              "models that the proxy calls",
		"internal/proc":   "runs engines so that nothing of them stays",
		"learner/command": "serves what trainers make",
	}},
	{"learner/openai", "new models by the fine-tuning services of OpenAI and Azure", reasons{
		root:                             words,
		"learner":                        "implements Tuner",
		"github.com/openai/openai-go/v3": "calls and errors of the API",
	}},
	{"learner/openai/openaitest", "a fine-tuning service for tests and examples", nil},
	{"learner/native", "the built-in model: sampling, training, serving", reasons{
		"rl":                             "the losses",
		"learner":                        "implements the contract",
		"learner/native/internal/kernel": "matrix products",
	}},
	{"learner/native/internal/kernel", "matrix products, chosen for the processor at run time", reasons{
		"golang.org/x/sys": "what the processor can do",
	}},
	{"algorithm/stage", "names for the parts of a run, and a watch that says which one is silent", nil},
	{"algorithm", "the contract of whatever makes agents better, and what algorithms share", reasons{
		root:              words,
		"algorithm/stage": "names what a run waits for",
		"internal/runlog": "what is said belongs to the run",
		"store":           contract,
	}},
	{"internal/runlog", "what is said while a run goes on, in the log of the run", reasons{
		root:             words,
		"store":          "errors and bounds of the contract",
		"internal/jsonx": wire,
	}},
	{"algorithm/baseline", "runs every task once, learns nothing", reasons{
		root:        words,
		"algorithm": "implements the contract",
		"store":     contract,
	}},
	{"algorithm/sft", "training on rows that are there: imitation and preferences", reasons{
		"algorithm":       "implements the contract",
		"algorithm/stage": silence,
		"learner":         "updates the weights",
	}},
	{"algorithm/finetune", "reward-ranked fine-tuning by a service", reasons{
		root:                         words,
		"algorithm":                  "implements the contract",
		"algorithm/internal/journal": "goes on in the middle of a job",
		"algorithm/stage":            "names its waits",
		"dataset":                    "chooses by reward, writes what services read",
		"learner":                    "has a service make the model",
	}},
	{"algorithm/pg", "policy gradients: GRPO, PPO and their kin", reasons{
		root:                         words,
		"semconv":                    names,
		"adapter":                    "model calls of an attempt as training rows",
		"adapter/credit":             "what each call earned",
		"algorithm":                  "implements the contract",
		"algorithm/internal/journal": "finds rollouts that a killed execution asked for",
		"algorithm/stage":            silence,
		"learner":                    "updates the weights",
		"rl":                         "advantages, corrections, losses",
		"store":                      contract,
	}},

	{"algorithm/internal/journal", "what was paid for in a step, recorded before it is used", reasons{
		root:              words,
		"semconv":         names,
		"algorithm":       "records in runs, asks for rollouts",
		"algorithm/stage": silence,
		"store":           contract,
	}},
	{"algorithm/prompt", "what optimisers of prompts share: templates that stay intact, feedback of spans", reasons{
		root:      words,
		"semconv": names,
	}},
	{"algorithm/prompt/openai", "better prompts from a server that speaks as OpenAI does", reasons{
		"algorithm/prompt":               "implements Completer",
		"github.com/openai/openai-go/v3": "calls, retries and errors of the API",
	}},
	{"algorithm/apo", "textual gradients and beam search over one prompt", reasons{
		root:                         words,
		"adapter":                    "model calls are shown to the critic",
		"algorithm":                  "implements the contract",
		"algorithm/internal/journal": "goes on in the middle of a round",
		"algorithm/prompt":           "asks for critiques and edits",
		"algorithm/stage":            silence,
		"store":                      contract,
	}},
	{"algorithm/gepa", "reflection and Pareto fronts over several prompts", reasons{
		root:                         words,
		"adapter":                    "model calls are shown to the model that reflects",
		"algorithm":                  "implements the contract",
		"algorithm/internal/journal": "goes on in the middle of an iteration",
		"algorithm/prompt":           "asks for rewrites",
		"algorithm/stage":            silence,
		"semconv":                    names,
	}},

	{"rescore", "rewards of stored rollouts, computed anew as named sets", reasons{
		root:                "rewards and their sets",
		"semconv":           names,
		"adapter":           "what was said, and the model calls",
		"algorithm":         "groups of rollouts",
		"algorithm/prompt":  "asks judges, and reads feedback of spans",
		"store":             contract,
		"golang.org/x/sync": "goroutines that end together",
	}},
	{"tracking", "runs of algorithms as people and other trackers read them", reasons{
		root:                         words,
		"algorithm":                  "names of metrics, rewards of stored rollouts",
		"store":                      contract,
		"google.golang.org/protobuf": "the wire format of event files",
	}},
	{"rescore/expr", "rewards by expression, apart for the weight of its library", reasons{
		root:                       words,
		"semconv":                  names,
		"rescore":                  "is a scorer",
		"github.com/google/cel-go": "safe, typed expressions",
	}},

	// Putting together.
	{"execution", "where algorithm and runners run: one process, or by role", reasons{
		root:                words,
		"internal/proc":     "runners that are processes of their own",
		"store":             contract,
		"storehttp":         "serves the store to other processes, or reaches theirs",
		"golang.org/x/sync": "goroutines that end together",
	}},
	{"trainer", "wires agent, runners, algorithm and store: Fit and Dev", reasons{
		root:                 words,
		"agent":              "what is trained",
		"algorithm":          "what trains it",
		"algorithm/baseline": "Dev runs it",
		"execution":          "where the parts run",
		"internal/runlog":    "what runners say belongs to the run",
		"runner":             "runs agents",
		"store":              contract,
	}},
	{"dashboard", "the web interface", nil},
	{"internal/openapi", "the description of the REST interface", nil},
	{"internal/logs", "the loggers of a server: levels by area, ids of requests", nil},
	{"internal/access", "who may call what on a server that has a token", reasons{
		root:    words,
		"store": "attempts, and the error of a call that is denied",
	}},
	{"internal/modellist", "model backends as people write them: options, and LiteLLM's model_list", reasons{
		root:                       words,
		"github.com/goccy/go-yaml": "the list is YAML",
	}},
	{"internal/yamlconf", "YAML files as Go structs, strictly, with values from the command line", reasons{
		"github.com/goccy/go-yaml": "reads YAML, with the line of each value",
	}},
	{"internal/recipe", "trainings that a file describes, put together of named components", reasons{
		root:                             words,
		"adapter/credit":                 "rules of credit by name",
		"adapter/credit/expr":            "rules that are expressions",
		"agent":                          "what is trained",
		"agent/program":                  "a component",
		"algorithm":                      "runs algorithms",
		"algorithm/apo":                  "a component",
		"algorithm/baseline":             "a component",
		"algorithm/finetune":             "a component",
		"algorithm/gepa":                 "a component",
		"algorithm/pg":                   "its presets are components",
		"algorithm/prompt":               "the model that rewrites prompts",
		"algorithm/prompt/openai":        "that model over OpenAI's API",
		"algorithm/sft":                  "two components",
		"algorithm/stage":                "tells what a run waits for",
		"dataset":                        "tasks and training data in files",
		"execution":                      "agent and algorithm in one process",
		"internal/runlog":                "what is said belongs to the run",
		"internal/yamlconf":              "reads the file",
		"learner":                        "the contract of a component",
		"learner/command":                "a component",
		"learner/native":                 "a component",
		"learner/openai":                 "the service of a component",
		"rl":                             "settings of policy gradients",
		"runner":                         "knows attempts that a stop cut short",
		"semconv":                        names,
		"store":                          contract,
		"trainer":                        "runs agent and algorithm",
		"github.com/openai/openai-go/v3": "options of that API",
	}},
	{"internal/doctor", "what is wrong with an installation, and how to mend it", reasons{
		root: words,
	}},
	{"internal/rescoring", "stored rollouts scored again on a server, in the background", reasons{
		root:           words,
		"rescore":      "does the work",
		"rescore/expr": "what scores",
		"store":        contract,
		"storehttp":    "what is asked for and told",
	}},
	{"internal/history", "how a server fared, in memory and bounded", reasons{
		root:        words,
		"llmproxy":  "what went through model backends",
		"storehttp": "what is shown",
	}},
	{"internal/pruning", "deleting what ended long ago from the store of a running server", reasons{
		root:        words,
		"store":     contract,
		"storehttp": "what is asked for and told",
	}},
	{"internal/daemon", "the assembled server", reasons{
		root:                                  words,
		"adapter":                             "describes the words of its explanations",
		"rl":                                  "describes what failures may be worth",
		"dashboard":                           assembly,
		"gateway":                             assembly,
		"internal/access":                     "guards every protocol",
		"internal/jsonx":                      "refusals that are JSON",
		"internal/logs":                       "lines name their request",
		"internal/history":                    "remembers how it fared",
		"internal/pruning":                    "deletes what ended long ago",
		"internal/rescoring":                  "scores stored rollouts again",
		"internal/openapi":                    "describes what it serves",
		"llm/openai":                          "refuses model calls in the words of their clients",
		"llmproxy":                            assembly,
		"otlp":                                assembly,
		"otlp/otlpgrpc":                       assembly,
		"store":                               "one store under all routes",
		"store/engine":                        "looks at the queue, and is told of changes, for metrics",
		"store/observed":                      "counts and times the calls of the store",
		"storehttp":                           assembly,
		"connectrpc.com/connect":              "codes of the second port",
		"github.com/prometheus/client_golang": "serves /metrics",
	}},
	{"internal/top", "a server in a terminal, as it is now", reasons{
		root:                           words,
		"gateway":                      "reads whether model calls are paused",
		"store":                        "the error of what is closed",
		"storehttp":                    "asks the server",
		"charm.land/bubbletea":         "keys, sizes and repainting of a terminal",
		"github.com/charmbracelet/x":   "the width of text, and what is a terminal",
		"github.com/prometheus/common": "reads /metrics",
	}},
	{"internal/cli", "the commands of agl", reasons{
		"agent":                        "says how rollouts of a runner end",
		"controller/local":             "agl controller",
		"execution":                    "how children are told their name",
		"agent/program":                "agl runner",
		"learner/command":              "models that agl vllm follows",
		"learner/serving":              "agl vllm",
		"golang.org/x/sync":            "goroutines that end together",
		"runner":                       "agl runner",
		root:                           words,
		"adapter":                      "exports and explains what training reads",
		"semconv":                      names,
		"adapter/credit":               "shows what rules of credit would give",
		"adapter/credit/expr":          "rules that are expressions",
		"rl":                           "advantages of what was credited",
		"algorithm":                    "errors that name a line",
		"dataset":                      "training data in files",
		"rescore":                      "new rewards for stored rollouts",
		"rescore/expr":                 "these by expression",
		"tracking":                     "lists, compares and exports runs",
		"algorithm/prompt/openai":      "asks judges",
		"internal/daemon":              "agl serve",
		"gateway":                      "how the server makes the calls of the 1.0 protocol",
		"internal/doctor":              "agl doctor",
		"internal/modellist":           "backends as flags and files name them",
		"learner/native":               "serves a checkpoint of the built-in model",
		"llmproxy":                     "the flags of the proxy",
		"internal/logs":                "the flags of the log",
		"store":                        contract,
		"store/engine":                 everyone,
		"store/memory":                 everyone,
		"store/sqlite":                 everyone,
		"storehttp":                    "commands that ask a server",
		"github.com/spf13/cobra":       "commands, help, completion",
		"github.com/spf13/pflag":       "cobra's flags",
		"github.com/goccy/go-yaml":     "the file of settings",
		"internal/recipe":              "agl train and agl optimize",
		"internal/top":                 "agl top",
		"algorithm/stage":              "shows what a run waits for",
		"github.com/vbauerster/mpb/v8": "progress that people can read",
	}},
	{"internal/arch", "these tests", nil},
	{"cmd/agl", "main", reasons{
		"internal/cli": "everything",
	}},
}

// free packages know every technology and are imported by nobody, so they need
// no line: examples show how the parts are put together, and test holds programs
// and tests that drive the whole.
var free = []string{"examples/", "test/"}

// sdk is what a program of somebody else imports to write agents and algorithms.
var sdk = []string{
	"",
	"semconv",
	"store",
	"storehttp",
	"agent",
	"agent/program",
	"tracer",
	"tracer/modelcall",
	"emit",
	"runner",
	"adapter",
	"adapter/credit",
	"rl",
	"learner",
	"learner/native",
	"algorithm",
	"algorithm/stage",
	"algorithm/baseline",
	"algorithm/sft",
	"algorithm/pg",
	"algorithm/prompt",
	"algorithm/apo",
	"algorithm/gepa",
	"execution",
	"trainer",
}

// reaches are statements about everything that an import pulls in.
var reaches = []struct {
	from  []string
	never []string // import paths; those that end in /... with the packages below
	why   string
}{
	{
		from: sdk,
		never: []string{
			"database/sql", "modernc.org/...", "github.com/prometheus/...", "github.com/spf13/cobra",
			"go.opentelemetry.io/collector/...", module + "/dashboard", module + "/internal/daemon", module + "/internal/cli",
		},
		why: "the SDK carries no database, metrics, dashboard or command line into other people's programs",
	},
	{
		from:  []string{"agent"},
		never: []string{"net", "os/exec", "go.opentelemetry.io/...", "golang.org/x/..."},
		why:   "what agents are written against is domain words and the standard library",
	},
	{
		from:  []string{"agent", "runner", "tracer", "emit"},
		never: []string{"os/exec", "google.golang.org/...", "github.com/goccy/...", module + "/storehttp", module + "/internal/proc"},
		why:   "running an agent and recording it takes the tracing SDK and nothing else from outside",
	},
	{
		// text/template is reached by way of cobra and cel-go, which do not run it;
		// .ci/measure.go looks at the program itself.
		from:  []string{"cmd/agl"},
		never: []string{"html/template", "golang.org/x/net/trace", "google.golang.org/grpc/..."},
		why: "a template may call any method by its name, so with one that is run the linker keeps every exported method " +
			"of every type; grpc-go runs one by way of golang.org/x/net/trace",
	},
	{
		from:  []string{"adapter", "rl", "semconv", "learner"},
		never: []string{"net", "os/exec", "database/sql"},
		why:   "data to data needs no network",
	},
}

// pure packages turn data into data; inputOutput is what they may not import.
var (
	pure        = []string{"adapter", "adapter/credit", "rl", "semconv"}
	inputOutput = []string{"net", "os", "io/fs", "io/ioutil", "database", "syscall", "log", "embed"}
)

// testSupport may link package testing: other packages import these in tests only.
var testSupport = []string{"store/storetest", "internal/testkit", "llm/internal/llmtest", "examples/internal/lessontest"}

// noExample excuses public packages from a runnable example.
var noExample = map[string]string{}

// emptyNames say nothing about what is inside, as a package or as a file; a
// file may be called models.go, since a model is a thing of the protocol.
var emptyNames = []string{
	"util", "utils", "common", "helper", "helpers", "types", "base", "misc", "shared", "interfaces",
}
