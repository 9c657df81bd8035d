package session

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// An identity tells a server from others: from its standby that was promoted, above all.
type identity struct{ db.IdentifyRow }

func (i identity) isStandby() bool { return i.Timeline == 0 }

// isOlderThan reports whether the other is the same cluster after a promotion.
func (i identity) isOlderThan(other identity) bool {
	return i.System == other.System && !i.isStandby() && i.Timeline < other.Timeline
}

// String is for error messages.
func (i identity) String() string {
	at := ""
	if i.Host != "" {
		at = " at " + net.JoinHostPort(i.Host, strconv.Itoa(int(i.Port)))
	}
	if i.isStandby() {
		return "a standby" + at
	}
	return fmt.Sprintf("timeline %d%s", i.Timeline, at)
}

// identify asks which server the session is on. That does not change while it lives: so a
// primary is asked once.
func (s *Session) identify(ctx context.Context) (identity, error) {
	if own := s.identity.Load(); own != nil {
		return *own, nil
	}
	row, err := Do(ctx, s, func(ctx context.Context, q *db.Queries) (db.IdentifyRow, error) { return q.Identify(ctx) })
	own := identity{row}
	if err == nil && !own.isStandby() {
		s.identity.Store(&own)
	}
	return own, err
}

// compare ends the session, and returns the cause, if the other server was promoted while
// the session's own still answers: that one is to be shut down, and nobody else reaches it.
func (s *Session) compare(ctx context.Context, other identity) error {
	own, err := s.identify(ctx)
	if err != nil || !own.isOlderThan(other) {
		return nil
	}
	s.newest.saw(other)
	return s.Lose(fmt.Errorf("%w: the pool has reached %v, and the session (backend %d) is on %v", ErrOldPrimary, other, s.pid, own))
}

// Elsewhere is the error of a transaction whose pool has reached another server or
// database than the session. The session goes on unless that server was promoted since.
func (s *Session) Elsewhere(ctx context.Context, row db.IdentifyRow) error {
	reached := identity{row}
	if err := s.compare(ctx, reached); err != nil {
		return pgerr.Wrap(ErrNotLeader, err)
	}
	own, err := s.identify(ctx)
	if err != nil {
		return fmt.Errorf("%w: the pool has reached %v: %w", ErrNotLeader, reached, err)
	}
	reason := "another database of this server"
	switch {
	case own.System != reached.System:
		reason = fmt.Sprintf("another cluster (%v)", reached)
	case reached.isStandby():
		reason = reached.String()
	case reached.isOlderThan(own):
		return fmt.Errorf("%w: %w: the pool has reached %v, and the session of the term (backend %d) is on %v", ErrNotLeader, ErrOldPrimary, reached, s.pid, own)
	}
	return fmt.Errorf("%w: the session of the term (backend %d) holds its lock on %v, and the pool has reached %s", ErrNotLeader, s.pid, own, reason)
}

// meet has the pool's sessions compared with a server that the pool has reached.
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

// LookAround asks which server the pool reaches, and has the sessions of the pool compared
// with it. It waits until ctx ends, and no longer than patience.
func LookAround(ctx context.Context, pool *sql.DB, patience time.Duration) {
	row, err := Inquire(ctx, pool, patience, func(ctx context.Context, q *db.Queries) (db.IdentifyRow, error) { return q.Identify(ctx) })
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
		err = fmt.Errorf("%w: a connection has reached %v, and another %v before", ErrOldPrimary, own, newest)
	}
	return err
}

// A newest is the newest primary that was seen beside an older one. A candidate that has
// seen it must not be elected on the older one, to which connections of its pool may still
// lead. A cluster can also be taken back to an older timeline (from a backup), so that
// ends when the newest has not been seen for a while.
type newest struct {
	mu   sync.Mutex
	seen identity
	at   time.Time
}

func (n *newest) saw(i identity) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seen, n.at = i, time.Now()
}

// within returns the newest primary if it was seen within that time.
func (n *newest) within(d time.Duration) (seen identity, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.seen, !n.at.IsZero() && time.Since(n.at) < d
}
