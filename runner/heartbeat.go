package runner

import (
	"context"
	"encoding/json"
	"os"
	"runtime"
	"time"

	"agentlightning/store"
)

// stats is what a heartbeat tells about the machine. What cannot be found out
// is left out.
type stats struct {
	Timestamp   string   `json:"timestamp"` // local time without a zone
	Host        string   `json:"host"`
	OS          string   `json:"os"`
	CPUName     string   `json:"cpu_name"`
	CPUCores    int      `json:"cpu_cores,omitempty"`
	CPUThreads  int      `json:"cpu_threads"`
	CPUUsagePct *float64 `json:"cpu_usage_pct,omitempty"` // since the previous beat
	MemUsedGB   *float64 `json:"mem_used_gb,omitempty"`
	MemTotalGB  *float64 `json:"mem_total_gb,omitempty"`
	MemPct      *float64 `json:"mem_pct,omitempty"`
	DiskUsedGB  *float64 `json:"disk_used_gb,omitempty"`
	DiskTotalGB *float64 `json:"disk_total_gb,omitempty"`
	DiskPct     *float64 `json:"disk_pct,omitempty"`
	SentMB      *float64 `json:"bytes_sent_mb,omitempty"`
	ReceivedMB  *float64 `json:"bytes_recv_mb,omitempty"`
}

// beat sends heartbeats, the first one at once, until ctx ends.
func (r *Runner) beat(ctx context.Context) {
	if r.cfg.HeartbeatInterval < 0 {
		return
	}
	ticker := time.NewTicker(r.cfg.HeartbeatInterval)
	defer ticker.Stop()
	var machine machine
	for {
		if err := r.beatOnce(ctx, machine.snapshot(time.Now())); err != nil && ctx.Err() == nil {
			r.cfg.Logger.DebugContext(ctx, "heartbeat failed", "worker_id", r.cfg.WorkerID, "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (r *Runner) beatOnce(ctx context.Context, s stats) error {
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.HeartbeatInterval)
	defer cancel()
	_, err = r.cfg.Store.UpdateWorker(ctx, r.cfg.WorkerID, store.To(json.RawMessage(raw)))
	return err
}

// snapshot describes the machine as it is now.
func (m *machine) snapshot(now time.Time) stats {
	s := stats{
		Timestamp:  now.Format("2006-01-02T15:04:05"),
		OS:         runtime.GOOS + "-" + runtime.GOARCH,
		CPUThreads: runtime.NumCPU(),
	}
	if host, err := os.Hostname(); err == nil {
		s.Host = host
	}
	m.measure(&s)
	return s
}
