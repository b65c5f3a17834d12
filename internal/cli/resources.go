package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/storehttp"
)

func newResources() *cobra.Command {
	var o clientOptions
	cmd := &cobra.Command{
		Use:   "resources",
		Short: "Look at resources: the models and prompts that agents are given, by version",
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	o.bind(cmd)
	cmd.AddCommand(newResourcesList(&o), newResourcesShow(&o), newResourcesDiff(&o))
	return cmd
}

func newResourcesList(o *clientOptions) *cobra.Command {
	var (
		match  string
		limit  int
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   "List versions of resources, the one published last first",
		Example: "  agl resources ls\n  agl resources ls --limit 0 --json | jq .resources",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return usageError{fmt.Errorf("--limit %d: must not be negative; 0 is no limit", limit)}
			}
			return o.with(func(client *storehttp.Client) error { return listResources(cmd, client, match, limit, asJSON) })
		},
	}
	cmd.Flags().StringVar(&match, "id", "", "only ids that contain this text")
	cmd.Flags().IntVar(&limit, "limit", 20, "how many at the most; 0 for all")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	bindTable(cmd)
	return cmd
}

// resourcesAtATime is how many versions are asked for at a time.
const resourcesAtATime = 100

func listResources(cmd *cobra.Command, s store.Store, match string, limit int, asJSON bool) error {
	list := newListing(cmd, "", "RESOURCES", "VERSION", "UPDATED", "NAMES")
	q := store.ResourcesQuery{Paging: store.Paging{SortBy: "update_time", Desc: true, Limit: resourcesAtATime}}
	if match != "" {
		q.ResourcesIDContains = &match
	}
	for {
		if limit > 0 {
			q.Limit = min(resourcesAtATime, limit-q.Offset)
		}
		page, err := s.QueryResources(cmd.Context(), q)
		if err != nil {
			return err
		}
		for i := range page.Items {
			u := &page.Items[i]
			if asJSON {
				if _, err := cmd.OutOrStdout().Write(append(u.AppendJSON(nil), '\n')); err != nil {
					return err
				}
				continue
			}
			names := make([]string, len(u.Resources))
			for j, r := range u.Resources {
				names[j] = r.Name + " (" + r.Resource.Kind() + ")"
			}
			list.add(u.ResourcesID, strconv.Itoa(u.Version), list.when(u.UpdateTime), list.cut(strings.Join(names, ", "), 80))
		}
		if err := list.flush(); err != nil {
			return err
		}
		if q.Offset += len(page.Items); len(page.Items) == 0 || q.Offset >= page.Total || q.Offset == limit {
			switch {
			case asJSON || list.table == nil:
			case list.rows == 0:
				fmt.Fprintln(cmd.OutOrStdout(), "no resources were published")
			case page.Total > q.Offset:
				fmt.Fprintf(cmd.OutOrStdout(), "%d of %d; see more with --limit\n", q.Offset, page.Total)
			}
			return nil
		}
	}
}

// resourcesNamed reads a version of resources: by id, or the one published last.
func resourcesNamed(ctx context.Context, s store.Store, id string) (agl.ResourcesUpdate, error) {
	if id != "" && id != "latest" {
		u, err := s.Resources(ctx, id)
		if errors.Is(err, store.ErrNotFound) {
			err = fmt.Errorf("there are no resources %s; 'agl resources ls' lists them", id)
		}
		return u, err
	}
	u, err := s.LatestResources(ctx)
	if errors.Is(err, store.ErrNotFound) {
		err = errors.New("no resources were published")
	}
	return u, err
}

func newResourcesShow(o *clientOptions) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "show [RESOURCES]",
		Short:   "Show one version of resources, the one published last if none is named",
		Example: "  agl resources show\n  agl resources show rs-0123456789ab",
		Args:    atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.with(func(client *storehttp.Client) error {
				u, err := resourcesNamed(cmd.Context(), client, arg(args, 0))
				if err != nil {
					return err
				}
				if asJSON {
					_, err := cmd.OutOrStdout().Write(append(u.AppendJSON(nil), '\n'))
					return err
				}
				return showResources(cmd.OutOrStdout(), &u)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object, keys of models included")
	return cmd
}

func arg(args []string, i int) string {
	if i < len(args) {
		return args[i]
	}
	return ""
}

// atMost takes up to n arguments.
func atMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return usageError{fmt.Errorf("unexpected argument %q; see '%s --help'", args[n], cmd.CommandPath())}
		}
		return nil
	}
}

func showResources(w io.Writer, u *agl.ResourcesUpdate) error {
	fmt.Fprintf(w, "%s  version %d  created %s  updated %s\n", u.ResourcesID, u.Version,
		agl.Time(u.CreateTime).Format(time.DateTime), agl.Time(u.UpdateTime).Format(time.DateTime))
	for _, r := range u.Resources {
		fmt.Fprintf(w, "\n%s\n", r.Name)
		for _, line := range resourceLines(r.Resource) {
			fmt.Fprintf(w, "  %s\n", line)
		}
	}
	return nil
}

// resourceLines writes a resource for people, line by line. Keys are not shown.
func resourceLines(r agl.Resource) []string {
	lines := []string{"resource_type: " + r.Kind()}
	model := func(m agl.LLM) []string {
		lines = append(lines, "endpoint: "+m.Endpoint, "model: "+m.Model)
		if m.APIKey != nil {
			lines = append(lines, "api_key: (hidden)")
		}
		if len(m.SamplingParameters) > 0 {
			lines = append(lines, "sampling_parameters: "+string(m.SamplingParameters))
		}
		return lines
	}
	switch r := r.(type) {
	case agl.LLM:
		return model(r)
	case agl.ProxyLLM:
		return model(agl.LLM(r))
	case agl.PromptTemplate:
		lines = append(lines, "engine: "+r.Engine, "template:")
		for line := range strings.SplitSeq(r.Template, "\n") {
			lines = append(lines, "  "+line)
		}
	}
	return lines
}

func newResourcesDiff(o *clientOptions) *cobra.Command {
	return &cobra.Command{
		Use:     "diff [FROM [TO]]",
		Short:   "Show what differs between two versions of resources",
		Long:    "Show what differs between two versions of resources. Without TO, that published last is compared; without FROM, with the one before.",
		Example: "  agl resources diff\n  agl resources diff rs-0123456789ab rs-ba9876543210",
		Args:    atMost(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.with(func(client *storehttp.Client) error {
				from, to, err := twoVersions(cmd.Context(), client, args)
				if err != nil {
					return err
				}
				return diffResources(cmd.OutOrStdout(), &from, &to)
			})
		},
	}
}

// twoVersions reads the versions to compare.
func twoVersions(ctx context.Context, s store.Store, args []string) (from, to agl.ResourcesUpdate, err error) {
	if len(args) > 0 {
		if from, err = resourcesNamed(ctx, s, args[0]); err == nil {
			to, err = resourcesNamed(ctx, s, arg(args, 1))
		}
		return from, to, err
	}
	page, err := s.QueryResources(ctx, store.ResourcesQuery{Paging: store.Paging{SortBy: "update_time", Desc: true, Limit: 2}})
	if err != nil {
		return from, to, err
	}
	if len(page.Items) < 2 {
		return from, to, fmt.Errorf("there are not two versions to compare but %d", len(page.Items))
	}
	return page.Items[1], page.Items[0], nil
}

// diffResources writes the lines that differ, resource by resource.
func diffResources(w io.Writer, from, to *agl.ResourcesUpdate) error {
	fmt.Fprintf(w, "--- %s version %d\n+++ %s version %d\n", from.ResourcesID, from.Version, to.ResourcesID, to.Version)
	same := true
	compare := func(name string, a, b agl.Resource) {
		var before, after []string
		if a != nil {
			before = resourceLines(a)
		}
		if b != nil {
			after = resourceLines(b)
		}
		lines := diffLines(before, after)
		if lines == nil && sameKey(a, b) {
			return
		}
		same = false
		fmt.Fprintf(w, "\n%s\n", name)
		for _, line := range lines {
			fmt.Fprintln(w, line)
		}
		if lines == nil {
			fmt.Fprintln(w, "  (only the key differs)")
		}
	}
	for _, r := range from.Resources {
		compare(r.Name, r.Resource, to.Resources.Get(r.Name))
	}
	for _, r := range to.Resources {
		if from.Resources.Get(r.Name) == nil {
			compare(r.Name, nil, r.Resource)
		}
	}
	if same {
		fmt.Fprintln(w, "\nthey are the same")
	}
	return nil
}

// sameKey tells whether two models have the same key, which is not shown.
func sameKey(a, b agl.Resource) bool {
	key := func(r agl.Resource) string {
		var k *string
		switch r := r.(type) {
		case agl.LLM:
			k = r.APIKey
		case agl.ProxyLLM:
			k = r.APIKey
		}
		if k == nil {
			return ""
		}
		return *k
	}
	return key(a) == key(b)
}
