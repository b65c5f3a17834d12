package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"agentlightning/gateway"
)

// callOptions are the flags of the model calls that the 1.0 protocol makes.
type callOptions struct {
	config   gateway.CallConfig
	logprobs bool
}

func (o *callOptions) bind(f *pflag.FlagSet) {
	o.config = gateway.DefaultCalls()
	c := &o.config
	f.StringVar(&c.Model, "controlled-model", c.Model, "model that calls of controlled rollouts go to, whatever they ask for; when it is not registered and one other is, that one")
	f.Float64Var(&c.TrainTemperature, "train-temperature", c.TrainTemperature, "temperature of calls of controlled rollouts in training")
	f.Float64Var(&c.ValTemperature, "val-temperature", c.ValTemperature, "temperature of calls of controlled rollouts in validation")
	f.BoolVar(&o.logprobs, "train-logprobs", true, "ask for log-probabilities on calls of controlled rollouts in training")
	f.BoolVar(&c.RoutedExperts, "routed-experts", false, "ask for the experts to which tokens are routed on calls of controlled rollouts in training")
	f.BoolVar(&c.RefuseStreams, "refuse-streams", false, "refuse calls of controlled rollouts that ask for a stream, as release 1.0 does")
}

func (o *callOptions) calls() *gateway.CallConfig {
	c := o.config
	c.NoLogprobs = !o.logprobs
	return &c
}

// gatewayKeys are the keys of release 1.0's server.yaml with the flags that mean
// the same.
var gatewayKeys = map[string]string{
	"host":                                 "host",
	"port":                                 "port",
	"key":                                  "auth-token",
	"default_proxy.model_name":             "controlled-model",
	"default_proxy.include_log_probs":      "train-logprobs",
	"default_proxy.include_routed_experts": "routed-experts",
	"default_proxy.train.temperature":      "train-temperature",
	"default_proxy.val.temperature":        "val-temperature",
}

// gatewayPort is where release 1.0 listens.
const gatewayPort = 8080

func newGateway() *cobra.Command {
	o := serveOptions{keys: gatewayKeys}
	var given []string
	cmd := &cobra.Command{
		Use:   "gateway [key=value ...]",
		Short: "Run the same server with the keys and the port of release 1.0's agl-server",
		Long: "Run the server as serve does, for trainers, controllers and agents of release 1.0. All protocols are on its port.\n\n" +
			"It takes the keys of release 1.0's server.yaml as arguments, and in the file that --config names, beside the flags below:\n\n" +
			keysHelp(gatewayKeys),
		Example: "  agl gateway port=8080 key=\"$AGL_KEY\" default_proxy.model_name=Qwen/Qwen3-8B\n" +
			"  agl gateway --db sqlite:team.db --config server.yaml\n" +
			"  agl gateway host=0.0.0.0 key=\"$AGL_KEY\" --print-config",
		Args: func(_ *cobra.Command, args []string) error {
			given = args
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := applyKeys(cmd.Flags(), given, gatewayKeys); err != nil {
				return usageError{err}
			}
			return serve(cmd, &o)
		},
	}
	o.bind(cmd.Flags(), gatewayPort)
	return cmd
}

func keysHelp(keys map[string]string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		fmt.Fprintf(&b, "  %-38s --%s\n", key, keys[key])
	}
	return strings.TrimRight(b.String(), "\n")
}

// applyKeys sets the flags that key=value arguments mean. Values are YAML; null
// leaves the default.
func applyKeys(flags *pflag.FlagSet, args []string, keys map[string]string) error {
	var errs []error
	for _, arg := range args {
		if err := applyKey(flags, arg, keys); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func applyKey(flags *pflag.FlagSet, arg string, keys map[string]string) error {
	key, text, ok := strings.Cut(arg, "=")
	if !ok {
		return fmt.Errorf("argument %q: must be key=value, with one of the keys %s", arg, strings.Join(slices.Sorted(maps.Keys(keys)), ", "))
	}
	name, known := keys[key]
	if !known {
		return fmt.Errorf("argument %q: %q is not a key of this command; the keys are %s", arg, key, strings.Join(slices.Sorted(maps.Keys(keys)), ", "))
	}
	if flags.Changed(name) {
		return fmt.Errorf("argument %q: --%s is given already; give one of the two, once", arg, name)
	}
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		return fmt.Errorf("argument %q: %w", arg, err)
	}
	switch v := value.(type) {
	case nil:
		return nil
	case string:
		text = v
	case map[string]any, []any:
		return fmt.Errorf("argument %q: the value must be one word, a number or text", arg)
	default:
		text = strings.TrimSpace(text)
	}
	if err := flags.Set(name, text); err != nil {
		return fmt.Errorf("argument %q: %w", arg, err)
	}
	return nil
}

// flatten joins the keys of nested settings by points.
func flatten(into map[string]any, prefix string, values map[string]any) {
	for name, value := range values {
		if inner, ok := value.(map[string]any); ok {
			flatten(into, prefix+name+".", inner)
			continue
		}
		into[prefix+name] = value
	}
}
