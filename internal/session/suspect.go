package session

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pooled"
)

// A statement on any connection may suggest that a session has ended too: the server went
// away, or a proxy has cut all connections, or the pool leads to another server now. Then a
// heartbeat is sent at once, and its answer alone decides.

// suspectEvery is the shortest time between two heartbeats that suspicions cause.
const suspectEvery = 250 * time.Millisecond

// live are the sessions that are kept alive, by pool.
var live = sessions{of: map[*sql.DB]map[*Session]bool{}}

type sessions struct {
	mu sync.Mutex
	of map[*sql.DB]map[*Session]bool
}

// join adds a session of the pool until leave is called.
func (l *sessions) join(pool *sql.DB, s *Session) (leave func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of[pool] == nil {
		l.of[pool] = map[*Session]bool{}
	}
	l.of[pool][s] = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if delete(l.of[pool], s); len(l.of[pool]) == 0 {
			delete(l.of, pool)
		}
	}
}

// suspect raises a suspicion for each session of the pool.
func (l *sessions) suspect(pool *sql.DB) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.of[pool] {
		s.raiseSuspicion()
	}
}

// isSuspicious reports whether an error says that the connection has broken or that there
// is no primary behind it: 57P03 is for a server that starts up or shuts down.
func isSuspicious(err error) bool {
	return pgerr.MaybeBroken(err) || pgerr.State(err) == "57P03" || errors.Is(err, pgerr.ErrServerReadOnly)
}

// Inquire makes one call on a connection of the pool, beside any session. It waits for the
// answer until ctx ends, and no longer than timeout. The server has the same bound, for a client
// that dies meanwhile: others choose how many locks a statement reads.
func Inquire[T any](ctx context.Context, pool *sql.DB, timeout time.Duration, call func(context.Context, *db.Queries) (T, error)) (T, error) {
	bound := Encode([]setting{{"statement_timeout", millis(timeout)}})
	return inquire(ctx, pool, timeout, pooled.Ask, func(ctx context.Context, q *db.Queries) (none T, err error) {
		if _, err := q.ApplySettings(ctx, db.ApplySettingsParams{OnlyLocal: true, Settings: bound}); err != nil {
			return none, err
		}
		return call(ctx, q)
	})
}

// Announce is Inquire for a call that writes.
func Announce[T any](ctx context.Context, pool *sql.DB, timeout time.Duration, call func(context.Context, *db.Queries) (T, error)) (T, error) {
	return inquire(ctx, pool, timeout, pooled.Tell, call)
}

func inquire[T any](ctx context.Context, pool *sql.DB, timeout time.Duration,
	ask func(context.Context, pooled.Pool, func(db.DBTX) (T, error)) (T, error), call func(context.Context, *db.Queries) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%w within %v, one lease: %w", pgerr.ErrNoAnswer, timeout, context.DeadlineExceeded))
	defer cancel()
	return backoff.Await(ctx, func(ctx context.Context) (T, error) {
		value, err := ask(ctx, pool, func(q db.DBTX) (T, error) { return call(ctx, db.New(q)) })
		if ctx.Err() == nil && isSuspicious(err) {
			live.suspect(pool)
		}
		return value, pgerr.CauseOr(ctx, err)
	})
}

// raiseSuspicion asks for a heartbeat at once.
func (s *Session) raiseSuspicion() {
	select {
	case s.suspect <- struct{}{}:
	default:
	}
}

// identify asks which server the session is on. A primary is asked once.
func (s *Session) identify(ctx context.Context) (identity, error) {
	if own := s.identity.Load(); own != nil {
		return *own, nil
	}
	row, err := behindSavepoint(ctx, s, func(ctx context.Context, q *db.Queries) (db.IdentifyRow, error) { return q.Identify(ctx) })
	own := identity{row}
	if err == nil && !own.isStandby() {
		s.identity.Store(&own)
	}
	return own, err
}

// compare ends the session, and returns the cause, if the other server was promoted while
// the session's own still answers.
func (s *Session) compare(ctx context.Context, other identity) error {
	own, err := s.identify(ctx)
	if err != nil || !own.isOlderThan(other) {
		return nil
	}
	s.newest.saw(other)
	return s.Lose(fmt.Errorf("%w: the pool has reached %v, and the session (backend %d) is on %v", pgerr.ErrOldPrimary, other, s.pid, own))
}

// IsOn reports whether the session is on that server, as far as can be known.
func (s *Session) IsOn(ctx context.Context, row db.IdentifyRow) bool {
	own, err := s.identify(ctx)
	return err == nil && own.System == row.System && own.Timeline == row.Timeline
}

// Elsewhere is the error of a transaction whose pool has reached another server or
// database than the session. The session goes on unless that server was promoted since.
func (s *Session) Elsewhere(ctx context.Context, row db.IdentifyRow) error {
	reached := identity{row}
	if err := s.compare(ctx, reached); err != nil {
		return err
	}
	own, err := s.identify(ctx)
	if err != nil {
		return fmt.Errorf("%w: the pool has reached %v: %w", pgerr.ErrConfig, reached, err)
	}
	cause, reason := pgerr.ErrConfig, "another database of this server: give InTx a pool of the elector's database"
	switch {
	case own.System != reached.System:
		reason = fmt.Sprintf("another cluster (%v): give InTx a pool of the elector's database", reached)
	case reached.isStandby():
		cause, reason = pgerr.ErrServerReadOnly, reached.String()
	case reached.isOlderThan(own):
		cause, reason = pgerr.ErrOldPrimary, reached.String()
	}
	return fmt.Errorf("%w: the session of the term (backend %d) holds its lock on %v, and the pool has reached %s", cause, s.pid, own, reason)
}

// meet makes each session of the pool compare its server with other, which the pool has
// reached.
func (l *sessions) meet(pool *sql.DB, other identity) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.of[pool] {
		if own := s.identity.Load(); own == nil || own.isOlderThan(other) {
			s.met.Store(&other)
			s.raiseSuspicion()
		}
	}
}

// LookAround asks which server the pool reaches, after a while and beside the session, unless
// it is just doing so. CompareMet then compares the session's own with it.
func (v *Server) LookAround(s *Session, after time.Duration) {
	if !s.looking.CompareAndSwap(false, true) {
		return
	}
	own := v.copy()
	s.helpers.Go(func() {
		defer s.looking.Store(false)
		if !backoff.Sleep(s.ctx, after) {
			return
		}
		_ = own.With(s.ctx, func(other *Session) error {
			reached, err := other.identify(s.ctx)
			if err == nil {
				s.met.Store(&reached)
			}
			return err
		})
	})
}

// CompareMet ends the session, and returns the cause, if the pool has reached a server that
// was promoted while the session's own still answers.
func (s *Session) CompareMet(ctx context.Context) error {
	if other := s.met.Swap(nil); other != nil {
		return s.compare(ctx, *other)
	}
	return nil
}

// LookAround asks which server the pool reaches, and has the sessions of the pool compare
// theirs with it. It waits until ctx ends, and no longer than timeout.
func LookAround(ctx context.Context, pool *sql.DB, timeout time.Duration) {
	row, err := inquire(ctx, pool, timeout, pooled.Ask, func(ctx context.Context, q *db.Queries) (db.IdentifyRow, error) { return q.Identify(ctx) })
	if err == nil {
		live.meet(pool, identity{row})
	}
}

// refuseOld returns an error if the session is on an older primary than was just seen.
func (v *Server) refuseOld(ctx context.Context, s *Session) error {
	newest, ok := v.newest.within(v.Lease.Length)
	if !ok {
		return nil
	}
	own, err := s.identify(ctx)
	if err == nil && own.isOlderThan(newest) {
		err = fmt.Errorf("%w: a connection has reached %v, and another %v before", pgerr.ErrOldPrimary, own, newest)
	}
	return err
}

// noticePromotion asks which server the pool reaches, if this candidate was granted a lock before.
// It may now be a promoted one, and that session on the old primary ended before it was compared
// with it.
func (v *Server) noticePromotion(ctx context.Context) {
	if v.newest.granted.Load() == 0 {
		return
	}
	_ = v.With(ctx, func(s *Session) error {
		own, err := s.identify(ctx)
		if own.Timeline > v.newest.granted.Load() { // never, if the role may not ask
			v.newest.saw(own)
		}
		return err
	})
}

// GrantedOn records the timeline on which the session was granted a lock.
func (s *Session) GrantedOn(timeline int64) { s.newest.granted.Store(timeline) }
