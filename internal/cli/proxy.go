package cli

import (
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/spf13/pflag"

	"agentlightning/internal/modellist"
	"agentlightning/llmproxy"
)

// proxyOptions are the flags of the model proxy.
type proxyOptions struct {
	models, lists                        []string
	connectTimeout, timeout, idle, queue time.Duration
	hold                                 time.Duration
	redact                               []string
	noBodies, litellmSpans               bool
}

func (o *proxyOptions) bind(f *pflag.FlagSet) {
	f.StringArrayVar(&o.models, "model", nil, "a model backend as "+modellist.Usage+" (repeatable); "+builtinPrefix+"FOLDER in place of the address serves a checkpoint of the built-in model; options are "+modellist.Options)
	f.StringArrayVar(&o.lists, "model-list", nil, "file with model backends in the form of LiteLLM's model_list, YAML (repeatable)")
	f.DurationVar(&o.connectTimeout, "upstream-connect-timeout", 10*time.Second, "how long connecting to a model backend may take; 0s has no limit")
	f.DurationVar(&o.timeout, "upstream-timeout", 10*time.Minute, "how long a model backend may take to begin its answer; 0s has no limit")
	f.DurationVar(&o.idle, "upstream-idle-timeout", 2*time.Minute, "how long a model backend may pause in its answer; 0s has no limit")
	f.DurationVar(&o.queue, "upstream-queue-timeout", time.Minute, "how long a call waits for a model backend whose limits are reached; 0s refuses at once")
	f.StringArrayVar(&o.redact, "redact", nil, "expression (RE2); what it matches is taken out of the texts in the spans of model calls, token ids stay (repeatable)")
	f.BoolVar(&o.noBodies, "no-bodies", false, "store no texts in the spans of model calls; token ids, counts and reasons stay")
	f.BoolVar(&o.litellmSpans, "litellm-spans", false, "store beside each model call a span as LiteLLM's proxy writes it, for LlmProxyTraceToTriplet of release 0.3")
	f.DurationVar(&o.hold, "pause-hold-timeout", 5*time.Minute, "how long a call is held at most by a pause that holds calls")
}

// config returns what the flags say.
func (o *proxyOptions) config(environ modellist.Environ) (llmproxy.Config, error) {
	c := llmproxy.Config{
		UpstreamConnectTimeout: orNever(o.connectTimeout), UpstreamTimeout: orNever(o.timeout),
		UpstreamIdleTimeout: orNever(o.idle), UpstreamQueueTimeout: orNever(o.queue),
		NoBodies: o.noBodies, LiteLLMSpans: o.litellmSpans,
		Environ: func(name string) string { value, _ := environ(name); return value },
	}
	if o.hold <= 0 {
		return c, usageError{fmt.Errorf("--pause-hold-timeout %s: must be more than 0s", o.hold)}
	}
	c.Gate = llmproxy.NewGate(o.hold, nil)
	for _, text := range o.redact {
		rule, err := regexp.Compile(text)
		if err != nil {
			return c, usageError{fmt.Errorf("--redact: %w", err)}
		}
		c.Redact = append(c.Redact, rule)
	}
	for _, path := range o.lists {
		text, err := os.ReadFile(path)
		if err != nil {
			return c, fmt.Errorf("--model-list: %w", err)
		}
		models, err := modellist.ParseYAML(text, environ)
		if err != nil {
			return c, usageError{fmt.Errorf("--model-list %s: %w", path, err)}
		}
		c.Static = append(c.Static, models...)
	}
	models, err := modellist.ParseAll(o.models, environ)
	if err != nil {
		return c, usageError{fmt.Errorf("--model %w", err)}
	}
	c.Static = append(c.Static, models...)
	return c, nil
}

// orNever translates a limit: none is 0 on the command line and negative for the proxy.
func orNever(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}
