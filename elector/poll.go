package elector

import (
	"context"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/db"
)

// A poller tries the lock on a borrowed connection, which becomes the session
// if the lock is granted, and goes back to the pool as it came if not.
type poller struct {
	*server
	e *Elector
}

func (p *poller) try(ctx context.Context) (s *session, token int64, err error) {
	err = p.patiently(ctx, func() error {
		s, token, err = p.tryOnce(ctx)
		return err
	})
	return s, token, err
}

func (p *poller) tryOnce(ctx context.Context) (*session, int64, error) {
	s, err := p.borrow(ctx)
	if err != nil {
		return nil, 0, err
	}
	s.evict = func() { p.evict(s.pid, p.e.key) }
	outcome, err := p.ask(ctx, s)
	switch {
	case err != nil:
		s.discard() // in doubt: the lock may have been granted
		return nil, 0, fmt.Errorf("elector: try the lock: %w", explain(err))
	case outcome == outcomeBusy:
		s.giveBack()
		return nil, 0, nil
	case outcome == outcomeStandby:
		s.giveBack()
		return nil, 0, ErrServerReadOnly
	}
	token, held, err := p.confirm(ctx, s, p.e.key)
	if err == nil && !held {
		err = ErrNoAdvisoryLocks
	}
	if err != nil {
		s.cancel(err)
		s.discard()
		return nil, 0, err
	}
	p.start(s, p.e.beat)
	return s, token, nil
}

func (p *poller) pause() time.Duration        { return jitter(p.e.retry) }
func (p *poller) rest()                       {}
func (p *poller) leave(s *session, err error) { s.close() }

// The outcomes that the TryLock queries answer.
const (
	outcomeBusy    = "busy"
	outcomeStandby = "standby"
	outcomeGranted = "granted"
)

// ask sends the one statement of an attempt.
func (p *poller) ask(ctx context.Context, s *session) (outcome string, err error) {
	settings := encode(p.settings)
	row, err := do(ctx, s, func(ctx context.Context, q *db.Queries) (db.TryLockOrSeeRow, error) {
		if p.e.announcer.seesLeader {
			return q.TryLockOrSee(ctx, db.TryLockOrSeeParams{Key: p.e.key, Settings: settings})
		}
		row, err := q.TryLock(ctx, db.TryLockParams{Key: p.e.key, Settings: settings})
		return db.TryLockOrSeeRow{Outcome: row.Outcome, Pid: row.Pid}, err
	})
	if err != nil {
		return "", err
	}
	switch row.Outcome {
	case outcomeBusy, outcomeStandby, outcomeGranted:
	default:
		return "", fmt.Errorf("%w: unknown answer %q", ErrNoAdvisoryLocks, row.Outcome)
	}
	s.pid = row.Pid
	if row.LeaderPid != 0 {
		p.e.saw(ctx, row.LeaderPid, row.LeaderID)
	}
	return row.Outcome, nil
}

// start begins the life of a session.
func (v *server) start(s *session, onBeat func(beat)) {
	s.late = ErrLeaseExpired // there is a lease from now on
	if v.watching {
		s.watcher = make(chan struct{})
		own := &server{pool: v.pool, lease: v.lease, settings: v.settings, report: v.report}
		go func() {
			defer close(s.watcher)
			own.watch(s)
		}()
	}
	go s.keep(onBeat)
}

func (v *server) wasPrimary() bool { return v.primary.Load() }
func (v *server) distrust()        { v.checked = false }

// evict ends a backend that still holds the lock although its session has been
// moved to another: a pooler shares it with others, who would keep it alive.
func (v *server) evict(pid int32, key int64) {
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
