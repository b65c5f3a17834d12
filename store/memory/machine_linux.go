package memory

import (
	"bytes"
	"os"
	"strconv"
)

// machineMemory is the memory of the machine, or of the control group that this
// process is in, in bytes; 0 when neither is known.
func machineMemory() int64 {
	var total int64
	if info, err := os.ReadFile("/proc/meminfo"); err == nil {
		if _, rest, ok := bytes.Cut(info, []byte("MemTotal:")); ok {
			if fields := bytes.Fields(rest); len(fields) > 0 {
				total, _ = strconv.ParseInt(string(fields[0]), 10, 64)
				total <<= 10 // it is in KiB
			}
		}
	}
	if limit, err := os.ReadFile("/sys/fs/cgroup/memory.max"); err == nil {
		if n, err := strconv.ParseInt(string(bytes.TrimSpace(limit)), 10, 64); err == nil && (total == 0 || n < total) {
			total = n
		}
	}
	return total
}
