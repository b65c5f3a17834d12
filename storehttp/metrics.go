package storehttp

import (
	"math"

	agl "agentlightning"
)

// metricsJSON are step metrics whose values may be null: JSON has no NaN, and a
// loss that became one is what people most want to see.
type metricsJSON struct {
	Step   int                 `json:"step"`
	Time   float64             `json:"time"`
	Values map[string]*float64 `json:"values"`
}

func stepMetricsJSON(metrics []agl.StepMetrics) []metricsJSON {
	out := make([]metricsJSON, len(metrics))
	for i, m := range metrics {
		out[i] = metricsJSON{Step: m.Step, Time: m.Time, Values: make(map[string]*float64, len(m.Values))}
		for name, v := range m.Values {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				out[i].Values[name] = nil
				continue
			}
			out[i].Values[name] = &v
		}
	}
	return out
}

func fromMetricsJSON(metrics []metricsJSON) []agl.StepMetrics {
	out := make([]agl.StepMetrics, len(metrics))
	for i, m := range metrics {
		out[i] = agl.StepMetrics{Step: m.Step, Time: m.Time, Values: make(map[string]float64, len(m.Values))}
		for name, v := range m.Values {
			out[i].Values[name] = math.NaN()
			if v != nil {
				out[i].Values[name] = *v
			}
		}
	}
	return out
}
