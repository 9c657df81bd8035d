package session

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
	"github.com/pgelector/pgelector/internal/pooled"
)

// A Task is what was being done when a failure happened that ended no session.
type Task int

const (
	Campaigning Task = iota // an attempt to acquire a lock
	Releasing               // the release of a lock that nobody uses
	Setting                 // applying a session setting, which is left out
	Calling                 // a driver call that did not return in time
	Hearing                 // looking for requests to a leader
)

// Config is what the sessions of a Server are like.
type Config struct {
	Name         string // the application_name: the candidate's id
	Scope        Scope
	Lease        lease.Lease
	LongestLease time.Duration   // of all candidates, with synchronous standbys; 0 without
	OnBeat       func(Beat)      // called after each heartbeat, which waits for it
	OnRequests   func([]Request) // called with all requests to the session's terms that stand, one call at a time
	// Report receives failures that end no session. It returns at once.
	Report func(context.Context, Task, error)
}

// A Source is what was learned of the server behind a pool. It lends and starts sessions.
// It is used by one goroutine at a time.
type Source struct {
	Config
	pool      *sql.DB
	settings  []setting
	checked   bool                      // since the last failure
	primary   atomic.Bool               // at any time
	passed    atomic.Bool               // a check, at any time
	primaries map[primary]time.Duration // when each was first seen, by the monotonic clock
	newest    *newest                   // primary, if an older one was met
	inside    atomic.Bool               // sessions are in transaction scope
	deaf      atomic.Pointer[error]     // why connections cannot be waited on; nil until tried
	pooled    bool                      // a session was moved by a pooler

	refused      int       // transactions in a row, by a pooler that answers outside one
	refusedSince time.Time // the first
}

// NewSource neither connects nor starts anything.
func NewSource(pool *sql.DB, c Config) *Source {
	from := &Source{Config: c, pool: pool, settings: settings(c.Name, c.Lease), newest: &newest{}}
	from.inside.Store(c.Scope == TransactionScope)
	return from
}

// copy returns a Server for another goroutine, without what this one has learned.
func (from *Source) copy() *Source {
	own := &Source{Config: from.Config, pool: from.pool, settings: from.settings, newest: &newest{}}
	own.inside.Store(from.InTransaction())
	return own
}

// Refuses reports whether an error is permanent: no retry will make the server able to
// keep the promise. A server that was a primary before is being replaced, and one that has
// passed a check is behind no pooler. It may be called from any goroutine.
func (from *Source) Refuses(err error) bool {
	switch {
	case errors.Is(err, pgerr.ErrServerReadOnly):
		return !from.primary.Load()
	case errors.Is(err, pgerr.ErrSessionPooled):
		return !from.passed.Load()
	}
	return errors.Is(err, pgerr.ErrNoAdvisoryLocks) || errors.Is(err, pgerr.ErrPoolTooSmall) || errors.Is(err, pgerr.ErrPoolClosed) || errors.Is(err, pgerr.ErrServerTooOld)
}

// InTransaction reports whether sessions have their locks inside transactions. It may be
// called from any goroutine.
func (from *Source) InTransaction() bool { return from.inside.Load() }

// SuspectPooler makes the next check try transaction scope, if err shows that a pooler that
// the last check missed has moved a session.
func (from *Source) SuspectPooler(err error) {
	from.pooled = from.Scope == Auto && errors.Is(err, pgerr.ErrSessionPooled) && !errors.Is(err, pgerr.ErrMixedUp)
}

// Invalidate has the server checked again before the next Retry.
func (from *Source) Invalidate() { from.checked = false }

// Retry checks the server if that is due, and calls try; again at once if it met a dead
// connection, one with a transaction that other code has left open, or one to an old
// primary. The pool's idle connections may all be dead, as after a restart of the server;
// that is no reason to wait. After an error the server is checked again, because it may be
// another one by then, unless ctx was cancelled or a transaction was left open.
func (from *Source) Retry(ctx context.Context, try func() error) error {
	for idle := from.pool.Stats().Idle; ; idle-- {
		err := from.check(ctx)
		if err == nil {
			err = try()
			from.SuspectPooler(err)
		}
		from.checked = from.checked && (err == nil || ctx.Err() != nil || errors.Is(err, pgerr.ErrOpenTransaction))
		if isSuspicious(err) {
			live.suspect(from.pool)
		}
		dead := pgerr.MaybeBroken(err) && !errors.Is(err, pgerr.ErrSessionPooled) || errors.Is(err, pgerr.ErrOpenTransaction)
		if idle <= 0 || !dead && !errors.Is(err, pgerr.ErrOldPrimary) {
			return err
		}
	}
}

// Borrow takes a connection from the pool. One that leads to an old primary is closed.
func (from *Source) Borrow(ctx context.Context) (*Session, error) {
	s, err := borrow(ctx, from.pool, from.Lease, func(err error) { from.Report(context.Background(), Calling, err) })
	if err != nil {
		return nil, err
	}
	s.newest = from.newest
	if err := from.refuseOld(ctx, s); err != nil {
		s.Discard()
		return nil, err
	}
	return s, nil
}

// lend borrows a connection, and begins a transaction if inside.
func (from *Source) lend(ctx context.Context, inside bool) (*Session, error) {
	s, err := from.Borrow(ctx)
	if err != nil || !inside {
		return s, err
	}
	s.inside, s.settings, s.borrowAside = true, Encode(from.settings), from.copy().Borrow
	if err := s.begin(ctx); err != nil {
		err = explainBegin(s, err)
		s.Discard()
		return nil, err
	}
	if err := from.refuseOld(ctx, s); err != nil { // a pooler may lead the transaction elsewhere
		s.Discard()
		return nil, err
	}
	return s, nil
}

// Anew is the session's Anew. The pooler may lead to an old primary by now.
func (from *Source) Anew(ctx context.Context, s *Session) error {
	s.StillNewest()
	err := s.Anew(ctx)
	if err == nil {
		err = from.refuseOld(ctx, s)
	}
	return err
}

// ShareNewest has two Sources of one pool know the same newest primary.
func (from *Source) ShareNewest(with *Source) { from.newest = with.newest }

// LendToLead lends a connection for a session that may be elected. In transaction scope it
// first takes the second connection, so that a granted lock never waits for one.
func (from *Source) LendToLead(ctx context.Context) (*Session, error) {
	if !from.InTransaction() {
		return from.Borrow(ctx)
	}
	_, leave, err := poolChecks.alone(ctx, from.pool)
	if err != nil {
		return nil, fmt.Errorf("elector: wait for two connections: %w", err)
	}
	defer leave()
	aside, err := from.Borrow(ctx)
	if err != nil {
		return nil, err
	}
	s, err := from.lend(ctx, true)
	if err != nil {
		aside.Discard()
		return nil, err
	}
	s.aside, aside.errTimeout = aside, s.errTimeout
	return s, nil
}

// With lends fn a connection. It goes back to the pool if fn returns nil.
func (from *Source) With(ctx context.Context, fn func(*Session) error) error {
	return from.with(ctx, from.InTransaction(), fn)
}

func (from *Source) with(ctx context.Context, inside bool, fn func(*Session) error) error {
	s, err := from.lend(ctx, inside)
	if err != nil {
		return err
	}
	if err := fn(s); err != nil {
		s.Discard()
		return err
	}
	s.GiveBack()
	return nil
}

// A Role is what a session waits as: WaitLock documents the difference.
type Role string

const (
	Holder    Role = "holder" // which does not wait
	Deputy    Role = "deputy"
	Successor Role = "successor"
)

// Open borrows a connection and prepares it for Wait.
func (from *Source) Open(ctx context.Context, role Role, key int64, wait time.Duration) (*Session, error) {
	s, err := from.LendToLead(ctx)
	if err != nil {
		return nil, err
	}
	if err = from.PrepareWait(ctx, s, role, key, wait); err != nil {
		s.Discard() // also of a standby: one that is promoted within the statement sets the session up
		return nil, err
	}
	return s, nil
}

// PrepareWait applies the session settings, and prepares the session for Wait: in the given
// role, for the lock of that key, and for so long at the most.
func (from *Source) PrepareWait(ctx context.Context, s *Session, role Role, key int64, wait time.Duration) error {
	waiting := append(slices.Clone(from.settings),
		setting{"pgelector.role", string(role)},
		keySetting(key),
		setting{"pgelector.wait", strconv.FormatInt(wait.Milliseconds(), 10)})
	row, err := Ask(ctx, s, (*db.Queries).PrepareWait, db.PrepareWaitParams{Settings: Encode(waiting), Inside: s.inside})
	switch {
	case err != nil:
		return fmt.Errorf("elector: set the session up: %w", pgerr.Explain(err))
	case row.InRecovery:
		return pgerr.ErrServerReadOnly
	case s.pid == 0:
		s.pid = row.Pid
	}
	s.SetTransaction(row.Started, row.Mark)
	return s.CheckPID(row.Pid)
}

// OpenChecked is Open for a session that waits for no lock, and whose transaction state no
// other statement will check.
func (from *Source) OpenChecked(ctx context.Context) (*Session, error) {
	s, err := from.Open(ctx, Holder, 0, 0)
	if err != nil {
		return nil, err
	}
	inside, err := Ask0(ctx, s, (*db.Queries).InTransaction)
	if err == nil {
		err = s.CheckOutside(inside)
	}
	if err != nil {
		s.Discard()
		return nil, fmt.Errorf("elector: set the session up: %w", pgerr.Explain(err))
	}
	return s, nil
}

// Start begins the life of a session that holds a lock, or will ask for some. It is kept
// alive until it ends or is closed.
func (from *Source) Start(s *Session) {
	s.errTimeout = pgerr.ErrLeaseExpired // there is a lease from now on
	s.stays = s.inside
	s.dropAside()
	for _, run := range s.beside {
		s.helpers.Go(run)
	}
	leave, own := live.join(from.pool, s), from.copy()
	from.listen(s)
	go func() {
		defer leave()
		s.keep(func(b Beat) {
			if err := checkOpen(own.pool); err != nil { // the session goes on, so that its terms end in order
				s.endTerms(err)
			}
			own.OnBeat(b)
		}, func(rung bool) { own.hear(s, rung) })
	}()
}

// hear asks for the requests to the session if somebody rings, unless it is just doing so. No
// heartbeat waits for that. While it cannot ask, requests wait; the second failure in a row is
// reported. If nobody rings, no request stands.
func (from *Source) hear(s *Session, rung bool) {
	if !s.seeking.CompareAndSwap(false, true) {
		return
	}
	if !rung {
		from.OnRequests(nil)
		s.seeking.Store(false)
		return
	}
	s.helpers.Go(func() {
		defer s.seeking.Store(false)
		all, err := s.requests(from.pool)
		if err == nil {
			s.unheard = 0
			from.OnRequests(all)
			return
		}
		if s.unheard++; s.unheard == 2 && s.ctx.Err() == nil {
			from.Report(s.ctx, Hearing, fmt.Errorf("elector: cannot ask, beside the session, who has a request to the leader; requests wait: %w", pgerr.Explain(err)))
		}
		backoff.Sleep(s.ctx, s.Proof.Lease.Heartbeat) // a suspicion may cause more heartbeats
	})
}

// Evict terminates a backend that still holds the lock, or that of two integers, although a
// pooler has moved its session to another one: strangers would keep the backend, and the lock,
// alive.
func (from *Source) Evict(pid int32, key, pair int64) {
	ctx, cancel := context.WithTimeout(context.Background(), pin.CloseGrace)
	defer cancel()
	_, _ = backoff.Await(ctx, func(ctx context.Context) ([]bool, error) {
		return pooled.Ask(ctx, from.pool, func(q db.DBTX) ([]bool, error) {
			return db.New(q).EvictHolder(ctx, db.EvictHolderParams{Pid: pid, Key: key, Pair: pair})
		})
	})
}

// Settings are the settings of a session for the lock of that key, as a parameter of a
// statement.
func (from *Source) Settings(key int64) string {
	if !from.InTransaction() {
		return Encode(from.settings)
	}
	return Encode(append(slices.Clone(from.settings), keySetting(key)))
}
