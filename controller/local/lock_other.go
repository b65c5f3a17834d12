//go:build !unix

package local

import (
	"errors"
	"os"
)

func exclusive(*os.File) error { return errors.ErrUnsupported }
