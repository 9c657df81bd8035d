package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/exit"
)

// logFlags say what is logged, and how. Logs go to standard error.
type logFlags struct {
	level string
	json  bool
}

var logLevels = []string{"trace", "debug", "info", "warn", "error", "off"}

func (f *logFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.level, "log-level", "info", "what is logged, to standard error: "+strings.Join(logLevels, ", "))
	cmd.Flags().BoolVar(&f.json, "log-json", false, "log JSON, one object per line")
	choices(cmd, "log-level", logLevels...)
}

func (f *logFlags) logger(scrub func(string) string) (hclog.Logger, error) {
	level := hclog.LevelFromString(f.level)
	if level == hclog.NoLevel {
		return nil, exit.Usagef("--log-level %q: want one of %s", f.level, strings.Join(logLevels, ", "))
	}
	colour := hclog.ColorOff
	if isatty.IsTerminal(os.Stderr.Fd()) && os.Getenv("NO_COLOR") == "" {
		colour = hclog.ForceColor
	}
	logger := hclog.New(&hclog.LoggerOptions{
		Name: "pgelector", Level: level, JSONFormat: f.json, Color: colour,
		Output: scrubbed{os.Stderr, scrub},
	})
	if f.json {
		return milliseconds{logger}, nil
	}
	return logger, nil
}

// milliseconds writes durations for JSON, which has none: as milliseconds, in fields
// whose names end in _ms.
type milliseconds struct{ hclog.Logger }

func (m milliseconds) Log(level hclog.Level, text string, fields ...any) {
	fields = slices.Clone(fields)
	for i := 1; i < len(fields); i += 2 {
		if d, ok := fields[i].(time.Duration); ok {
			fields[i-1], fields[i] = fmt.Sprint(fields[i-1], "_ms"), float64(d)/float64(time.Millisecond)
		}
	}
	m.Logger.Log(level, text, fields...)
}

func (m milliseconds) Trace(text string, fields ...any) { m.Log(hclog.Trace, text, fields...) }
func (m milliseconds) Debug(text string, fields ...any) { m.Log(hclog.Debug, text, fields...) }
func (m milliseconds) Info(text string, fields ...any)  { m.Log(hclog.Info, text, fields...) }
func (m milliseconds) Warn(text string, fields ...any)  { m.Log(hclog.Warn, text, fields...) }
func (m milliseconds) Error(text string, fields ...any) { m.Log(hclog.Error, text, fields...) }

// scrubbed writes lines without the password.
type scrubbed struct {
	out   io.Writer
	scrub func(string) string
}

func (s scrubbed) Write(line []byte) (int, error) {
	_, err := io.WriteString(s.out, s.scrub(string(line)))
	return len(line), err
}
