package storetest

import (
	agl "agentlightning"
	"agentlightning/store"
)

func (f *fixture) models() []agl.Model {
	f.Helper()
	return must(f.Models(f.Context()))(f)
}

func modelTests() []test {
	a := agl.Model{Name: "m", Endpoint: "http://a/v1", Version: 1, Target: "t", APIKey: "secret"}
	b := agl.Model{Name: "m", Endpoint: "http://b/v1"}
	c := agl.Model{Name: "n", Endpoint: "http://a/v1"}
	tests := []test{
		{"models keep the order in which they came", "", func(f *fixture) {
			f.same("none", f.models(), []agl.Model{})
			f.ok(f.PutModels(f.Context(), []agl.Model{c, a}))
			f.ok(f.PutModels(f.Context(), []agl.Model{b}))
			f.same("models", f.models(), []agl.Model{c, a, b})
		}},
		{"name and endpoint are the key", "", func(f *fixture) {
			f.ok(f.PutModels(f.Context(), []agl.Model{a, b, c}))
			newer := a
			newer.Version, newer.APIKey = 2, ""
			f.ok(f.PutModels(f.Context(), []agl.Model{newer}))
			f.same("models", f.models(), []agl.Model{newer, b, c})
		}},
		{"deleting by name, or all", "", func(f *fixture) {
			f.ok(f.PutModels(f.Context(), []agl.Model{a, b, c}))
			f.ok(f.DeleteModels(f.Context(), "unknown"))
			f.ok(f.DeleteModels(f.Context(), "m"))
			f.same("models", f.models(), []agl.Model{c})
			f.ok(f.PutModels(f.Context(), []agl.Model{a}))
			f.ok(f.DeleteModels(f.Context(), ""))
			f.same("none", f.models(), []agl.Model{})
		}},
		{"nameless ones are refused, all or none", "", func(f *fixture) {
			f.refused(f.PutModels(f.Context(), []agl.Model{a, {Name: "m"}}), store.ErrInvalid, "")
			f.refused(f.PutModels(f.Context(), []agl.Model{a, {Endpoint: "http://x"}}), store.ErrInvalid, "")
			f.same("none", f.models(), []agl.Model{})
		}},
	}
	for i := range tests {
		tests[i].needs = Models
	}
	return tests
}
