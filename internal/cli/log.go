package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"agentlightning/internal/logs"
)

// logOptions are the flags of the log.
type logOptions struct{ level, format, file string }

func (o *logOptions) bind(f *pflag.FlagSet) {
	f.StringVar(&o.level, "log-level", "info", "debug, info, warning or error")
	f.StringVar(&o.format, "log-format", "text", "form of the log's lines: "+strings.Join(logs.Formats(), " or "))
	f.StringVar(&o.file, "log-file", "", "file that the log is appended to, rather than standard error")
}

// open returns the loggers that the flags describe and what closes their file.
func (o *logOptions) open(stderr io.Writer) (*logs.Loggers, func() error, error) {
	levels, err := logs.ParseLevels(o.level)
	if err != nil {
		return nil, nil, usageError{fmt.Errorf("--log-level %w", err)}
	}
	out, closeFile := stderr, func() error { return nil }
	if o.file != "" {
		f, err := os.OpenFile(o.file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, nil, fmt.Errorf("--log-file: %w", err)
		}
		out, closeFile = f, f.Close
	}
	loggers, err := logs.New(out, o.format, levels)
	if err != nil {
		return nil, nil, usageError{errors.Join(fmt.Errorf("--log-format %w", err), closeFile())}
	}
	return loggers, closeFile, nil
}
