package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// configFlag names a file with settings.
const configFlag = "config"

// secretFlags are not shown by --print-config.
var secretFlags = map[string]bool{"auth-token": true, "token": true}

// applySettings fills the flags that were not given from the environment
// (AGL_ and the name in capitals, - as _) and then from the file that --config
// or AGL_CONFIG names (YAML; the names of the flags are its keys, and so are
// those of keys, which has the flags that they mean). It returns where the value
// of each flag came from.
func applySettings(cmd *cobra.Command, environ func(string) (string, bool), keys map[string]string) (map[string]string, error) {
	flags := cmd.Flags()
	source := map[string]string{}
	var failure error
	flags.VisitAll(func(f *pflag.Flag) {
		source[f.Name] = "default"
		if f.Changed {
			source[f.Name] = "flag"
			return
		}
		name := "AGL_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, ok := environ(name)
		if !ok || failure != nil {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			failure = usageError{fmt.Errorf("%s=%s: %w", name, value, err)}
		}
		source[f.Name] = name
	})
	if failure != nil {
		return nil, failure
	}
	path := flags.Lookup(configFlag).Value.String()
	if path == "" {
		return source, nil
	}
	return source, applyFile(flags, path, source, keys)
}

func applyFile(flags *pflag.FlagSet, path string, source, keys map[string]string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		return fmt.Errorf("settings %s: %w", path, err)
	}
	flat := map[string]any{}
	flatten(flat, "", values)
	for key, value := range flat {
		name := cmp.Or(keys[key], key)
		f := flags.Lookup(name)
		if f == nil || name == configFlag {
			return fmt.Errorf("settings %s: %q is not a setting of this command", path, key)
		}
		if value == nil {
			continue // null leaves the default
		}
		if source[name] == path {
			return fmt.Errorf("settings %s: %q is there under two names; keep one", path, name)
		}
		if source[name] != "default" {
			continue
		}
		list, ok := value.([]any)
		if !ok {
			list = []any{value}
		}
		for _, one := range list {
			if err := flags.Set(name, fmt.Sprint(one)); err != nil {
				return fmt.Errorf("settings %s: %s: %w", path, key, err)
			}
		}
		source[name] = path
	}
	return nil
}

func printSettings(w io.Writer, flags *pflag.FlagSet, source map[string]string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Name == "print-config" {
			return
		}
		value := f.Value.String()
		if secretFlags[f.Name] && value != "" {
			value = "(hidden)"
		}
		fmt.Fprintf(w, "%-22s %-28s %s\n", f.Name, value, source[f.Name])
	})
}
