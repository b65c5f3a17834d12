//go:build !linux

package scale

import (
	"os"
	"testing"
)

func forget(t *testing.T, _ string) {
	t.Helper()
	t.Fatal("-scale.cold is for Linux")
}

func peak(*os.ProcessState) int64 { return 0 }
