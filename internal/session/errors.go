package session

import (
	"errors"

	"github.com/pgelector/pgelector/internal/pgerr"
)

// errClosed ends a session that its owner has closed.
var errClosed = errors.New("elector: the session was closed")

// ErrTransactionOver is returned when the session's transaction has ended on the server.
var ErrTransactionOver = errors.New("elector: the transaction that held the lock has ended on the server")

// ErrTwoServers is returned when another connection of the pool does not see the transaction's locks.
var ErrTwoServers = errors.New("elector: the pool leads to two servers, and only one of them has the lock: " +
	"is an address moving in a failover, or does it lead to several primaries?")

// CheckOutside returns an error if a statement has found the connection inside a
// transaction of other code.
func (s *Session) CheckOutside(inTransaction bool) error {
	if !inTransaction || s.tx.inside {
		return nil
	}
	s.pin.Taint()
	return pgerr.ErrOpenTransaction
}

// TimedOut reports whether err says that a call has taken longer than the validity.
func (s *Session) TimedOut(err error) bool { return errors.Is(err, s.errTimeout) }

// ErrNameTaken is returned when a session cannot take a lock by which others know it.
var ErrNameTaken = errors.New("elector: another session holds the lock by which this one is known: does a stranger use this database?")
