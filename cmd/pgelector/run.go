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

// guardName is the hidden subcommand by which run starts itself as the guard.
const guardName = "guard"

func (a *app) runCommands() []*cobra.Command {
	guard := &cobra.Command{
		Use:                guardName + " COMMAND [ARG…]",
		Hidden:             true,
		DisableFlagParsing: true,
		Args:               cobra.MinimumNArgs(1),
		Run:                func(_ *cobra.Command, args []string) { supervise.Guard(args) },
	}
	return []*cobra.Command{a.runCommand(), guard}
}

const runLong = `Waits until it leads the election, and runs the command as long as it does. Of all the hosts that run the same
line, one runs the command.

Standard input, output and error are the command's own, signals are forwarded to its process group, and its exit
status is passed on. When leadership is lost the group gets TERM, then, after --grace, KILL. That is over before another
host may lead if this host was frozen or cut off; where the server itself ended the session, the lock is free at once.
A lock that is still held is released only when nothing of the command is left.

The command finds in its environment:
  PGELECTOR_ELECTION        the name of the election
  PGELECTOR_CANDIDATE       the id of this candidate
  PGELECTOR_KEY             the advisory lock key
  PGELECTOR_TOKEN           the fencing token: larger than that of every earlier term
  PGELECTOR_LEASE_DEADLINE  when the term ends unless a heartbeat extends it, as it was at the start (RFC 3339)

Exit status: the command's own; 128+n if signal n ended it; 64 bad usage; 69 no primary reached; 75 leadership lost;
78 refused server; 126 not executable; 127 not found.`

const runExample = `  pgelector run --election billing -- ./billing-worker --verbose
  pgelector run --election nightly --if-free --hold 30s -- /usr/local/bin/nightly-report
  pgelector run --election feed --restart --http :8080 -- ./feed`

func (a *app) runCommand() *cobra.Command {
	c := runner.Config{Lease: 10 * time.Second, Grace: runner.NoGrace, Retry: time.Second,
		BackoffMin: time.Second, BackoffMax: time.Minute}
	var standby string
	var once bool
	cmd := &cobra.Command{
		Use:     "run --election NAME [flags] -- COMMAND [ARG…]",
		Short:   "Run a program under leadership: on one of many hosts",
		Long:    runLong,
		Example: runExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			if once && c.Restart {
				return exit.Usagef("--once with --restart: use one of them")
			}
			c.Wait = standby == "wait"
			if standby != "wait" && standby != "poll" {
				return exit.Usagef("--standby %q: want poll or wait", standby)
			}
			c.Command = args
			return a.run(c)
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // what follows the command's name is the command's
	flags.StringVarP(&c.Election, "election", "e", "", "the name of the election")
	flags.StringVar(&c.Candidate, "candidate", "", "the id of this candidate, unique among live ones; default: host name, process id, random digits")
	flags.BoolVar(&once, "once", false, "leave when the command ends: the default")
	flags.BoolVar(&c.Restart, "restart", false, "when the command ends, or leadership is lost, campaign and run it again")
	flags.DurationVar(&c.BackoffMin, "backoff", c.BackoffMin, "with --restart: the wait after the command ended, doubled each time")
	flags.DurationVar(&c.BackoffMax, "backoff-max", c.BackoffMax, "with --restart: the longest wait; a command that ran as long resets it")
	flags.BoolVar(&c.IfFree, "if-free", false, "run only if nobody else leads; otherwise leave at once")
	flags.DurationVar(&c.FreeWait, "wait", 0, "with --if-free: how long to wait for another to finish")
	flags.IntVar(&c.BusyCode, "if-free-exit-code", 0, "with --if-free: the exit status if another leads")
	flags.DurationVar(&c.Hold, "hold", 0, "keep the lock at least so long after a start that ended well, for hosts whose clocks differ")
	flags.DurationVar(&c.Lease, "lease", c.Lease, "how long the server keeps the lock of a host that is frozen or cut off")
	flags.DurationVar(&c.Heartbeat, "heartbeat", 0, "the time between two proofs of life; default: lease/5")
	flags.DurationVar(&c.Drain, "drain", 0, "how long before the lease's end a command is stopped that had no heartbeat; default: lease/5, or what --grace needs")
	flags.DurationVar(&c.Grace, "grace", c.Grace, "from TERM to KILL; must fit into the drain; default: what fits")
	flags.Lookup("grace").DefValue = "0s" // which is not shown: -1ns would say nothing to anybody
	flags.DurationVar(&c.Retry, "retry", c.Retry, "the longest wait between two attempts while another leads")
	flags.IntVar(&c.MaxAttempts, "max-attempts", 0, "give up after so many attempts in a row that failed; 0: never")
	flags.DurationVar(&c.ReadOnlyTimeout, "read-only-timeout", time.Minute, "wait so long for a standby, met at the start, to become a primary")
	flags.IntVar(&c.TokenEpoch, "token-epoch", 0, "added to the timeline in the fencing token, so that tokens rise also after a pg_upgrade")
	flags.StringVar(&standby, "standby", "poll", "while another leads: poll, or wait in the server, which takes over at once and pins a connection")
	flags.BoolVar(&c.Watch, "watch", false, "learn within milliseconds when the server ends the session; pins one more connection")
	flags.DurationVar(&c.Synchronous, "synchronous-standby", 0, "with synchronous replication: the longest lease of all candidates, of which each must have this; 0: off")
	flags.StringVar(&c.HTTP, "http", "", "serve /healthz, /readyz, /leader and /metrics on this address, such as :8080")
	choices(cmd, "standby", "poll", "wait")
	a.connection.add(cmd)
	a.log.add(cmd)
	return cmd
}

func (a *app) run(c runner.Config) (err error) {
	switch {
	case c.Election == "":
		return exit.Usagef("run: --election NAME is missing")
	case len(c.Command) == 0:
		return exit.Usagef("run: there is no command: put it behind --")
	}
	if err := exit.CheckElection(c.Election); err != nil {
		return err
	}
	if err := c.Fit(); err != nil {
		return err
	}
	if c.Target, err = a.connection.find(); err != nil {
		return err
	}
	if c.Log, err = a.log.logger(a.connection.scrub); err != nil {
		return err
	}
	// Before the campaign, which may take days: the guard looks for it again.
	if _, err := exec.LookPath(c.Command[0]); err != nil {
		return exit.With(supervise.StartCode(err), fmt.Errorf("run: %w", err))
	}
	c.Guard = []string{"pgelector", guardName}
	return runner.Run(c)
}
