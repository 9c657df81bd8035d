package session

import (
	"context"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// TooEarly is the error of a candidate that has not known the primary for one lease, the
// longest of all candidates'. It wraps ErrTooEarly.
type TooEarly struct {
	Timeline int64
	Wait     time.Duration // until it may lead there
}

func (e *TooEarly) Error() string {
	return fmt.Sprintf("%v: this candidate has not known the primary (of timeline %d) for long, and waits another %v",
		pgerr.ErrTooEarly, e.Timeline, e.Wait.Round(time.Millisecond))
}

func (e *TooEarly) Unwrap() error { return pgerr.ErrTooEarly }

func (r replication) primary() primary { return primary{r.Timeline, r.Started} }

// replication is what a server says of itself and its standbys.
type replication struct {
	db.SynchronousStandbysRow
	senders []sender
}

// askReplication asks that; lsn is of a commit to compare standbys with, or "0/0".
func askReplication(ctx context.Context, s *Session, lsn string) (r replication, err error) {
	r.SynchronousStandbysRow, err = Ask(ctx, s, (*db.Queries).SynchronousStandbys, lsn)
	if err == nil {
		r.senders, err = senders(r.Senders)
	}
	if err != nil {
		return r, fmt.Errorf("elector: ask for the synchronous standbys: %w", pgerr.Explain(err))
	}
	return r, nil
}

// checkReplication returns nil if a candidate that was granted a lock now could lead:
// whoever cannot should not hold it meanwhile.
func (from *Source) checkReplication(ctx context.Context) error {
	if from.LongestLease == 0 {
		return nil
	}
	return from.With(ctx, func(s *Session) error {
		r, err := askReplication(ctx, s, "0/0")
		switch {
		case err != nil:
			return err
		case r.Timeline == 0:
			return pgerr.ErrServerReadOnly
		}
		early := from.mayLeadOn(r.primary()) // counts from now on, whatever else is wrong
		listed, err := ListedStandbys(r.StandbyNames)
		if err == nil {
			err = checkStreams(listed, r.senders)
		}
		if err == nil {
			err = early
		}
		return err
	})
}

// mayLeadOn returns nil once this candidate has known the primary for the longest lease. No
// candidate sees a standby as a primary before its promotion; until then the standby has
// acknowledged the commits of a leader on the old primary. The monotonic clock counts: it
// may stand still, but never jumps.
func (from *Source) mayLeadOn(p primary) error {
	if from.primaries == nil {
		from.primaries = map[primary]time.Duration{}
	}
	mono := lease.Clock{}.Now().Mono
	first, seen := from.primaries[p]
	if !seen {
		first = mono
		from.primaries[p] = first
	}
	if left := from.LongestLease - (mono - first); left > 0 {
		return &TooEarly{Timeline: p.timeline, Wait: left}
	}
	return nil
}
