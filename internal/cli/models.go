package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	agl "agentlightning"
	"agentlightning/internal/modellist"
)

func newModels() *cobra.Command {
	var o clientOptions
	cmd := &cobra.Command{
		Use:   "models",
		Short: "Register, list and withdraw the model backends of a server",
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	o.bind(cmd)
	cmd.AddCommand(newModelsAdd(&o), newModelsList(&o), newModelsRemove(&o))
	return cmd
}

func newModelsAdd(o *clientOptions) *cobra.Command {
	var (
		files   []string
		replace bool
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:   "add [" + modellist.Usage + "]…",
		Short: "Register model backends, or change those of the same name and address",
		Long: "Register model backends, or change those of the same name and address.\n\nOptions are " + modellist.Options +
			", and api_key_env (a variable of the server's environment; its name has to end in _API_KEY). The key that key_env finds here is sent to the " +
			"server, which remembers it until it ends and does not store it; api_key_env outlasts a restart.",
		Example: "  agl models add policy=http://10.0.0.5:8000/v1,version=7 policy=http://10.0.0.6:8000/v1,version=7 --replace\n" +
			"  agl models add gpt-4o=https://api.openai.com/v1,key_env=OPENAI_API_KEY,retries=3,rpm=500\n" +
			"  agl models add --file litellm.yaml",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			models, err := modellist.ParseAll(args, os.LookupEnv)
			if err != nil {
				return usageError{err}
			}
			for _, path := range files {
				text, err := os.ReadFile(path)
				if err != nil {
					return fmt.Errorf("--file: %w", err)
				}
				listed, err := modellist.ParseYAML(text, os.LookupEnv)
				if err != nil {
					return usageError{fmt.Errorf("--file %s: %w", path, err)}
				}
				models = append(models, listed...)
			}
			if len(models) == 0 {
				return usageError{errors.New("no backend is named; see 'agl models add --help'")}
			}
			st, err := o.open()
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, st.Close()) }()
			put := st.PutModels
			if replace {
				put = st.ReplaceModels
			}
			if err := put(cmd.Context(), models); err != nil {
				return err
			}
			if asJSON {
				return printModelsJSON(cmd.OutOrStdout(), models)
			}
			for _, m := range models {
				fmt.Fprintf(cmd.OutOrStdout(), "added %s at %s\n", m.Name, m.Endpoint)
			}
			return nil
		},
	}
	cmd.Flags().StringArrayVar(&files, "file", nil, "file with backends in the form of LiteLLM's model_list, YAML (repeatable)")
	cmd.Flags().BoolVar(&replace, "replace", false, "withdraw other backends of the same names, at the same moment")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	return cmd
}

func newModelsList(o *clientOptions) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "ls [NAME]…",
		Short:   "List the model backends of a server, those of its flags first",
		Example: "  agl models ls\n  agl models ls policy --json | jq .endpoint",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			st, err := o.open()
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, st.Close()) }()
			models, err := st.Models(cmd.Context())
			if err != nil {
				return err
			}
			if len(args) > 0 {
				models = slices.DeleteFunc(models, func(m agl.Model) bool { return !slices.Contains(args, m.Name) })
			}
			if asJSON {
				return printModelsJSON(cmd.OutOrStdout(), models)
			}
			return printModels(cmd.OutOrStdout(), models)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	return cmd
}

func newModelsRemove(o *clientOptions) *cobra.Command {
	var (
		endpoints   []string
		all, asJSON bool
	)
	cmd := &cobra.Command{
		Use:     "rm NAME…",
		Short:   "Withdraw model backends; calls that they have go on to their end, and those of the server's flags come back with its next start",
		Example: "  agl models rm policy\n  agl models rm policy --endpoint http://10.0.0.5:8000/v1\n  agl models rm --all",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			switch {
			case all && len(args)+len(endpoints) > 0:
				return usageError{errors.New("--all takes no names and no --endpoint")}
			case !all && len(args) == 0:
				return usageError{errors.New("no model is named; to withdraw all, pass --all")}
			}
			st, err := o.open()
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, st.Close()) }()
			before, err := st.Models(cmd.Context())
			if err != nil {
				return err
			}
			gone := slices.DeleteFunc(before, func(m agl.Model) bool {
				return !all && (!slices.Contains(args, m.Name) || len(endpoints) > 0 && !slices.Contains(endpoints, m.Endpoint))
			})
			for _, name := range args {
				if !slices.ContainsFunc(gone, func(m agl.Model) bool { return m.Name == name }) {
					return fmt.Errorf("no such backend of model %q is registered; see 'agl models ls'", name)
				}
			}
			if all {
				args = []string{""}
			}
			for _, name := range args {
				if err := st.DeleteModels(cmd.Context(), name, endpoints...); err != nil {
					return err
				}
			}
			if asJSON {
				return printModelsJSON(cmd.OutOrStdout(), gone)
			}
			for _, m := range gone {
				fmt.Fprintf(cmd.OutOrStdout(), "withdrew %s at %s\n", m.Name, m.Endpoint)
			}
			return nil
		},
	}
	cmd.Flags().StringArrayVar(&endpoints, "endpoint", nil, "only the backend at this address (repeatable)")
	cmd.Flags().BoolVar(&all, "all", false, "withdraw all")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line, those that were withdrawn")
	return cmd
}

// printModelsJSON leaves out the keys.
func printModelsJSON(w io.Writer, models []agl.Model) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	for _, m := range models {
		m.APIKey, m.KeyGiven = "", m.KeyGiven || m.APIKey != ""
		if err := encoder.Encode(m); err != nil {
			return err
		}
	}
	return nil
}

func printModels(w io.Writer, models []agl.Model) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "MODEL\tVERSION\tENDPOINT\tKIND\tTARGET\tKEY\tOPTIONS")
	for _, m := range models {
		key := "-"
		switch {
		case m.APIKeyEnv != "":
			key = "$" + m.APIKeyEnv
		case m.APIKey != "":
			key = "given"
		case m.KeyGiven:
			key = "lost" // the server was started anew since
		}
		fmt.Fprintf(tw, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", m.Name, m.Version, m.Endpoint, m.Speaks(), orDash(m.Target), key, orDash(modelOptions(m)))
	}
	return tw.Flush()
}

func modelOptions(m agl.Model) string {
	var words []string
	for _, o := range []struct {
		name  string
		value int64
	}{
		{"weight", m.Weight}, {"retries", m.Retries}, {"concurrency", m.Concurrency}, {"rpm", m.RPM}, {"tpm", m.TPM},
	} {
		if o.value != 0 {
			words = append(words, fmt.Sprintf("%s=%d", o.name, o.value))
		}
	}
	if m.APIVersion != "" {
		words = append(words, "api_version="+m.APIVersion)
	}
	return strings.Join(words, " ")
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
