// Package hcloghooks writes what happens in an election to an [hclog.Logger].
//
// Every line carries the fields election, candidate and key. Keys and tokens are
// strings, because many readers of JSON lose digits of a number of 64 bits. These
// are the lines, with the fields that each has besides:
//
//	info   elected                  token waited
//	info   demoted                  token reason held                resigned, shutdown
//	warn   demoted                  token reason held error          session_lost, lease_expired, unhealthy
//	error  demoted                  token reason held error          lead_failed
//	info   leader changed           previous leader pid              another candidate, or nobody, leads now
//	trace  leader changed           previous leader pid              this candidate leads now, or does no more
//	warn   database away            op error failed_attempts         the first attempt that failed
//	trace  database still away      op error failed_attempts         the attempts that failed after it
//	info   database back            away failed_attempts             the first attempt that was answered again
//	error  gave up                  op error failed_attempts         a permanent failure ended the campaign
//	error  gave up                  op error                         a permanent failure of anything else
//	warn   heartbeat failed         op error
//	warn   release failed           op error
//	error  work outlived its term   op error
//	error  hook panicked            op error
//	warn   session setting refused  op error
//	warn   leader not watched       op error
//	warn   candidate unhealthy      op error
//	warn   driver call abandoned    op error
//	trace  heartbeat                token took valid_for
//	trace  campaign attempt         attempt outcome took next
//
// So a database that is away costs one line when it goes and one when it is
// back, however many attempts fail meanwhile.
//
// The hook asks to be told of [hooks.LeaderChanged], which costs each
// unsuccessful attempt a look into pg_locks. Register it before a hook whose
// OnElected does the work of the leader: hooks are called in order, and
// "elected" would be written when the term is over.
package hcloghooks

import (
	"context"

	"github.com/hashicorp/go-hclog"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/internal/oplog"
)

// Hook is a logging hook, made by [New]. It implements every interface of
// package hooks. One Hook may be shared by any number of electors, also
// concurrently: what it remembers, it remembers for each candidate of each
// election.
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

// New returns a hook that writes to logger; nil means what hclog.Default
// returns now. Name the part of the program with logger.Named.
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
