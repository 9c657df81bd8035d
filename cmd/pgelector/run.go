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

const runLong = `Keeps a program running on one of many hosts: start the same line on all of them. Each host waits until it leads the
election, and runs the command while it leads. At most one host holds the lock. When the command ends, or leadership is
lost, this host stays a candidate, and runs the command again when it leads, until it is stopped. With --once it ends
with the command. With --if-free it runs the command once, and only if nobody else leads, such as a cron job.

The command inherits standard input, output and error. Signals are forwarded to its process group, and when pgelector
ends with the command, it passes the exit status on. When leadership is lost, the group gets TERM and, after --grace,
KILL. If this host was cut off, that happens before another host may lead; if it was frozen, when it thaws. If the
server ended the session, the lock is free at once. While this host holds the lock, it releases it only when no process
of the command is left.

The command's environment:
  PGELECTOR_ELECTION        the name of the election
  PGELECTOR_CANDIDATE       the id of this candidate
  PGELECTOR_KEY             the advisory lock key
  PGELECTOR_TOKEN           the fencing token: larger than that of every earlier term
  PGELECTOR_LEASE_DEADLINE  when the term ends unless a heartbeat extends it, as of the start (RFC 3339)

With --shards N --group NAME, all hosts share out N shards, and each runs one command for each shard that it leads. Its
environment has PGELECTOR_SHARD, from 0 to N-1, PGELECTOR_SHARDS, PGELECTOR_GROUP, and the variables above for the
election of the shard, named NAME/0 and so on. It reads /dev/null. When its shard moves to another host or leadership
is lost, it gets TERM and, after --grace, KILL; then the shard is released. A command that ends is run again. HUP, QUIT,
USR1 and USR2 are forwarded to all commands; TERM and INT end them all. The exit status is then that of the last command
that failed. With --http, /readyz answers 503 while the database does not answer.

Exit status: the command's own; 128+n if signal n ended it, but 0 after TERM sent to pgelector without --once and
--if-free; 64 bad usage; 69 no primary reached; 75 leadership lost, with --once or --if-free; 78 refused server; 126 not
executable; 127 not found.`

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
	flags.StringVar(&c.Group, "group", "", "lead a share of the shards of this group, instead of an election, and run a command for each")
	flags.IntVar(&c.Shards, "shards", 0, "with --group: the number of its shards, the same on every host")
	flags.IntVar(&c.Moves, "moves", c.Moves, "with --group: how many shards move to another host at the same time")
	flags.IntVar(&c.Most, "most", 0, "with --group: how many shards this host leads at most; 0: no bound")
	flags.DurationVar(&c.Sticky, "sticky", 0, "with --group: keep the shards of a host that has gone for this long; if it returns in time with the same --candidate, it gets them back (a host that joins meanwhile may take them)")
	flags.BoolVar(&c.Once, "once", false, "end when the command ends or leadership is lost; otherwise this host goes on, and runs the command again when it leads")
	flags.DurationVar(&c.RestartDelay, "restart-delay", c.RestartDelay, "the wait after the command ended, doubled each time")
	flags.DurationVar(&c.RestartDelayMax, "restart-delay-max", c.RestartDelayMax, "the longest of these waits; a run of at least this length resets the wait")
	flags.BoolVar(&c.IfFree, "if-free", false, "run the command once, and only if nobody else leads; otherwise exit at once")
	flags.DurationVar(&c.FreeWait, "wait", 0, "with --if-free: how long to wait for another to finish")
	flags.IntVar(&c.BusyCode, "if-free-exit-code", 0, "with --if-free: the exit status if another leads")
	flags.DurationVar(&c.Hold, "hold", 0, "after a successful run, keep the lock until this long after its start, for hosts whose clocks differ")
	flags.DurationVar(&c.Grace, "grace", c.Grace, "the time from TERM to KILL; must fit into the drain; default: as long as fits")
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
