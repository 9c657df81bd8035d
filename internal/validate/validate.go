// Package validate asks pg_locks, at an interval of its own, whether a session still holds its locks.
package validate

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/live"
	"github.com/pgelector/pgelector/internal/transaction"
)

// EveryBeats is the number of heartbeats after which a validation comes at the latest.
const EveryBeats = 10

const (
	share   = 2000 // validations take one part in so many of the server's time
	samples = 3    // the quickest of so many last answers counts: a server may be busy for a moment
)

// A Check compares a lock with the keys of all that the server says its session holds. It is called
// on a goroutine of the session.
type Check func(held map[int64]bool)

// A Part validates the locks of each session in session scope, all by one statement. In transaction
// scope each heartbeat proves that they are held.
type Part struct {
	election.NoPart
	every   time.Duration                      // 0: never
	checks  func(on *election.Session) []Check // of the terms on the session; a session without checks is not validated
	inForce atomic.Int64                       // the time from the last validation to the next one; 0 before the first
	runs    election.PerSession[run]
}

// A run is the validations of one session.
type run struct {
	beats atomic.Int32    // heartbeats since the last validation
	due   chan struct{}   // receives when the next one must not be put off any longer
	spent []time.Duration // by the server, on the last answers
}

// New makes the part.
func New(every time.Duration, checks func(on *election.Session) []Check) *Part {
	return &Part{every: every, checks: checks}
}

// InForce is the interval in force on sessions with that heartbeat interval; 0 if there are no validations.
func (p *Part) InForce(heartbeat time.Duration) time.Duration {
	if p.every == 0 {
		return 0
	}
	return min(max(p.every, time.Duration(p.inForce.Load())), EveryBeats*heartbeat)
}

// Started begins to validate.
func (p *Part) Started(s *election.Session) {
	if r := p.runs.Of(s); p.every > 0 && !transaction.IsOf(s) {
		r.due = make(chan struct{}, 1)
		s.Go(func() { p.run(s, r) })
	}
}

func (p *Part) Beat(s *election.Session, _ election.Beat) error {
	if r := p.runs.Of(s); r.due != nil && r.beats.Add(1) >= EveryBeats {
		select {
		case r.due <- struct{}{}:
		default:
		}
	}
	return nil
}

// run validates the locks of a session until it ends.
func (p *Part) run(s *election.Session, r *run) {
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
			spent, answered := validate(s, checks)
			r.beats.Store(0)
			waited := time.Since(began)
			if !answered {
				spent = waited
			}
			pace := max(p.every, r.pace(min(spent, waited)), 2*waited) // others want the connection, too
			p.inForce.Store(int64(pace))
			next = pace - waited
		}
	}
}

// pace returns the time between two validations, so that validations take their share of the server's time.
func (r *run) pace(spent time.Duration) time.Duration {
	r.spent = append(r.spent, spent)
	r.spent = r.spent[max(0, len(r.spent)-samples):]
	return share * slices.Min(r.spent)
}

// validate asks once. It returns the time that the server spent on the answer. An error says nothing about the
// locks. If the session may be lost, a heartbeat decides.
func validate(s *election.Session, checks []Check) (spent time.Duration, answered bool) {
	rows, err := election.Ask(s.Context(), s, (*db.Queries).ValidateLocks, s.PID())
	if live.IsSuspicious(err) {
		s.HeartbeatNow()
	}
	if err != nil {
		return 0, false
	}
	held := make(map[int64]bool, len(rows))
	for _, row := range rows {
		held[row.Key] = true
		spent = max(spent, time.Duration(row.SpentMicros)*time.Microsecond)
	}
	for _, check := range checks {
		check(held)
	}
	return spent, len(rows) > 0
}
