package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
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
	Retry   func() time.Duration   // between two attempts
	Keeper  Keeper                 // may keep the session of an attempt; may be nil
	Waits   bool                   // others may wait in the server's queue for the lock that this candidate releases
	OnGrant func(*session.Session) // called before a session that was elected is started; may be nil

	last    *Lock // of the last attempt
	kept    bool  // by the last answer of a server, the keeper keeps a session
	blocked bool  // the last attempt may have waited too long at the barrier
}

// A Keeper is a part that may keep the session of an attempt that found the lock busy, and tries again on that session.
type Keeper interface {
	// Asks returns what the part asks in the statement of an attempt, beside the lock.
	Asks(s *session.Session, t Try) db.TryLockParams

	// Answered is called with the answer of a primary to an attempt. The part owns the session if it keeps the session or
	// returns an error. It keeps no session that was granted the lock.
	Answered(ctx context.Context, s *session.Session, row db.TryLockRow, a *Attempt) (keeps bool, err error)

	// Again makes an attempt on the session that the part keeps. tried is false if it keeps none.
	Again(ctx context.Context, t Try) (a Attempt, tried bool, err error)

	// Follow is called when an attempt has found that the holder offers the lock to this candidate.
	Follow(ctx context.Context) (Attempt, error)

	// Keeps reports whether the part keeps a session.
	Keeps() bool

	// Close gives up the session that the part keeps.
	Close()
}

// Acquire makes one attempt: on the session that the keeper keeps, or on a connection of the pool.
func (d *Dedicated) Acquire(ctx context.Context, t Try) Attempt {
	if d.last != nil && d.last.Lost() {
		d.Source.Invalidate() // it may be another server now
		d.Source.SuspectSessions(context.Cause(d.last.Session.TermContext()))
	}
	a, err := d.OnChecked(ctx, func() (Attempt, error) { return d.attempt(ctx, t) })
	if err != nil {
		a = Fail(d.Source, err, d.quick(t.Last, err))
	} else {
		d.kept = d.Keeper != nil && d.Keeper.Keeps()
		if a.Keeps = d.kept; a.Lock == nil && !a.Keeps {
			a.Next = backoff.Jitter(d.Retry())
		}
	}
	d.last, a.InTransaction = a.Lock, d.Source.InTransaction()
	if a.Lock != nil && d.Waits {
		a.Lock.CloseLater()
	}
	return a
}

func (d *Dedicated) attempt(ctx context.Context, t Try) (a Attempt, err error) {
	tried := false
	if d.Keeper != nil {
		a, tried, err = d.Keeper.Again(ctx, t)
	}
	// The pool may lead to several servers, of which a primary has just passed the check.
	for s, n := (*session.Session)(nil), 0; !tried && (n == 0 || n == 1 && errors.Is(err, pgerr.ErrServerReadOnly)); n++ {
		if s, err = d.Source.LendToLead(ctx); err == nil {
			a, err = d.TryOn(ctx, s, t)
		}
	}
	if err == nil && a.Outcome == Offered {
		return d.Keeper.Follow(ctx)
	}
	return a, err
}

// TryOn tries the lock on the session. If the lock is busy, the session goes back to the pool as it came, unless the keeper
// keeps the session. After an error the session is discarded.
func (d *Dedicated) TryOn(ctx context.Context, s *session.Session, t Try) (Attempt, error) {
	var asks db.TryLockParams
	if d.Keeper != nil {
		asks = d.Keeper.Asks(s, t)
	}
	row, err := d.Ask(ctx, s, asks)
	if err != nil {
		s.Discard() // in doubt: the lock may have been granted
		return Attempt{}, fmt.Errorf("elector: try the lock: %w", pgerr.Explain(err))
	}
	a, keeps := Attempt{Outcome: Busy, Holder: Holder{PID: row.LeaderPid, CandidateID: row.LeaderID}}, false
	if row.Outcome == "standby" {
		s.Discard() // or the pool lends it again
		return a, pgerr.ErrServerReadOnly
	}
	if d.Keeper != nil {
		keeps, err = d.Keeper.Answered(ctx, s, row, &a)
	}
	switch {
	case err != nil:
		return Attempt{}, err
	case row.Outcome == "granted":
		return d.Confirm(ctx, s, true)
	case !keeps:
		s.GiveBack()
	}
	return a, nil
}

// quick is the longest time between two quick attempts. The candidate that led hurries, and so does a candidate that keeps a
// session, unless the server is starting up or full. The others wait for their retry interval: there may be hundreds of them.
func (d *Dedicated) quick(last Standing, err error) time.Duration {
	state := pgerr.State(err)
	if last == Led || d.kept && state != "57P03" && state != "53300" {
		return Quick
	}
	return max(d.Retry(), Quick)
}

// Close gives up what the keeper keeps between two attempts.
func (d *Dedicated) Close() {
	if d.Keeper != nil {
		d.Keeper.Close()
	}
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

// Confirm turns a session that may hold the lock into a Lock. Without the lock it returns Busy, or an error if the server
// has granted the lock. After an error the session is discarded.
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
