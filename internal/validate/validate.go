// Package validate asks pg_locks, at an interval of its own, whether a session still holds its locks.
package validate

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/session"
)

const (
	share      = 2000 // of the time, one part is spent on answers
	everyBeats = 10   // a validation comes with so many heartbeats at the latest
)

// A Check compares a lock with the keys of all that the server says its session holds. It is called
// on a goroutine of the session.
type Check func(held map[int64]bool)

// A Part validates the locks of each session in session scope, all by one statement. In transaction
// scope each heartbeat proves that they are held.
type Part struct {
	session.NoPart
	every   time.Duration                     // 0: never
	checks  func(on *session.Session) []Check // of those that lead on it; a session with none is not validated
	inForce atomic.Int64                      // the time from the last validation to the next one; 0 before the first
	runs    session.PerSession[run]
}

// A run is the validations of one session.
type run struct {
	beats atomic.Int32  // heartbeats since the last validation
	due   chan struct{} // receives when the next one must not be put off any longer
}

// New makes the part.
func New(every time.Duration, checks func(on *session.Session) []Check) *Part {
	return &Part{every: every, checks: checks}
}

// InForce is the interval in force on sessions with that heartbeat interval; 0 if there are no validations.
func (p *Part) InForce(heartbeat time.Duration) time.Duration {
	if p.every == 0 {
		return 0
	}
	return min(max(p.every, time.Duration(p.inForce.Load())), everyBeats*heartbeat)
}

func (p *Part) Lent(_ context.Context, _ *session.Source, s *session.Session) error {
	if r := p.runs.Of(s); p.every > 0 && r.due == nil { // a session in a transaction is lent twice
		r.due = make(chan struct{}, 1)
		s.Along(func() { p.run(s, r) })
	}
	return nil
}

func (p *Part) Beat(s *session.Session, _ session.Beat) error {
	if r := p.runs.Of(s); r.due != nil && r.beats.Add(1) >= everyBeats {
		select {
		case r.due <- struct{}{}:
		default:
		}
	}
	return nil
}

// run validates the locks of a session until it ends.
func (p *Part) run(s *session.Session, r *run) {
	if s.InTransaction() {
		return
	}
	p.inForce.Store(0)
	for next := p.every; ; {
		select {
		case <-s.Context().Done():
			return
		case <-r.due:
		case <-time.After(next):
		}
		if checks := p.checks(s); len(checks) > 0 {
			began := time.Now()
			validate(s, checks)
			r.beats.Store(0)
			next = max(p.every, share*time.Since(began))
			p.inForce.Store(int64(next))
		}
	}
}

// validate asks once. An error says nothing of the locks. If the session may be lost, a heartbeat decides.
func validate(s *session.Session, checks []Check) {
	keys, err := session.Ask(s.Context(), session.Quiet(s), (*db.Queries).HeldLocks, s.PID())
	if session.IsSuspicious(err) {
		s.HeartbeatNow()
	}
	if err != nil {
		return
	}
	held := make(map[int64]bool, len(keys))
	for _, key := range keys {
		held[key] = true
	}
	for _, check := range checks {
		check(held)
	}
}
