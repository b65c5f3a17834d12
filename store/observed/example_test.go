package observed_test

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/store/observed"
)

func Example() {
	registry := prometheus.NewRegistry()
	metrics, err := observed.NewMetrics(registry)
	if err != nil {
		fmt.Println(err)
		return
	}
	s := observed.New(engine.New(memory.New(), engine.Config{OnChange: metrics.OnChange}), metrics)
	defer func() { _ = s.Close() }()

	if _, err := s.EnqueueRollouts(context.Background(), []store.EnqueueRequest{{Input: []byte(`"2+2"`)}}); err != nil {
		fmt.Println(err)
		return
	}
	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if m.GetCounter().GetValue() > 0 {
				fmt.Println(f.GetName(), m.GetLabel()[0].GetValue(), m.GetCounter().GetValue())
			}
		}
	}
	// Output: agl_store_total enqueue_many_rollouts 1
}
