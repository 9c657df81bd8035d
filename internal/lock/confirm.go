package lock

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/session"
)

// Package elector returns these as its own.
var (
	ErrNoToken    = errors.New("elector: the server grants the lock, with a token that no PostgreSQL server makes: does something between it and this program change its answers? Connect to the server itself")
	ErrTokenEpoch = errors.New("elector: the epoch of tokens cannot be used")
)

// ErrTwoServers is returned when another connection of the pool does not see the transaction's locks.
var ErrTwoServers = errors.New("elector: the pool leads to two servers, and only one of them has the lock: " +
	"is an address moving in a failover, or does it lead to several primaries?")

// errSharedBackend is returned when the server has granted the lock to a transaction on a backend that
// had it already, for a session.
var errSharedBackend = fmt.Errorf("%w: a candidate in session scope is on the same backend: "+
	"use transaction scope for every candidate behind the pooler", pgerr.ErrSessionPooled)

// Verify verifies that the session holds the lock, passes the barrier and reads the token.
// Nothing else may see the term before all of it is done.
func Verify(ctx context.Context, s *session.Session, key, epoch int64) (row db.ConfirmRow, timeline int64, err error) {
	high, low := lockkey.Halves(key)
	row, err = session.Ask(ctx, s.AuxThenVerify(), (*db.Queries).Confirm, db.ConfirmParams{Pid: s.PID(), Key: key, GuardHigh: high, GuardLow: low})
	if err != nil {
		return row, 0, fmt.Errorf("elector: verify the lock, and wait for the fenced transactions of the last term: %w", pgerr.Explain(err))
	}
	err = s.CheckOutside(row.InTransaction)
	if err == nil {
		err = s.CheckPID(row.Pid)
	}
	seen := row.Transaction
	if err == nil {
		row.Transaction, err = ownerOf(s).Transaction(seen)
	}
	if err == nil && !row.Held && seen != "" {
		err = errSharedBackend
	}
	if err == nil {
		err = s.Proof.CheckInTime()
	}
	if err == nil && row.Held {
		timeline, row.Token, err = TokenOf(row.Token, epoch, row.Epoch)
	}
	return row, timeline, err
}

// A token has the sum of timeline and epoch in its upper 16 bits, one of which is the sign.
const (
	TimelineShift = 48
	maxTimeline   = 1<<15 - 1
)

// MaxTokenEpoch leaves room for the first timeline.
const MaxTokenEpoch = maxTimeline - 1

// TokenOf is the server's timeline, and the token of a lock that it says it has granted. Without a
// timeline and a transaction id nobody is elected: the answer is impossible.
func TokenOf(answer, epoch int64, setting string) (timeline, token int64, err error) {
	timeline = answer >> TimelineShift
	xid := answer & (1<<TimelineShift - 1)
	if timeline <= 0 || xid == 0 {
		return 0, 0, fmt.Errorf("%w (timeline %d, transaction id %d)", ErrNoToken, timeline, xid)
	}
	token, err = addEpoch(answer, epoch, setting)
	return timeline, token, err
}

// addEpoch adds to the timeline of a token the larger of the candidate's epoch and that of
// the database. A setting that is no epoch is an error, because without it the token could
// be smaller than that of an earlier term.
func addEpoch(token, own int64, setting string) (int64, error) {
	stored, err := strconv.ParseUint(setting, 10, 64)
	if err != nil || stored > MaxTokenEpoch {
		return 0, fmt.Errorf("%w: the setting pgelector.epoch of this database is %q: want a number from 0 to %d: "+
			"correct it by ALTER DATABASE … SET pgelector.epoch", ErrTokenEpoch, setting, MaxTokenEpoch)
	}
	timeline, epoch := token>>TimelineShift, max(own, int64(stored))
	if timeline+epoch > maxTimeline {
		return 0, fmt.Errorf("%w: timeline %d and epoch %d (this candidate's %d, the setting pgelector.epoch of this database %d) do not fit "+
			"into a token: want a sum of at most %d", ErrTokenEpoch, timeline, epoch, own, stored, maxTimeline)
	}
	return token + epoch<<TimelineShift, nil
}
