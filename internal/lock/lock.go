package lock

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/session"
)

// An Acquirer comes by one election's lock. It serves one campaign at a time.
type Acquirer interface {
	// Acquire makes one attempt. It returns an attempt with Next also beside an error.
	Acquire(ctx context.Context, t Try) (Attempt, error)
	// Close gives up what the acquirer keeps between two attempts. The next attempt is
	// again the first of a campaign.
	Close()
}

// A Try is what the campaign knows of itself before an attempt.
type Try struct {
	Last    Standing
	WakeUps *WakeUps // may end the wait for a turn; may be nil
	NoWait  bool     // do not wait in the server's queue
}

// A Standing is what a candidate was by the last answer of a server.
type Standing int

const (
	Unknown  Standing = iota // there was no answer yet
	Followed                 // another candidate led
	Led
)

// An Attempt is what came of one.
type Attempt struct {
	Lock   *Lock          // nil if another session holds the lock
	Holder session.Holder // that session, if the acquirer looks for it and saw it
	// Next is how long to wait before the next attempt. Beside an error it is the longest
	// time between two quick attempts while the server is away; 0 if those are not the
	// campaign's to pace.
	Next time.Duration
	// Refused reports, beside an error, that no retry will help.
	Refused bool
}

// A Lock is one election's lock, held on a session. The session's methods tell whether
// the lock can still be relied on.
type Lock struct {
	*session.Session
	key     int64
	token   int64
	linger  time.Duration // between the release and the end of the session
	shared  bool          // the session is for other locks too
	release func()        // of the hold on the session
}

func newLock(key int64, g session.Grant) *Lock {
	return &Lock{Session: g.Session, key: key, token: g.Token, release: g.Session.Hold()}
}

// Token is the fencing token of the term that begins with the lock.
func (l *Lock) Token() int64 { return l.token }

// Lost reports whether the session was taken away, or its commits do not wait for standbys
// any more, and it was not closed by its owner.
func (l *Lock) Lost() bool {
	cause := context.Cause(l.TermContext())
	return errors.Is(cause, session.ErrSessionLost) || errors.Is(cause, session.ErrLeaseExpired) || errors.Is(cause, session.ErrNotSynchronous)
}

// Verify asks the server whether the session still holds the lock. It returns nil if so.
// If ctx ends first it returns the cause, and nothing is known. Otherwise the session was
// lost, and the error wraps session.ErrSessionLost.
func (l *Lock) Verify(ctx context.Context) error { return l.Session.Verify(ctx, l.key) }

// Begin begins a transaction of the leader's, which must be entered by Fence.
func (l *Lock) Begin(ctx context.Context, pool *sql.DB, opts *sql.TxOptions) (*session.Tx, error) {
	return l.Session.Begin(ctx, pool, opts)
}

// Fence makes the transaction one that the next holder of the lock waits for.
func (l *Lock) Fence(ctx context.Context, tx *session.Tx) error { return tx.Fence(ctx, l.key) }

// WorkReturned says that the work under the lock has returned: nothing but the lock needs
// the session any more. It may be called more than once.
func (l *Lock) WorkReturned() { l.release() }

// A Notification is sent to those who listen, in the statement that releases the lock.
type Notification struct{ Channel, Payload string }

// Release releases the lock, and sends n unless it is nil. It returns nil only if the
// server says that the session held the lock; otherwise the session was lost, and the
// error wraps session.ErrSessionLost. Discard must follow.
func (l *Lock) Release(n *Notification) error {
	var err error
	if n == nil {
		err = l.Session.Unlock(l.key)
	} else {
		err = l.Session.UnlockAndNotify(l.key, n.Channel, n.Payload)
	}
	if err == nil && l.linger > 0 {
		backoff.Sleep(l.Context(), l.linger)
	}
	return err
}

// Discard ends what the lock was held on. A session of its own is closed, and with it the
// lock is released if it was not before. A shared session goes on.
func (l *Lock) Discard() {
	if !l.shared {
		l.Session.Close()
	}
}
