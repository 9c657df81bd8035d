package elector

import (
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/internal/session"
	"github.com/pgelector/pgelector/internal/validate"
)

// validation is the part of an elector, whose last term is the given one.
func validation(every time.Duration, term *atomic.Pointer[Term]) *validate.Part {
	return validate.New(every, func(s *session.Session) bool { return term.Load().isOn(s) },
		func(s *session.Session, held map[int64]bool) { term.Load().validate(s, held) })
}

// isOn reports whether the term is of that session. There may be no term.
func (t *Term) isOn(s *session.Session) bool { return t != nil && t.lock.Session == s }

// validate receives the keys of the locks that the server shows of a session. A term whose lock it does
// not show verifies it: the lock may have been released meanwhile.
func (t *Term) validate(s *session.Session, held map[int64]bool) {
	if t.isOn(s) && !held[t.key] && t.begin() { // the lock is not released meanwhile
		defer t.work.Finish()
		_ = t.lock.Verify(t.ctx) // which ends the session if the lock is gone
	}
}
