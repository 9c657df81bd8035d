// Package seat is the answerer of an election with seats, in session scope. A try that finds the lock busy asks for one of the
// election's two seats, and whether the holder offers the lock to this candidate.
package seat

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
)

// Key is the key of an election's seats, which are locks of two integers. The other seat differs in the lowest bit.
func Key(key int64) int64 { return lockkey.Of("seat", key) }

// OfferKey is the key of the lock of two integers by which a leader offers its lock to a candidate.
func OfferKey(candidateID string, key int64) int64 {
	return lockkey.OfText(fmt.Sprintf("pgelector offer:%d:%s", key, candidateID))
}

// Asks are what a try asks beside the lock, and what the last try has heard. The acquirer that makes the tries owns them.
type Asks struct {
	Sit     bool  // take a seat if the lock is busy
	Offer   int64 // the key of the offer to this candidate
	Seated  bool  // the session that was asked last holds a seat
	Offered bool  // the offer stands
}

// A Wait is how a session waits in the server's queue for the lock.
type Wait struct {
	Role string // db.WaitLock documents the difference
	Key  int64
	For  time.Duration // at most
}

// Settings are the settings of a session that waits.
func (w Wait) Settings(all []election.Setting) []election.Setting {
	return append(all, election.Setting{Name: "pgelector.role", Value: w.Role}, KeySetting(w.Key),
		election.Setting{Name: "pgelector.wait", Value: strconv.FormatInt(w.For.Milliseconds(), 10)})
}

// KeySetting tells statements without arguments the key of the lock.
func KeySetting(key int64) election.Setting {
	return election.Setting{Name: "pgelector.key", Value: strconv.FormatInt(key, 10)}
}

// A Waiter is an answerer whose tries can wait in the server's queue.
type Waiter interface {
	// Waits makes the next tries wait, or not.
	Waits(bool)

	// Sets records that a statement other than a try has set the session up.
	Sets(row db.PrepareWaitRow)
}

// Statements are the answers of one session in session scope.
type Statements struct {
	election.Direct
	Asks *Asks
	Auto bool // where locks of sessions are stubs, those of transactions may not be

	pid     int32
	kept    bool // the session has a seat, or its settings: it never goes back to the pool
	waits   bool
	waited  bool // the last try waited: only Confirm tells whether the lock was granted
	changed bool
}

// Waits makes the next tries wait, or not.
func (st *Statements) Waits(wait bool) { st.waits, st.kept, st.changed = wait, true, true }

// Sets records that the session was set up.
func (st *Statements) Sets(row db.PrepareWaitRow) { st.pid, st.changed = row.Pid, true }

// Try tries the lock and a seat; on a session that is kept, by the smallest statement.
func (st *Statements) Try(ctx context.Context, c *pin.Conn, settings []election.Setting, wants []election.Want) ([]election.Tried, election.Answer, error) {
	switch st.waited = st.waits; {
	case st.waits:
		if err := c.Queries().WaitLock(ctx); err != nil {
			if pgerr.State(err) == "42704" { // another backend does not know our parameters
				err = pgerr.Wrap(pgerr.ErrSessionPooled, err)
			}
			return nil, election.Answer{}, err
		}
		return []election.Tried{{Perhaps: true, Keep: true}}, election.Answer{PID: st.pid}, nil
	case st.kept:
		row, err := c.Queries().TryAsDeputy(ctx, wants[0].Key)
		return []election.Tried{{Granted: row.Granted, Keep: true}}, election.Answer{PID: row.Pid}, err
	}
	p := db.TryLockParams{Key: wants[0].Key, Settings: election.Encode(settings), Look: wants[0].Look, Sit: st.Asks.Sit}
	p.SeatHigh, p.SeatLow = lockkey.Halves(Key(wants[0].Key))
	p.OfferHigh, p.OfferLow = lockkey.Halves(st.Asks.Offer)
	row, err := c.Queries().TryLock(ctx, p)
	if err != nil {
		return nil, election.Answer{}, err
	}
	tried, err := st.Asks.Heard(row.Outcome, row.Seated)
	st.pid, st.kept, st.changed = row.Pid, tried.Keep, st.changed || tried.Keep || tried.Granted
	tried.Holder = election.Holder{PID: row.LeaderPid, CandidateID: row.LeaderID}
	return []election.Tried{tried}, election.Answer{PID: row.Pid}, err
}

// Heard returns what the outcome of a try means.
func (a *Asks) Heard(outcome string, seated bool) (t election.Tried, err error) {
	a.Seated, a.Offered = seated, outcome == "offered"
	if a.Offered {
		return t, nil
	}
	return election.TriedOf(outcome)
}

// Confirm confirms the lock, and waits at its barrier.
func (st *Statements) Confirm(ctx context.Context, c *pin.Conn, keys []int64) ([]election.Confirmed, election.Answer, error) {
	high, low := lockkey.Halves(keys[0])
	row, err := c.Queries().Confirm(ctx, db.ConfirmParams{Pid: st.pid, Key: keys[0], GuardHigh: high, GuardLow: low})
	switch {
	case err != nil:
		return nil, election.Answer{}, err
	case row.InTransaction:
		c.Taint()
		return nil, election.Answer{}, pgerr.ErrOpenTransaction
	case !row.Held && row.Transaction != "":
		return nil, election.Answer{}, ErrSharedBackend
	case !row.Held && !st.waited && row.Pid == st.pid:
		err = st.missing(ctx, c)
	}
	return []election.Confirmed{{Held: row.Held, Passed: row.Held, Token: row.Token, Epoch: row.Epoch, Err: err}}, election.Answer{PID: row.Pid}, nil
}

// ErrSharedBackend is returned when a candidate has the lock on a backend that another candidate is on.
var ErrSharedBackend = fmt.Errorf("%w: a candidate in session scope is on the same backend: "+
	"use transaction scope for every candidate behind the pooler", pgerr.ErrSessionPooled)

func (st *Statements) missing(ctx context.Context, c *pin.Conn) error {
	if err := election.Missing(ctx, c); !errors.Is(err, pgerr.ErrNoSessionLocks) {
		return err
	}
	return NotShown(st)
}

// NotShown is the error of a session whose locks do not show in pg_locks.
func NotShown(a election.Statements) error {
	if st, ok := a.(*Statements); ok && st.Auto {
		return stubs{pgerr.ErrNoSessionLocks}
	}
	return pgerr.ErrNoSessionLocks
}

// stubs is the error for a server that does not show locks of sessions. It may show locks of transactions.
type stubs struct{ error }

func (s stubs) Again() {}

// Is hides that no retry will help.
func (s stubs) Is(target error) bool { return target == ErrStubs }

// ErrStubs is returned, with WithScope(Auto), when locks of sessions are stubs: transactions are tried next.
var ErrStubs = errors.New("elector: the server's advisory locks of sessions are stubs")

// Holds looks for the lock in pg_locks.
func (st *Statements) Holds(ctx context.Context, c *pin.Conn, key int64) (bool, election.Answer, error) {
	return Holds(ctx, c, st.pid, key)
}

// Holds reports whether pg_locks shows the lock for that backend.
func Holds(ctx context.Context, c *pin.Conn, pid int32, key int64) (bool, election.Answer, error) {
	row, err := c.Queries().HoldsLock(ctx, db.HoldsLockParams{Pid: pid, Key: key})
	return row.Held, election.Answer{PID: row.Pid}, err
}

var errChanged = errors.New("elector: the session was changed")

// Close keeps a connection that was changed out of the pool.
func (st *Statements) Close(_ context.Context, _ *pin.Conn, keep bool) error {
	if keep && st.changed {
		return errChanged
	}
	return nil
}
