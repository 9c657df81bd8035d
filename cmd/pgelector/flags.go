package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/connect"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/exit"
	"github.com/pgelector/pgelector/roster"
)

// connectionFlags select the database.
type connectionFlags struct {
	dsn     string
	driver  string
	timeout time.Duration
	target  *connect.Target // set by find
}

func (f *connectionFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.dsn, "dsn", "", "the database; default: DATABASE_URL, then the PG* variables")
	cmd.Flags().StringVar(&f.driver, "driver", connect.PGX, "the driver: pgx or pq")
	choices(cmd, "driver", connect.PGX, connect.PQ)
}

// addTimeout adds the flags of the commands that only ask.
func (f *connectionFlags) addTimeout(cmd *cobra.Command) {
	f.add(cmd)
	cmd.Flags().DurationVar(&f.timeout, "timeout", 10*time.Second, "how long to wait for the server")
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

// open returns a pool for questions. It has connected once.
func (f *connectionFlags) open(cmd *cobra.Command) (*sql.DB, *connect.Target, error) {
	return f.openFor(cmd, connect.Inspection)
}

func (f *connectionFlags) openFor(cmd *cobra.Command, purpose connect.Purpose) (*sql.DB, *connect.Target, error) {
	target, err := f.find()
	if err != nil {
		return nil, nil, err
	}
	pool, err := target.Open(purpose)
	if err != nil {
		return nil, nil, exit.Classify(err)
	}
	if err := target.Check(cmd.Context(), pool, f.timeout); err != nil {
		return nil, nil, exit.Classify(err)
	}
	return pool, target, nil
}

// scrub removes the password from text.
func (f *connectionFlags) scrub(text string) string { return f.target.Scrub(text) }

// choices sets the completions of a flag's value.
func choices(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// oneName requires exactly one argument.
func oneName(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want the NAME of one election, got %d arguments", len(args))
	}
	return nil
}

// checkNames returns a usage error if a name is invalid.
func checkNames(names ...string) error {
	for _, name := range names {
		if err := exit.CheckElection(name); err != nil {
			return err
		}
	}
	return nil
}

// flagsFromEnvironment sets flags that were not given from variables such as
// PGELECTOR_LOG_LEVEL. A command of run has the variables of its own election, candidate and group:
// what it starts is another candidate.
func flagsFromEnvironment(flags *pflag.FlagSet) (err error) {
	_, led := os.LookupEnv("PGELECTOR_TOKEN")
	flags.VisitAll(func(f *pflag.Flag) {
		if err != nil || f.Changed || f.Name == "help" || led && slices.Contains([]string{"election", "candidate", "group", "shards", "moves", "most", "sticky"}, f.Name) {
			return
		}
		variable := "PGELECTOR_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, given := os.LookupEnv(variable)
		if !given {
			return
		}
		if failed := flags.Set(f.Name, value); failed != nil {
			var invalid *pflag.InvalidValueError
			if errors.As(failed, &invalid) {
				failed = invalid.Unwrap() // the rest of its text would be said twice
			}
			err = exit.Usagef("%s=%q, which stands for --%s: %v", variable, value, f.Name, failed)
		}
		givenAs(f, variable)
	})
	return err
}

// giver is the annotation of a flag that was given by something else than its name.
const giver = "given as"

func givenAs(f *pflag.Flag, text string) { f.Annotations = map[string][]string{giver: {text}} }

// given returns how the user gave the first of the flags that has another value than its default: its
// name, or its variable. It returns "" if there is none.
func given(flags *pflag.FlagSet, names ...string) string {
	for _, name := range names {
		if f := flags.Lookup(name); f.Changed && f.Value.String() != f.DefValue {
			if as := f.Annotations[giver]; as != nil {
				return as[0]
			}
			return "--" + name
		}
	}
	return ""
}

// completeElections completes the names of elections from the roster, if there is one: the
// locks have only keys.
func (a *app) completeElections(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, func(c roster.Candidate) string { return c.Election })
}

// completeRun completes the name of the election, and then the command as the shell does.
func (a *app) completeRun(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 || given(cmd.Flags(), "election", "group") != "" {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return a.completeElections(cmd, args, typed)
}

// completeCandidates completes the ids of the live candidates of the named election.
func (a *app) completeCandidates(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, func(c roster.Candidate) string {
		if c.State != roster.Live || len(args) > 0 && c.Election != args[0] {
			return ""
		}
		return c.CandidateID
	})
}

// complete returns what the function makes of each candidate in the roster, but not "".
func (a *app) complete(cmd *cobra.Command, of func(roster.Candidate) string) (found []string, _ cobra.ShellCompDirective) {
	_ = flagsFromEnvironment(cmd.Flags())
	a.connection.timeout = 2 * time.Second
	pool, _, err := a.connection.open(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	published, err := roster.New(pool)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), a.connection.timeout)
	defer cancel()
	candidates, _ := published.Candidates(ctx) // an error is that there is no roster
	for _, c := range candidates {
		if text := of(c); text != "" {
			found = append(found, text)
		}
	}
	return slices.Compact(found), cobra.ShellCompDirectiveNoFileComp
}
