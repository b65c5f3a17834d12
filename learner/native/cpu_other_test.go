//go:build !unix

package native_test

// cpuSeconds is not known on this system.
func cpuSeconds() float64 { return 0 }
