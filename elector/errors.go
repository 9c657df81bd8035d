package elector

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// When a term and the caller's context end together, a call on the term (InTx, Verify, Resign, TransferTo) names the
// term's end first, and then the context's, unless that has ended with the term. Run and Campaign, which outlive terms,
// name the context's.
//
// The errors of this package. Every error that it returns wraps one of these, the
// cause of the context that ended, or only the driver's error, which is always
// within reach of errors.As.
var (
	// ErrConfig is returned when an argument or option cannot be used, by the packages shard,
	// health, roster and dashboard, too; the message names it and what does not hold. It is also returned when MaxOpenConns leaves no connection
	// beside those that a session pins, by InTx when its pool leads to another database, and by Run when pgx cannot read
	// the connection string of a pool that has never connected.
	ErrConfig = pgerr.ErrConfig

	// ErrPoolClosed is returned, with ErrConfig, by New, Run, Start and Campaign when the pool is
	// closed. It is the cause of a term during which the pool was closed: a heartbeat finds that.
	ErrPoolClosed = pgerr.ErrPoolClosed

	// ErrNotLeader is returned when something is asked of a term that has ended.
	ErrNotLeader = pgerr.ErrNotLeader

	// ErrNoLeader is returned by Leader, Observe, RequestResign and RequestTransfer when no session
	// leads. If somebody shares the lock, or has it in a prepared transaction, nobody can be
	// elected: the message says who, and how to end that. Candidates report it, too.
	ErrNoLeader = errors.New("elector: nobody leads the election")

	// ErrLeaderSilent is reported to OnError (hooks.OpLeader) when the leader's lease has run out and the
	// server has not ended its session, as when its backend hangs: nobody leads, and no other candidate can.
	ErrLeaderSilent = errors.New("elector: nobody leads: the lease of the leader has run out, and the server has not ended its session")

	// ErrResigned is the cause of a term that was given up by Resign or on request, or
	// whose lead returned.
	ErrResigned = election.ErrResigned

	// ErrSessionLost is the cause of a term whose session the server ended, or
	// whose connection broke.
	ErrSessionLost = pgerr.ErrSessionLost

	// ErrLeaseExpired is the cause of a term for which no heartbeat was answered
	// in time. The server ends the session, if it has not yet, when the lease runs out.
	ErrLeaseExpired = pgerr.ErrLeaseExpired

	// ErrNoAnswer is returned when a statement of a campaign was not answered in
	// the time for which a lease is valid, or a question about the leader, or a COMMIT
	// of InTx, within one lease.
	ErrNoAnswer = pgerr.ErrNoAnswer

	// ErrServerReadOnly is returned when the server is a hot standby, which would
	// grant a lock that its primary knows nothing of. Run, Start and Campaign wait for one
	// that may become a primary (WithReadOnlyTimeout) before they return it.
	ErrServerReadOnly = pgerr.ErrServerReadOnly

	// ErrOldPrimary is the cause, beside ErrSessionLost, of a term whose primary was
	// found to be an old one: the pool has reached another that was promoted, of a later
	// timeline. InTx returns it if its pool has reached another primary than the term,
	// and it is reported while a connection leads to an old primary.
	ErrOldPrimary = pgerr.ErrOldPrimary

	// ErrUnsupportedServer is returned when the server cannot keep the promise: it is older
	// than PostgreSQL 14, or its advisory locks are stubs, which do not show in pg_locks.
	ErrUnsupportedServer = pgerr.ErrUnsupportedServer

	// ErrNotSynchronous is reported, with WithSynchronousStandby, while commits on the server
	// do not wait for every standby that can be promoted; the message says what to do. The
	// campaign goes on. If this happens during a term, it is the cause of the term's end.
	ErrNotSynchronous = pgerr.ErrNotSynchronous

	// ErrTooEarly is returned by TryCampaign and TryRun, with WithLockDelay or WithSynchronousStandby,
	// while the server is not known to have been a primary for the longest lease: a leader on a
	// server that is gone, or was replaced, may believe until then. Run, Start and Campaign wait. The
	// message says how long; the error has a method Later() time.Duration that returns the wait.
	ErrTooEarly = pgerr.ErrTooEarly

	// ErrSessionPooled is returned when statements of one connection reach different
	// backends, and no transaction can hold the lock either ([WithScope]): through a pooler
	// in statement mode, for an elector of a Session, or with prepared statements that the
	// pooler does not track. It is returned only if it repeats on new connections; a
	// candidate whose pool has passed a check before reports it and tries again.
	ErrSessionPooled = pgerr.ErrSessionPooled

	// ErrAlreadyRunning is returned when an elector is asked to do two things at
	// once: it runs one campaign, and holds one term, at a time.
	ErrAlreadyRunning = errors.New("elector: already running: this elector campaigns or leads; use one elector per candidate")

	// ErrUnhealthy is the cause of a term whose candidate became unhealthy, and
	// returned by TryCampaign and TryRun while it is.
	ErrUnhealthy = errors.New("elector: the candidate is unhealthy")

	// ErrNoSuccessor is returned by TransferTo when the successor was not seen to get the lock. If
	// it did not come in time, or before ctx ended, the term goes on. If it was lost while the work
	// returned, or another call resigned, the term has ended, and the election goes on as usual. An
	// error that wraps ErrConfig, too, is of an id that no successor can have.
	ErrNoSuccessor = errors.New("elector: the successor was not seen to get the lock, and the election goes on: does it live, campaign, and is it healthy?")

	// ErrUnanswered is returned by RequestResign and RequestTransfer when the leader has not
	// let go before ctx ended. The message names its candidate id and backend, and says what
	// to do.
	ErrUnanswered = errors.New("elector: the leader does not answer the request")

	// ErrGaveUp is returned when WithMaxAttempts attempts in a row have failed.
	ErrGaveUp = election.ErrGaveUp

	// ErrOverrun is returned by Resign when the term's work has not returned within one
	// lease, and reported to OnError (hooks.OpWork) when it has not returned within the
	// drain: once while the session lives and the lock is held, after the drain or one
	// heartbeat interval, whichever is longer; and once if the session ends, after what
	// is left of the drain. The message says whether another may lead. Resign returns it for a
	// hook that has not returned, too.
	ErrOverrun = election.ErrOverrun

	// ErrLeadFailed is the cause of a term whose lead returned an error or
	// panicked, or whose OnElected hook panicked.
	ErrLeadFailed = election.ErrLeadFailed

	// ErrRolledBack is returned by InTx when nothing of the transaction was
	// committed, by the word of the server.
	ErrRolledBack = pgerr.ErrRolledBack

	// ErrOutcomeUnknown is returned by InTx when the connection was lost during
	// COMMIT, its function has ended the transaction, or nobody can tell whether it has: the server may
	// have committed it or not.
	ErrOutcomeUnknown = pgerr.ErrOutcomeUnknown

	// ErrLockTableFull is reported when the server has no room for another lock.
	// Nothing that is held is lost by it, and the campaign goes on.
	ErrLockTableFull = pgerr.ErrLockTableFull

	// ErrTokenEpoch is reported when a term would have no usable token: the setting
	// pgelector.epoch of the database is no number from 0 to 32766, or timeline and
	// epoch exceed 32767. Nobody is elected until that is corrected; the campaign goes on.
	ErrTokenEpoch = election.ErrTokenEpoch

	// ErrNoToken is reported when the server says that it has granted the lock, and its
	// answer has a token without a timeline or a transaction id, which is impossible on
	// PostgreSQL. Nobody is elected; the campaign goes on.
	ErrNoToken = election.ErrNoToken

	// ErrTokenFell is reported to OnError (hooks.OpToken), once for each term, if the term's
	// token is not larger than the largest that this candidate has had, or belongs to an older
	// timeline than a candidate on the same pool has met, as the leader of any election or by
	// ErrOldPrimary: the database was moved, say, and stores that remember the larger token refuse
	// this leader. The term goes on; who uses no tokens loses nothing. The message says how to
	// raise the epoch. A candidate that has met neither cannot know it.
	ErrTokenFell = errors.New("elector: the token has fallen: if a store compares tokens, raise the epoch by ALTER DATABASE … SET pgelector.epoch " +
		"(pgelector doctor --last-token says to what) or WithTokenEpoch")

	// ErrStopped is the cause of a term that was ended by Stop, Elector.Close or
	// Session.Close, and returned by Run, TryRun, Start, Campaign and TryCampaign of an
	// elector that is closed, or whose session is.
	ErrStopped = errors.New("elector: stopped")
)

var (
	errNoPool       = fmt.Errorf("%w: the pool is nil: pass the *sql.DB of your PostgreSQL", ErrConfig)
	errHookPanicked = errors.New("elector: a hook panicked")
)

// reasonOf finds the reason in a cause.
func reasonOf(cause error) hooks.Reason {
	reason := hooks.Reason(election.ReasonOf(cause))
	switch {
	case reason != hooks.SessionLost:
	case errors.Is(cause, ErrPoolClosed):
		return hooks.Shutdown
	case errors.Is(cause, ErrNotSynchronous):
		return hooks.LeaseExpired
	}
	return reason
}

// lost reports whether a term with that cause was taken away, not given up.
func lost(cause error) bool {
	reason := reasonOf(cause)
	return reason == hooks.SessionLost || reason == hooks.LeaseExpired
}

// A panicError is the error of a panic in a function of the user's. Its text is one line; the stack is
// apart, so that a log can have it in a field of its own.
type panicError struct {
	what  error // which function panicked
	value any
	stack string
}

// newPanicError is called where the panic is recovered.
func newPanicError(what error, value any) *panicError {
	return &panicError{what, value, string(debug.Stack())}
}

func (e *panicError) Error() string {
	return e.what.Error() + ": " + strings.Join(strings.Fields(fmt.Sprint(e.value)), " ")
}

// Unwrap returns what, and the value if that is an error.
func (e *panicError) Unwrap() []error {
	if err, ok := e.value.(error); ok {
		return []error{e.what, err}
	}
	return []error{e.what}
}

// Stack is that of the goroutine that panicked.
func (e *panicError) Stack() string { return e.stack }
