package elector

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/gate"
	"github.com/pgelector/pgelector/internal/holder"
	"github.com/pgelector/pgelector/internal/inbox"
	"github.com/pgelector/pgelector/internal/pooled"
	"github.com/pgelector/pgelector/internal/preflight"
	"github.com/pgelector/pgelector/internal/promotion"
	"github.com/pgelector/pgelector/internal/shared"
	"github.com/pgelector/pgelector/internal/validate"
	"github.com/pgelector/pgelector/internal/wakeup"
)

// A Session carries many elections on one pinned connection. One statement per retry
// interval tries all its electors that follow, and one heartbeat proves all terms. Losing
// the connection ends every term at once; resigning one disturbs no other, and no lead or
// hook delays another election's.
type Session struct {
	pool       *sql.DB
	shared     *shared.Shared
	scope      *preflight.Scope
	config     config
	opts       []Option // of its electors, before their own
	reporter   *announcer
	ctx        context.Context // done when Close is called
	close      func()          // closes the session, once, and returns
	terms      *gate.Gate      // attempts and terms of its electors, which Close waits for
	sender     *wakeup.Sender  // of its electors' notifications
	places     *promotion.Part // of its electors
	validation *validate.Part  // of their locks
	closed     chan struct{}   // closed when all is over

	mu       sync.Mutex
	electors map[int64]*Elector
}

// NewSession makes a session on a pool that the caller keeps and closes. It connects with the
// first campaign. opts are as for New. A [CommonOption] is a default of the session's
// elections: WithHealth checks each election for itself. The elections poll; unless WithTakeover is
// Poll, the session also often checks whether the session that leads most of them has ended.
func NewSession(pool *sql.DB, opts ...SessionOption) (*Session, error) {
	if pool == nil {
		return nil, errNoPool
	}
	opts = append(slices.Clone(opts), onSharedSession)
	c, err := configure("session", opts)
	if err != nil {
		return nil, err
	}
	if err := pooled.CheckSize(pool, 1); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	s := &Session{pool: pool, config: c, ctx: ctx, terms: gate.New(), sender: wakeup.NewSender(pool, NotifyChannel, c.lease.Length),
		places: promotion.New(c.deputyInterval/2, func() bool { return false }), closed: make(chan struct{}), electors: map[int64]*Elector{}}
	for _, opt := range opts {
		s.opts = append(s.opts, opt)
	}
	s.reporter = newAnnouncer(hooks.Origin{CandidateID: c.candidateID}, c.hooks, c.lease)
	s.validation = validation(c.validateInterval, s.lastTerms)
	s.scope = preflight.NewScope(holder.SessionScope)
	s.shared = shared.New(ctx, c.retry, c.lookEvery())
	evict := pooled.Evictor{Locks: func(on *election.Session) (key, pair int64, ok bool) {
		life := shared.LifeKey(c.candidateID, on.PID())
		return life, life, true
	}}
	sc := c.sessions(sources{pool: pool, scope: s.scope, beat: s.beat, hear: s.hear, report: s.report, met: summitOf(pool)}, []election.Part{s.places, s.validation, evict})
	sc.Statements = s.shared.Statements
	s.shared.On(election.NewSource(pool, sc))
	s.close = sync.OnceFunc(func() {
		for _, e := range s.all() {
			e.room.Refuse(election.Shutdown, ErrStopped)
		}
		cancel(ErrStopped)
		go func() {
			defer close(s.closed)
			s.terms.Close()
			<-s.terms.Idle()
			s.shared.Close()
			var electors sync.WaitGroup
			for _, e := range s.all() { // at once: a hook of one may not return
				electors.Go(func() { _ = e.Close(context.Background()) })
			}
			electors.Wait()
			s.reporter.flush()
		}()
	})
	return s, nil
}

// report reports to the session's own hooks what concerns no single election.
func (s *Session) report(ctx context.Context, f hooks.Failure) {
	s.reporter.post(s.reporter.failure(ctx, f))
}

// Elector makes a candidate of another election, on this session. opts add to
// those of the session. Two electors of one session cannot have the same key:
// the server would grant the lock to both. The session keeps an elector until
// [Elector.Close]: close those of elections that are over, or the session grows.
func (s *Session) Elector(name string, opts ...ElectionOption) (*Elector, error) {
	all := slices.Clone(s.opts)
	for _, opt := range opts {
		all = append(all, opt)
	}
	c, err := configure(name, all)
	if err != nil {
		return nil, err
	}
	c.candidateID = s.config.candidateID // which may be random
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.electors[c.key]; other != nil {
		return nil, fmt.Errorf("%w: election %q has the same key (%d) as %q on this session: close that elector first, or wait for its Close", ErrConfig, name, c.key, other.election)
	}
	e := newElector(s.ctx, s.pool, name, c)
	e.places = s.places
	own, _, _ := e.ownSource()
	e.found, e.validation = s.scope, s.validation
	e.terms, e.sender, e.onClosed = s.terms, s.sender, func() { s.remove(e) }
	e.elects(s.shared.Source(), &shared.Acquirer{Shared: s.shared, Name: name, Waker: func() shared.Waker { return e.wakeUps },
		Own: election.New(own, election.Config{Key: e.key, Retry: e.retryEvery, Sleep: e.sleep, Backoff: e.backoff, Observer: observer{e}})})
	s.electors[c.key] = e
	return e, nil
}

func (s *Session) all() []*Elector {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.electors))
}

// remove forgets an elector that is closed.
func (s *Session) remove(e *Elector) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.electors, e.key)
}

// CandidateID is the id of this session's candidates.
func (s *Session) CandidateID() string { return s.config.candidateID }

// Close ends every term of the session, as a shutdown. It waits until their work has
// returned (for a term of Campaign: until it is resigned, or the drain is over) and their
// locks are released, discards the connection, and closes its electors: their campaigns end
// with ErrStopped, now and later. If ctx ends first, Close returns an error that wraps its
// cause, and the closing goes on. It is idempotent.
func (s *Session) Close(ctx context.Context) error {
	s.close()
	if !gate.Await(ctx, s.closed) {
		return election.Stopped(ctx, "close the session: the work of a term, or a hook, has not returned")
	}
	return nil
}

// hear passes the requests to each elector, which answers its own.
func (s *Session) hear(all []inbox.Request) {
	for _, e := range s.all() {
		if t := e.term.Load(); t == nil || !t.lock.IsOwn() { // else a transfer gave it a session of its own
			e.hear(all)
		}
	}
}

// beat announces a heartbeat to each elector that leads.
func (s *Session) beat(b election.Beat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.electors {
		if t := e.term.Load(); t == nil || !t.lock.IsOwn() { // else a transfer gave it a session of its own
			e.beat(b)
		}
	}
}

// lastTerms returns the last term of each elector, ended or not; nil for an elector that has not led.
func (s *Session) lastTerms() (last []*Term) {
	for _, e := range s.all() {
		last = append(last, e.term.Load())
	}
	return last
}
