//go:build unix

package main

import (
	"fmt"
	"os/exec"
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

Exit status: the command's own; 128+n if signal n ended it, but 0 after TERM; 64 bad usage; 69 no primary reached; 75 leadership lost;
78 refused server; 126 not executable; 127 not found.`

const runExample = `  pgelector run --election billing -- ./billing-worker --verbose
  pgelector run --election nightly --if-free --hold 30s -- /usr/local/bin/nightly-report
  pgelector run --election feed --restart --http :8080 -- ./feed`

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
			if once && c.Restart {
				return exit.Usagef("--once and --restart exclude each other")
			}
			c.Command = args
			return a.run(c, e)
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // flags after the command's name are the command's
	flags.StringVarP(&c.Election, "election", "e", "", "the name of the election")
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
	case c.Election == "":
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
