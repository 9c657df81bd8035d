// Package promotion notices that another server was promoted while an old primary still answers. A pool
// may lead to both, as in a failover in which the old one was not stopped.
package promotion

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/live"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pooled"
	"github.com/pgelector/pgelector/internal/transaction"
)

// A Part compares the servers that the sessions of a candidate are on. It may serve several Sources of
// one pool. Any goroutine may call its methods.
type Part struct {
	election.NoPart
	lookAfter time.Duration
	inside    func() bool // whether candidates lead inside transactions
	newest    newest
}

// New makes the part. Beside a session that is kept, the part asks after lookAfter which server the pool reaches.
func New(lookAfter time.Duration, inside func() bool) *Part {
	return &Part{lookAfter: lookAfter, inside: inside}
}

// places are what is known of the server that each session is on.
var places election.PerSession[place]

type place struct {
	identity atomic.Pointer[identity] // nil until asked
	met      atomic.Pointer[identity] // another server to compare with
	looking  atomic.Bool              // whether lookAround asks for one
}

// Check asks which server the pool reaches, if this candidate was granted a lock before. The server may be a
// promoted one, and the session on the old primary may have ended before the two servers were compared.
func (p *Part) Check(ctx context.Context, from *election.Source) error {
	if p.newest.granted.Load() == 0 {
		return nil
	}
	if row, err := p.probe(ctx, from); err == nil && row.Timeline > p.newest.granted.Load() { // never, if the role may not ask
		p.newest.saw(row)
	}
	return nil
}

// Lent returns an error if the session is on an older primary than one that was just seen.
func (p *Part) Lent(ctx context.Context, s *election.Session) error {
	if transaction.IsOf(s) {
		places.Of(s).identity.Store(nil) // a pooler may lead each transaction to another server
	}
	newest, ok := p.newest.within(s.Lease().Length)
	if !ok {
		return nil
	}
	own, err := identify(ctx, s)
	if err == nil && own.isOlderThan(newest) {
		err = fmt.Errorf("%w: a connection has reached %v, and another %v before", pgerr.ReplacedBy(newest.Timeline), own, newest)
	}
	return err
}

// Ended remembers when the session was last on the newest primary.
func (p *Part) Ended(s *election.Session, _ error) { p.still(s) }

// Kept compares the session's server with another that the pool has reached. While the session is not
// started, Kept also asks for such a server: a follower makes no heartbeats that would find it.
func (p *Part) Kept(ctx context.Context, s *election.Session) error {
	p.still(s)
	err := p.compareMet(ctx, s)
	if err == nil && !s.IsStarted() {
		p.lookAround(s)
	}
	return err
}

// Granted remembers the timeline on which a lock was granted.
func (p *Part) Granted(_ context.Context, _ *election.Session, g election.Grant) error {
	p.newest.granted.Store(g.Timeline)
	return nil
}

// LastGranted returns the timeline on which the last lock was granted.
func (p *Part) LastGranted() int64 { return p.newest.granted.Load() }

// Beat ends a session on an old primary, if the pool has reached the promoted one.
func (p *Part) Beat(s *election.Session, _ election.Beat) error { return p.compareMet(s.Context(), s) }

// still records that the session is on the newest primary, if it is.
func (p *Part) still(s *election.Session) {
	p.newest.still(places.Of(s).identity.Load(), s.RenewedAt())
}

// identify asks which server the session is on. It keeps the answer of a primary, and does not ask again.
func identify(ctx context.Context, s *election.Session) (identity, error) {
	here := places.Of(s)
	if own := here.identity.Load(); own != nil {
		return *own, nil
	}
	row, err := election.Do(ctx, s, (*db.Queries).Identify)
	own := identity{row}
	if err == nil && !own.isStandby() {
		here.identity.Store(&own)
	}
	return own, err
}

// compareMet ends the session, and returns the cause, if the pool has reached a server that was promoted
// while the session's own still answers.
func (p *Part) compareMet(ctx context.Context, s *election.Session) error {
	if other := places.Of(s).met.Swap(nil); other != nil {
		return p.compare(ctx, s, *other)
	}
	return nil
}

// compare ends the session, and returns the cause, if the other server was promoted while the session's
// own still answers.
func (p *Part) compare(ctx context.Context, s *election.Session, other identity) error {
	own, err := identify(ctx, s)
	if err != nil || !own.isOlderThan(other) {
		return nil
	}
	p.newest.saw(other)
	return s.Lose(fmt.Errorf("%w: the pool has reached %v, and the session (backend %d) is on %v", pgerr.ReplacedBy(other.Timeline), other, s.PID(), own))
}

// IsOn reports whether the session is on that server, as far as can be known.
func (p *Part) IsOn(ctx context.Context, s *election.Session, row db.IdentifyRow) bool {
	own, err := identify(ctx, s)
	return err == nil && own.System == row.System && own.Timeline == row.Timeline
}

// Elsewhere returns the error of a transaction whose pool has reached another server or database than the
// session. The session goes on unless the other server was promoted meanwhile.
func (p *Part) Elsewhere(ctx context.Context, s *election.Session, row db.IdentifyRow) error {
	reached := identity{row}
	if err := p.compare(ctx, s, reached); err != nil {
		return err
	}
	own, err := identify(ctx, s)
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
	return fmt.Errorf("%w: the session of the term (backend %d) holds its lock on %v, and the pool has reached %s", cause, s.PID(), own, reason)
}

// lookAround asks which server the pool reaches, after a while and beside the session, unless it is asking
// already.
func (p *Part) lookAround(s *election.Session) {
	here := places.Of(s)
	if !here.looking.CompareAndSwap(false, true) {
		return
	}
	s.Go(func() {
		defer here.looking.Store(false)
		if !backoff.Sleep(s.Context(), p.lookAfter) {
			return
		}
		if reached, err := p.probe(s.Context(), s.Source()); err == nil {
			here.met.Store(&reached)
		}
	})
}

// probe asks which server the pool reaches.
func (p *Part) probe(ctx context.Context, from *election.Source) (identity, error) {
	row, err := transaction.On(ctx, from, p.inside(), ask, nil)
	return identity{row}, err
}

func ask(q *db.Queries, ctx context.Context, _ any) (db.IdentifyRow, error) { return q.Identify(ctx) }

// ProbeServer asks which server the pool reaches, and makes the sessions of the pool compare their server
// with that one. It waits until ctx ends, and no longer than timeout.
func ProbeServer(ctx context.Context, pool *sql.DB, timeout time.Duration) {
	row, err := pooled.Look(ctx, pool, timeout, ask, nil)
	if err != nil {
		return
	}
	other := identity{row}
	live.Each(pool, func(s *election.Session) {
		here := places.Of(s)
		if own := here.identity.Load(); own == nil || own.isOlderThan(other) {
			here.met.Store(&other)
			s.HeartbeatNow()
		}
	})
}
