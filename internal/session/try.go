package session

import (
	"context"
	"fmt"

	"github.com/pgelector/pgelector/db"
)

// A Grant is what came of an attempt: a session that holds the lock, verified,
// past the barrier, and kept alive until it ends or is closed, and the fencing
// token; or no session, if another holds the lock.
type Grant struct {
	Session *Session
	Token   int64
	Leader  Holder // who holds the lock instead, if that was asked for and seen
	Called  bool   // whether its holder calls this candidate to be its heir
}

// Try makes one attempt on a borrowed connection, which becomes the session if
// the lock is granted, and goes back to the pool as it came if not. With look a
// busy lock's holder is asked for, too.
func (v *Server) Try(ctx context.Context, key int64, look bool) (g Grant, err error) {
	err = v.withRetry(ctx, func() error {
		g, err = v.tryOnce(ctx, key, look)
		return err
	})
	return g, err
}

func (v *Server) tryOnce(ctx context.Context, key int64, look bool) (Grant, error) {
	s, err := v.borrow(ctx)
	if err != nil {
		return Grant{}, err
	}
	s.evict = func() { v.evict(s.pid, key) }
	answer, err := v.ask(ctx, s, key, look)
	switch {
	case err != nil:
		s.discard() // in doubt: the lock may have been granted
		return Grant{}, fmt.Errorf("elector: try the lock: %w", explain(err))
	case answer.Outcome == outcomeBusy, answer.Outcome == outcomeCalled:
		s.giveBack()
		return Grant{Leader: Holder{PID: answer.LeaderPid, CandidateID: answer.LeaderID}, Called: answer.Outcome == outcomeCalled}, nil
	case answer.Outcome == outcomeStandby:
		s.giveBack()
		return Grant{}, ErrServerReadOnly
	}
	token, err := v.confirmGranted(ctx, s, key)
	if err == nil {
		err = v.acknowledge(ctx, s, key)
	}
	if err != nil {
		s.cancel(err)
		s.discard()
		return Grant{}, err
	}
	v.start(s)
	return Grant{Session: s, Token: token}, nil
}

// The outcomes that the TryLock queries answer.
const (
	outcomeBusy    = "busy"
	outcomeCalled  = "called"
	outcomeStandby = "standby"
	outcomeGranted = "granted"
)

// ask sends the one statement of an attempt.
func (v *Server) ask(ctx context.Context, s *Session, key int64, look bool) (db.TryLockOrSeeRow, error) {
	settings := encode(v.settings)
	row, err := do(ctx, s, func(ctx context.Context, q *db.Queries) (db.TryLockOrSeeRow, error) {
		if look {
			return q.TryLockOrSee(ctx, db.TryLockOrSeeParams{Key: key, Settings: settings, Candidate: v.config.Name})
		}
		row, err := q.TryLock(ctx, db.TryLockParams{Key: key, Settings: settings, Candidate: v.config.Name})
		return db.TryLockOrSeeRow{Outcome: row.Outcome, Pid: row.Pid}, err
	})
	if err != nil {
		return row, err
	}
	switch row.Outcome {
	case outcomeBusy, outcomeCalled, outcomeStandby, outcomeGranted:
	default:
		return row, fmt.Errorf("%w: unknown answer %q", ErrNoAdvisoryLocks, row.Outcome)
	}
	s.pid = row.Pid
	return row, nil
}

// evict ends a backend that still holds the lock although its session has been
// moved to another: a pooler shares it with others, who would keep it alive.
func (v *Server) evict(pid int32, key int64) {
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = db.New(v.pool).EvictHolder(ctx, db.EvictHolderParams{Pid: pid, Key: key})
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}
