package elector

import (
	"slices"

	"github.com/pgelector/pgelector/internal/session"
)

// validated receives the keys of the locks that the server shows of a session. A term of that session
// whose lock it does not show verifies it: it may have been released meanwhile.
func (e *Elector) validated(s *session.Session, held map[int64]bool) {
	if e.leadsOn(s) && !held[e.key] {
		e.term.Load().check()
	}
}

func (e *Elector) leadsOn(s *session.Session) bool {
	t := e.term.Load()
	return t != nil && t.lock.Session == s
}

// check is Verify, without an answer. The lock is not released meanwhile.
func (t *Term) check() {
	if t.begin() {
		defer t.work.Finish()
		_ = t.lock.Verify(t.ctx) // which ends the session if the lock is gone
	}
}

// validated is that of each elector.
func (s *Session) validated(on *session.Session, held map[int64]bool) {
	for _, e := range s.all() {
		e.validated(on, held)
	}
}

func (s *Session) leadsOn(on *session.Session) bool {
	return slices.ContainsFunc(s.all(), func(e *Elector) bool { return e.leadsOn(on) && e.IsLeader() })
}
