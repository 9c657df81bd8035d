//go:build unix

package main

import (
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/exit"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/runner"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/supervise"
	"github.com/pgelector/pgelector/elector"
	"github.com/spf13/cobra"
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

const runLong = `Waits until it leads the election, and runs the command while it leads. Start the same line on many hosts: exactly one
of them runs the command.

The command inherits standard input, output and error. Signals are forwarded to its process group, and its exit status
is passed on. When leadership is lost, the group gets TERM and, after --grace, KILL. If this host was cut off, that
happens before another host may lead; if it was frozen, when it thaws. If the server ended the session, the lock is free
at once. While this host holds the lock, it releases it only when no process of the command is left.

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
--backoff. HUP, QUIT, USR1 and USR2 are forwarded to all commands; TERM and INT end them all. The exit status is then
that of the last command that failed. With --http, /readyz answers 503 while the database does not answer.

Exit status: the command's own; 128+n if signal n ended it, but 0 after TERM sent to pgelector; 64 bad usage; 69 no primary
reached; 75 leadership lost; 78 refused server; 126 not executable; 127 not found.`

const runExample = `  pgelector run --election billing -- ./billing-worker --verbose
  pgelector run --election nightly --if-free --hold 30s -- /usr/local/bin/nightly-report
  pgelector run --election feed --restart --http :8080 -- ./feed
  pgelector run --group import --shards 16 -- sh -c './import --partition $PGELECTOR_SHARD'`

const (
	defaultMoves      = 16
	defaultBackoff    = time.Second
	defaultBackoffMax = time.Minute
)

func (a *app) runCommand() *cobra.Command {
	c := runner.Config{Grace: runner.NoGrace, BackoffMin: defaultBackoff, BackoffMax: defaultBackoffMax}
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
	flags.IntVar(&c.Moves, "moves", defaultMoves, "with --group: how many shards move to another host at the same time")
	flags.DurationVar(&c.Sticky, "sticky", 0, "with --group: keep the shards of a host that has gone for this long; if it returns in time with the same --candidate, it gets them back (a host that joins meanwhile may take them)")
	flags.BoolVar(&once, "once", false, "exit when the command ends: the default")
	flags.BoolVar(&c.Restart, "restart", false, "when the command ends or leadership is lost, campaign and run it again")
	flags.DurationVar(&c.BackoffMin, "backoff", c.BackoffMin, "with --restart or --group: the wait after the command ended, doubled each time")
	flags.DurationVar(&c.BackoffMax, "backoff-max", c.BackoffMax, "with --restart or --group: the longest wait; a run of at least this length resets the wait")
	flags.BoolVar(&c.IfFree, "if-free", false, "run only if nobody else leads; otherwise exit at once")
	flags.DurationVar(&c.FreeWait, "wait", 0, "with --if-free: how long to wait for another to finish")
	flags.IntVar(&c.BusyCode, "if-free-exit-code", 0, "with --if-free: the exit status if another leads")
	flags.DurationVar(&c.Hold, "hold", 0, "after a successful run, keep the lock until this long after its start, for hosts whose clocks differ")
	flags.DurationVar(&c.Grace, "grace", c.Grace, "the time from TERM to KILL; must fit into the drain; default: as long as fits")
	flags.Lookup("grace").DefValue = "0s" // hides the default, which is -1ns
	e.add(cmd, &c)
	flags.Lookup("drain").Usage += ", or what --grace needs"
	a.connection.add(cmd)
	a.log.add(cmd)
	return cmd
}

func (a *app) run(c runner.Config, e electionFlags) error {
	switch {
	case c.Group != "" && c.Election != "":
		return exit.Usagef("run: --group and --election exclude each other")
	case c.Group == "" && (c.Shards != 0 || c.Moves != defaultMoves || c.Sticky != 0):
		return exit.Usagef("run: --shards, --moves and --sticky need --group NAME")
	case !c.Restart && c.Group == "" && (c.BackoffMin != defaultBackoff || c.BackoffMax != defaultBackoffMax):
		return exit.Usagef("run: --backoff and --backoff-max need --restart or --group NAME")
	case c.Group != "" && c.Shards == 0:
		return exit.Usagef("run: --group needs --shards N")
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
	if err := supervise.Check(); err != nil {
		return err
	}
	c.Guard = []string{"pgelector", guardName}
	return runner.Run(c)
}

func (a *app) leadCommand() *cobra.Command {
	c := runner.Config{Grace: runner.NoGrace, BackoffMin: time.Second, BackoffMax: time.Minute}
	var e electionFlags
	cmd := &cobra.Command{
		Use:   "lead NAME --http ADDRESS",
		Short: "Be a candidate for a program beside this one, which asks it over HTTP",
		Long: `Campaigns and leads until it is stopped, and runs no command: a program beside it, as in another container of the same
pod, asks whether it leads. /readyz and /leader answer 200 while this candidate leads, and 503 otherwise; /leader has
the fencing token and the deadline.

What asks every few seconds learns of a lost term that much later, while another may lead already. Only the token, sent
with each write to a store that refuses an older one, excludes that. To stop a program in time, use run.

Exit status: 0 after TERM, 128+n after another signal n; 64 bad usage; 69 no primary reached; 78 refused server.`,
		Example: "  pgelector lead billing --http :8080\n  curl --fail http://localhost:8080/leader",
		Args:    oneName,
		RunE: func(_ *cobra.Command, args []string) error {
			if c.Election = args[0]; c.HTTP == "" {
				return exit.Usagef("lead: --http ADDRESS is missing: nobody could ask whether this candidate leads")
			}
			if err := a.candidate(&c, e); err != nil {
				return err
			}
			return runner.Run(c)
		},
	}
	e.add(cmd, &c)
	a.connection.add(cmd)
	a.log.add(cmd)
	return cmd
}

var scopes = map[string]elector.Scope{"auto": elector.Auto, "session": elector.SessionScope, "transaction": elector.TransactionScope}

var standbys = map[string]elector.Standby{"deputy": elector.Deputy, "wait": elector.Wait, "poll": elector.Poll}

// electionFlags are those of the commands that may lead, besides those that set the config.
type electionFlags struct{ standby, scope string }

func (e *electionFlags) add(cmd *cobra.Command, c *runner.Config) {
	flags := cmd.Flags()
	flags.StringVar(&c.Candidate, "candidate", "", "the id of this candidate, unique among live ones; default: host name, process id, random digits")
	flags.DurationVar(&c.Lease, "lease", 10*time.Second, "how long the server keeps the lock of a frozen or disconnected host")
	flags.DurationVar(&c.Heartbeat, "heartbeat", 0, "the time between two heartbeats; default: lease/5, at most 30s")
	flags.DurationVar(&c.Drain, "drain", 0, "the time that the work gets to stop when the term is lost; default: lease/5")
	flags.DurationVar(&c.Retry, "retry", 0, "the longest wait between two attempts while another leads; default: 3s, without a deputy or with --group 1s")
	flags.IntVar(&c.MaxAttempts, "max-attempts", 0, "give up after this many failed attempts in a row; 0: never")
	flags.DurationVar(&c.ReadOnlyTimeout, "read-only-timeout", time.Minute, "how long to wait at the start for a standby to become a primary")
	flags.IntVar(&c.TokenEpoch, "token-epoch", 0, "added to the timeline in the fencing token, so that tokens still rise after a pg_upgrade")
	flags.StringVar(&e.standby, "standby", "", "while another leads: deputy: become the deputy, if nobody is, which tries often; wait: the deputy waits in the server, and leads within milliseconds; poll: never become the deputy; default: deputy, with transaction scope poll")
	flags.StringVar(&e.scope, "scope", "auto", "hold the lock until the end of the session, or inside a transaction, as through a transaction pooler; auto: session, unless a transaction pooler is found")
	flags.DurationVar(&c.DeputyInterval, "deputy-interval", 0, "how often the deputy tries; default: 100ms, at most the heartbeat interval")
	flags.DurationVar(&c.Synchronous, "synchronous-standby", 0, "with synchronous replication: the longest lease of all candidates; every candidate must set this; 0: off")
	flags.StringVar(&c.HTTP, "http", "", "serve /healthz, /readyz, /leader and /metrics on this address, such as :8080")
	flags.StringVar(&c.Roster, "roster", "", "publish this candidate in the roster in this schema, such as pgelector: the dashboard then shows it, also while another leads")
	choices(cmd, "standby", "deputy", "wait", "poll")
	choices(cmd, "scope", "auto", "session", "transaction")
}

// candidate checks the flags, finds the database, and starts the log.
func (a *app) candidate(c *runner.Config, e electionFlags) (err error) {
	var known bool
	if c.Standby, known = standbys[e.standby]; !known && e.standby != "" {
		return exit.Usagef("--standby %q: want deputy, wait or poll", e.standby)
	}
	c.StandbyChosen = known
	if c.Scope, known = scopes[e.scope]; !known {
		return exit.Usagef("--scope %q: want auto, session or transaction", e.scope)
	}
	if err := exit.CheckElection(c.Election + c.Group); err != nil {
		return err
	}
	if err := c.Fit(); err != nil {
		return err
	}
	if c.Target, err = a.connection.find(); err != nil {
		return err
	}
	c.Log, err = a.log.logger(a.connection.scrub)
	return err
}
