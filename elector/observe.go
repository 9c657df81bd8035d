package elector

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/pgelector/pgelector/db"
)

// Leader is the session that holds an election's lock, as any role can see it.
type Leader struct {
	CandidateID string    // the application_name of the session
	PID         int32     // of the backend: what pg_terminate_backend takes
	User        string    // the role of the session
	Addr        string    // where it connects from; "" if hidden from this role, or a Unix socket
	Connected   time.Time // when the session began; zero if hidden from this role
}

// sameAs compares times as such: a driver may give the same one in another zone.
func (l Leader) sameAs(other Leader) bool {
	equal := l.Connected.Equal(other.Connected)
	l.Connected = other.Connected
	return equal && l == other
}

// Candidate is a session that leads or is parked in the server to lead next.
type Candidate struct {
	Leader
	Leading bool
	Waiting time.Time // since when it waits; zero for the leader, or before the server told
}

// Leader asks the server who leads, on a connection of the pool: one
// statement. It returns ErrNoLeader if no session holds the lock, and waits for
// an answer until ctx ends, or for one lease.
func (e *Elector) Leader(ctx context.Context) (Leader, error) {
	row, err := inquire(ctx, e, func(ctx context.Context, q *db.Queries) (db.HolderRow, error) { return q.Holder(ctx, e.key) })
	if errors.Is(err, sql.ErrNoRows) {
		return Leader{}, ErrNoLeader
	}
	if err != nil {
		return Leader{}, fmt.Errorf("elector: ask who leads: %w", err)
	}
	return Leader{CandidateID: row.ApplicationName, PID: row.Pid, User: row.Usename, Addr: row.ClientAddr, Connected: row.BackendStart.Time}, nil
}

// Candidates asks the server for the candidates that it knows of: the leader
// first, then those parked in it, the longest waiting first. A candidate that
// polls holds nothing in the server between its attempts, so it does not show.
func (e *Elector) Candidates(ctx context.Context) ([]Candidate, error) {
	var all []Candidate
	leader, err := e.Leader(ctx)
	switch {
	case err == nil:
		all = append(all, Candidate{Leader: leader, Leading: true})
	case !errors.Is(err, ErrNoLeader):
		return nil, err
	}
	waiters, err := inquire(ctx, e, func(ctx context.Context, q *db.Queries) ([]db.WaitersRow, error) { return q.Waiters(ctx, e.key) })
	if err != nil {
		return nil, fmt.Errorf("elector: ask who waits: %w", err)
	}
	for _, w := range waiters {
		all = append(all, Candidate{
			Leader:  Leader{CandidateID: w.ApplicationName, PID: w.Pid, User: w.Usename, Addr: w.ClientAddr, Connected: w.BackendStart.Time},
			Waiting: w.Waitstart.Time,
		})
	}
	return all, nil
}

// Observe yields who leads, at once and then at each change, until ctx ends or
// the loop is left; it works on any elector, whether or not it campaigns. It
// asks the server once per retry interval, so a leader that came and went in
// between is not seen. While nobody leads it yields ErrNoLeader once; while the
// server cannot be asked, the error once.
func (e *Elector) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		var last Leader
		var lastErr error
		for first := true; ; first = false {
			leader, err := e.Leader(ctx)
			if ctx.Err() != nil {
				return
			}
			same := leader.sameAs(last) && errors.Is(err, ErrNoLeader) == errors.Is(lastErr, ErrNoLeader) && (err == nil) == (lastErr == nil)
			if first || !same {
				if !yield(leader, err) {
					return
				}
				last, lastErr = leader, err
			}
			if !sleep(ctx, jitter(e.retry)) {
				return
			}
		}
	}
}

// inquire makes one call on a connection of the pool. It is waited for until ctx
// ends, and no longer than one lease, whether or not the driver returns.
func inquire[T any](ctx context.Context, e *Elector, call func(context.Context, *db.Queries) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answered := make(chan answer, 1)
	ctx, cancel := context.WithTimeoutCause(ctx, e.lease.length, fmt.Errorf("no answer within %v, one lease: %w", e.lease.length, context.DeadlineExceeded))
	defer cancel()
	go func() {
		value, err := call(ctx, db.New(e.pool))
		if err != nil {
			err = causeOr(ctx, err)
		}
		answered <- answer{value, err}
	}()
	select {
	case a := <-answered:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}
