package election

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
)

// Direct asks about one lock that the connection holds. It keeps nothing, so one value serves all sessions.
type Direct struct{}

// Open asks nothing: the first try shows who answers.
func (Direct) Open(context.Context, *pin.Conn, []Setting) (Answer, error) { return Answer{}, nil }

// Try tries one lock.
func (Direct) Try(ctx context.Context, c *pin.Conn, settings []Setting, wants []Want) ([]Tried, Answer, error) {
	row, err := c.Queries().TryElection(ctx, db.TryElectionParams{Key: wants[0].Key, Settings: Encode(settings), Look: wants[0].Look})
	if err != nil {
		return nil, Answer{}, err
	}
	tried, err := TriedOf(row.Outcome)
	tried.Holder = Holder{PID: row.LeaderPid, CandidateID: row.LeaderID}
	return []Tried{tried}, Answer{PID: row.Pid}, err
}

// TriedOf is what the outcome of a statement means.
func TriedOf(outcome string) (t Tried, err error) {
	switch outcome {
	case "granted":
		t.Granted = true
	case "deputy":
		t.Keep = true
	case "busy":
	case "standby":
		err = pgerr.ErrServerReadOnly
	default:
		err = fmt.Errorf("%w: unknown answer %q", pgerr.ErrNoAdvisoryLocks, outcome)
	}
	return t, err
}

// Confirm confirms one lock, and waits at its barrier.
func (Direct) Confirm(ctx context.Context, c *pin.Conn, keys []int64) ([]Confirmed, Answer, error) {
	high, low := lockkey.Halves(keys[0])
	row, err := c.Queries().ConfirmElection(ctx, db.ConfirmElectionParams{Key: keys[0], GuardHigh: high, GuardLow: low})
	switch {
	case err != nil:
		return nil, Answer{}, err
	case row.InTransaction:
		c.Taint()
		return nil, Answer{}, pgerr.ErrOpenTransaction
	case !row.Held:
		err = Missing(ctx, c)
	}
	return []Confirmed{{Held: row.Held, Passed: row.Held, Token: row.Token, Epoch: row.Epoch, Err: err}}, Answer{PID: row.Pid}, nil
}

// Missing returns why pg_locks does not show a lock that the server has granted. Either the server's locks are stubs, which no
// retry will change, or somebody has released the lock. To find out, Missing takes a lock that nobody else knows: the same
// statement must find that lock in pg_locks.
func Missing(ctx context.Context, c *pin.Conn) error {
	key := int64(rand.Uint64())
	high, low := lockkey.Halves(key)
	switch shown, err := c.Queries().TrialLock(ctx, db.TrialLockParams{Key: key, High: high, Low: low}); {
	case err != nil:
		return err
	case !shown:
		return pgerr.ErrNoSessionLocks
	}
	return errReleased
}

// Aside asks: a refusal costs a session nothing.
func (Direct) Aside(_ context.Context, _ *pin.Conn, ask func() error) (refused, err error) {
	return ask(), nil
}

// Beat asks for a sign of life. If the server's lock table is full, Beat asks again by a statement that takes no lock: the
// session lives, although it can take no lock for a moment.
func (Direct) Beat(ctx context.Context, c *pin.Conn) (rung bool, a Answer, err error) {
	row, err := c.Queries().Ping(ctx)
	if pgerr.State(err) != "53200" {
		return row.Rung, Answer{PID: row.Pid, InRecovery: row.InRecovery}, err
	}
	who, err := c.Queries().WhoAnswers(ctx)
	return false, Answer{PID: who.Pid, InRecovery: who.InRecovery}, err
}

// Holds looks for the lock in pg_locks.
func (Direct) Holds(ctx context.Context, c *pin.Conn, key int64) (bool, Answer, error) {
	row, err := c.Queries().HoldsElection(ctx, key)
	return row.Held, Answer{PID: row.Pid}, err
}

// Unlock releases one lock.
func (Direct) Unlock(ctx context.Context, c *pin.Conn, keys []int64) ([]int64, error) {
	held, err := c.Queries().Unlock(ctx, keys[0])
	if !held {
		return nil, err
	}
	return keys[:1], err
}

// Close has nothing to undo.
func (Direct) Close(context.Context, *pin.Conn, bool) error { return nil }
