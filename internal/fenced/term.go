package fenced

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/live"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
)

// A Term is what fenced transactions belong to.
type Term struct {
	Lock   *election.Lock
	Places Places
	Ended  context.Context // once it is done, answers are awaited within the drain only
	Report func(error)     // receives each connection that is given up because it is silent; returns at once
}

// longestOwn is the longest that an answer to a statement of the library's own is awaited, also with a long
// lease: on a connection that answers, each takes a round trip.
const longestOwn = 10 * time.Second

// atMost returns a copy of ctx that also ends when a statement of the library's own has taken too long.
func atMost(ctx context.Context) (bounded context.Context, cancel context.CancelFunc) {
	return context.WithTimeoutCause(ctx, longestOwn, silent{longestOwn})
}

// toEnter bounds the statements that begin a transaction, as atMost does: their answers are of use within the validity.
func (in Term) toEnter(ctx context.Context) (bounded context.Context, cancel context.CancelFunc) {
	bound := min(in.Lock.Session().Lease().Validity(), longestOwn)
	return context.WithTimeoutCause(ctx, bound, silent{bound})
}

// A silent error is returned for a statement that has had no answer within the bound.
type silent struct{ bound time.Duration }

func (s silent) Error() string { return fmt.Sprintf("%v within %v", pgerr.ErrNoAnswer, s.bound) }
func (silent) Unwrap() error   { return pgerr.ErrNoAnswer }

// suspect asks for a heartbeat of the term's session, and of the sessions that share the pool with
// the transaction.
func (in Term) suspect(pool *sql.DB) {
	in.Lock.Session().HeartbeatNow()
	live.Suspect(pool)
}

// answerTime bounds the wait for an answer that does not come on the session: to one lease, or
// to half of the remaining drain once the term has ended, so that the work can return in time.
func (in Term) answerTime() (context.Context, context.CancelFunc) {
	s := in.Lock.Session()
	within, giveUp := context.WithCancelCause(context.WithoutCancel(in.Ended))
	detach := context.AfterFunc(in.Ended, func() {
		backoff.Sleep(within, s.DrainLeft()/2)
		giveUp(context.Cause(in.Ended))
	})
	ctx, cancel := context.WithTimeoutCause(within, s.Lease().Length, fmt.Errorf("%w within one lease", pgerr.ErrNoAnswer))
	return ctx, func() {
		cancel()
		detach()
		giveUp(nil)
	}
}

// grace bounds a call whose answer nobody needs, such as the close of a connection. The bound is at most half of the drain, because
// the term may have ended. If only a clock jumped, the server keeps the lock for one drain.
func (in Term) grace() time.Duration { return min(pin.CloseGrace, in.Lock.Session().Lease().Drain/2) }
