package lock

import (
	"context"
	"fmt"
	"math/rand/v2"
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

// closeDelay is how long a leader that has resigned keeps its connections, so that the
// server serves the next leader first. Measured: a hand-over takes some 2 ms, and with the
// closing at the same time 6.
const closeDelay = 10 * time.Millisecond

// own acquires a lock on a session of its own. It tries once per retry interval, on a
// borrowed connection. With Config.Queue it waits in the server's queue instead.
type own struct {
	Config
	server  *session.Server
	last    *Lock
	queued  *session.Session // between two waits in the queue
	blocked bool             // the last attempt may have waited too long at the barrier
}

// New makes an acquirer on a session of its own.
func New(server *session.Server, c Config) Acquirer { return &own{Config: c, server: server} }

func (o *own) Acquire(ctx context.Context, t Try) Attempt {
	if o.last != nil && o.last.Lost() {
		o.server.Invalidate() // it may be another server now
	}
	o.last = nil
	queue := o.Queue && !t.NoWait
	var a Attempt
	var err error
	if queue {
		a, err = o.wait(ctx, o.server.Lease.Heartbeat)
	} else {
		a, err = o.try(ctx)
		a.Next = backoff.Jitter(o.Retry)
	}
	if a.Outcome == offered {
		a, err = o.succeed(ctx)
		a.Next = backoff.Jitter(o.Retry)
	}
	if err != nil {
		return failed(o.server, err, o.quick(t.Last, queue, err))
	}
	if a.Lock != nil && queue {
		a.Lock.closeDelay = closeDelay
	}
	o.last = a.Lock
	return a
}

// quick is the time between two quick attempts. The candidate that led hurries, and those
// that waited in the queue, unless the server is starting up or full: there may be hundreds
// of them. Those that polled keep to their retry interval.
func (o *own) quick(last Standing, queue bool, err error) time.Duration {
	state := pgerr.State(err)
	if last == Led || queue && state != "57P03" && state != "53300" {
		return Quick
	}
	return max(o.Retry, Quick)
}

// Close leaves the queue.
func (o *own) Close() {
	if o.queued != nil {
		o.queued.Discard()
		o.queued = nil
	}
}

// retry is the server's Retry. It first terminates overdue fenced transactions that may
// have blocked the last attempt. If it cannot, it reports that, and the attempt waits again.
func (o *own) retry(ctx context.Context, try func() (Attempt, error)) (a Attempt, err error) {
	err = o.server.Retry(ctx, func() error {
		if o.blocked {
			o.blocked = false
			if err := o.server.With(ctx, func(s *session.Session) error { return endOverdue(ctx, s, o.Key, o.server.Lease) }); err != nil {
				o.server.Report(ctx, session.Campaigning, err)
			}
		}
		a, err = try()
		return err
	})
	return a, err
}

// try makes one attempt on a borrowed connection. It becomes the session if the lock is
// granted, and goes back to the pool as it came if not.
func (o *own) try(ctx context.Context) (Attempt, error) {
	return o.retry(ctx, func() (Attempt, error) {
		s, err := o.server.Borrow(ctx)
		if err != nil {
			return Attempt{}, err
		}
		s.EvictBy(func() { o.server.Evict(s.PID(), o.Key) })
		row, err := o.ask(ctx, s)
		if err != nil {
			s.Discard() // in doubt: the lock may have been granted
			return Attempt{}, fmt.Errorf("elector: try the lock: %w", session.Explain(err))
		}
		a := Attempt{Holder: Holder{PID: row.LeaderPid, CandidateID: row.LeaderID}}
		switch row.Outcome {
		case "busy":
			a.Outcome = Busy
		case "offered":
			a.Outcome = offered
		case "standby":
			err = session.ErrServerReadOnly
		default:
			return o.confirm(ctx, s, true)
		}
		s.GiveBack()
		return a, err
	})
}

// ask sends the one statement of an attempt.
func (o *own) ask(ctx context.Context, s *session.Session) (db.TryLockOrSeeRow, error) {
	settings := o.server.Settings()
	row, err := session.Do(ctx, s, func(ctx context.Context, q *db.Queries) (db.TryLockOrSeeRow, error) {
		if o.Look {
			return q.TryLockOrSee(ctx, db.TryLockOrSeeParams{Key: o.Key, Settings: settings, Candidate: o.server.Name})
		}
		row, err := q.TryLock(ctx, db.TryLockParams{Key: o.Key, Settings: settings, Candidate: o.server.Name})
		return db.TryLockOrSeeRow{Outcome: row.Outcome, Pid: row.Pid}, err
	})
	if err != nil {
		return row, err
	}
	switch row.Outcome {
	case "busy", "offered", "standby", "granted":
		s.SetPID(row.Pid)
		return row, nil
	}
	return row, fmt.Errorf("%w: unknown answer %q", session.ErrNoAdvisoryLocks, row.Outcome)
}

// confirm turns a session that may hold the lock into a Lock. If it does not hold it,
// although the server has said so (granted), that is an error; else the session stays as
// it is. After an error the session is discarded.
func (o *own) confirm(ctx context.Context, s *session.Session, granted bool) (Attempt, error) {
	token, held, err := confirm(ctx, s, o.Key, o.TokenEpoch)
	switch {
	case err != nil:
		o.blocked = s.TimedOut(err) || pgerr.State(err) == "57014" // at the barrier, perhaps
	case held:
		err = o.server.Acknowledge(ctx, s, o.Key)
	case granted:
		err = session.ErrNoAdvisoryLocks
	default:
		return Attempt{Outcome: Busy}, nil
	}
	if err != nil {
		s.Fail(err)
		return Attempt{}, err
	}
	o.server.Start(s)
	return Attempt{Outcome: Granted, Lock: newLock(o.Key, s, token)}, nil
}

// wait is one wait in the server's queue, on a session that is kept between the waits. The
// server hands the lock over the moment it is free, first come, first served. Each wait is
// bounded, because a waiting statement holds back xmin; between two the session goes to the
// end of the queue.
func (o *own) wait(ctx context.Context, bound time.Duration) (Attempt, error) {
	return o.retry(ctx, func() (Attempt, error) {
		if o.queued != nil && !o.queued.Valid() { // the last wait was long ago
			o.Close()
		}
		if o.queued == nil {
			if err := o.enqueue(ctx, bound); err != nil {
				return Attempt{}, err
			}
		}
		s := o.queued
		o.queued = nil
		a, err := o.waitOn(ctx, s)
		if err == nil && a.Outcome == Busy {
			o.queued = s
		}
		return a, err
	})
}

// enqueue opens a session that can wait in the queue.
func (o *own) enqueue(ctx context.Context, bound time.Duration) error {
	s, err := o.server.Open(ctx, o.Key, bound)
	if err != nil {
		return err
	}
	s.EvictBy(func() { o.server.Evict(s.PID(), o.Key) })
	if err := warmUp(ctx, s); err != nil {
		s.Fail(err)
		return err
	}
	o.queued = s
	return nil
}

// waitOn waits once. After an error the session is discarded.
func (o *own) waitOn(ctx context.Context, s *session.Session) (Attempt, error) {
	began := time.Now()
	if err := s.Wait(ctx, func(ctx context.Context, q *db.Queries) error { return q.WaitLock(ctx) }); err != nil {
		s.Fail(err)
		return Attempt{}, err
	}
	a, err := o.confirm(ctx, s, false)
	if err == nil && a.Outcome == Busy && time.Since(began) < o.server.Lease.Heartbeat/2 {
		a, err = o.tryAfterWait(ctx, s)
	}
	if err == nil && a.Outcome == Busy && o.Look {
		a.Holder = holderSeenBy(ctx, s, o.Key)
	}
	return a, err
}

// tryAfterWait tries the lock after a wait that ended too soon: either somebody has cancelled
// the wait, or the lock was granted and does not show.
func (o *own) tryAfterWait(ctx context.Context, s *session.Session) (Attempt, error) {
	rows, err := session.Do(ctx, s, func(ctx context.Context, q *db.Queries) ([]db.TryLocksRow, error) {
		return q.TryLocks(ctx, db.Keys(o.Key))
	})
	switch {
	case err != nil:
		err = fmt.Errorf("elector: try the lock: %w", session.Explain(err))
		s.Fail(err)
		return Attempt{}, err
	case len(rows) == 1 && !rows[0].Granted:
		return Attempt{Outcome: Busy}, nil
	}
	return o.confirm(ctx, s, true)
}

// warmUp prepares and makes the statements of a grant and a release, for a lock that the
// session does not hold. A backend is slow to answer a query for the first time (it loads,
// plans, and drivers prepare), and would be so just when the others wait for a leader:
// warmed up, a hand-over takes half as long. It also shows before the waiting begins
// whether the server's locks are real.
func warmUp(ctx context.Context, s *session.Session) error {
	key := int64(rand.Uint64())
	err := s.Prepare(ctx, db.Confirm, db.Unlock)
	if err == nil {
		var shown bool
		high, low := session.Halves(key)
		shown, err = session.Do(ctx, s, func(ctx context.Context, q *db.Queries) (bool, error) {
			return q.TrialLock(ctx, db.TrialLockParams{Key: key, High: high, Low: low})
		})
		if err == nil && !shown {
			err = session.ErrNoAdvisoryLocks
		}
	}
	if err != nil {
		return fmt.Errorf("elector: warm the session up: %w", session.Explain(err))
	}
	_, _, err = confirm(ctx, s, key, 0)
	return err
}
