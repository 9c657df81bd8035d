package lock

import (
	"context"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/lockkey"
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
// borrowed connection, until it becomes the deputy. Then it keeps the session.
type own struct {
	Config
	source  *session.Source
	last    *Lock
	seat    *session.Session // holds the deputy's seat; nil unless this candidate is the deputy
	seated  bool             // the session that was asked last holds a seat
	deputy  bool             // this candidate was the deputy by the last answer of a server
	blocked bool             // the last attempt may have waited too long at the barrier
}

// New makes an acquirer on a session of its own.
func New(source *session.Source, c Config) Acquirer { return &own{Config: c, source: source} }

func (o *own) Acquire(ctx context.Context, t Try) Attempt {
	if o.last != nil && o.last.Lost() {
		o.source.Invalidate() // it may be another server now
		o.source.SuspectPooler(context.Cause(o.last.TermContext()))
	}
	o.last = nil
	a, err := o.retry(ctx, func() (a Attempt, err error) {
		if s := o.takeSeat(); s != nil {
			a, err = o.deputize(ctx, s, t.WakeUps)
		} else {
			a, err = o.try(ctx, t.Once)
		}
		if err == nil && a.Outcome == offered {
			a, err = o.succeed(ctx)
		}
		return a, err
	})
	if err != nil {
		a = failed(o.source, err, o.quick(t.Last, err))
		a.InTransaction = o.source.InTransaction()
		return a
	}
	a.InTransaction = o.source.InTransaction()
	o.last, o.deputy = a.Lock, o.seat != nil
	switch a.Deputy = o.deputy; {
	case a.Lock != nil && o.Wait:
		a.Lock.closeDelay = closeDelay
	case a.Lock == nil && !a.Deputy:
		a.Next = backoff.Jitter(o.retryEvery())
	}
	return a
}

// quick is the time between two quick attempts. The candidate that led hurries, and so does
// the deputy, unless the server is starting up or full. The others keep to their retry
// interval: there may be hundreds of them.
func (o *own) quick(last Standing, err error) time.Duration {
	state := pgerr.State(err)
	if last == Led || o.deputy && state != "57P03" && state != "53300" {
		return Quick
	}
	return max(o.retryEvery(), Quick)
}

// Close gives the seat up.
func (o *own) Close() {
	if s := o.takeSeat(); s != nil {
		s.Discard()
	}
}

// takeSeat returns the deputy's session, if it is one and its lease has not run out.
func (o *own) takeSeat() *session.Session {
	s := o.seat
	o.seat = nil
	if s != nil && !s.Valid() {
		s.Discard()
		return nil
	}
	return s
}

// retry is the server's Retry. It first terminates overdue fenced transactions that may
// have blocked the last attempt. If it cannot, it reports that, and the attempt waits again. While a prepared
// transaction blocks, there is no attempt.
func (o *own) retry(ctx context.Context, try func() (Attempt, error)) (a Attempt, err error) {
	err = o.source.Retry(ctx, func() error {
		if o.blocked {
			var prepared error
			if err := o.source.With(ctx, func(s *session.Session) (err error) {
				prepared, err = endOverdue(ctx, s, o.Key, o.source.Lease)
				return err
			}); err != nil {
				o.source.Report(ctx, session.Campaigning, err)
			}
			if o.blocked = prepared != nil; o.blocked {
				return prepared
			}
		}
		a, err = try()
		return err
	})
	return a, err
}

// try makes one attempt on a borrowed connection. It becomes the session if the lock or a
// seat is granted, and goes back to the pool as it came if not.
func (o *own) try(ctx context.Context, once bool) (Attempt, error) {
	s, err := o.source.LendToLead(ctx)
	if err != nil {
		return Attempt{}, err
	}
	return o.tryOn(ctx, s, once)
}

func (o *own) tryOn(ctx context.Context, s *session.Session, once bool) (Attempt, error) {
	o.evictFrom(s)
	row, err := o.ask(ctx, s, o.sits() && !once)
	if err != nil {
		s.Discard() // in doubt: the lock may have been granted
		return Attempt{}, fmt.Errorf("elector: try the lock: %w", pgerr.Explain(err))
	}
	o.seated = row.Seated
	a := Attempt{Outcome: Busy, Holder: Holder{PID: row.LeaderPid, CandidateID: row.LeaderID}}
	switch row.Outcome {
	case "granted":
		return o.confirm(ctx, s, true)
	case "deputy":
		return a, o.sitDown(ctx, s)
	case "offered":
		a.Outcome = offered
	case "standby":
		err = pgerr.ErrServerReadOnly
	}
	if s.InTransaction() && err == nil && o.Look() {
		a.Holder = holderSeenBy(ctx, s, o.Key)
	}
	s.GiveBack()
	return a, err
}

// evictFrom has the backend of the session terminated if a pooler moves the session from it,
// and the lock stays there. A transaction's locks do not.
func (o *own) evictFrom(s *session.Session) {
	if !s.InTransaction() {
		s.EvictBy(func() { o.source.Evict(s.PID(), o.Key, session.SeatKey(o.Key)) })
	}
}

// sits reports whether this candidate becomes the deputy.
func (o *own) sits() bool { return o.Sit && (o.SitInside || !o.source.InTransaction()) }

// retryEvery is the time between two attempts.
func (o *own) retryEvery() time.Duration {
	if o.source.InTransaction() {
		return o.RetryInside
	}
	return o.Retry
}

// ask sends the statement of an attempt. In transaction scope it does not look for the leader.
func (o *own) ask(ctx context.Context, s *session.Session, sit bool) (db.TryLockRow, error) {
	high, low := lockkey.Halves(session.SeatKey(o.Key))
	offerHigh, offerLow := lockkey.Halves(session.OfferKey(o.source.Name, o.Key))
	row, err := session.Do(ctx, s, func(ctx context.Context, q *db.Queries) (db.TryLockRow, error) {
		if s.InTransaction() {
			row, err := q.TryTransactionLock(ctx, db.TryTransactionLockParams{Key: o.Key, Settings: o.source.SettingsFor(o.Key), OfferHigh: offerHigh, OfferLow: offerLow,
				Sit: sit, SeatHigh: high, SeatLow: low})
			s.SetTransaction(row.Started, row.Mark)
			return db.TryLockRow{Outcome: row.Outcome, Seated: row.Seated, Pid: row.Pid}, err
		}
		return q.TryLock(ctx, db.TryLockParams{Key: o.Key, Settings: o.source.SettingsFor(o.Key), OfferHigh: offerHigh, OfferLow: offerLow,
			Sit: sit, SeatHigh: high, SeatLow: low, Look: o.Look()})
	})
	if err != nil {
		return row, err
	}
	switch row.Outcome {
	case "busy", "deputy", "offered", "standby", "granted":
		s.SetPID(row.Pid)
		return row, nil
	}
	return row, fmt.Errorf("%w: unknown answer %q", pgerr.ErrNoAdvisoryLocks, row.Outcome)
}

// confirm turns a session that may hold the lock into a Lock. Without the lock it returns
// Busy, or an error if the server has granted the lock. After an error the session is
// discarded.
func (o *own) confirm(ctx context.Context, s *session.Session, granted bool) (Attempt, error) {
	row, timeline, err := confirm(ctx, s, o.Key, o.TokenEpoch)
	switch {
	case err != nil:
		o.blocked = s.TimedOut(err) || pgerr.State(err) == "57014" // at the barrier, perhaps
	case row.Held:
		err = o.source.Enter(ctx, s, session.Grant{Key: o.Key, Timeline: timeline})
	case granted:
		err = missing(ctx, s)
	default:
		return Attempt{Outcome: Busy}, nil
	}
	if err != nil {
		s.Fail(err)
		return Attempt{}, err
	}
	if !o.seated {
		s.Along(func() { o.seatLeader(s) })
	}
	if o.Wait {
		s.Along(func() { prepareRelease(s) })
	}
	o.source.Start(s)
	l := newLock(o.Key, s, row.Token)
	if s.InTransaction() {
		l.transaction = row.Transaction
	}
	return Attempt{Outcome: Granted, Lock: l}, nil
}
