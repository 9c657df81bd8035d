package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/hashicorp/go-hclog"
	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/exit"
)

// logFlags configure the log on standard error.
type logFlags struct {
	level string
	json  bool
}

var logLevels = []string{"trace", "debug", "info", "warn", "error", "off"}

func (f *logFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.level, "log-level", "info", "the level: "+strings.Join(logLevels, ", "))
	cmd.Flags().BoolVar(&f.json, "log-json", false, "log one JSON object per line")
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
	options := hclog.LoggerOptions{
		Name: "pgelector", Level: level, JSONFormat: f.json, Color: colour,
		Output: os.Stderr,
	}
	direct := hclog.New(&options)
	stderr.reportBy(func(lines int) { direct.Error("nobody read the log, so lines were dropped", "dropped", lines) })
	options.Output = scrubbed{stderr, scrub}
	return lines{hclog.New(&options), f.json}, nil
}

// lines is a logger whose output programs can read line by line: it joins the lines of an
// error. JSON has no durations, so there they are milliseconds, in fields whose names end
// in _ms.
type lines struct {
	hclog.Logger
	json bool
}

func (l lines) Log(level hclog.Level, text string, fields ...any) {
	fields = slices.Clone(fields)
	for i := 1; i < len(fields); i += 2 {
		switch value := fields[i].(type) {
		case time.Duration:
			if l.json {
				fields[i-1], fields[i] = fmt.Sprint(fields[i-1], "_ms"), float64(value)/float64(time.Millisecond)
			}
		case error:
			fields[i] = strings.Join(strings.Fields(value.Error()), " ")
		}
	}
	l.Logger.Log(level, text, fields...)
}

func (l lines) With(fields ...any) hclog.Logger { return lines{l.Logger.With(fields...), l.json} }

func (l lines) Trace(text string, fields ...any) { l.Log(hclog.Trace, text, fields...) }
func (l lines) Debug(text string, fields ...any) { l.Log(hclog.Debug, text, fields...) }
func (l lines) Info(text string, fields ...any)  { l.Log(hclog.Info, text, fields...) }
func (l lines) Warn(text string, fields ...any)  { l.Log(hclog.Warn, text, fields...) }
func (l lines) Error(text string, fields ...any) { l.Log(hclog.Error, text, fields...) }

// scrubbed removes the password from each line.
type scrubbed struct {
	out   io.Writer
	scrub func(string) string
}

func (s scrubbed) Write(line []byte) (int, error) {
	_, err := io.WriteString(s.out, s.scrub(string(line)))
	return len(line), err
}

// plain makes control characters visible, also those that turn the direction of writing, but for tabs and
// newlines: what a server says, such as the name of a role, must not control a terminal.
type plain struct{ io.Writer }

func (p plain) Write(text []byte) (int, error) {
	_, err := io.WriteString(p.Writer, visible(string(text), "\n\t"))
	return len(text), err
}

// visible writes control characters as JSON does, and SQL in a string of escapes, but for those kept.
func visible(text, kept string) string {
	var out strings.Builder
	for _, r := range text {
		if (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) && !strings.ContainsRune(kept, r) {
			fmt.Fprintf(&out, `\u%04x`, r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}
