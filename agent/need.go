package agent

import (
	"fmt"
	"slices"
	"strings"

	agl "agentlightning"
)

// Need is one resource that an agent cannot work without.
type Need struct {
	// Kind is [agl.KindLLM] or [agl.KindPromptTemplate]. A model behind the
	// proxy satisfies [agl.KindLLM].
	Kind string
	// Name is the resource's name; empty accepts any of the kind.
	Name string
}

// NeedLLM is the need of a model; an empty name accepts any.
func NeedLLM(name string) Need { return Need{agl.KindLLM, name} }

// NeedPrompt is the need of a prompt template; an empty name accepts any.
func NeedPrompt(name string) Need { return Need{agl.KindPromptTemplate, name} }

// String describes the need for people.
func (n Need) String() string {
	what := n.Kind
	switch n.Kind {
	case agl.KindLLM:
		what = "a model"
	case agl.KindPromptTemplate:
		what = "a prompt template"
	}
	if n.Name == "" {
		return what
	}
	return fmt.Sprintf("%s named %q", what, n.Name)
}

func (n Need) find(resources agl.NamedResources) (agl.Resource, bool) {
	for _, r := range resources {
		kind := r.Resource.Kind()
		if kind == agl.KindProxyLLM {
			kind = agl.KindLLM
		}
		if kind == n.Kind && (n.Name == "" || n.Name == r.Name) {
			return r.Resource, true
		}
	}
	return nil, false
}

// Requirer is an optional power of an [Agent]: it declares what it needs, so
// that a rollout without it fails at once and with a reason.
type Requirer interface {
	Requires(mode agl.Mode) []Need
}

// Requiring declares what an agent needs.
func Requiring(a Agent, needs ...Need) Agent {
	if len(needs) == 0 {
		return a
	}
	return requiring{a, needs}
}

type requiring struct {
	Agent
	needs []Need
}

func (r requiring) Requires(mode agl.Mode) []Need {
	if inner, ok := r.Agent.(Requirer); ok {
		return slices.Concat(inner.Requires(mode), r.needs)
	}
	return r.needs
}

// TokenUser is an optional power of an [Agent]: it asks for the token of its
// attempt, which otherwise comes with a model behind the proxy only.
type TokenUser interface {
	UsesToken(mode agl.Mode) bool
}

// UsesToken reports whether an agent asks for the token of its attempt.
func UsesToken(a Agent, mode agl.Mode) bool {
	u, ok := a.(TokenUser)
	return ok && u.UsesToken(mode)
}

// UsesToken implements [TokenUser].
func (r requiring) UsesToken(mode agl.Mode) bool { return UsesToken(r.Agent, mode) }

// Check returns a [*ResourcesError] when the resources of a call lack what the
// agent requires.
func Check(a Agent, c *Call) error {
	r, ok := a.(Requirer)
	if !ok {
		return nil
	}
	var missing []Need
	for _, need := range r.Requires(c.Rollout.Mode) {
		if _, ok := need.find(c.Resources); !ok {
			missing = append(missing, need)
		}
	}
	if len(missing) > 0 {
		return c.missing(missing...)
	}
	return nil
}

// ResourcesError says which resources an agent needs and does not find.
type ResourcesError struct {
	ResourcesID string // empty when the rollout names none
	Missing     []Need
	Have        agl.NamedResources
}

func (e *ResourcesError) Error() string {
	var b strings.Builder
	b.WriteString("the agent needs ")
	for i, n := range e.Missing {
		if i > 0 {
			b.WriteString(" and ")
		}
		b.WriteString(n.String())
	}
	if e.ResourcesID == "" {
		b.WriteString("; the rollout's resources hold ")
	} else {
		fmt.Fprintf(&b, "; resources %s hold ", e.ResourcesID)
	}
	if len(e.Have) == 0 {
		b.WriteString("nothing")
	}
	for i, r := range e.Have {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s (%s)", r.Name, r.Resource.Kind())
	}
	return b.String()
}
