package storehttp

import (
	"context"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
	"agentlightning/store"
)

func appendResources(u *agl.ResourcesUpdate, dst []byte) []byte { return u.AppendJSON(dst) }

func (h *handler) listResources(c *call) answer {
	return h.search(c, nil, func(o object) func() answer {
		var q store.ResourcesQuery
		q.ResourcesID = o.stringOrNull("resources_id")
		q.ResourcesIDContains = o.stringOrNull("resources_id_contains")
		p := o.page("")
		q.Paging = p.Paging
		return func() answer {
			if err := p.check(resourcesFields); err != nil {
				return failed(err)
			}
			found, err := h.store.QueryResources(c.Context(), q)
			if err != nil {
				return failed(err)
			}
			return ok(appendPage(p, found, appendResources))
		}
	})
}

func (h *handler) latestResources(c *call) answer {
	u, err := h.store.LatestResources(c.Context())
	return orNull(err, func() []byte { return u.AppendJSON(nil) })
}

func (h *handler) resources(c *call) answer {
	u, err := h.store.Resources(c.Context(), c.params[0])
	return orNull(err, func() []byte { return u.AppendJSON(nil) })
}

func (h *handler) addResources(c *call) answer {
	named, refused := h.namedResources(c)
	if refused != nil {
		return *refused
	}
	return h.once(c, func(ctx context.Context) answer {
		u, err := h.store.AddResources(ctx, named)
		if err != nil {
			return failed(err)
		}
		return created(u.AppendJSON(nil))
	})
}

func (h *handler) updateResources(c *call) answer {
	named, refused := h.namedResources(c)
	if refused != nil {
		return *refused
	}
	return h.once(c, func(ctx context.Context) answer {
		u, err := h.store.UpdateResources(ctx, c.params[0], named)
		if err != nil {
			return failed(err)
		}
		return ok(u.AppendJSON(nil))
	})
}

// namedResources reads the body of the resources routes.
func (h *handler) namedResources(c *call) (agl.NamedResources, *answer) {
	v, given, err := c.body(h.config.MaxBody, true)
	if err != nil {
		a := failed(err)
		return nil, &a
	}
	var named agl.NamedResources
	if given {
		if o, isObject := v.object("dict_type"); isObject {
			named = make(agl.NamedResources, 0, len(o.members))
			for _, m := range o.members {
				r := value{o.form, m.Value, o.at.member(m.Key)}.resource()
				named = append(named, agl.NamedResource{Name: m.Key, Resource: r})
			}
		}
	}
	if !c.valid() {
		a := c.invalid()
		return nil, &a
	}
	for i := range named {
		// Who writes resources need not know how agents reach the server.
		if p, ok := named[i].Resource.(agl.ProxyLLM); ok && p.Endpoint == "" {
			p.Endpoint = h.publicURL(c.Request) + "/v1"
			named[i].Resource = p
		}
	}
	return named, nil
}

const resourceTags = "'llm', 'proxy_llm', 'prompt_template'"

var engines = []string{"jinja", "f-string", "poml"}

// resource reads one resource by its tag. Problems with its members are placed
// below the tag.
func (v value) resource() agl.Resource {
	o, isObject := v.object("model_attributes_type")
	if !isObject {
		return nil
	}
	tag, given := o.get("resource_type")
	if !given {
		v.problems = append(v.problems, problem{
			kind: "union_tag_not_found", at: v.at,
			msg:   "Unable to extract tag using discriminator 'resource_type'",
			input: v.raw, ctx: []byte(`{"discriminator":"'resource_type'"}`),
		})
		return nil
	}
	kind := tag.tag()
	o.at = v.at.member(kind)
	switch kind {
	case agl.KindLLM:
		return o.llm()
	case agl.KindProxyLLM:
		return agl.ProxyLLM(o.llm())
	case agl.KindPromptTemplate:
		var p agl.PromptTemplate
		if m, given := o.need("template"); given {
			p.Template = m.string()
		}
		if m, given := o.need("engine"); given {
			p.Engine = literal(m, engines)
		}
		return p
	}
	ctx := jsonx.AppendString([]byte(`{"discriminator":"'resource_type'","tag":`), kind)
	v.problems = append(v.problems, problem{
		kind: "union_tag_invalid", at: v.at,
		msg:   "Input tag '" + kind + "' found using 'resource_type' does not match any of the expected tags: " + resourceTags,
		input: v.raw, ctx: append(ctx, `,"expected_tags":"`+resourceTags+`"}`...),
	})
	return nil
}

// tag returns the text of a tag. What is not a string is shown as Python does.
func (v value) tag() string {
	switch text := string(v.raw); text {
	case "null":
		return "None"
	case "true":
		return "True"
	case "false":
		return "False"
	default:
		if s, err := jsonx.Text(v.raw); err == nil {
			return s
		}
		return text
	}
}

func (o object) llm() agl.LLM {
	var l agl.LLM
	if m, given := o.need("endpoint"); given {
		l.Endpoint = m.string()
	}
	if m, given := o.need("model"); given {
		l.Model = m.string()
	}
	l.APIKey = o.stringOrNull("api_key")
	if m, given := o.get("sampling_parameters"); given {
		l.SamplingParameters = m.freeObject()
	}
	return l
}
