//go:build unix

package main

import (
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/exit"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/runner"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/supervise"
)

// guardName is the hidden subcommand that makes this program the guard.
const guardName = "guard"

func (a *app) runCommands() []*cobra.Command {
	guard := &cobra.Command{
		Use:                guardName + " COMMAND [ARG…]",
		Hidden:             true,
		DisableFlagParsing: true,
		Args:               cobra.MinimumNArgs(1),
		Run:                func(_ *cobra.Command, args []string) { supervise.Guard(args) },
	}
	return []*cobra.Command{a.runCommand(), a.leadCommand(), guard}
}

const runLong = `Waits until it leads the election, and runs the command while it leads. Start the same line on many hosts: exactly one
of them runs the command.

The command inherits standard input, output and error. Signals are forwarded to its process group, and its exit status
is passed on. When leadership is lost, the group gets TERM and, after --grace, KILL. If this host was frozen or cut off,
that happens before another host may lead. If the server ended the session, the lock is free at once. While this host
holds the lock, it releases it only when no process of the command is left.

The command's environment:
  PGELECTOR_ELECTION        the name of the election
  PGELECTOR_CANDIDATE       the id of this candidate
  PGELECTOR_KEY             the advisory lock key
  PGELECTOR_TOKEN           the fencing token: larger than that of every earlier term
  PGELECTOR_LEASE_DEADLINE  when the term ends unless a heartbeat extends it, as of the start (RFC 3339)

With --shards N --group NAME, all hosts share out N shards, and each runs one command for each shard that it leads. Its
environment has PGELECTOR_SHARD, from 0 to N-1, PGELECTOR_SHARDS, PGELECTOR_GROUP, and the variables above for the
election of the shard, named NAME/0 and so on. It reads /dev/null. When its shard moves to another host or leadership
is lost, it gets TERM and, after --grace, KILL; then the shard is released. A command that ends is run again, after
--backoff. HUP, USR1 and USR2 are forwarded to all commands; TERM and INT end them all. The exit status is then that of
the last command that failed. With --http, /readyz answers 503 while the database does not answer.

Exit status: the command's own; 128+n if signal n ended it, but 0 after TERM; 64 bad usage; 69 no primary reached; 75 leadership lost;
78 refused server; 126 not executable; 127 not found.`

const runExample = `  pgelector run --election billing -- ./billing-worker --verbose
  pgelector run --election nightly --if-free --hold 30s -- /usr/local/bin/nightly-report
  pgelector run --election feed --restart --http :8080 -- ./feed
  pgelector run --group import --shards 16 -- sh -c './import --partition $PGELECTOR_SHARD'`

func (a *app) runCommand() *cobra.Command {
	c := runner.Config{Grace: runner.NoGrace, BackoffMin: time.Second, BackoffMax: time.Minute}
	var e electionFlags
	var once bool
	cmd := &cobra.Command{
		Use:     "run --election NAME [flags] -- COMMAND [ARG…]",
		Short:   "Run a program under leadership: on one of many hosts",
		Long:    runLong,
		Example: runExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			if once && (c.Restart || c.Group != "") {
				return exit.Usagef("--once and --restart or --group exclude each other")
			}
			c.Command = args
			return a.run(c, e)
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // flags after the command's name are the command's
	flags.StringVarP(&c.Election, "election", "e", "", "the name of the election")
	flags.StringVar(&c.Group, "group", "", "lead a share of the shards of this group, instead of an election, and run a command for each")
	flags.IntVar(&c.Shards, "shards", 0, "with --group: the number of its shards, the same on every host")
	flags.IntVar(&c.Moves, "moves", 16, "with --group: how many shards move to another host at the same time")
	flags.DurationVar(&c.Sticky, "sticky", 0, "with --group: for how long nobody takes the shards of a host that has gone; one that is back by then with the same --candidate has them again")
	flags.BoolVar(&once, "once", false, "exit when the command ends: the default")
	flags.BoolVar(&c.Restart, "restart", false, "when the command ends or leadership is lost, campaign and run it again")
	flags.DurationVar(&c.BackoffMin, "backoff", c.BackoffMin, "with --restart: the wait after the command ended, doubled each time")
	flags.DurationVar(&c.BackoffMax, "backoff-max", c.BackoffMax, "with --restart: the longest wait; a run of at least this length resets the wait")
	flags.BoolVar(&c.IfFree, "if-free", false, "run only if nobody else leads; otherwise exit at once")
	flags.DurationVar(&c.FreeWait, "wait", 0, "with --if-free: how long to wait for another to finish")
	flags.IntVar(&c.BusyCode, "if-free-exit-code", 0, "with --if-free: the exit status if another leads")
	flags.DurationVar(&c.Hold, "hold", 0, "after a successful run, keep the lock until this long after its start, for hosts whose clocks differ")
	flags.DurationVar(&c.Grace, "grace", c.Grace, "the time from TERM to KILL; must fit into the drain; default: as long as fits")
	flags.Lookup("grace").DefValue = "0s" // hides the default, which is -1ns
	e.add(cmd, &c)
	a.connection.add(cmd)
	a.log.add(cmd)
	return cmd
}

func (a *app) run(c runner.Config, e electionFlags) error {
	switch {
	case c.Group != "" && c.Election != "":
		return exit.Usagef("run: --group and --election exclude each other")
	case c.Group == "" && c.Shards != 0:
		return exit.Usagef("run: --shards needs --group NAME")
	case strings.ContainsAny(c.Group, "/#"):
		return exit.Usagef("--group %q: want a name without / and #", c.Group)
	case c.Election == "" && c.Group == "":
		return exit.Usagef("run: --election NAME is missing")
	case len(c.Command) == 0:
		return exit.Usagef("run: the command is missing: put it after --")
	}
	if err := a.candidate(&c, e); err != nil {
		return err
	}
	// Fail now, and not after a campaign that may take days.
	if _, err := exec.LookPath(c.Command[0]); err != nil {
		return exit.With(supervise.StartCode(err), fmt.Errorf("run: %w", err))
	}
	c.Guard = []string{"pgelector", guardName}
	return runner.Run(c)
}
