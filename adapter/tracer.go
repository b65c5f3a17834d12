package adapter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
	"agentlightning/semconv"
)

// RewardMatch says which call a reward belongs to.
type RewardMatch int

const (
	// FirstOccurrence gives a reward to the call that finished last before it.
	FirstOccurrence RewardMatch = iota
	// FirstSibling looks among the calls with the same parent only.
	FirstSibling
)

// TracerOptions are the options of [TracerTriplets]. The zero value is the
// default of Agent Lightning 0.3.
type TracerOptions struct {
	// CallMatch is a regular expression, found anywhere in the names of spans
	// that are model calls. Empty means `openai\.chat\.completion`. Like all
	// expressions here it is Go's: no look-around and no back-references.
	CallMatch string
	// AgentMatch is a regular expression, found anywhere in the name of the
	// agent whose calls count. Empty means every call, inside an agent or not.
	AgentMatch string
	// IncludeCallsInReward keeps calls that were made to compute a reward.
	IncludeCallsInReward bool
	// NoRepair leaves spans where they are when mixed instrumentation put them
	// directly below the root.
	NoRepair bool
	// RewardMatch says which call a reward belongs to.
	RewardMatch RewardMatch
	// SkipEmpty drops calls without the token ids of prompt and answer.
	SkipEmpty bool
}

const defaultCallMatch = `openai\.chat\.completion`

// TracerTriplets reads the spans of an agent's own tracer, as
// TracerTraceToTriplet does: it joins them to a tree, finds the model calls in
// it and gives each reward to one of them by time or place in the tree. The
// triplets are in the order of the tree.
func TracerTriplets(spans []agl.Span, o TracerOptions) ([]agl.Triplet, error) {
	if o.CallMatch == "" {
		o.CallMatch = defaultCallMatch
	}
	f := finder{seen: map[string]bool{}}
	var err error
	if f.call, err = regexp.Compile(o.CallMatch); err != nil {
		return nil, fmt.Errorf("CallMatch: %w", err)
	}
	if o.AgentMatch != "" {
		if f.agent, err = regexp.Compile(o.AgentMatch); err != nil {
			return nil, fmt.Errorf("AgentMatch: %w", err)
		}
	}
	root, err := buildTree(spans)
	if err != nil {
		return nil, err
	}
	if !o.NoRepair {
		if err := root.repair(); err != nil {
			return nil, err
		}
	}
	start := place{exclude: !o.IncludeCallsInReward}
	if f.agent == nil {
		start.agent, start.inAgent = "*", true
	}
	if err := f.find(root, start); err != nil {
		return nil, err
	}
	if o.SkipEmpty {
		f.found = slices.DeleteFunc(f.found, func(c *foundCall) bool { return c.empty })
	}
	if err := matchRewards(root, f.found, o.RewardMatch); err != nil {
		return nil, err
	}
	out := make([]agl.Triplet, len(f.found))
	for i, c := range f.found {
		out[i] = c.triplet
	}
	return out, nil
}

// finder walks a tree for model calls.
type finder struct {
	call, agent *regexp.Regexp // agent is nil when every agent counts
	seen        map[string]bool
	found       []*foundCall
}

// foundCall is a call with its triplet.
type foundCall struct {
	node    *tree
	empty   bool // the ids of prompt or answer are missing
	triplet agl.Triplet
}

// place is what a walk knows of where it is.
type place struct {
	agent    string
	inAgent  bool
	exclude  bool // calls below a reward do not count
	inReward bool
	inCall   bool
}

func (f *finder) find(t *tree, at place) error {
	s := t.span
	if at.inAgent && !(at.exclude && at.inReward) && f.call.MatchString(s.Name) {
		id, hasID := responseID(s)
		if hasID && !f.seen[id] || !hasID && !at.inCall {
			c, err := newFound(t, at.agent)
			if err != nil {
				return fmt.Errorf("span %s: %w", s.SpanID, err)
			}
			f.found = append(f.found, c)
			if hasID {
				f.seen[id] = true
			}
			at.inCall = true
		}
	}
	if name, ok := agentName(s); ok {
		at.inAgent = f.agent == nil || f.agent.MatchString(name)
		at.agent = name
	}
	if at.exclude {
		is, err := isReward(s)
		if err != nil {
			return err
		}
		at.inReward = at.inReward || is
	}
	for _, k := range t.kids {
		if err := f.find(k, at); err != nil {
			return err
		}
	}
	return nil
}

// agentName returns the name of the agent whose work a span is, by the marks
// of the frameworks that name agents.
func agentName(s *agl.Span) (string, bool) {
	a := s.Attributes
	is := func(key, value string) bool {
		v, _ := a.String(key)
		return v == value
	}
	if name, ok := a.String("agent.name"); ok {
		return name, true
	}
	if is("agentops.span.kind", "agent") {
		if name, ok := a.String("operation.name"); ok {
			return name, true
		}
	}
	for _, key := range [...]string{"recipient_agent_type", "langchain.chain.type", "executor.id"} {
		if name, ok := a.String(key); ok {
			return name, true
		}
	}
	if is("type", "agent") {
		if name, ok := a.String(semconv.OperationInput + ".name"); ok {
			return name, true
		}
	}
	if strings.HasPrefix(s.Name, "langchain.Chain.") {
		return a.String("lc_name")
	}
	return "", false
}

func isReward(s *agl.Span) (bool, error) {
	value, err := agl.RewardValue(s)
	if err != nil || value != nil {
		return value != nil, err
	}
	operation, _ := s.Attributes.String(semconv.OperationName)
	return s.Name == semconv.SpanOperation && operation == semconv.OperationReward, nil
}

func responseID(s *agl.Span) (string, bool) {
	for _, key := range [...]string{semconv.GenAIResponseID, semconv.OperationOutput + ".id"} {
		if id, ok := s.Attributes.String(key); ok {
			return id, true
		}
	}
	return "", false
}

// Where the token ids of a call are looked for, first match first.
var (
	promptKeys   = []string{semconv.PromptTokenIDs, semconv.OperationOutput + ".prompt_token_ids"}
	responseKeys = []string{
		semconv.ResponseTokenIDs, semconv.OperationOutput + ".response_token_ids.0",
		semconv.OperationOutput + ".choices.0.token_ids", semconv.OperationOutput + ".choices.0.provider_specific_fields.token_ids",
	}
)

// tokenIDs returns the first list of integers and its length, as JSON. To
// Python a list of bools is one; it is handed on as it is.
func tokenIDs(s *agl.Span, keys []string) (list []byte, n int) {
	for _, key := range keys {
		if ids, ok := s.Attributes.Ints(key); ok {
			return appendInts(nil, ids), len(ids)
		}
		if v, _ := s.Attributes.Get(key); v != nil {
			if bools, ok := v.([]bool); ok {
				return appendValue(nil, bools), len(bools)
			}
		}
	}
	return []byte("[]"), 0
}

// newFound builds the triplet of a call, without its reward.
func newFound(t *tree, agent string) (*foundCall, error) {
	s := t.span
	promptIDs, prompts := tokenIDs(s, promptKeys)
	responseIDs, responses := tokenIDs(s, responseKeys)
	c := &foundCall{node: t, empty: prompts == 0 || responses == 0}
	asked, err := firstOf(s, semconv.GenAIPrompt, semconv.OperationInput+".messages")
	if err != nil {
		return nil, err
	}
	answered, err := firstOf(s, semconv.GenAICompletion, semconv.OperationOutput+".choices")
	if err != nil {
		return nil, err
	}
	request, err := firstOf(s, semconv.GenAIRequest, semconv.OperationInput)
	if err != nil {
		return nil, err
	}
	response, err := firstOf(s, "gen_ai.response", semconv.OperationOutput)
	if err != nil {
		return nil, err
	}
	for n, keys := range map[*node][]string{request: {"messages"}, response: {"choices", "prompt_token_ids", "response_token_ids"}} {
		if _, list := n.elements(); n != nil && !list {
			for _, key := range keys {
				n.remove(key)
			}
		}
	}

	prompt := append([]byte(`{"token_ids":`), promptIDs...)
	prompt = asked.appendJSON(append(prompt, `,"raw_content":`...))
	prompt = append(prompt, `,"image_urls":[`...)
	for i, url := range imageURLs(asked) {
		if i > 0 {
			prompt = append(prompt, ',')
		}
		prompt = jsonx.AppendString(prompt, url)
	}
	c.triplet.Prompt = append(prompt, "]}"...)

	body := append([]byte(`{"token_ids":`), responseIDs...)
	body = answered.appendJSON(append(body, `,"raw_content":`...))
	if text, ok := s.Attributes.String(semconv.LogprobsContent); ok {
		raw, err := jsonx.Normalize([]byte(text))
		if err != nil {
			return nil, fmt.Errorf("attribute %q: %w", semconv.LogprobsContent, err)
		}
		body = append(append(body, `,"logprobs":`...), raw...)
	}
	c.triplet.Response = append(body, '}')

	metadata := request.appendJSON([]byte(`{"request":`))
	metadata = response.appendJSON(append(metadata, `,"response":`...))
	metadata = append(metadata, `,"response_id":`...)
	if id, ok := responseID(s); ok {
		metadata = jsonx.AppendString(metadata, id)
	} else {
		metadata = append(metadata, "null"...)
	}
	metadata = jsonx.AppendString(append(metadata, `,"agent_name":`...), agent)
	c.triplet.Metadata = append(metadata, '}')
	return c, nil
}

// firstOf gathers the first of the prefixes that has attributes.
func firstOf(s *agl.Span, prefixes ...string) (*node, error) {
	for _, prefix := range prefixes {
		n, err := unflatten(s.Attributes, prefix)
		if n != nil || err != nil {
			return n, err
		}
	}
	return nil, nil
}

// imageURLs returns the images of the messages of a prompt. Contents of several
// parts are JSON texts.
func imageURLs(prompt *node) []string {
	var urls []string
	for _, item := range messageItems(prompt) {
		content := item.kid("content")
		text, ok := content.text()
		raw := []byte(text)
		if !ok {
			raw = content.appendJSON(nil)
		}
		urls = append(urls, imageParts(raw)...)
	}
	return urls
}

// imageParts returns the images of a content: nothing unless it is a list of
// parts.
func imageParts(content []byte) []string {
	content = bytes.TrimSpace(content)
	if jsonx.KindOf(content) != jsonx.Array {
		return nil
	}
	parts, err := jsonx.Elements(content)
	if err != nil {
		return nil
	}
	var urls []string
	for _, raw := range parts {
		var part struct {
			Type     string          `json:"type"`
			ImageURL json.RawMessage `json:"image_url"`
		}
		var image struct {
			URL *string `json:"url"`
		}
		if json.Unmarshal(raw, &part) == nil && part.Type == "image_url" &&
			json.Unmarshal(part.ImageURL, &image) == nil && image.URL != nil {
			urls = append(urls, *image.URL)
		}
	}
	return urls
}

// messageItems returns the messages of a prompt: those under numbers, in
// order, or the one that it is itself.
func messageItems(prompt *node) []*node {
	if prompt == nil {
		return nil
	}
	type numbered struct {
		n    int
		item *node
	}
	var items []numbered
	for _, key := range prompt.keys {
		if n, ok := index(key); ok {
			items = append(items, numbered{n, prompt.kids[key]})
		}
	}
	if len(items) == 0 {
		return []*node{prompt}
	}
	slices.SortStableFunc(items, func(a, b numbered) int { return a.n - b.n })
	out := make([]*node, len(items))
	for i := range items {
		out[i] = items[i].item
	}
	return out
}
