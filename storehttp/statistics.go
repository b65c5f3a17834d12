package storehttp

import (
	"cmp"
	"strconv"
	"time"

	"agentlightning/internal/jsonx"
	"agentlightning/store"
)

type statisticsJSON struct {
	Name           string  `json:"name"`
	TotalRollouts  int64   `json:"total_rollouts"`
	TotalAttempts  int64   `json:"total_attempts"`
	TotalSpans     int64   `json:"total_spans"`
	TotalResources int64   `json:"total_resources"`
	TotalWorkers   int64   `json:"total_workers"`
	Uptime         float64 `json:"uptime"`
	SpanBytes      int64   `json:"total_span_bytes"`
	EvictBytes     int64   `json:"eviction_threshold_bytes"`
	SafeBytes      int64   `json:"safe_threshold_bytes"`
	MemoryBytes    int64   `json:"memory_capacity_bytes"`
}

func (s statisticsJSON) statistics() store.Statistics {
	for ours, wire := range wireNames {
		if s.Name == wire {
			s.Name = ours
		}
	}
	return store.Statistics{
		Name: s.Name, TotalRollouts: s.TotalRollouts, TotalAttempts: s.TotalAttempts,
		TotalSpans: s.TotalSpans, TotalResources: s.TotalResources, TotalWorkers: s.TotalWorkers,
		Uptime: time.Duration(s.Uptime * float64(time.Second)), SpanBytes: s.SpanBytes,
		EvictBytes: s.EvictBytes, SafeBytes: s.SafeBytes, MemoryBytes: s.MemoryBytes,
	}
}

// wireNames are what the protocol calls backends that the reference has too.
var wireNames = map[string]string{"memory": "InMemoryLightningStore", "mongo": "MongoLightningStore"}

func appendStatistics(s store.Statistics) []byte {
	dst := jsonx.AppendString([]byte(`{"name":`), cmp.Or(wireNames[s.Name], s.Name))
	dst = appendCount(dst, "total_rollouts", s.TotalRollouts)
	dst = appendCount(dst, "total_attempts", s.TotalAttempts)
	dst = appendCount(dst, "total_spans", s.TotalSpans)
	dst = appendCount(dst, "total_resources", s.TotalResources)
	dst = appendCount(dst, "total_workers", s.TotalWorkers)
	dst = jsonx.AppendFloat(append(dst, `,"uptime":`...), s.Uptime.Seconds())
	if s.Name == "memory" {
		dst = appendCount(dst, "total_span_bytes", s.SpanBytes)
		dst = appendCount(dst, "eviction_threshold_bytes", s.EvictBytes)
		dst = appendCount(dst, "safe_threshold_bytes", s.SafeBytes)
		dst = appendCount(dst, "memory_capacity_bytes", s.MemoryBytes)
	} else if s.SpanBytes > 0 {
		dst = appendCount(dst, "total_span_bytes", s.SpanBytes)
	}
	return append(dst, '}')
}

func (h *handler) health(*call) answer { return ok([]byte(`{"status":"ok"}`)) }

func (h *handler) statistics(c *call) answer {
	s, err := h.store.Statistics(c.Context())
	if err != nil {
		return failed(err)
	}
	return ok(appendStatistics(s))
}

func appendCount(dst []byte, name string, n int64) []byte {
	dst = append(append(append(dst, `,"`...), name...), `":`...)
	return strconv.AppendInt(dst, n, 10)
}
