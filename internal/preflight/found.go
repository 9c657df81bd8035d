package preflight

import (
	"errors"
	"sync/atomic"

	"github.com/pgelector/pgelector/internal/holder"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/seat"
)

// A Scope is what the check has found of a pool: whether elections are led inside transactions, and whether its connections can be
// waited on. Any goroutine may call the exported methods.
type Scope struct {
	Chosen    holder.Scope // Auto: SessionScope, unless shared backends are found
	inside    atomic.Bool
	suspected atomic.Bool           // a check had passed, and session scope does not work
	standby   atomic.Bool           // the last check has met connections to a standby
	deaf      atomic.Pointer[error] // why connections cannot be waited on; nil until tried
}

// NewScope makes the scope before the first check.
func NewScope(chosen holder.Scope) *Scope {
	s := &Scope{Chosen: chosen}
	s.inside.Store(chosen == holder.TransactionScope)
	return s
}

// A finding is the result of a check that the server has passed.
type finding struct {
	inTransaction bool  // in transaction scope
	deaf          error // why the driver's connections cannot be waited on; nil if they can
	metStandby    bool  // other connections of the pool led to a standby
	pooled        bool  // in transaction scope because of a pooler
}

// InTransaction reports whether sessions have their locks inside transactions.
func (s *Scope) InTransaction() bool { return s.inside.Load() }

func (s *Scope) passed(found finding) {
	s.inside.Store(found.inTransaction)
	s.deaf.Store(&found.deaf)
	s.standby.Store(found.metStandby)
}

// MetStandby reports whether the last check has met connections to a standby: the pool may lead there in turn.
func (s *Scope) MetStandby() bool { return s.standby.Load() }

// errUnchecked is why a session is not listened on before the first check of its server.
var errUnchecked = errors.New("elector: the server has not been checked yet")

// ListensForLoss returns nil if the connections of sessions are waited on between two
// statements, so that their loss is known at once. Otherwise it says why they cannot be: then
// the loss is looked for each 250 ms.
func (s *Scope) ListensForLoss() error {
	if why := s.deaf.Load(); why != nil {
		return *why
	}
	return errUnchecked
}

// Suspect makes the next check try transaction scope, if err shows what the last check missed:
// a session was moved to another backend, or locks of sessions are stubs. The campaign, or a session that ends, calls it.
func (s *Scope) Suspect(err error) {
	if s.Chosen == holder.Auto && (errors.Is(err, seat.ErrStubs) || errors.Is(err, pgerr.ErrSessionPooled) && !errors.Is(err, pgerr.ErrMixedUp)) {
		s.suspected.Store(true)
	}
}
