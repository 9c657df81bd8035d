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
	flags.StringVar(&c.Candidate, "candidate", "", "the id of this candidate, unique among live ones; default: host name, process id, random digits")
	flags.DurationVar(&c.Lease, "lease", 10*time.Second, "how long the server keeps the lock of a frozen or disconnected host")
	flags.DurationVar(&c.Heartbeat, "heartbeat", 0, "the time between two heartbeats; default: lease/5, at most 30s")
	flags.DurationVar(&c.Validate, "validate", runner.DefaultValidate, "how often a leader checks in pg_locks that it holds its lock; put off where the server is slow; 0: never")
	flags.DurationVar(&c.Drain, "drain", 0, "the time that the work gets to stop when the term is lost; default: lease/5")
	flags.DurationVar(&c.Retry, "retry", 0, "the longest wait between two attempts while another leads; default: 3s, without a deputy or with --group 1s")
	flags.IntVar(&c.MaxAttempts, "max-attempts", 0, "give up after this many failed attempts in a row; 0: never")
	flags.DurationVar(&c.ReadOnlyTimeout, "read-only-timeout", time.Minute, "how long to wait at the start for a standby to become a primary")
	flags.IntVar(&c.TokenEpoch, "token-epoch", 0, "added to the timeline in the fencing token, so that tokens still rise after a pg_upgrade")
	flags.StringVar(&e.takeover, "takeover", "", "while another leads: deputy: become the deputy, if nobody is, which tries often; wait: the deputy waits in the server, and leads within milliseconds; poll: never become the deputy; default: deputy, with transaction scope poll")
	flags.StringVar(&e.scope, "scope", "auto", "hold the lock until the end of the session, or inside a transaction, as through a transaction pooler; auto: session, unless a transaction pooler is found")
	flags.DurationVar(&c.DeputyInterval, "deputy-interval", 0, "how often the deputy tries; default: 100ms, at most the heartbeat interval")
	flags.Int32Var(&c.Priority, "priority", 0, "how much this candidate should lead, such as the number of its release: it asks a leader of lower priority to transfer the lock; give it to every candidate; default: no priority")
	flags.DurationVar(&c.PreemptDelay, "preempt-delay", 0, "with --priority: how long this candidate is up and healthy before it asks; default: 10s")
	flags.DurationVar(&c.LockDelay, "lock-delay", 0, "lead on no server that has run, or has been a primary, for less than this: the longest lease of all candidates; every candidate must set this; 0: off")
	flags.DurationVar(&c.Synchronous, "synchronous-standby", 0, "with synchronous replication: the longest lease of all candidates; every candidate must set this; 0: off")
	flags.StringVar(&c.HealthCommand, "health-command", "", "a shell command, whose failure means that this host is unhealthy: after three in a row it does not lead; its last line of output says why; what it leaves in its process group is killed")
	flags.DurationVar(&c.HealthInterval, "health-interval", 5*time.Second, "the time between two runs of the health command, and how long each may take")
	flags.StringVar(&c.HTTP, "http", "", "serve /healthz, /readyz, /leader and /metrics on this address, such as :8080")
	flags.StringVar(&c.Roster, "roster", "", "publish this candidate in the roster in this schema, such as pgelector: the dashboard then shows it, also while another leads")
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
