package lock

import (
	"context"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/session"
)

// Quick is the longest time between two quick attempts while the server is away. The
// shortest is a quarter less: 250 ms, four in a second.
const Quick = 334 * time.Millisecond

// QuickFor is how long an outage has quick attempts. A failover by Patroni takes up to 40 s
// with its defaults: a ttl of 30 s, and a loop_wait of 10 s.
const QuickFor = time.Minute

// A Dedicated makes attempts for one lock, each on a session of its own. It serves one campaign at a
// time, and one goroutine at a time.
type Dedicated struct {
	Config
	Source  *session.Source
	OnGrant func(*session.Session) // called before a session that was elected is started; may be nil
	blocked bool                   // the last attempt may have waited too long at the barrier
}

// Succeed takes over the lock that its holder offers to this candidate: on the session that kept returns,
// or on one of its own if that is nil. kept is called once the offer is known to stand.
type Succeed func(ctx context.Context, d *Dedicated, kept func() *session.Session) (Attempt, error)

// OnChecked is the source's Retry. It first ends what may have blocked the last attempt at the barrier. An
// error of that is reported, and try is called; what nothing can end is an error of OnChecked.
func (d *Dedicated) OnChecked(ctx context.Context, try func() (Attempt, error)) (a Attempt, err error) {
	err = d.Source.Retry(ctx, func() error {
		if d.blocked {
			var endless error
			if err := d.Source.With(ctx, func(s *session.Session) (err error) {
				endless, err = d.Unblock(ctx, s, d.Key, d.Source.Lease)
				return err
			}); err != nil {
				d.Source.Report(ctx, session.Campaigning, err)
			}
			if d.blocked = endless != nil; d.blocked {
				return endless
			}
		}
		a, err = try()
		return err
	})
	return a, err
}

// Ask sends the statement of an attempt; p has what its parts ask besides.
func (d *Dedicated) Ask(ctx context.Context, s *session.Session, p db.TryLockParams) (db.TryLockRow, error) {
	p.Key, p.Settings, p.Look = d.Key, d.Source.SettingsFor(d.Key), d.ReportHolder()
	row, err := ownerOf(s).Try(ctx, p)
	if err != nil {
		return row, err
	}
	switch row.Outcome {
	case "busy", "deputy", "offered", "standby", "granted":
		s.Backend.SetPID(row.Pid)
		return row, nil
	}
	return row, fmt.Errorf("%w: unknown answer %q", pgerr.ErrNoAdvisoryLocks, row.Outcome)
}

// Confirm turns a session that may hold the lock into a Lock. Without the lock it returns
// Busy, or an error if the server has granted the lock. After an error the session is
// discarded.
func (d *Dedicated) Confirm(ctx context.Context, s *session.Session, granted bool) (Attempt, error) {
	row, timeline, err := Verify(ctx, s, d.Key, d.TokenEpoch)
	switch {
	case err != nil:
		d.blocked = session.TimedOut(err) || pgerr.State(err) == "57014" // at the barrier, perhaps
	case row.Held:
		err = d.Source.Enter(ctx, s, session.Grant{Key: d.Key, Timeline: timeline})
	case granted:
		err = Missing(ctx, s)
	default:
		return Attempt{Outcome: Busy}, nil
	}
	if err != nil {
		s.Fail(err)
		return Attempt{}, err
	}
	if d.OnGrant != nil {
		d.OnGrant(s)
	}
	d.Source.Start(s)
	return Attempt{Outcome: Granted, Lock: newLock(d.Key, s, row.Token, row.Transaction)}, nil
}
