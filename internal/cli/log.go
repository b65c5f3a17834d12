package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

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
		f, err := logs.OpenFile(o.file)
		if err != nil {
			return nil, nil, fmt.Errorf("--log-file: %w", err)
		}
		out, closeFile = f, reopened(f)
	}
	loggers, err := logs.New(out, o.format, levels)
	if err != nil {
		return nil, nil, usageError{errors.Join(fmt.Errorf("--log-format %w", err), closeFile())}
	}
	return loggers, closeFile, nil
}

// reopened has the log open its file anew on SIGHUP, which those who rotate logs
// send, and returns what ends that and closes the file.
func reopened(f *logs.File) (closeFile func() error) {
	hangUps, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(hangUps, syscall.SIGHUP)
	var listening sync.WaitGroup
	listening.Go(func() {
		for {
			select {
			case <-hangUps:
				_ = f.Reopen() // the next line tries again
			case <-done:
				return
			}
		}
	})
	return func() error {
		signal.Stop(hangUps)
		close(done)
		listening.Wait()
		return f.Close()
	}
}
