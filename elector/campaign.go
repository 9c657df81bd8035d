package elector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/hooks"
)

// A campaign is one stay in the state of following: attempts until one is
// granted. What it counts lives and ends with it.
type campaign struct {
	*Elector
	began    time.Time
	once     bool   // only one attempt is made
	over     func() // for the term: called when it is all done
	attempts int
	failures int // in a row
}

// run makes attempts until elected, refused, tired or cancelled.
func (c *campaign) run(ctx context.Context) (*Term, error) {
	for {
		term, pause, err := c.attempt(ctx)
		if term != nil || pause == 0 {
			return term, err
		}
		if !sleep(ctx, pause) {
			return nil, ended(ctx, "campaign")
		}
	}
}

// attempt makes one attempt and tells the hooks. A pause of 0 means that there
// is to be no other.
func (c *campaign) attempt(ctx context.Context) (term *Term, pause time.Duration, err error) {
	if ctx.Err() != nil {
		return nil, 0, ended(ctx, "campaign")
	}
	c.attempts++
	start := time.Now()
	session, token, err := c.try(ctx)
	event := hooks.Campaign{Attempt: c.attempts, Took: time.Since(start)}
	switch {
	case session != nil:
		return c.elected(ctx, session, token, event), 0, nil
	case err == nil:
		event.Outcome = hooks.Busy
		c.failures, pause = 0, jitter(c.retry)
	case ctx.Err() != nil:
		return nil, 0, ended(ctx, "campaign")
	default:
		event.Outcome = hooks.Failed
		pause, err = c.failed(ctx, err)
	}
	if c.once {
		pause = 0
	}
	event.Next = pause
	c.announcer.announce(c.announcer.campaign(ctx, event))
	return nil, pause, err
}

// elected begins the term. The hooks are told while it already runs.
func (c *campaign) elected(ctx context.Context, s *session, token int64, event hooks.Campaign) *Term {
	a := c.announcer
	go s.keep(func(b beat) {
		a.heartbeat(ctx, hooks.Heartbeat{Token: token, Took: b.took, Deadline: b.deadline})
	})
	t := newTerm(ctx, c.Elector, s, token, c.over)
	event.Outcome = hooks.Granted
	a.post(a.campaign(ctx, event))
	c.saw(ctx, s.pid, c.candidateID)
	elected := hooks.Elected{Token: token, At: t.electedAt, Waited: t.electedAt.Sub(c.began), Deadline: t.Deadline()}
	a.post(a.elected(t.ctx, elected, func(err error) {
		if err != nil {
			t.end(hooks.LeadFailed, because(ErrLeadFailed, err))
		}
		t.work.finish()
	}))
	return t
}

// failed counts a failure, tells the hooks, and says for how long to wait: 0 is
// to give up.
func (c *campaign) failed(ctx context.Context, err error) (time.Duration, error) {
	c.failures++
	// A server that was a primary before is being replaced: that is waited out.
	permanent := refused(err) && !(errors.Is(err, ErrServerReadOnly) && c.wasPrimary)
	if !permanent && c.maxAttempts > 0 && c.failures >= c.maxAttempts {
		permanent, err = true, fmt.Errorf("%w: %d in a row (WithMaxAttempts): %w", ErrGaveUp, c.failures, err)
	}
	c.announcer.announce(c.announcer.failure(ctx, hooks.Failure{Op: hooks.OpCampaign, Err: err, Attempt: c.failures, Permanent: permanent}))
	if permanent {
		return 0, err
	}
	return jitter(c.backoff.after(c.failures)), err
}

// try asks for the lock, once. An idle connection of the pool may have been dead
// for a while, as all are after a restart of the server; that is no reason to
// wait, so each such one costs only another try.
func (e *Elector) try(ctx context.Context) (s *session, token int64, err error) {
	for idle := e.pool.Stats().Idle; ; idle-- {
		s, token, err = e.tryOnce(ctx)
		if err == nil || idle <= 0 || !broken(err) || ctx.Err() != nil {
			return s, token, err
		}
	}
}

// tryOnce returns a session that holds the lock, verified, or none if another
// holds it. After an error the server is checked anew, because it may be
// another one by then.
func (e *Elector) tryOnce(ctx context.Context) (s *session, token int64, err error) {
	if err := e.check(ctx); err != nil {
		return nil, 0, err
	}
	defer func() { e.checked = err == nil }()
	s, err = borrow(ctx, e.pool, e.lease, e.reportStuck)
	if err != nil {
		return nil, 0, err
	}
	outcome, err := e.ask(ctx, s)
	switch {
	case err != nil:
		s.discard() // in doubt: the lock may have been granted
		return nil, 0, fmt.Errorf("elector: try the lock: %w", err)
	case outcome == outcomeBusy:
		s.giveBack()
		return nil, 0, nil
	case outcome == outcomeStandby:
		s.giveBack()
		return nil, 0, ErrServerReadOnly
	}
	if token, err = e.confirm(ctx, s); err != nil {
		s.discard()
		return nil, 0, err
	}
	e.wasPrimary = true
	return s, token, nil
}

// The outcomes that the TryLock queries answer.
const (
	outcomeBusy    = "busy"
	outcomeStandby = "standby"
	outcomeGranted = "granted"
)

// ask sends the one statement of an attempt.
func (e *Elector) ask(ctx context.Context, s *session) (outcome string, err error) {
	settings := encode(e.settings)
	row, err := do(ctx, s, func(ctx context.Context, q *db.Queries) (db.TryLockOrSeeRow, error) {
		if e.announcer.seesLeader {
			return q.TryLockOrSee(ctx, db.TryLockOrSeeParams{Key: e.key, Settings: settings})
		}
		row, err := q.TryLock(ctx, db.TryLockParams{Key: e.key, Settings: settings})
		return db.TryLockOrSeeRow{Outcome: row.Outcome, Pid: row.Pid}, err
	})
	if err != nil {
		return "", err
	}
	switch row.Outcome {
	case outcomeBusy, outcomeStandby, outcomeGranted:
	default:
		return "", fmt.Errorf("%w: unknown answer %q", ErrNoAdvisoryLocks, row.Outcome)
	}
	s.pid = row.Pid
	if row.LeaderPid != 0 {
		e.saw(ctx, row.LeaderPid, row.LeaderID)
	}
	return row.Outcome, nil
}

// confirm verifies a grant and reads the token: nothing else may see the term
// before both are there.
func (e *Elector) confirm(ctx context.Context, s *session) (token int64, err error) {
	holds, err := do(ctx, s, func(ctx context.Context, q *db.Queries) (db.HoldsLockRow, error) { return q.HoldsLock(ctx, e.key) })
	switch {
	case err != nil:
		return 0, fmt.Errorf("elector: verify the lock: %w", err)
	case holds.Pid != s.pid:
		return 0, fmt.Errorf("%w: backend %d granted the lock, then %d answered", ErrSessionPooled, s.pid, holds.Pid)
	case !holds.Held:
		return 0, ErrNoAdvisoryLocks
	}
	high, low := guard(e.key)
	token, err = do(ctx, s, func(ctx context.Context, q *db.Queries) (int64, error) {
		return q.Token(ctx, db.TokenParams{GuardHigh: high, GuardLow: low})
	})
	if err != nil {
		return 0, fmt.Errorf("elector: pass the barrier and read the token (does a fenced transaction of the last term go on?): %w", err)
	}
	return token, nil
}

// saw reports a leader other than the last one seen.
func (e *Elector) saw(ctx context.Context, pid int32, id string) {
	if !e.announcer.seesLeader || e.seen == (sighting{pid, id}) {
		return
	}
	e.announcer.post(e.announcer.leaderChanged(ctx, hooks.LeaderChanged{Previous: e.seen.id, Current: id, PID: pid}))
	e.seen = sighting{pid, id}
}

// sighting is the leader that was last seen.
type sighting struct {
	pid int32
	id  string
}
