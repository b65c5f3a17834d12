package recipe

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/algorithm"
	"agentlightning/algorithm/prompt"
	"agentlightning/internal/yamlconf"
	"agentlightning/learner"
)

// use is the key that names a component.
const use = "use"

// Registry lists the components that recipes can name.
type Registry struct {
	Algorithms []AlgorithmKind
	Learners   []LearnerKind
	Agents     []AgentKind
}

// Components returns all that come with the project.
func Components() Registry {
	return Registry{
		Algorithms: algorithms(),
		Learners: []LearnerKind{
			{"native", func() LearnerSettings { return newNative() }},
			{"command", func() LearnerSettings { return &commandLearner{Name: "policy"} }},
		},
		Agents: []AgentKind{
			{"program", func() AgentSettings { return &programAgent{Reward: "none"} }},
			{remote, func() AgentSettings { return &remoteAgent{} }},
		},
	}
}

// AlgorithmKind is an algorithm that recipes can name.
type AlgorithmKind struct {
	Name string
	// Run is what its runs are called in the store.
	Run string
	// Tasks: it runs the agent on tasks. Weights: it changes the weights of a
	// learner. One that does not, but runs an agent, improves prompts or nothing.
	Tasks, Weights bool
	// Serves: it runs no agent but learns from those of others, who are given its
	// model.
	Serves bool
	// New returns settings with their defaults, which the file is decoded into.
	New func() AlgorithmSettings
}

// AlgorithmSettings are what a recipe may set of an algorithm.
type AlgorithmSettings interface {
	Build(p Parts) (Built, error)
}

// planner is an algorithm that says what its budget is good for.
type planner interface {
	plan(val int) (string, error)
}

// Parts are what an algorithm is built of.
type Parts struct {
	Seed int64
	// Server is the address of the server as agents reach it.
	Server  string
	Environ func(string) (string, bool)
	Logger  *slog.Logger
	// Policy is the learner; nil for algorithms that change no weights.
	Policy *Policy
	// Offer makes the model of the policy known to the proxy.
	Offer func(context.Context) error
	// Resources are what agents are given: prompts and the model.
	Resources agl.NamedResources
	Rollout   agl.RolloutConfig
	// Checkpoints is the folder for weights.
	Checkpoints string
	// Path returns a path of the recipe as this process opens it.
	Path func(string) string
	// Completer returns the model that rewrites prompts.
	Completer func(c completer, models ...string) (prompt.Completer, error)
	// Report is told of each step; never nil.
	Report func(Progress)
}

// Progress is how far an algorithm has come.
type Progress struct {
	Step, Of int
	// Text says what the step came to.
	Text string
}

// Built is an algorithm with what there is to know of its result.
type Built struct {
	algorithm.Algorithm
	// Offers: the algorithm calls [Parts.Offer] itself, when a run that goes on is
	// back at its weights.
	Offers bool
	// Prompts are the best ones once it has run; nil for one that improves none.
	Prompts func() (map[string]agl.PromptTemplate, error)
}

// LearnerKind is a learner that recipes can name.
type LearnerKind struct {
	Name string
	New  func() LearnerSettings
}

// LearnerSettings are what a recipe may set of a learner. Check refuses what is
// wrong without opening anything.
type LearnerSettings interface {
	Check(path func(string) string) error
	Open(ctx context.Context, o Opening) (*Policy, error)
}

// Opening is what a learner is opened with.
type Opening struct {
	Seed int64
	Path func(string) string
	// Tasks are the training tasks, for learners that begin from nothing.
	Tasks []json.RawMessage
	// Server is the address of the server; empty while a recipe is only checked.
	Server string
	// Offer puts a model behind the proxy, in place of others of its name.
	Offer  func(ctx context.Context, m agl.Model) error
	Logger *slog.Logger
}

// Policy is a learner that is open.
type Policy struct {
	learner.Learner
	// Model is the backend under which agents reach the policy as it is now;
	// without an endpoint they cannot.
	Model func() agl.Model
	// Freeze returns the policy as it is now, as a reference; nil when it cannot.
	Freeze func() learner.Scorer
	// Reset forgets the moments of the optimiser; nil when there are none.
	Reset func()
	// Render returns the tokens of a conversation in OpenAI's shape, with a mask
	// of what the assistant says; nil when only token ids can be trained on.
	Render func(messages []json.RawMessage) (ids []int32, mask []float32, err error)
	// Done releases what is beside the learner; nil when there is nothing.
	Done func() error
}

// AgentKind is a kind of agent that recipes can name.
type AgentKind struct {
	Name string
	New  func() AgentSettings
}

// AgentSettings are what a recipe may set of an agent.
type AgentSettings interface {
	// Open returns the agent, nil when it runs elsewhere, and what releases it.
	Open(server string, path func(string) string) (agent.Agent, func() error, error)
}

// named is any kind of component.
type named interface{ name() string }

func (k AlgorithmKind) name() string { return k.Name }
func (k LearnerKind) name() string   { return k.Name }
func (k AgentKind) name() string     { return k.Name }

func names[K named](kinds []K) []string {
	var out []string
	for _, k := range kinds {
		out = append(out, k.name())
	}
	return out
}

// pick returns the component that a node names, as its value or under use.
func pick[K named](n *yamlconf.Node, what string, kinds []K) (K, error) {
	var none K
	name := nameOf(n)
	if name == nil {
		return none, n.Errorf("%s is missing: it names the %s, one of %s", use, what, strings.Join(names(kinds), ", "))
	}
	for _, k := range kinds {
		if k.name() == name.Text() {
			return k, nil
		}
	}
	hint := "must be one of " + strings.Join(names(kinds), ", ")
	if near := yamlconf.Nearest(name.Text(), names(kinds)); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return none, name.Errorf("%q is no component; %s", name.Text(), hint)
}

// nameOf is the name of a component: the value of use, or the component itself
// when it is written short; nil when there is none.
func nameOf(n *yamlconf.Node) *yamlconf.Node {
	if name := n.Key(use); name != nil {
		return name
	}
	return n.Short()
}

// settingsOf is a component without its name.
func settingsOf(n *yamlconf.Node) *yamlconf.Node {
	if n.Kind != yamlconf.Map {
		return nil
	}
	return n.Without(use)
}
