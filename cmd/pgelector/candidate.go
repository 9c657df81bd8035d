//go:build unix

package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/exit"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/runner"
	"github.com/pgelector/pgelector/elector"
)

var scopes = map[string]elector.Scope{"auto": elector.Auto, "session": elector.SessionScope, "transaction": elector.TransactionScope}

var takeovers = map[string]elector.Takeover{"deputy": elector.Deputy, "wait": elector.Wait, "poll": elector.Poll}

// electionFlags are those of the commands that may lead, besides those that set the config.
type electionFlags struct {
	takeover, scope string
	changed         func(flag string) bool
}

func (e *electionFlags) add(cmd *cobra.Command, c *runner.Config) {
	flags := cmd.Flags()
	e.changed = flags.Changed
	flags.StringVar(&c.Candidate, "candidate", "", "the id of this candidate; default: host, process id, random")
	flags.DurationVar(&c.Lease, "lease", 10*time.Second, "how long the server keeps the lock of a frozen or lost host")
	flags.DurationVar(&c.Heartbeat, "heartbeat", 0, "the time between two heartbeats; default: lease/5, at most 30s")
	flags.DurationVar(&c.Validate, "validate", runner.DefaultValidate, "how often a leader looks for its lock in pg_locks; 0: never")
	flags.DurationVar(&c.Drain, "drain", 0, "the time to stop after a loss; default: lease/5")
	flags.DurationVar(&c.Retry, "retry", 0, "the longest wait between two attempts; default: 3s, or 1s")
	flags.IntVar(&c.MaxAttempts, "max-attempts", 0, "give up after this many failed attempts in a row; 0: never")
	flags.DurationVar(&c.ReadOnlyTimeout, "read-only-timeout", time.Minute, "how long to wait at the start for a primary")
	flags.IntVar(&c.TokenEpoch, "token-epoch", 0, "added to the token's timeline, as after a pg_upgrade")
	flags.StringVar(&e.takeover, "takeover", "", "deputy, wait or poll; default: deputy, in transactions poll")
	flags.StringVar(&e.scope, "scope", "auto", "hold the lock in a session or a transaction; auto: find out")
	flags.DurationVar(&c.DeputyInterval, "deputy-interval", 0, "how often the deputy tries; default: 100ms")
	flags.Int32Var(&c.Priority, "priority", 0, "ask a leader of lower priority for the lock; on every host")
	flags.DurationVar(&c.PreemptDelay, "preempt-delay", 0, "how long to be up and healthy before that; default: 10s")
	flags.DurationVar(&c.LockDelay, "lock-delay", 0, "lead on no primary that is newer than this; on every host")
	flags.DurationVar(&c.Synchronous, "synchronous-standby", 0, "the longest lease of all candidates; on every host")
	flags.StringVar(&c.HealthCommand, "health-command", "", "a shell command: if it fails three times, do not lead")
	flags.DurationVar(&c.HealthInterval, "health-interval", 5*time.Second, "the time between two runs of it, and the limit of each")
	flags.StringVar(&c.HTTP, "http", "", "serve /healthz, /readyz, /leader and /metrics, as on :8080")
	flags.StringVar(&c.Roster, "roster", "", "publish this candidate in this schema, such as pgelector")
	choices(cmd, "takeover", "deputy", "wait", "poll")
	choices(cmd, "scope", "auto", "session", "transaction")
}

// candidate checks the flags, finds the database, and starts the log.
func (a *app) candidate(c *runner.Config, e electionFlags) (err error) {
	var known bool
	if c.Takeover, known = takeovers[e.takeover]; !known && e.takeover != "" {
		return exit.Usagef("--takeover %q: want deputy, wait or poll", e.takeover)
	}
	c.TakeoverChosen, c.PriorityChosen = known, e.changed("priority")
	if c.Scope, known = scopes[e.scope]; !known {
		return exit.Usagef("--scope %q: want auto, session or transaction", e.scope)
	}
	if c.Group == "" {
		if err := exit.CheckElection(c.Election); err != nil {
			return err
		}
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
