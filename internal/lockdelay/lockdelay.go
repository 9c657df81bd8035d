// Package lockdelay lets nobody be elected on a server that has run, or has been a primary, for less
// than the longest lease of all candidates.
//
// # Why
//
// A server that ends a session tells the leader. A server whose host dies tells nobody: the leader
// gets no error message and no FIN. It believes until its validity ends, while the restarted server,
// or a promoted standby, has an empty lock table. Let sent be the moment just before the leader sent
// the last statement that was answered, and L the longest lease:
//
//	sent        the host dies    up again
//	  ├── the old leader's term is valid ──┼── drain ──┼── margin ──┤ sent + L
//	  │              │                │
//	  │              │                ├───────────── L ─────────────┤ the next leader's term begins
//	  │              │                started, or promoted
//	  │              no answer from here on
//	  │    it was answered
//
// # The argument
//
//  1. A dead host answers nothing. So sent comes before the death, and the death before the start of
//     the next server, or before somebody decides to promote a standby. (Who promotes a standby while
//     its primary still answers makes two primaries. Only WithSynchronousStandby helps there.)
//  2. No term begins before start + L and promotion + L. Both are later than sent + L. The old leader's
//     work must return a margin before sent + L. The margin covers the drift of the clocks' rates.
//  3. The server has run, and has been a primary, for at least as long as this process has known it as
//     one. A primary is known by its timeline and by its start. Nobody sees a standby as a primary
//     before its promotion.
//  4. Or the server proves both itself. It has run since its start, by its own clock. It has been a
//     primary since its last checkpoint began, if that was made on its present timeline: a promotion
//     makes a new timeline, and its first checkpoint begins after the promotion was decided. A standby
//     that is started as a primary without a promotion keeps its timeline; but then it has just started.
//     Nothing that a client can do lengthens either time.
//  5. The answer is about the server that has granted the lock. [Part.Granted] asks after the grant and
//     after Confirm. One statement says how long its server has run, and that the backend of the grant
//     holds the lock there. A pooler or a proxy may have moved the connection to another server
//     meanwhile, with the same process id even: that server does not show the lock. In transaction
//     scope another connection asks, and the name of the transaction has the server's start in it;
//     after that, the transaction must still be there. The checkpoint is asked for next. It counts
//     only if timeline and start are those of the first answer.
//  6. Once a session has passed, its later grants need no question: a backend never changes its server,
//     and a server only gets older. In transaction scope each grant is asked about.
//
// There is no exemption for the candidate that led last. A candidate that was cut off cannot know that
// somebody has led after it.
//
// The server's own clock must not be set forward by nearly L between its start and the answer, as
// NTP may do at boot: start PostgreSQL after the clock is right. Set back, it only prolongs the wait,
// until this process has known the primary for L.
package lockdelay

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/tenure"
	"github.com/pgelector/pgelector/internal/transaction"
)

// A Part makes candidates wait on a server that is new. Any goroutine may call its methods.
type Part struct {
	election.NoPart
	longest time.Duration // lease of all candidates
	inside  func() bool   // whether they lead inside transactions
}

// New makes the part. longest is the longest lease of all candidates.
func New(longest time.Duration, inside func() bool) *Part {
	return &Part{longest: longest, inside: inside}
}

// passed are the sessions whose server has been there for long enough.
var passed election.PerSession[atomic.Bool]

// Check returns nil if a candidate that was granted a lock now could lead. A candidate that cannot lead should
// not hold the lock meanwhile. Check also begins to count for how long this process knows the primary.
func (p *Part) Check(ctx context.Context, from *election.Source) error {
	_, early, err := p.ask(ctx, from.Pool(), db.TenureParams{}, on(from, p.inside()))
	return cmp.Or(err, early)
}

// Granted returns nil if the server that has granted the lock has been there for long enough.
func (p *Part) Granted(ctx context.Context, s *election.Session, g election.Grant) error {
	if !transaction.IsOf(s) && passed.Of(s).Load() {
		return nil
	}
	row, early, err := p.ask(ctx, s.Source().Pool(), db.TenureParams{Pid: s.PID(), Key: g.Key}, by(s))
	if err == nil && !transaction.IsOf(s) {
		err = s.Judge(election.Answer{PID: row.Pid})
	}
	if err == nil && row.Owner == "" {
		err = fmt.Errorf("%w (backend %d does not show the lock that it was granted)", transaction.ErrTwoServers, s.PID())
	}
	if name := transaction.Name(s); err == nil && name != "" && row.Owner != name {
		err = transaction.ErrTwoServers
	}
	if err == nil {
		err = early
	}
	if err == nil {
		err = s.CheckInTime()
	}
	passed.Of(s).Store(err == nil)
	return err
}

// An asker asks about the server's tenure.
type asker struct {
	tenure     func(context.Context, db.TenureParams) (db.TenureRow, error)
	checkpoint func(context.Context) (db.LastCheckpointRow, error)
}

// on asks on a connection of the pool.
func on(from *election.Source, inside bool) asker {
	return asker{
		func(ctx context.Context, p db.TenureParams) (db.TenureRow, error) {
			return transaction.On(ctx, from, inside, (*db.Queries).Tenure, p)
		},
		func(ctx context.Context) (db.LastCheckpointRow, error) {
			return transaction.On(ctx, from, inside, lastCheckpoint, nil)
		},
	}
}

// by asks on a session, or in transaction scope beside it: then the session must still have its locks.
func by(s *election.Session) asker {
	return asker{
		func(ctx context.Context, p db.TenureParams) (db.TenureRow, error) {
			return transaction.BesideThenStay(ctx, s, (*db.Queries).Tenure, p)
		},
		func(ctx context.Context) (db.LastCheckpointRow, error) {
			return transaction.BesideThenStay(ctx, s, lastCheckpoint, nil)
		},
	}
}

func lastCheckpoint(q *db.Queries, ctx context.Context, _ any) (db.LastCheckpointRow, error) {
	return q.LastCheckpoint(ctx)
}

// ask asks the server for how long it has been there. early is nil if that is long enough.
func (p *Part) ask(ctx context.Context, pool *sql.DB, lock db.TenureParams, by asker) (row db.TenureRow, early, err error) {
	row, err = by.tenure(ctx, lock)
	switch {
	case err != nil:
		return row, nil, fmt.Errorf("elector: ask the server how long it has run: %w", pgerr.Explain(err))
	case row.Timeline == 0:
		return row, nil, pgerr.ErrServerReadOnly
	}
	on := tenure.Primary{Timeline: row.Timeline, Started: row.Started}
	known, ran := tenure.Known(pool, on), micros(row.Ran)
	if known >= p.longest {
		return row, nil, nil
	}
	been := known
	if ran > known {
		proved, err := checkpointed(ctx, by, on)
		if err != nil {
			return row, nil, err
		}
		been = max(known, min(ran, proved))
	}
	if been >= p.longest {
		return row, nil, nil
	}
	return row, &tenure.TooEarly{Wait: p.longest - been, Why: fmt.Sprintf("the server has run for %v, and is known to have been a primary (of timeline %d) for %v; the longest lease is %v",
		ran.Round(time.Millisecond), row.Timeline, been.Round(time.Millisecond), p.longest)}, nil
}

// checkpointed returns for how long the server proves that it has been that primary; 0 if it proves
// nothing. A server that refuses the question (42501: it was revoked) proves nothing.
func checkpointed(ctx context.Context, by asker, on tenure.Primary) (time.Duration, error) {
	last, err := by.checkpoint(ctx)
	switch {
	case pgerr.OfStatement(err):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("elector: ask the server for its last checkpoint: %w", pgerr.Explain(err))
	case last.Checkpointed != on.Timeline, on != tenure.Primary{Timeline: last.Timeline, Started: last.Started}:
		return 0, nil
	}
	return max(0, micros(last.Age)-time.Second), nil // which the server has rounded up to a second less
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
