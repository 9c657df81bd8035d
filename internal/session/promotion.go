package session

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pooled"
)

// identify asks which server the session is on. A primary is asked once.
func (s *Session) identify(ctx context.Context) (identity, error) {
	if own := s.identity.Load(); own != nil {
		return *own, nil
	}
	row, err := Ask0(ctx, s.Trial(), (*db.Queries).Identify)
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
			s.HeartbeatNow()
		}
	}
}

// LookAround asks which server the pool reaches, after a while and beside the session, unless
// it is just doing so. CompareMet then compares the session's own with it.
func (from *Source) LookAround(s *Session, after time.Duration) {
	if !s.looking.CompareAndSwap(false, true) {
		return
	}
	own := from.Copy()
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
	row, err := Ask0(ctx, onPool(pool, timeout, pooled.Ask), (*db.Queries).Identify)
	if err == nil {
		live.meet(pool, identity{row})
	}
}

// refuseOld returns an error if the session is on an older primary than was just seen.
func (from *Source) refuseOld(ctx context.Context, s *Session) error {
	newest, ok := from.newest.within(from.Lease.Length)
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
func (from *Source) noticePromotion(ctx context.Context) {
	if from.newest.granted.Load() == 0 {
		return
	}
	_ = from.With(ctx, func(s *Session) error {
		own, err := s.identify(ctx)
		if own.Timeline > from.newest.granted.Load() { // never, if the role may not ask
			from.newest.saw(own)
		}
		return err
	})
}

// GrantedOn records the timeline on which the session was granted a lock.
func (s *Session) GrantedOn(timeline int64) { s.newest.granted.Store(timeline) }
