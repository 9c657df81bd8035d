package session

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/pgelector/pgelector/db"
)

// Parked waits for a lock inside the server, on a session that it keeps between
// the waits. The server hands the lock over the moment it is free, first come,
// first served. Each wait is bounded by one heartbeat interval, because a waiting
// statement holds back xmin; between two waits it goes to the end of the queue.
// It is used by one goroutine at a time, that of its server.
type Parked struct {
	server *Server
	key    int64
	look   bool // for who holds the lock, after each wait
	wait   time.Duration
	s      *Session // between two waits, until one is granted
}

// Park neither connects nor waits yet. With look the lock's holder is asked for after
// each wait that was in vain.
func (v *Server) Park(key int64, look bool) *Parked {
	return &Parked{server: v, key: key, look: look, wait: v.config.Lease.Heartbeat}
}

// ParkAsHeir is Park for a candidate that is called. Its waits last as long as the
// session's validity well allows, so that it stays where those before it make way.
func (v *Server) ParkAsHeir(key int64, look bool) *Parked {
	l := v.config.Lease
	return &Parked{server: v, key: key, look: look, wait: (l.Heartbeat + l.Validity()) / 2}
}

// Wait is one bounded wait. The grant has no session if the lock was not free
// within it. After an error, or a grant, the next wait begins with a new session.
func (p *Parked) Wait(ctx context.Context) (g Grant, err error) {
	err = p.server.withRetry(ctx, func() error {
		if err := p.connect(ctx); err != nil {
			return err
		}
		g, err = p.waitOnce(ctx)
		return err
	})
	return g, err
}

// Leave gives the place in the queue up. It may be called at any time.
func (p *Parked) Leave() {
	if p.s != nil {
		p.s.discard()
		p.s = nil
	}
}

// connect sees to it that there is a session.
func (p *Parked) connect(ctx context.Context) error {
	if p.s != nil && !p.s.Valid() { // it was long until the next wait
		p.Leave()
	}
	if p.s != nil {
		return nil
	}
	opened, err := p.server.open(ctx, p.key, p.wait)
	if err != nil {
		return err
	}
	opened.evict = func() { p.server.evict(opened.pid, p.key) }
	p.s = opened
	if err := p.server.warmUp(ctx, p.s); err != nil {
		p.s.cancel(err)
		p.Leave()
		return err
	}
	return nil
}

// waitOnce keeps the session unless something failed on it.
func (p *Parked) waitOnce(ctx context.Context) (Grant, error) {
	began := time.Now()
	token, held, err := p.server.await(ctx, p.s, p.key)
	if err == nil && !held && time.Since(began) < p.server.config.Lease.Heartbeat/2 {
		token, held, err = p.server.doubt(ctx, p.s, p.key)
	}
	if held {
		err = p.server.acknowledge(ctx, p.s, p.key)
	}
	switch {
	case err != nil:
		p.s.cancel(err)
		p.Leave() // discards the session, and with it the lock
		return Grant{}, err
	case !held && p.look:
		return Grant{Leader: p.s.holder(ctx, p.key)}, nil
	case !held:
		return Grant{}, nil
	}
	s := p.s
	p.s = nil
	p.server.start(s)
	return Grant{Session: s, Token: token}, nil
}

// open sets up a session that can wait for the key, and has all that it needs
// to lead.
func (v *Server) open(ctx context.Context, key int64, wait time.Duration) (*Session, error) {
	s, err := v.borrow(ctx)
	if err != nil {
		return nil, err
	}
	waiting := append(slices.Clone(v.settings),
		setting{"pgelector.key", strconv.FormatInt(key, 10)},
		setting{"pgelector.wait", strconv.FormatInt(wait.Milliseconds(), 10)})
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

// openOutside is open for those who confirm no grant, which would also show whether
// the session is inside a transaction of other code's.
func (v *Server) openOutside(ctx context.Context, key int64) (*Session, error) {
	s, err := v.open(ctx, key, v.config.Lease.Heartbeat)
	if err != nil {
		return nil, err
	}
	in, err := do(ctx, s, func(ctx context.Context, q *db.Queries) (bool, error) { return q.InTransaction(ctx) })
	if err == nil {
		err = s.outside(in)
	}
	if err != nil {
		s.discard()
		return nil, fmt.Errorf("elector: set the session up: %w", explain(err))
	}
	return s, nil
}

// warmUp prepares what a grant and a resignation will ask of the session, and asks
// it of a lock that the session does not hold. A backend is slow to answer a query for
// the first time (it loads, plans, and drivers prepare), and would be so just when the
// others wait for a leader: rehearsed, a hand-over takes half as long. It also
// shows before the waiting begins whether the server's locks are real.
func (v *Server) warmUp(ctx context.Context, s *Session) error {
	key := int64(rand.Uint64())
	err := s.prepare(ctx, db.Confirm, db.Unlock)
	if err == nil {
		err = s.tryLocking(ctx, key)
	}
	if err != nil {
		return fmt.Errorf("elector: warmUp: %w", explain(err))
	}
	_, _, err = v.confirm(ctx, s, key)
	v.barred = nil // there was no barrier
	return err
}

// await waits for the lock, for a bounded time, and reports whether the session
// holds it then.
func (v *Server) await(ctx context.Context, s *Session, key int64) (token int64, held bool, err error) {
	if err := s.waitLock(ctx); err != nil {
		return 0, false, err
	}
	return v.confirm(ctx, s, key)
}

// waitLock waits for the lock that the session was opened for, for a bounded time.
func (s *Session) waitLock(ctx context.Context) error {
	return s.wait(ctx, func(ctx context.Context, q *db.Queries) error { return q.WaitLock(ctx) })
}

func (s *Session) wait(ctx context.Context, call func(context.Context, *db.Queries) error) error {
	_, err := do(ctx, s, func(ctx context.Context, q *db.Queries) (struct{}, error) { return struct{}{}, call(ctx, q) })
	if err != nil {
		return fmt.Errorf("elector: wait for the lock: %w", explain(err))
	}
	return nil
}

// doubt is for a wait that ended too soon: either somebody has cancelled it, or
// the lock was granted and does not show. To try the lock tells which.
func (v *Server) doubt(ctx context.Context, s *Session, key int64) (token int64, held bool, err error) {
	rows, err := do(ctx, s, func(ctx context.Context, q *db.Queries) ([]db.TryLocksRow, error) {
		return q.TryLocks(ctx, db.Keys(key))
	})
	if err != nil {
		return 0, false, fmt.Errorf("elector: try the lock: %w", explain(err))
	}
	if len(rows) == 1 && !rows[0].Granted {
		return 0, false, nil
	}
	token, err = v.confirmGranted(ctx, s, key)
	return token, err == nil, err
}
