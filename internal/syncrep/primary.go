package syncrep

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/session"
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

func (e *TooEarly) Later() time.Duration { return e.Wait }

// A Part has candidates lead only while commits wait for the synchronous standbys. It serves one
// Source.
type Part struct {
	session.NoPart
	longest   time.Duration             // lease of all candidates
	primaries map[primary]time.Duration // when each was first seen, by the monotonic clock
}

// New makes the part. longest is the longest lease of all candidates.
func New(longest time.Duration) *Part {
	return &Part{longest: longest, primaries: map[primary]time.Duration{}}
}

// A primary is a server from its promotion, or its start as a primary, to its end. The
// number of a timeline alone does not tell two apart: if one is discarded, as by
// pg_rewind, the next standby that is promoted may use it again.
type primary struct{ timeline, started int64 }

func (r replication) primary() primary { return primary{r.Timeline, r.Started} }

// replication is what a server says of itself and its standbys.
type replication struct {
	db.SynchronousStandbysRow
	senders []sender
}

// askReplication asks that; lsn is of a commit to compare standbys with, or "0/0".
func askReplication(ctx context.Context, s *session.Session, lsn string) (r replication, err error) {
	r.SynchronousStandbysRow, err = session.Ask(ctx, s, (*db.Queries).SynchronousStandbys, lsn)
	if err == nil {
		r.senders, err = senders(r.Senders)
	}
	if err != nil {
		return r, fmt.Errorf("elector: ask for the synchronous standbys: %w", pgerr.Explain(err))
	}
	return r, nil
}

// Check returns nil if a candidate that was granted a lock now could lead: whoever cannot should not
// hold it meanwhile.
func (p *Part) Check(ctx context.Context, from *session.Source) error {
	return from.With(ctx, func(s *session.Session) error {
		r, err := askReplication(ctx, s, "0/0")
		switch {
		case err != nil:
			return err
		case r.Timeline == 0:
			return pgerr.ErrServerReadOnly
		}
		early := p.mayLeadOn(r.primary()) // counts from now on, whatever else is wrong
		listed, err := ListedStandbys(r.StandbyNames)
		if err == nil {
			err = checkStreams(listed, r.senders)
		}
		return cmp.Or(err, early)
	})
}

// mayLeadOn returns nil once this candidate has known the primary for the longest lease. No
// candidate sees a standby as a primary before its promotion; until then the standby has
// acknowledged the commits of a leader on the old primary. The monotonic clock counts: it
// may stand still, but never jumps.
func (p *Part) mayLeadOn(on primary) error {
	mono := lease.Clock{}.Now().Mono
	first, seen := p.primaries[on]
	if !seen {
		first = mono
		p.primaries[on] = first
	}
	if left := p.longest - (mono - first); left > 0 {
		return &TooEarly{Timeline: on.timeline, Wait: left}
	}
	return nil
}
