// Package lock is one election's lock: how a candidate acquires it, and what a leader does with it.
//
// An [Acquirer] makes attempts, on a session of its own ([Dedicated]) or on one that is for other
// elections, too. It acquires a [Lock], a value that knows its key, its session and its token. A Lock is
// verified in pg_locks, and past the barrier: no fenced transaction of an earlier term is in flight. What
// becomes of the session after the release is the Lock's own business.
//
// The package knows no policy: not when to campaign, nor what a leader's work is.
package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/session"
)

// A Releaser releases a lock of a session that has others.
type Releaser interface {
	Release(s *session.Session, key int64) error
}

// A Lock is one election's lock, held on a session. The session's methods say whether the
// lock can still be relied on.
type Lock struct {
	Session     *session.Session
	key         int64
	token       int64
	transaction string        // that holds it, in transaction scope
	closeDelay  time.Duration // between the release and the end of the session
	others      Releaser      // releases it on a session that is for other locks too; nil on one of its own
	release     func()        // of the hold on the session
	released    atomic.Bool   // or about to be
}

func newLock(key int64, s *session.Session, token int64, transaction string) *Lock {
	return &Lock{Session: s, key: key, token: token, transaction: transaction, release: s.Hold()}
}

// NewShared is a lock that was granted and confirmed on a session that is for others, too.
func NewShared(key int64, s *session.Session, token int64, others Releaser) *Lock {
	l := newLock(key, s, token, "")
	l.others = others
	return l
}

// Token is the fencing token of the term that begins with the lock.
func (l *Lock) Token() int64 { return l.token }

// Key is the key of the election.
func (l *Lock) Key() int64 { return l.key }

// Transaction names the transaction that holds the lock; "" in session scope.
func (l *Lock) Transaction() string { return l.transaction }

// Lost reports whether the session was taken away, or its commits no longer wait for the
// standbys. It is false if its owner has closed it.
func (l *Lock) Lost() bool {
	cause := context.Cause(l.Session.TermContext())
	return errors.Is(cause, pgerr.ErrSessionLost) || errors.Is(cause, pgerr.ErrLeaseExpired) || errors.Is(cause, pgerr.ErrNotSynchronous)
}

// Verify asks the server whether the session still holds the lock. It returns nil if so. If
// ctx ends first it returns the cause; a later answer may end the session still. If the server cancels
// the question (57014), by its statement_timeout or because somebody asks it to, nothing is known. If the
// lock was released meanwhile, it returns pgerr.ErrNotLeader. Otherwise the session is lost, and the
// error wraps pgerr.ErrSessionLost.
func (l *Lock) Verify(ctx context.Context) error {
	held, err := ownerOf(l.Session).Holds(ctx, l.key, func(held bool) { _ = l.judge(held, nil) })
	if err != nil && ctx.Err() != nil || pgerr.State(err) == "57014" && l.Session.Context().Err() == nil {
		return err
	}
	return l.judge(held, err)
}

// judge ends the session unless it holds the lock, or the lock was released.
func (l *Lock) judge(held bool, err error) error {
	switch {
	case err == nil && held:
		return nil
	case err == nil && l.released.Load(): // before the question reached the server
		return pgerr.ErrNotLeader
	}
	return l.Session.Lose(cmp.Or(err, fmt.Errorf("backend %d does not hold the lock", l.Session.PID())))
}

// Releasing says that a release of the lock is under way: a Verify that finds it gone is no loss.
func (l *Lock) Releasing() { l.released.Store(true) }

// Holds asks whether the session holds the lock.
func (l *Lock) Holds(ctx context.Context) (bool, error) {
	return ownerOf(l.Session).Holds(ctx, l.key, func(bool) {})
}

// IsShared reports whether the session is for other locks too.
func (l *Lock) IsShared() bool { return l.others != nil }

// WorkReturned says that the work under the lock has returned, so only the lock itself
// needs the session. It may be called more than once.
func (l *Lock) WorkReturned() { l.release() }

// Release releases the lock. It returns nil only if the server says that the session held
// the lock; otherwise the session is lost, and the error wraps pgerr.ErrSessionLost. Discard
// must follow.
func (l *Lock) Release() error {
	l.released.Store(true)
	if l.IsShared() {
		return l.others.Release(l.Session, l.key)
	}
	defer l.DelayClose() // not at all if the session is lost
	return l.Unlock()
}

// Unlock is Release for a session of its own, which may be closed at once.
func (l *Lock) Unlock() error {
	return Unlock(l.Session, l.key, func(q *db.Queries, ctx context.Context) (bool, error) {
		return ownerOf(l.Session).Unlock(ctx, q, l.key)
	})
}

// CloseDelay is how long a leader that has resigned keeps its connections, so that the server serves the
// next leader first. Measured: a hand-over takes some 2 ms, and with the closing at the same time 6.
const CloseDelay = 10 * time.Millisecond

// CloseLater has the session closed after CloseDelay: somebody may wait in the server for the lock.
func (l *Lock) CloseLater() { l.closeDelay = CloseDelay }

// DelayClose waits until the session may be closed.
func (l *Lock) DelayClose() {
	if l.closeDelay > 0 {
		backoff.Sleep(l.Session.Context(), l.closeDelay)
	}
}

// Discard ends what the lock was held on. A session of its own is closed, and with it the
// lock is released if it was not before. A shared session goes on.
func (l *Lock) Discard() {
	if !l.IsShared() {
		l.Session.Close()
	}
}

// Unlock releases one or more locks of the session. It waits as long as the session is
// valid. It returns nil only if the session held them; otherwise the session is lost. key is
// one of them.
func Unlock(s *session.Session, key int64, statement func(*db.Queries, context.Context) (held bool, err error)) error {
	held, err := session.Do(context.Background(), s, statement)
	if err == nil && !held {
		err = cmp.Or(Moved(s, key), errors.New("the session did not hold the lock"))
	}
	if err != nil {
		return s.Lose(fmt.Errorf("unlock: %w", err))
	}
	return nil
}

// Moved returns an error if the session was moved away from a lock that it has not found. In transaction
// scope a lock that is gone is an error of the call.
func Moved(s *session.Session, key int64) error {
	held, err := connection{s}.Holds(context.Background(), key, func(bool) {})
	if err == nil && held { // it is back
		return pgerr.ErrSessionPooled
	}
	return err
}

// An Owner of a session's locks (session.Owner) says by which statements they are taken and released, if
// those are not the ones of session scope. Unlock is called within Do.
type Owner interface {
	// Try makes an attempt.
	Try(ctx context.Context, p db.TryLockParams) (db.TryLockRow, error)

	// Holds asks whether the session holds the lock. It is an error if another backend answers. late receives
	// an answer that comes when ctx has ended.
	Holds(ctx context.Context, key int64, late func(held bool)) (bool, error)

	// Transaction names the transaction that holds the lock, which another connection may have seen so;
	// "" in session scope.
	Transaction(seen string) (name string, err error)

	// Unlock releases the lock. It reports whether the session held it.
	Unlock(ctx context.Context, q *db.Queries, key int64) (held bool, err error)
}

// ownerOf is the owner of the session's locks.
func ownerOf(s *session.Session) Owner {
	if o, ok := s.Owner().(Owner); ok {
		return o
	}
	return connection{s}
}

// A connection owns the locks in session scope.
type connection struct{ s *session.Session }

func (c connection) Try(ctx context.Context, p db.TryLockParams) (db.TryLockRow, error) {
	return session.Ask(ctx, c.s, (*db.Queries).TryLock, p)
}

func (c connection) Holds(ctx context.Context, key int64, late func(held bool)) (bool, error) {
	return session.DoOr(ctx, c.s, func(q *db.Queries, ctx context.Context) (bool, error) {
		row, err := q.HoldsLock(ctx, db.HoldsLockParams{Pid: c.s.PID(), Key: key})
		return row.Held, cmp.Or(err, c.s.CheckPID(row.Pid))
	}, late)
}

func (connection) Transaction(string) (string, error) { return "", nil }

func (connection) Unlock(ctx context.Context, q *db.Queries, key int64) (held bool, err error) {
	return q.Unlock(ctx, key)
}
