package main

import (
	"database/sql"
	"io"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/connect"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/exit"
)

// connectionFlags say which database.
type connectionFlags struct {
	dsn     string
	driver  string
	timeout time.Duration
	target  *connect.Target // once found
}

func (f *connectionFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.dsn, "dsn", "", "the database, as a URL or \"host=… dbname=…\"; default: DATABASE_URL, else the PG* variables")
	cmd.Flags().StringVar(&f.driver, "driver", connect.PGX, "the driver: pgx or pq")
	choices(cmd, "driver", connect.PGX, connect.PQ)
}

// addTimeout is for the commands that ask and leave.
func (f *connectionFlags) addTimeout(cmd *cobra.Command) {
	f.add(cmd)
	cmd.Flags().DurationVar(&f.timeout, "timeout", 10*time.Second, "how long to wait for the server's answer")
}

func (f *connectionFlags) find() (*connect.Target, error) {
	if f.timeout <= 0 {
		return nil, exit.Usagef("--timeout %v: want more than 0", f.timeout)
	}
	target, err := connect.Find(f.dsn, f.driver, "pgelector")
	if err != nil {
		return nil, exit.Classify(err)
	}
	f.target = target
	return target, nil
}

// open makes a pool for questions, and has connected once.
func (f *connectionFlags) open(cmd *cobra.Command) (*sql.DB, *connect.Target, error) {
	target, err := f.find()
	if err != nil {
		return nil, nil, err
	}
	pool, err := target.Open(connect.Inspection)
	if err != nil {
		return nil, nil, exit.Classify(err)
	}
	if err := target.Check(cmd.Context(), pool, f.timeout); err != nil {
		return nil, nil, exit.Classify(err)
	}
	return pool, target, nil
}

// scrub removes the password from what is printed.
func (f *connectionFlags) scrub(text string) string { return f.target.Scrub(text) }

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
	return hclog.New(&hclog.LoggerOptions{
		Name: "pgelector", Level: level, JSONFormat: f.json, Color: colour,
		Output: scrubbed{os.Stderr, scrub},
	}), nil
}

// scrubbed writes lines without the password.
type scrubbed struct {
	out   io.Writer
	scrub func(string) string
}

func (s scrubbed) Write(line []byte) (int, error) {
	_, err := io.WriteString(s.out, s.scrub(string(line)))
	return len(line), err
}

// choices completes the values of a flag.
func choices(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// checkNames is an error of bad usage unless elections may have these names.
func checkNames(names ...string) error {
	for _, name := range names {
		if err := exit.CheckElection(name); err != nil {
			return err
		}
	}
	return nil
}
