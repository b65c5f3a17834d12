package tracking

import (
	"slices"
	"strconv"
)

// Comparison puts runs side by side: every list has an entry a run.
type Comparison struct {
	Runs []string `json:"runs"`
	// Params are the values of the configurations, with algorithm, seed and code;
	// empty where a run has none.
	Params []ComparedParam `json:"params"`
	// Metrics are those that at least one run has.
	Metrics []ComparedMetric `json:"metrics"`
}

// ComparedParam is one value of several configurations.
type ComparedParam struct {
	Key    string   `json:"key"`
	Values []string `json:"values"`
}

// Same reports whether all runs have the same value.
func (p *ComparedParam) Same() bool {
	return !slices.ContainsFunc(p.Values, func(v string) bool { return v != p.Values[0] })
}

// ComparedMetric is one metric of several runs; nil where a run has none.
type ComparedMetric struct {
	Name    string    `json:"name"`
	Figures []*Figure `json:"figures"`
}

// Compare compares runs.
func Compare(runs []*Run) Comparison {
	var c Comparison
	params := map[string][]string{}
	var keys, names []string
	set := func(key string, run int, value string) {
		if params[key] == nil {
			params[key] = make([]string, len(runs))
			keys = append(keys, key)
		}
		params[key][run] = value
	}
	for i, r := range runs {
		c.Runs = append(c.Runs, r.RunID)
		set("algorithm", i, r.Algorithm)
		set("seed", i, strconv.FormatInt(r.Seed, 10))
		set("code_version", i, r.CodeVersion)
	}
	fixed := len(keys)
	for i, r := range runs {
		for _, p := range r.Params {
			set(p.Key, i, p.Value)
		}
		for _, name := range r.Names() {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(keys[fixed:])
	slices.Sort(names)
	for _, k := range keys {
		c.Params = append(c.Params, ComparedParam{k, params[k]})
	}
	for _, name := range names {
		m := ComparedMetric{Name: name}
		for _, r := range runs {
			m.Figures = append(m.Figures, r.Figure(name))
		}
		c.Metrics = append(c.Metrics, m)
	}
	return c
}
