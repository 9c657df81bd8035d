package syncrep

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/tenure"
	"github.com/pgelector/pgelector/internal/transaction"
)

// A Part lets candidates lead only while commits wait for the synchronous standbys. It serves one
// Source.
type Part struct {
	election.NoPart
	longest time.Duration // lease of all candidates
}

// New makes the part. longest is the longest lease of all candidates.
func New(longest time.Duration) *Part {
	return &Part{longest: longest}
}

func (r replication) primary() tenure.Primary {
	return tenure.Primary{Timeline: r.Timeline, Started: r.Started}
}

// replication is what a server says of itself and its standbys.
type replication struct {
	db.SynchronousStandbysRow
	senders []sender
}

// askReplication asks the server for its replication; lsn is of a commit to compare standbys with, or "0/0".
func askReplication(ctx context.Context, ask func(context.Context, string) (db.SynchronousStandbysRow, error), lsn string) (r replication, err error) {
	r.SynchronousStandbysRow, err = ask(ctx, lsn)
	if err == nil {
		r.senders, err = senders(r.Senders)
	}
	if err != nil {
		return r, fmt.Errorf("elector: ask for the synchronous standbys: %w", pgerr.Explain(err))
	}
	return r, nil
}

// Check returns nil if a candidate that was granted a lock now could lead. A candidate that cannot lead
// should not hold the lock meanwhile.
func (p *Part) Check(ctx context.Context, from *election.Source) error {
	r, err := askReplication(ctx, func(ctx context.Context, lsn string) (db.SynchronousStandbysRow, error) {
		return transaction.On(ctx, from, false, (*db.Queries).SynchronousStandbys, lsn)
	}, "0/0")
	switch {
	case err != nil:
		return err
	case r.Timeline == 0:
		return pgerr.ErrServerReadOnly
	}
	early := p.mayLeadOn(from, r.primary()) // counts from now on, whatever else is wrong
	listed, err := ListedStandbys(r.StandbyNames)
	if err == nil {
		err = checkStreams(listed, r.senders)
	}
	return cmp.Or(err, early)
}

// mayLeadOn returns nil once this process has known the primary for the longest lease. No
// candidate sees a standby as a primary before its promotion; until then the standby has
// acknowledged the commits of a leader on the old primary.
func (p *Part) mayLeadOn(from *election.Source, on tenure.Primary) error {
	known := tenure.Known(from.Pool(), on)
	if known >= p.longest {
		return nil
	}
	return &tenure.TooEarly{Wait: p.longest - known, Why: fmt.Sprintf("this process has known the primary (of timeline %d) for %v; the longest lease is %v",
		on.Timeline, known.Round(time.Millisecond), p.longest)}
}
