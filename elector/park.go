package elector

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/pgelector/pgelector/db"
)

// A parker waits for the lock inside the server, on a session that it keeps
// for the whole campaign. The server hands the lock over the moment it is free,
// first come, first served. Each wait is bounded by one heartbeat interval,
// because a waiting statement holds back xmin; between two waits the candidate
// goes to the end of the queue.
type parker struct {
	*server
	e *Elector
	s *session // between tries, while the campaign goes on
}

func (p *parker) try(ctx context.Context) (s *session, token int64, err error) {
	err = p.patiently(ctx, func() error {
		if p.s == nil || p.s.ctx.Err() != nil {
			if p.s, err = p.open(ctx, p.e.key); err != nil {
				return err
			}
		}
		s, token, err = p.wait(ctx)
		return err
	})
	return s, token, err
}

// wait is one bounded wait. The session is kept unless something failed on it.
func (p *parker) wait(ctx context.Context) (*session, int64, error) {
	began := time.Now()
	token, held, err := p.await(ctx, p.s, p.e.key)
	if err == nil && !held {
		if time.Since(began) >= p.lease.heartbeat/2 {
			return nil, 0, nil
		}
		err = ErrNoAdvisoryLocks // it was granted, but does not show
	}
	if err != nil {
		p.rest() // discards the session, and with it the lock
		return nil, 0, err
	}
	s := p.s
	p.s = nil
	p.start(s, p.e.beat)
	return s, token, nil
}

// open sets up a session that can wait for the key, and has all that it needs
// to lead.
func (v *server) open(ctx context.Context, key int64) (*session, error) {
	s, err := v.borrow(ctx)
	if err != nil {
		return nil, err
	}
	waiting := append(slices.Clone(v.settings),
		setting{"pgelector.key", strconv.FormatInt(key, 10)},
		setting{"pgelector.wait", strconv.FormatInt(v.lease.heartbeat.Milliseconds(), 10)})
	row, err := do(ctx, s, func(ctx context.Context, q *db.Queries) (db.PrepareWaitRow, error) {
		return q.PrepareWait(ctx, encode(waiting))
	})
	switch {
	case err != nil:
		s.discard()
		return nil, fmt.Errorf("elector: set the session up: %w", err)
	case row.InRecovery:
		s.giveBack()
		return nil, ErrServerReadOnly
	}
	s.pid = row.Pid
	// A new backend is slow to answer a query for the first time. Asked now, it
	// is quick when the lock has been granted and the others wait for a leader.
	if _, _, err := v.confirm(ctx, s, key); err != nil {
		s.discard()
		return nil, err
	}
	return s, nil
}

// await waits for the lock, for a bounded time, and reports whether the session
// holds it then.
func (v *server) await(ctx context.Context, s *session, key int64) (token int64, held bool, err error) {
	_, err = do(ctx, s, func(ctx context.Context, q *db.Queries) (struct{}, error) { return struct{}{}, q.WaitLock(ctx) })
	if err != nil {
		return 0, false, fmt.Errorf("elector: wait for the lock: %w", err)
	}
	return v.confirm(ctx, s, key)
}

// pause is nothing: the waiting is done in the server.
func (p *parker) pause() time.Duration        { return 0 }
func (p *parker) leave(s *session, err error) { s.close() }

func (p *parker) rest() {
	if p.s != nil {
		p.s.discard()
		p.s = nil
	}
}
