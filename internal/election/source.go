package election

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/internal/idle"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
)

// A SessionConfig is what the sessions of a Source are like. Only Lease must be set.
type SessionConfig struct {
	CandidateID string
	Lease       lease.Lease
	TokenEpoch  int64 // the least number that is added to the timeline of a token
	Parts       []Part
	Statements  func(from *Source) Statements // of a session; Direct, if nil
	Linger      time.Duration                 // between the release of a session's one lock and the end of the session
	Report      func(doing string, err error) // receives failures that end no session, and returns at once
}

// A Source lends sessions of a pool, and knows what was learned of the server behind the pool. One goroutine at a time may call its
// methods, except for Invalidate, Pool, Settings and Take.
type Source struct {
	SessionConfig
	pool     *sql.DB
	settings atomic.Value // []Setting of each session, but for those that were left out
	checked  atomic.Bool  // the server was checked since the last failure
	passed   atomic.Bool  // a check has passed at any time
	primary  atomic.Bool  // a primary has answered at any time, so a server in recovery is being replaced
}

// NewSource neither connects nor starts anything.
func NewSource(pool *sql.DB, c SessionConfig) *Source {
	if c.Statements == nil {
		c.Statements = func(*Source) Statements { return Direct{} }
	}
	if c.Report == nil {
		c.Report = func(string, error) {}
	}
	from := &Source{SessionConfig: c, pool: pool}
	from.LeaveOut()
	return from
}

// Pool is where the connections come from.
func (from *Source) Pool() *sql.DB { return from.pool }

// LeaveOut leaves these settings, and no others, out of each session from now on. It is for a part that checks which settings
// the server refuses. (Without the lease setting, a server may keep the lock of a dead leader longer, but never for less time
// than the lease.)
func (from *Source) LeaveOut(names ...string) {
	from.settings.Store(slices.DeleteFunc(settingsOf(from.CandidateID, from.Lease), func(s Setting) bool { return slices.Contains(names, s.Name) }))
}

// Retry checks the server if a check is due, and calls try. It calls try again at once if the pool may have a better connection:
// the last connection was dead, was left inside a transaction by other code, or led to an old primary. If a connection did not
// answer, or answered as a standby, the other idle connections are suspected, too: the next attempt takes them all at once
// (package idle). After an error the server is checked again, because it may be another server by then.
func (from *Source) Retry(ctx context.Context, try func() error) error {
	for left, suspected, turned := from.pool.Stats().Idle, false, false; ; left-- {
		wasChecked := from.checked.Load()
		err := from.check(ctx)
		passed := err == nil && !wasChecked && len(from.Parts) > 0 // connections have just answered
		if err == nil {
			err = try()
		}
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			if !errors.Is(err, pgerr.ErrOpenTransaction) {
				from.checked.Store(false)
			}
			from.Report("try", err)
		}
		dead := pgerr.MaybeBroken(err) && !errors.Is(err, pgerr.ErrSessionPooled)
		again := dead || errors.Is(err, pgerr.ErrOpenTransaction) || errors.Is(err, pgerr.ErrOldPrimary)
		others := from.pool.Stats().Idle > 0
		if !again && !suspected && !passed && (errors.Is(err, idle.ErrSilent) || others && errors.Is(err, pgerr.ErrServerReadOnly)) {
			if again, suspected = true, true; others {
				idle.Suspect(from.pool)
			}
		}
		if _, anew := errors.AsType[Again](err); ctx.Err() == nil && !turned && (anew || passed && errors.Is(err, pgerr.ErrServerReadOnly)) {
			turned = true // the pool may lead to several servers, of which a primary has just passed the check
			from.checked.Store(!anew)
			continue
		}
		if !again || left <= 0 || ctx.Err() != nil {
			return err
		}
	}
}

// check lets the parts check the server, if a check is due.
func (from *Source) check(ctx context.Context) error {
	if from.checked.Load() {
		return nil
	}
	err := each(from.Parts, func(p Part) error { return p.Check(ctx, from) })
	if from.checked.Store(err == nil); err == nil {
		from.passed.Store(true)
	}
	return err
}

// Invalidate makes the next attempt check the server again. Any goroutine may call it.
func (from *Source) Invalidate() { from.checked.Store(false) }

// Lost returns the failed attempt, as Fail does, for a session that an acquirer has kept. The next attempt checks the server.
func (from *Source) Lost(ctx context.Context, err error) Attempt {
	if ctx.Err() == nil {
		from.Invalidate()
		from.Report("try", err)
	}
	return from.Fail(err)
}

// Settings returns the settings of each session.
func (from *Source) Settings() []Setting { return slices.Clone(from.settings.Load().([]Setting)) }

// HasPassed reports whether a check has passed at any time.
func (from *Source) HasPassed() bool { return from.passed.Load() }

// ReachedPrimary records that a connection led to a primary.
func (from *Source) ReachedPrimary() { from.primary.Store(true) }

// Refuses reports whether an error is final.
func (from *Source) Refuses(err error) bool { return from.refuses(err) }

// Fail returns the attempt that ended with err.
func (from *Source) Fail(err error) Attempt {
	if from.refuses(err) {
		return Attempt{Outcome: Refused, Err: err}
	}
	return Attempt{Outcome: Failed, Err: err}
}

// refuses reports whether no retry will make the server able to keep the promise. A refusal must be certain: a server in
// recovery is being replaced if it was a primary before, and a server that has passed a check shares no backends.
func (from *Source) refuses(err error) bool {
	switch {
	case errors.Is(err, pgerr.ErrServerReadOnly):
		return !from.primary.Load()
	case errors.Is(err, pgerr.ErrSessionPooled):
		return !from.passed.Load()
	}
	return errors.Is(err, pgerr.ErrUnsupportedServer) || errors.Is(err, pgerr.ErrConfig)
}

// Take takes a connection from the pool, as it is.
func (from *Source) Take(ctx context.Context) (*pin.Conn, error) {
	bound, full := from.Lease.Validity(), IsFull(from.pool)
	if from.pool.Stats().Idle == 0 && !full {
		bound = max(bound, connectTimeout) // the pool opens a connection
	}
	conn, late, err := idle.Take(ctx, from.pool, bound, min(from.Lease.Validity(), idle.AnswerWithin), func(err error) { from.Report("take", err) })
	if err != nil {
		return nil, NoConnection(ctx, late, from.pool, full, bound, err)
	}
	return conn, nil
}

// connectTimeout is the least time that opening a connection gets. Nothing is held meanwhile, and a driver that tries several
// hosts in turn needs time for each: a frozen host takes all of its connect_timeout.
const connectTimeout = 30 * time.Second

// IsFull reports whether others use all connections that the pool may open.
func IsFull(pool *sql.DB) bool {
	stats := pool.Stats()
	return stats.MaxOpenConnections > 0 && stats.InUse >= stats.MaxOpenConnections
}

// NoConnection says why the pool gave no connection, and what to do about it. full is whether others used all connections
// that the pool may open.
func NoConnection(ctx context.Context, late bool, pool *sql.DB, full bool, bound time.Duration, err error) error {
	if closed := pin.CheckOpen(pool); closed != nil {
		return pgerr.Wrap(pgerr.ErrPoolClosed, closed)
	}
	if !late {
		return fmt.Errorf("elector: take a connection from the pool: %w", pgerr.Explain(pgerr.CauseOr(ctx, err)))
	}
	why := fmt.Sprintf("is the server reachable? Is connect_timeout set, and at most %v divided by the number of hosts? "+
		"If the driver has a pool of its own below this one (a pgxpool), is its MaxConns large enough?", max(bound, connectTimeout))
	if full {
		why = "all were in use, or did not connect: is MaxOpenConns large enough?"
	}
	stats := pool.Stats()
	return fmt.Errorf("elector: no connection from the pool within %v (%d open, %d in use, at most %d; 0 is no limit): %s %w",
		bound, stats.OpenConnections, stats.InUse, stats.MaxOpenConnections, why, err)
}

// Lend lends a session, which holds nothing.
func (from *Source) Lend(ctx context.Context) (*Session, error) {
	conn, err := from.Take(ctx)
	if err != nil {
		return nil, err
	}
	s := newSession(from, conn)
	if err = s.open(ctx); err != nil {
		s.Fail(err)
		return nil, err
	}
	return s, nil
}

// open lets the answerer open the session.
func (s *Session) open(ctx context.Context) error {
	_, err := ask(ctx, s, func(ctx context.Context, c *pin.Conn) (none struct{}, a Answer, err error) {
		a, err = s.statements.Open(ctx, c, s.from.Settings())
		return none, a, err
	})
	if err == nil {
		err = each(s.from.Parts, func(p Part) error { return p.Lent(ctx, s) })
	}
	return err
}

// Reopen opens a session anew that was not started and holds no lock. What the session had, such as a seat, is gone, and another
// backend may answer from now on.
func (s *Session) Reopen(ctx context.Context) error {
	if s.started.Load() {
		return errTwice
	}
	s.backend.Store(nil)
	return s.open(ctx)
}

// Open lends a session and keeps it alive, for many locks. Its Statements must apply the settings in Open.
func (from *Source) Open(ctx context.Context) (*Session, error) {
	s, err := from.Lend(ctx)
	if err != nil {
		return nil, err
	}
	if err = s.proof.CheckInTime(); err == nil && s.PID() == 0 {
		err = errors.New("elector: nobody has asked the server who it is") // a fault of the answerer
	}
	if err != nil {
		s.Fail(err)
		return nil, err
	}
	s.start()
	return s, nil
}
