package elector

import (
	"time"

	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/validate"
)

// validation is the part of a session. last returns the last term of each of its electors, or nil.
func validation(every time.Duration, last func() []*Term) *validate.Part {
	return validate.New(every, func(on *election.Session) (checks []validate.Check) {
		for _, t := range last() {
			if t != nil && t.Valid() && t.lock.Session() == on {
				checks = append(checks, t.validate)
			}
		}
		return checks
	})
}

// validate verifies a lock that the server does not show: it may have been released meanwhile.
func (t *Term) validate(held map[int64]bool) {
	if !held[t.key] && t.term.Begin() { // the lock is not released meanwhile
		defer t.term.Finish()
		ctx, stop := backoff.Detach(t.ctx)
		defer stop()
		_ = t.lock.Verify(ctx) // which ends the session if the lock is gone
	}
}
