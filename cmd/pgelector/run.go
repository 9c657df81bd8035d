//go:build unix

package main

import (
	"errors"
	"fmt"
	"os/exec"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/exit"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/runner"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/supervise"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// guardName is the hidden subcommand that makes this program the guard.
const guardName = "guard"

func (a *app) runCommands() []*cobra.Command {
	guard := &cobra.Command{
		Use:                guardName + " CONTROL REPORTS COMMAND [ARG…]",
		Hidden:             true,
		DisableFlagParsing: true,
		Args:               cobra.MinimumNArgs(3),
		Run:                func(_ *cobra.Command, args []string) { supervise.Guard(args) },
	}
	return []*cobra.Command{a.runCommand(), a.leadCommand(), guard}
}

const runLong = `Keeps a program running on one of many hosts: start the same line on all of them. The host that
leads runs the command; the others wait. After the command, or a lost term, the host campaigns again,
until TERM or Ctrl-C. When the term is lost, the command and all that it started get TERM and, after
--grace, KILL. The lock is released only when no process of the command is left. With --shards and
--group all hosts share out shards, and run a command for each.

The command inherits standard input, output and error, and gets signals. Its environment has
PGELECTOR_ELECTION, _CANDIDATE, _KEY, _TOKEN and _LEASE_DEADLINE; of a group _GROUP, _SHARD, _SHARDS.

Exit status: the command's own; 128+n if signal n ended it (TERM: 0, but not with --once and
--if-free); 64 bad usage; 69 no primary reached; 75 leadership lost, with --once or --if-free;
78 refused server; 126 not executable; 127 not found.

More: ` + moreOfCommand

const runExample = `  pgelector run billing -- ./billing-worker --verbose
  pgelector run nightly --if-free --hold 30s -- /usr/local/bin/nightly-report
  pgelector run feed --http :8080 -- ./feed
  pgelector run --group import --shards 16 -- sh -c './import --partition $PGELECTOR_SHARD'`

func (a *app) runCommand() *cobra.Command {
	c := runner.Defaults()
	c.Moves = 16
	var e electionFlags
	cmd := &cobra.Command{
		Use:     "run NAME [flags] -- COMMAND [ARG…]",
		Short:   "Keep a program running on one of many hosts",
		Long:    runLong,
		Example: runExample,
		Args:    nameIsElection,
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, c.Command = atDash(cmd, args); len(c.Command) == 0 {
				return exit.Usagef("run: the command is missing: put it after --")
			}
			return a.run(c, e, cmd.Flags())
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		if unknown := new(pflag.NotExistError); errors.As(err, &unknown) {
			err = fmt.Errorf("%w (flags of the command go after --)", err)
		}
		return err
	})
	flags := cmd.Flags()
	flags.StringVarP(&c.Election, "election", "e", "", "the name of the election, instead of NAME")
	flags.StringVar(&c.Group, "group", "", "lead a share of the shards of this group, not an election")
	flags.IntVar(&c.Shards, "shards", 0, "with --group: the number of shards, the same on every host")
	flags.IntVar(&c.Moves, "moves", c.Moves, "with --group: how many shards move at the same time")
	flags.IntVar(&c.Most, "most", 0, "with --group: the most shards that this host leads; 0: all")
	flags.DurationVar(&c.Sticky, "sticky", 0, "with --group: keep the shards of a host that left this long")
	flags.BoolVar(&c.Once, "once", false, "end when the command ends or the term is lost")
	flags.DurationVar(&c.RestartDelay, "restart-delay", c.RestartDelay, "the wait after the command ended, doubled each time")
	flags.DurationVar(&c.RestartDelayMax, "restart-delay-max", c.RestartDelayMax, "the longest of these waits; a run this long resets it")
	flags.BoolVar(&c.IfFree, "if-free", false, "run the command once, and only if nobody else leads")
	flags.DurationVar(&c.FreeWait, "wait", 0, "with --if-free: how long to wait for another to finish")
	flags.IntVar(&c.BusyCode, "if-free-exit-code", 0, "with --if-free: the exit status if another leads")
	flags.DurationVar(&c.Hold, "hold", 0, "after a success keep the lock this long after the start")
	flags.DurationVar(&c.Grace, "grace", c.Grace, "the time from TERM to KILL; default: what fits into the drain")
	flags.Lookup("grace").DefValue = "0s" // hides the default, which is -1ns
	e.add(cmd, &c)
	flags.Lookup("drain").Usage += ", or what --grace needs"
	a.connection.add(cmd)
	a.log.add(cmd)
	groupFlags(cmd)
	return cmd
}

// atDash splits the arguments at "--".
func atDash(cmd *cobra.Command, args []string) (names, command []string) {
	if at := cmd.ArgsLenAtDash(); at >= 0 {
		return args[:at], args[at:]
	}
	return args, nil
}

// nameIsElection makes the argument before "--", if there is one, the value of --election, before the
// environment is asked for it.
func nameIsElection(cmd *cobra.Command, args []string) error {
	names, command := atDash(cmd, args)
	election := cmd.Flags().Lookup("election")
	switch {
	case len(names) == 0:
		return nil
	case len(names) > 1 && len(command) == 0:
		return errors.New("the command is missing: put it after --")
	case len(names) > 1:
		return fmt.Errorf("want the NAME of one election before --, got %d arguments", len(names))
	case election.Changed:
		return errors.New("NAME and --election exclude each other")
	}
	givenAs(election, "NAME")
	return cmd.Flags().Set(election.Name, names[0])
}

func (a *app) run(c runner.Config, e electionFlags, flags *pflag.FlagSet) error {
	c.Once = c.Once || c.IfFree
	if err := checkRun(&c, flags); err != nil {
		return err
	}
	if err := a.candidate(&c, e); err != nil {
		return err
	}
	// Fail now, and not after a campaign that may take days.
	if _, err := exec.LookPath(c.Command[0]); err != nil {
		return exit.With(supervise.StartCode(err), fmt.Errorf("run: %w", err))
	}
	if err := supervise.Check(); err != nil {
		return err
	}
	c.Guard = []string{"pgelector", guardName}
	return runner.Run(c)
}

// checkRun returns a usage error, which names the flags that were given, if they conflict.
func checkRun(c *runner.Config, flags *pflag.FlagSet) error {
	if c.Group == "" && c.Election == "" {
		return exit.Usagef("run: the NAME of the election is missing, or --group NAME")
	}
	if c.Group != "" {
		if err := checkGroup(c, flags); err != nil {
			return err
		}
	} else if f := given(flags, "shards", "moves", "most", "sticky"); f != "" {
		return exit.Usagef("run: %s needs --group NAME", f)
	}
	if f := given(flags, "wait", "if-free-exit-code"); f != "" && !c.IfFree {
		return exit.Usagef("run: %s needs --if-free", f)
	}
	if f := given(flags, "restart-delay", "restart-delay-max"); f != "" && c.Once {
		return exit.Usagef("run: %s and %s exclude each other: the command is run once", given(flags, "if-free", "once"), f)
	}
	return nil
}

func checkGroup(c *runner.Config, flags *pflag.FlagSet) error {
	f := given(flags, "election", "once", "if-free", "hold", "roster", "takeover", "deputy-interval", "synchronous-standby")
	if f == "" && flags.Lookup("scope").Value.String() == "transaction" {
		f = given(flags, "scope") + " transaction"
	}
	switch {
	case f != "":
		return exit.Usagef("run: %s and %s exclude each other", given(flags, "group"), f)
	case c.Shards == 0:
		return exit.Usagef("run: --group needs --shards N")
	}
	return nil
}
