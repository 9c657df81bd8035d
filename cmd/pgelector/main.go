// Command pgelector runs programs under leadership, and inspects leader elections on
// PostgreSQL. docs/command.md describes it.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"unicode/utf8"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/connect"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/exit"
	"github.com/pgelector/pgelector/elector"
	"github.com/spf13/cobra"
)

func main() {
	arguments := connect.HideArguments()
	app := &app{}
	root := app.command()
	root.SetArgs(arguments[1:])
	root.SetOut(plain{os.Stdout})
	root.SetErr(plain{stderr})
	command, err := root.ExecuteC()
	code := app.finish(command, err)
	stderr.flush()
	os.Exit(code)
}

// app holds the flags that the subcommands share.
type app struct {
	connection connectionFlags
	log        logFlags
	entered    bool // a subcommand accepted its flags and arguments
}

// command returns the root command.
func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "pgelector",
		Short: "Leader election on PostgreSQL session advisory locks",
		Long: "Keeps any program running on one of many hosts, and shows and mends leader elections.\n" +
			"It needs only your PostgreSQL: no new server, no table, no extension.\n\n" +
			"It finds the database as psql does: by --dsn, else by DATABASE_URL, else by libpq's PG* variables, service file\n" +
			"and password file. Do not put a password into --dsn: ps shows it to other users for a moment.\n\n" +
			"Each flag can be given by an environment variable instead: --log-level by PGELECTOR_LOG_LEVEL.",
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := flagsFromEnvironment(cmd.Flags()); err != nil {
				return err
			}
			a.entered = true
			return nil
		},
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(a.runCommands()...)
	root.AddCommand(a.statusCommand(), a.watchCommand(), a.dashboardCommand(), a.resignCommand(), a.evictCommand(), a.doctorCommand())
	for _, cmd := range root.Commands() {
		if f := cmd.Flags().Lookup("election"); f != nil {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, a.completeElections)
			cmd.ValidArgsFunction = a.completeRun
		} else if strings.Contains(cmd.Use, "NAME") {
			cmd.ValidArgsFunction = a.completeElections
		}
	}
	root.AddCommand(keyCommand(), versionCommand())
	return root
}

// finish prints the error and returns the exit code. An error before a subcommand is
// entered is a usage error.
func (a *app) finish(command *cobra.Command, err error) int {
	if err == nil {
		return exit.OK
	}
	known := exit.Classify(err)
	code := exit.CodeOf(known)
	var has *exit.Error
	misused := !a.entered && !errors.As(err, &has)
	if misused {
		code = exit.Usage
	}
	if !errors.Is(known, exit.ErrSilent) {
		a.say(strings.TrimSpace(known.Error()), code)
	}
	if misused && !a.log.json {
		fmt.Fprintf(stderr, "See %s --help.\n", command.CommandPath())
	}
	return code
}

// say writes why the program ends, in the format of the log, at any log level.
func (a *app) say(text string, code int) {
	text = connect.HideDSN(text) // one that was given where none belongs
	if a.log.json {
		if logger, err := (&logFlags{level: "error", json: true}).logger(a.connection.scrub); err == nil {
			logger.Error(text, "exit_status", code)
			return
		}
	}
	fmt.Fprintln(plain{stderr}, "pgelector:", a.connection.scrub(text))
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this command and what it was built from",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version())
			return err
		},
	}
}

// release is the version that the linker sets where the build sees no repository.
var release string

func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "pgelector, unknown version (built without module support)"
	}
	return describe(info)
}

func describe(info *debug.BuildInfo) string {
	text := fmt.Sprintf("pgelector %s (%s", cmp.Or(release, info.Main.Version), info.GoVersion)
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			text += ", revision " + s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			text += ", modified"
		}
	}
	return text + ")"
}

func keyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "key NAME",
		Short: "Print the advisory lock key of an election, and the SQL that computes it",
		Args:  oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkNames(args...); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%d\n%s\n", elector.KeyFromName(args[0]), keySQL(args[0]))
			return err
		},
	}
}

// keySQL returns a statement for psql.
func keySQL(name string) string {
	if !utf8.ValidString(name) { // no text of the server is that
		return fmt.Sprintf("SELECT pg_catalog.concat('x', pg_catalog.left(pg_catalog.encode(pg_catalog.sha256(pg_catalog.decode('%x', 'hex')), 'hex'), 16))::bit(64)::bigint;",
			"pgelector:"+name)
	}
	return "SELECT pg_catalog.concat('x', pg_catalog.left(pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(" +
		"pg_catalog.concat('pgelector:', " + quote(name) + "), 'UTF8')), 'hex'), 16))::bit(64)::bigint;"
}

// quote returns an SQL string literal that no setting changes, and no terminal.
func quote(text string) string {
	quoted := "'" + visible(strings.NewReplacer("'", "''", `\`, `\\`).Replace(text), "") + "'"
	if strings.Contains(quoted, `\`) {
		return " E" + quoted
	}
	return quoted
}
