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
	a := agl.Model{Name: "m", Endpoint: "http://a/v1", Version: 1, Target: "t", APIKey: "secret", KeyGiven: true}
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
			newer.Version, newer.APIKey, newer.KeyGiven = 2, "", false
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
		{"replacing the backends of a name", "", func(f *fixture) {
			f.ok(f.PutModels(f.Context(), []agl.Model{a, c, b}))
			newer := b
			newer.Version, newer.Weight = 3, 2
			d := agl.Model{Name: "m", Endpoint: "http://d/v1"}
			f.ok(f.ReplaceModels(f.Context(), []agl.Model{newer, d}))
			f.same("models", f.models(), []agl.Model{c, newer, d})
			f.ok(f.ReplaceModels(f.Context(), []agl.Model{d, a, d}))
			f.same("models", f.models(), []agl.Model{c, a, d})
			f.ok(f.ReplaceModels(f.Context(), nil))
			f.same("models", f.models(), []agl.Model{c, a, d})
			f.refused(f.ReplaceModels(f.Context(), []agl.Model{d, {Name: "m"}}), store.ErrInvalid, "")
			f.same("models", f.models(), []agl.Model{c, a, d})
		}},
		{"deleting one backend of several", "", func(f *fixture) {
			f.ok(f.PutModels(f.Context(), []agl.Model{a, b, c}))
			f.ok(f.DeleteModels(f.Context(), "m", a.Endpoint, "http://unknown/v1"))
			f.same("models", f.models(), []agl.Model{b, c})
		}},
		{"all options are kept", "", func(f *fixture) {
			full := agl.Model{
				Name: "f", Endpoint: "http://f.openai.azure.com", Version: -1, Target: "t", APIKeyEnv: "F_API_KEY",
				Kind: agl.BackendAzure, APIVersion: "2024-10-21", Weight: 3, Retries: 2, Concurrency: 4, RPM: 5, TPM: 6,
			}
			f.ok(f.PutModels(f.Context(), []agl.Model{full}))
			f.same("models", f.models(), []agl.Model{full})
		}},
		{"options that mean nothing are refused", "", func(f *fixture) {
			for _, bad := range []agl.Model{
				{Name: "m", Endpoint: "ftp://a"},
				{Name: "m", Endpoint: "http://user:secret@a/v1"},
				{Name: "m", Endpoint: "http://a/v1", Kind: "cohere"},
				{Name: "m", Endpoint: "http://a/v1", Weight: -1},
				{Name: "m", Endpoint: "http://a/v1", Retries: 21},
				{Name: "m", Endpoint: "http://a/v1", APIVersion: "1"},
				{Name: "m", Endpoint: "http://a/v1", APIKeyEnv: "HOME"},
				{Name: "m", Endpoint: "http://a/v1", APIKeyEnv: "AGL_API_KEY"},
				{Name: "m", Endpoint: "http://a/v1", APIKeyEnv: "A_API_KEY", APIKey: "k"},
			} {
				f.refused(f.PutModels(f.Context(), []agl.Model{c, bad}), store.ErrInvalid, "")
			}
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
