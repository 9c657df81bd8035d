package elector

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/lock"
	"github.com/pgelector/pgelector/internal/session"
)

// A Session carries many elections on one pinned connection. Attempts are
// batched: all electors that follow are tried by one statement per retry
// interval, and one heartbeat proves all terms. Losing the connection ends every
// term at once; resigning one disturbs no other, and no lead or hook delays
// another election's.
type Session struct {
	pool     *sql.DB
	shared   *lock.Shared
	config   config
	opts     []Option
	reporter *announcer
	ctx      context.Context // done when Close is called
	close    func()          // closes the session, once, and returns
	terms    terms
	closed   chan struct{} // closed when all is over

	mu       sync.Mutex
	electors map[int64]*Elector
}

// NewSession makes a session on a pool that the caller keeps and closes. It
// connects with the first campaign. opts are as for New, and are the defaults
// of its electors; WithLease, WithHeartbeatInterval, WithDrain, WithRetryInterval,
// WithWatch, WithTokenEpoch and WithCandidateID belong to the session alone; WithHealth is a default
// like others, by which each elector is checked for itself. WithKey cannot be used here, and
// a session polls, so WithStandby(Wait) cannot either, nor can WithSynchronousStandby.
func NewSession(pool *sql.DB, opts ...Option) (*Session, error) {
	if pool == nil {
		return nil, fmt.Errorf("%w: the pool is nil: pass the *sql.DB of your PostgreSQL", ErrConfig)
	}
	c, err := configure("session", opts)
	switch {
	case err != nil:
		return nil, err
	case c.keyChosen:
		return nil, fmt.Errorf("%w: WithKey is an election's: pass it to Session.Elector", ErrConfig)
	case !c.gracefulRelease:
		return nil, fmt.Errorf("%w: WithGracefulRelease(false): a term of a shared session ends by its unlock", ErrConfig)
	case c.synchronous:
		return nil, errSynchronousSession
	case c.standby == Wait:
		return nil, fmt.Errorf("%w: WithStandby(Wait): a connection can wait for one lock only: use New for this election", ErrConfig)
	}
	if err := session.CheckPoolSize(pool, c.watch, false); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	s := &Session{pool: pool, config: c, opts: opts, ctx: ctx, terms: terms{closed: ctx}, closed: make(chan struct{}), electors: map[int64]*Elector{}}
	s.reporter = newAnnouncer(hooks.Origin{CandidateID: c.candidateID}, c.hooks)
	s.shared = lock.NewShared(ctx, session.NewServer(pool, c.ofServer(s.beat, s.report)), c.retry, c.tokenEpoch)
	s.close = sync.OnceFunc(func() {
		go func() {
			defer close(s.closed)
			s.terms.close(func() { cancel(ErrStopped) })
			s.shared.Close()
		}()
		<-ctx.Done()
	})
	return s, nil
}

var errSynchronousSession = fmt.Errorf("%w: WithSynchronousStandby: a shared session cannot have it: use New for this election", ErrConfig)

// report tells the session's own hooks of what concerns no single election.
func (s *Session) report(ctx context.Context, f hooks.Failure) {
	s.reporter.post(s.reporter.failure(ctx, f))
}

// Elector makes a candidate of another election, on this session. opts add to
// those of the session. Two electors of one session cannot have the same key:
// the server would grant the lock to both. The session keeps an elector until
// [Elector.Close]: close those of elections that are over, or the session grows.
func (s *Session) Elector(election string, opts ...Option) (*Elector, error) {
	c, err := configure(election, slices.Concat(s.opts, opts))
	if err != nil {
		return nil, err
	}
	if own := c.ofSession[len(s.config.ofSession):]; len(own) > 0 { // the session's options come first
		return nil, fmt.Errorf("%w: %s belongs to the session: pass it to NewSession", ErrConfig, own[0])
	}
	if c.synchronous {
		return nil, errSynchronousSession
	}
	c.lease, c.candidateID, c.watch = s.config.lease, s.config.candidateID, s.config.watch
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.electors[c.key]; other != nil {
		return nil, fmt.Errorf("%w: election %q has the same key (%d) as %q on this session: close that elector first, or wait for its Close", ErrConfig, election, c.key, other.election)
	}
	e := newElector(s.ctx, s.pool, election, c)
	e.acquirer = s.shared.Acquirer(e.lockConfig(), session.NewServer(s.pool, e.ofServer(e.beat, e.report)))
	e.shared, e.terms = s, &s.terms
	s.electors[c.key] = e
	return e, nil
}

// remove forgets an elector that is closed.
func (s *Session) remove(e *Elector) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.electors[e.key] == e {
		delete(s.electors, e.key)
	}
}

// CandidateID is the id of this session's candidates.
func (s *Session) CandidateID() string { return s.config.candidateID }

// Close ends every term of the session, as a shutdown, waits until their work
// has returned (of a term of Campaign: until it is resigned, or the drain is over)
// and their locks are released, and discards the connection.
// Campaigns of its electors end with ErrStopped, now and later. It is idempotent.
// If ctx ends first it returns an error that wraps its cause, and the closing
// goes on.
func (s *Session) Close(ctx context.Context) error {
	s.close()
	select {
	case <-s.closed:
	case <-ctx.Done():
		select {
		case <-s.closed: // whatever ctx says
		default:
			return ended(ctx, "close the session: the work of a term has not returned")
		}
	}
	s.reporter.flush()
	return nil
}

// beat tells each elector that leads.
func (s *Session) beat(b session.Beat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.electors {
		e.beat(b)
	}
}
