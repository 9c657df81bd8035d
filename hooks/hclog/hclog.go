// Package hcloghooks logs what happens in an election to an [hclog.Logger].
//
//	e, err := elector.New(pool, "orders", elector.WithHooks(hcloghooks.New(nil)))
//
// Every line has the fields election, candidate and key. Keys and tokens are strings,
// because many JSON readers lose digits of 64-bit numbers. These are the lines, with
// their other fields:
//
//	info   elected                  token [previous] [offered] [leaderless] [outage failed_attempts] campaigned
//	info   elected again            token [ended] [leaderless] [outage failed_attempts] campaigned         this candidate led before
//	info   lead returned: Run ends  token held                       lead has returned nil
//	info   resigned                 token [reason] held [why]        requested, preempted (why: by whom), or shutdown; no reason: Term.Resign
//	warn   demoted                  token reason held [late] error    session_lost, lease_expired, unhealthy
//	error  demoted                  token reason held error          lead_failed
//	info   demoted                  token reason held                an earlier line has the error: "candidate unhealthy", "hook panicked"
//	info   transaction scope        -                                its first attempt in transaction scope (elector.WithScope)
//	info   not listening for loss   reason                           its first term, if the driver cannot be waited on
//	info   became deputy            -                                its first event as the deputy
//	info   too early to lead        next                             the server is too new (elector.WithLockDelay), once
//	info   leader changed           [previous] [leader] pid          another session leads now; no leader: it has no name
//	info   leader elected again     leader pid                       on another session: it was restarted, say
//	info   no leader known          previous                         nobody leads now
//	trace  leader changed           [previous] leader pid            this candidate leads now
//	warn   attempt failed           op error failed_attempts         the first that failed, unless "demoted" has told of it, and the first that is refused
//	warn   attempt failed           op error                         of a shared session, for the election that the error names
//	trace  attempt failed again     op error failed_attempts         the other attempts that failed
//	info   attempts succeed again   after failed_attempts            the first one that did; if it was granted, "elected" tells of the outage;
//	                                                                 after a lost term, only if they failed for 10 s
//	error  gave up                  op error failed_attempts         a permanent failure ended the campaign
//	error  gave up                  op error                         a permanent failure of anything else
//	warn   heartbeat failed         op error                         before "elected", which then does not follow
//	trace  heartbeat failed         op error                         during a term: "demoted" has the error
//	warn   work failed after term   op error
//	warn   release failed           op error
//	error  work outlived its term   op error
//	trace  work outlived its term   op error                         again, because the session has ended meanwhile
//	info   work returned after all  op after                         after the end of the term's context
//	error  hook panicked            op error [stack]
//	trace  hook panicked            op error [stack]                 "demoted" had the error
//	error  hook does not return     op error
//	info   hook returned after all  op after                         after it was called
//	warn   session setting refused  op error
//	warn   candidate unhealthy      op error [stack]
//	trace  candidate unhealthy      op error [stack]                 "demoted" had the error, or an earlier line
//	info   candidate healthy again  after                            with its first attempt
//	warn   request not answered     op error
//	warn   driver call abandoned    op error
//	warn   token fell               op error
//	error  nobody can be elected    op error                         the leader is silent, or somebody else keeps the lock: "elected" or "leader changed" ends it
//	trace  nobody can be elected    op error                         again: it is looked for once a minute
//	warn   pool is full             op error                         of a deputy, which goes on: an attempt of others fails
//	info   wait for the pool is over  op after
//	trace  heartbeat                token took valid_for
//	trace  campaign attempt         attempt outcome deputy took next
//
// One fault is one line at its level, and at most one line when it is over, however many attempts
// fail meanwhile. A field in brackets is there if it is known:
//
//   - previous: who led before
//   - offered: that leader had offered its lock to this candidate, by a transfer. Nothing else can be
//     known of why the term of another ended: the leader's own log and the roster say that
//   - ended: why the last term of this candidate ended
//   - leaderless: for how long nobody led, at most
//   - outage: for how long attempts failed before this election
//   - failed_attempts: of that outage, as the metric counts them (outcome failed)
//   - late: how long the process stood still at the end of the term
//   - stack: the stack of a panic
//
// campaigned is the time since the campaign began: a follower campaigns for days.
//
// The hook implements [hooks.LeaderChangedHook], so each unsuccessful attempt reads
// pg_locks. If another hook's OnElected does the leader's work, register this hook before
// it: hooks are called in order, and "elected" would be logged after the term.
package hcloghooks

import (
	"context"

	"github.com/hashicorp/go-hclog"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/internal/oplog"
)

// Hook is a logging hook, made by [New]. Any number of electors may share one Hook, also
// concurrently.
type Hook struct{ *lines }

type lines = oplog.Hook

var (
	_ hooks.ElectedHook       = (*Hook)(nil)
	_ hooks.DemotedHook       = (*Hook)(nil)
	_ hooks.LeaderChangedHook = (*Hook)(nil)
	_ hooks.ErrorHook         = (*Hook)(nil)
	_ hooks.HeartbeatHook     = (*Hook)(nil)
	_ hooks.CampaignHook      = (*Hook)(nil)
)

// New returns a hook that writes to logger, or to the current hclog.Default if logger is
// nil.
func New(logger hclog.Logger) *Hook {
	if logger == nil {
		logger = hclog.Default()
	}
	return &Hook{oplog.New(func(_ context.Context, level oplog.Level, message string, fields ...any) {
		logger.Log(levels[level], message, fields...)
	})}
}

var levels = [...]hclog.Level{
	oplog.Trace: hclog.Trace,
	oplog.Info:  hclog.Info,
	oplog.Warn:  hclog.Warn,
	oplog.Error: hclog.Error,
}
