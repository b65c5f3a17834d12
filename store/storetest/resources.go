package storetest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	agl "agentlightning"
	"agentlightning/store"
)

func (f *fixture) addResources(r agl.NamedResources) agl.ResourcesUpdate {
	f.Helper()
	return must(f.AddResources(f.Context(), r))(f)
}

func (f *fixture) updateResources(id string, r agl.NamedResources) agl.ResourcesUpdate {
	f.Helper()
	return must(f.UpdateResources(f.Context(), id, r))(f)
}

func resourceTests() []test {
	return []test{
		{"none yet", "", func(f *fixture) {
			_, err := f.LatestResources(f.Context())
			f.refused(err, store.ErrNotFound, "")
			_, err = f.Resources(f.Context(), "rs-x")
			f.refused(err, store.ErrNotFound, "")
			got := must(f.QueryResources(f.Context(), store.ResourcesQuery{}))(f)
			equal(f, "total", got.Total, 0)
		}},
		{"added resources are typed and latest", "", func(f *fixture) {
			all := agl.NamedResources{
				{Name: "z", Resource: agl.LLM{Endpoint: "http://x", Model: "m", APIKey: new("k"), SamplingParameters: json.RawMessage(`{"t":1.0}`)}},
				{Name: "proxy", Resource: agl.ProxyLLM{Endpoint: "http://p/v1", Model: "m"}},
				{Name: "a", Resource: agl.PromptTemplate{Template: "{q}", Engine: "jinja"}},
			}
			got := f.addResources(all)
			if !regexp.MustCompile(`^rs-[0-9a-f]{12}$`).MatchString(got.ResourcesID) {
				f.Errorf("id = %q, want rs- and 12 hex digits", got.ResourcesID)
			}
			f.isNow("creation", &got.CreateTime)
			f.same("version", got, agl.ResourcesUpdate{
				ResourcesID: got.ResourcesID, CreateTime: got.CreateTime,
				UpdateTime: got.CreateTime, Version: 1, Resources: all,
			})
			f.same("by id", must(f.Resources(f.Context(), got.ResourcesID))(f), got)
			latest := must(f.LatestResources(f.Context()))(f)
			f.same("latest", latest, got)
			if llm, ok := latest.Resources.Get("z").(agl.LLM); !ok || *llm.APIKey != "k" {
				f.Errorf("resource z = %#v, want the LLM", latest.Resources.Get("z"))
			}
			if _, ok := latest.Resources.Get("proxy").(agl.ProxyLLM); !ok {
				f.Errorf("resource proxy = %#v, want a ProxyLLM", latest.Resources.Get("proxy"))
			}
		}},
		{"no resources are resources", "", func(f *fixture) {
			got := f.addResources(nil)
			f.same("by id", must(f.Resources(f.Context(), got.ResourcesID))(f).Resources, agl.NamedResources{})
		}},
		{"an update counts versions and is latest", "", func(f *fixture) {
			a, b := f.addResources(prompt("a")), f.addResources(prompt("b"))
			f.same("latest", must(f.LatestResources(f.Context()))(f), b)
			for version := 2; version <= 3; version++ {
				f.pass(1)
				got := f.updateResources(a.ResourcesID, prompt(fmt.Sprint(version)))
				f.isNow("update", &got.UpdateTime)
				f.same("answer", got, agl.ResourcesUpdate{
					ResourcesID: a.ResourcesID, CreateTime: a.CreateTime,
					UpdateTime: got.UpdateTime, Version: version, Resources: prompt(fmt.Sprint(version)),
				})
				f.same("latest", must(f.LatestResources(f.Context()))(f), got)
				f.same("by id", must(f.Resources(f.Context(), a.ResourcesID))(f), got)
			}
			f.same("the other", must(f.Resources(f.Context(), b.ResourcesID))(f), b)
		}},
		{"updating an unknown id creates it", "", func(f *fixture) {
			old := f.addResources(prompt("a"))
			got := f.updateResources("any name", prompt("b"))
			equal(f, "id", got.ResourcesID, "any name")
			equal(f, "version", got.Version, 1)
			equal(f, "update time", got.UpdateTime, got.CreateTime)
			f.same("latest", must(f.LatestResources(f.Context()))(f), got)
			f.same("the older", must(f.Resources(f.Context(), old.ResourcesID))(f), old)
		}},
		{"queries", "", func(f *fixture) {
			for _, id := range []string{"test-002", "test-001", "prod-003", "test-003"} {
				f.updateResources(id, prompt(id))
				f.pass(1)
			}
			f.updateResources("test-002", prompt("again"))
			for _, tt := range []struct {
				name string
				q    store.ResourcesQuery
				want []string
			}{
				{"all", store.ResourcesQuery{}, []string{"test-002", "test-001", "prod-003", "test-003"}},
				{"exact", store.ResourcesQuery{ResourcesID: new("test-001")}, []string{"test-001"}},
				{"part", store.ResourcesQuery{ResourcesIDContains: new("test-")}, []string{"test-002", "test-001", "test-003"}},
				{"both", store.ResourcesQuery{ResourcesID: new("test-001"), ResourcesIDContains: new("prod")}, nil},
				{"both are always and", store.ResourcesQuery{
					ResourcesID: new("test-001"), ResourcesIDContains: new("prod"),
					Paging: store.Paging{Any: true},
				}, nil},
				{
					"by id down",
					store.ResourcesQuery{Paging: store.Paging{SortBy: "resources_id", Desc: true, Limit: 2, Offset: 1}},
					[]string{"test-002", "test-001"},
				},
				{
					"by version",
					store.ResourcesQuery{Paging: store.Paging{SortBy: "version", Desc: true}},
					[]string{"test-002", "test-001", "prod-003", "test-003"},
				},
				{
					"by update",
					store.ResourcesQuery{ResourcesIDContains: new("test"), Paging: store.Paging{SortBy: "update_time"}},
					[]string{"test-001", "test-003", "test-002"},
				},
				{"past the end", store.ResourcesQuery{Paging: store.Paging{Limit: 2, Offset: 9}}, nil},
			} {
				got := must(f.QueryResources(f.Context(), tt.q))(f)
				names := make([]string, len(got.Items))
				for i, u := range got.Items {
					names[i] = u.ResourcesID
				}
				if !slices.Equal(names, tt.want) && len(names)+len(tt.want) > 0 {
					f.Errorf("%s = %q, want %q", tt.name, names, tt.want)
				}
			}
			_, err := f.QueryResources(f.Context(), store.ResourcesQuery{Paging: store.Paging{SortBy: "resources"}})
			f.refused(err, store.ErrInvalid, "")
		}},
		{"fifty updates at once", "", func(f *fixture) {
			together(50, func(i int) {
				if _, err := f.UpdateResources(f.Context(), fmt.Sprint("r", i), prompt("x")); err != nil {
					f.Error(err)
				}
			})
			got := must(f.QueryResources(f.Context(), store.ResourcesQuery{}))(f)
			equal(f, "stored", got.Total, 50)
			latest := must(f.LatestResources(f.Context()))(f)
			equal(f, "latest", latest.ResourcesID, got.Items[49].ResourcesID)
		}},
	}
}
