//go:build !linux

package memory

// machineMemory is not known; GOMEMLIMIT bounds what spans take.
func machineMemory() int64 { return 0 }
