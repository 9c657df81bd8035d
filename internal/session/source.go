package session

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// A Task is what was being done when a failure happened that ended no session.
type Task int

const (
	Campaigning Task = iota // an attempt to acquire a lock
	Releasing               // the release of a lock that nobody uses
	SettingUp               // applying a session setting, which is left out
	Calling                 // a driver call that did not return in time
)

// Config is what the sessions of a Source are like.
type Config struct {
	Name   string // the application_name: the candidate's id
	Scope  Scope
	Lease  lease.Lease
	Parts  Parts      // in the order in which they are called
	Inside Inside     // lends sessions in transaction scope; may be nil if that is never used
	Pins   int        // connections that a session pins; 0 means 1
	OnBeat func(Beat) // called after each heartbeat, which waits for it
	// Report receives failures that end no session. It returns at once.
	Report func(context.Context, Task, error)
}

// A Source lends and starts sessions of one pool, and is what a candidate has learned of the server
// behind it. One goroutine at a time uses it, but for the methods that say otherwise.
type Source struct {
	Config
	Settings  []Setting // of each session; without those that the server refuses
	Suspected bool      // a check had passed, and session scope does not work

	pool                *sql.DB
	checked, metStandby bool                  // since the last failure; in the last check
	met                 atomic.Int32          // the most that this candidate has met, at any time: see aPrimary
	inside              atomic.Bool           // sessions have their locks inside transactions
	deaf                atomic.Pointer[error] // why connections cannot be waited on; nil until tried
}

// What a candidate has met.
const (
	aPrimary      = 1 // so a server in recovery is being replaced
	aPassedServer = 2 // a primary that has passed a check, so it shares no backends
)

// NewSource neither connects nor starts anything.
func NewSource(pool *sql.DB, c Config) *Source {
	from := &Source{Config: c, pool: pool, Settings: settings(c.Name, c.Lease)}
	from.inside.Store(c.Scope == TransactionScope)
	return from
}

// HasPassed reports whether a check has passed at any time.
func (from *Source) HasPassed() bool { return from.met.Load() >= aPassedServer }

// Copy returns a Source for another goroutine, without parts and without what this one has learned.
func (from *Source) Copy() *Source {
	own := &Source{Config: from.Config, pool: from.pool, Settings: from.Settings}
	own.Parts = nil
	own.inside.Store(from.InTransaction())
	return own
}

// Refuses reports whether an error is permanent: no retry will make the server able to
// keep the promise. A server that was a primary before is being replaced, and one that has
// passed a check shares no backends. It may be called from any goroutine.
func (from *Source) Refuses(err error) bool {
	switch {
	case errors.Is(err, pgerr.ErrServerReadOnly):
		return from.met.Load() < aPrimary
	case errors.Is(err, pgerr.ErrSessionPooled):
		return !from.HasPassed()
	case errors.Is(err, pgerr.ErrNoSessionLocks):
		return from.Scope == SessionScope
	}
	return errors.Is(err, pgerr.ErrNoAdvisoryLocks) || errors.Is(err, pgerr.ErrPoolTooSmall) || errors.Is(err, pgerr.ErrPoolClosed) || errors.Is(err, pgerr.ErrServerTooOld)
}

// InTransaction reports whether sessions have their locks inside transactions. Any goroutine may call it.
func (from *Source) InTransaction() bool { return from.inside.Load() }

// SuspectSessions makes the next check try transaction scope, if err shows what the last check missed:
// a session was moved to another backend, or locks of sessions are stubs.
func (from *Source) SuspectSessions(err error) {
	from.Suspected = from.Scope == Auto && (errors.Is(err, pgerr.ErrNoSessionLocks) || errors.Is(err, pgerr.ErrSessionPooled) && !errors.Is(err, pgerr.ErrMixedUp))
}

// Retry checks the server if that is due, and calls try; again at once if it met a dead connection, one
// with a transaction that other code has left open, or one to an old primary, or stubs of session locks.
// The pool's idle connections may all be dead, as after a restart of the server; that is no reason to
// wait. After an error the server is checked again, because it may be another one by then, unless ctx
// was cancelled or a transaction was left open.
func (from *Source) Retry(ctx context.Context, try func() error) error {
	for next := NextIdle(from.pool); ; {
		err := from.check(ctx)
		if err == nil {
			err = try()
			from.SuspectSessions(err)
		}
		from.checked = from.checked && (err == nil || ctx.Err() != nil || errors.Is(err, pgerr.ErrOpenTransaction))
		if IsSuspicious(err) {
			Suspect(from.pool)
		}
		dead := pgerr.MaybeBroken(err) && !errors.Is(err, pgerr.ErrSessionPooled) || errors.Is(err, pgerr.ErrOpenTransaction)
		elsewhere := from.Suspected && errors.Is(err, pgerr.ErrNoSessionLocks) // the check may choose transaction scope
		if again := dead || errors.Is(err, pgerr.ErrOldPrimary); !elsewhere && (!again || !next.More()) {
			return err
		}
	}
}

// Start begins the life of a session that holds a lock, or will ask for some. It is kept
// alive until it ends or is closed.
func (from *Source) Start(s *Session) {
	s.life.started.Store(true)
	s.owner.Drop(false)
	for _, run := range s.life.companions {
		s.Go(run)
	}
	leave, own, parts := live.join(from.pool, s), from.Copy(), from.Parts
	for _, part := range parts {
		part.Started(from, s)
	}
	go backoff.Apart(func() {
		defer leave()
		s.keep(func(b Beat) error {
			return parts.each(func(p Part) error { return p.Beat(s, b) })
		}, func(b Beat) {
			if err := checkOpen(own.pool); err != nil { // the session goes on, so that its terms end in order
				s.life.endTerms(err)
			}
			own.OnBeat(b)
		})
	})()
}

// SettingsFor are the settings of a session for the lock of that key, as a statement's parameter.
func (from *Source) SettingsFor(key int64) string {
	if !from.InTransaction() {
		return Encode(from.Settings)
	}
	return Encode(append(slices.Clone(from.Settings), KeySetting(key)))
}

// An Inside lends sessions that have their locks inside transactions.
type Inside interface {
	// Begin makes a transaction the owner of the session's locks, or another one than before.
	Begin(ctx context.Context, from *Source, s *Session) error

	// LendToLead lends a session that may be elected, inside a transaction.
	LendToLead(ctx context.Context, from *Source) (*Session, error)
}

// A Part is a feature that hooks into the life of sessions. A session calls its parts, and knows
// nothing else of them. A part embeds NoPart, and overrides the methods that it needs.
type Part interface {
	// Check is called before an attempt, if the server is to be checked: may it elect anybody?
	Check(ctx context.Context, from *Source) error

	// Lent is called when the source has lent a session, and when that has begun a transaction.
	// After an error the session is discarded.
	Lent(ctx context.Context, from *Source, s *Session) error

	// Kept is called from time to time while a candidate keeps a session to try its locks on: may it
	// go on? After an error the session is discarded.
	Kept(ctx context.Context, from *Source, s *Session) error

	// Enter is called when a session was granted a lock, and before anybody knows: may the term
	// begin? What is to go on beside the session is given to Along.
	Enter(ctx context.Context, from *Source, s *Session, g Grant) error

	// Started is called when the source begins to keep a session alive.
	Started(from *Source, s *Session)

	// Beat is called after each answered heartbeat, on the session's goroutine. An error ends the
	// session.
	Beat(s *Session, b Beat) error
}

// NoPart does nothing.
type NoPart struct{}

func (NoPart) Check(context.Context, *Source) error                  { return nil }
func (NoPart) Lent(context.Context, *Source, *Session) error         { return nil }
func (NoPart) Kept(context.Context, *Source, *Session) error         { return nil }
func (NoPart) Enter(context.Context, *Source, *Session, Grant) error { return nil }
func (NoPart) Started(*Source, *Session)                             {}
func (NoPart) Beat(*Session, Beat) error                             { return nil }

// A Grant is a lock that the server has granted.
type Grant struct {
	Key      int64
	Timeline int64 // of the server
}

// A Later is an error of a part that says when an attempt may succeed.
type Later interface {
	error
	Later() time.Duration
}

// Enter asks each part whether the term may begin: see Part.
func (from *Source) Enter(ctx context.Context, s *Session, g Grant) error {
	return from.Parts.each(func(p Part) error { return p.Enter(ctx, from, s, g) })
}

// Keep asks each part whether a session that is kept may go on: see Part.
func (from *Source) Keep(ctx context.Context, s *Session) error {
	return from.Parts.each(func(p Part) error { return p.Kept(ctx, from, s) })
}

func (from *Source) lent(ctx context.Context, s *Session) error {
	return from.Parts.each(func(p Part) error { return p.Lent(ctx, from, s) })
}

// check has the parts check the server, before the first attempt and again after a failure.
func (from *Source) check(ctx context.Context) error {
	err := CheckPoolSize(from.pool, from.Pins)
	if err != nil || from.checked {
		return err
	}
	for _, part := range from.Parts {
		if err := part.Check(ctx, from); err != nil {
			return err
		}
	}
	from.checked = true
	return nil
}

// Parts are called in their order.
type Parts []Part

// each calls the parts until one returns an error.
func (all Parts) each(call func(Part) error) error {
	for _, part := range all {
		if err := call(part); err != nil {
			return err
		}
	}
	return nil
}
