package elector

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/pgelector/pgelector/db"
)

// courtesy is for how long a leader that has resigned keeps its connections.
// Measured: a hand-over takes some 2 ms, and with the closing at the same time 6.
const courtesy = 10 * time.Millisecond

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
		if p.s != nil && !p.s.valid() { // a hook took its time
			p.rest()
		}
		if p.s == nil {
			opened, err := p.open(ctx, p.e.key)
			if err != nil {
				return err
			}
			opened.evict = func() { p.evict(opened.pid, p.e.key) }
			p.s = opened
			if err := p.rehearse(ctx, p.s); err != nil {
				p.s.cancel(err)
				p.rest()
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
	if err == nil && !held && time.Since(began) < p.lease.heartbeat/2 {
		token, held, err = p.doubt(ctx, p.s, p.e.key)
	}
	switch {
	case err != nil:
		p.s.cancel(err)
		p.rest() // discards the session, and with it the lock
		return nil, 0, err
	case !held:
		return nil, 0, nil
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
		return nil, fmt.Errorf("elector: set the session up: %w", explain(err))
	case row.InRecovery:
		s.giveBack()
		return nil, ErrServerReadOnly
	}
	s.pid = row.Pid
	return s, nil
}

// rehearse does all that a grant and a resignation will ask of the session, on a
// lock that nobody else knows. A backend is slow to answer a query for the first
// time (it loads, plans, and drivers prepare), and would be so just when the
// others wait for a leader: rehearsed, a hand-over takes half as long. It also
// shows before the waiting begins whether the server's locks are real.
func (v *server) rehearse(ctx context.Context, s *session) error {
	key := int64(rand.Uint64())
	if err := s.holdAlso(key); err != nil {
		return fmt.Errorf("elector: rehearse: %w", explain(err))
	}
	_, held, err := v.confirm(ctx, s, key)
	if err == nil && !held {
		err = ErrNoAdvisoryLocks
	}
	if err != nil {
		v.barred = nil // there was no barrier
		return err
	}
	released, err := do(ctx, s, func(ctx context.Context, q *db.Queries) (bool, error) { return q.Unlock(ctx, key) })
	if err == nil && !released {
		err = ErrNoAdvisoryLocks
	}
	if err != nil {
		return fmt.Errorf("elector: rehearse: %w", explain(err))
	}
	return nil
}

// await waits for the lock, for a bounded time, and reports whether the session
// holds it then.
func (v *server) await(ctx context.Context, s *session, key int64) (token int64, held bool, err error) {
	_, err = do(ctx, s, func(ctx context.Context, q *db.Queries) (struct{}, error) { return struct{}{}, q.WaitLock(ctx) })
	if err != nil {
		return 0, false, fmt.Errorf("elector: wait for the lock: %w", explain(err))
	}
	return v.confirm(ctx, s, key)
}

// doubt is for a wait that ended too soon: either somebody has cancelled it, or
// the lock was granted and does not show. To try the lock tells which.
func (v *server) doubt(ctx context.Context, s *session, key int64) (token int64, held bool, err error) {
	rows, err := do(ctx, s, func(ctx context.Context, q *db.Queries) ([]db.TryLocksRow, error) {
		return q.TryLocks(ctx, encode([]string{strconv.FormatInt(key, 10)}))
	})
	if err != nil {
		return 0, false, fmt.Errorf("elector: try the lock: %w", explain(err))
	}
	if len(rows) == 1 && !rows[0].Granted {
		return 0, false, nil
	}
	token, held, err = v.confirm(ctx, s, key)
	if err == nil && !held {
		err = ErrNoAdvisoryLocks
	}
	return token, held, err
}

// pause is nothing: the waiting is done in the server.
func (p *parker) pause() time.Duration { return 0 }

// leave lets the next leader go first: to close connections, and to break off
// the watcher's wait, is work for the server too.
func (p *parker) leave(s *session, err error) {
	if err == nil {
		sleep(s.ctx, courtesy)
	}
	s.close()
}

func (p *parker) rest() {
	if p.s != nil {
		p.s.discard()
		p.s = nil
	}
}
