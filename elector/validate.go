package elector

import (
	"time"

	"github.com/pgelector/pgelector/internal/session"
	"github.com/pgelector/pgelector/internal/validate"
)

// validation is the part of a session, whose electors all returns.
func validation(every time.Duration, all func() []*Elector) *validate.Part {
	return validate.New(every, func(on *session.Session) (checks []validate.Check) {
		for _, e := range all() {
			if t, leading := e.Term(); leading && t.lock.Session == on {
				checks = append(checks, t.validate)
			}
		}
		return checks
	})
}

// validate verifies a lock that the server does not show: it may have been released meanwhile.
func (t *Term) validate(held map[int64]bool) {
	if !held[t.key] && t.begin() { // the lock is not released meanwhile
		defer t.work.Finish()
		_ = t.lock.Verify(t.ctx) // which ends the session if the lock is gone
	}
}
