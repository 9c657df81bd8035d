package session

import (
	"errors"

	"github.com/pgelector/pgelector/internal/pgerr"
)

// errClosed ends a session that its owner has closed.
var errClosed = errors.New("elector: the session was closed")

// errTransactionOver is of a session whose transaction has ended on the server.
var errTransactionOver = errors.New("elector: the transaction that held the lock has ended on the server")

// errTwoServers is of a transaction whose locks another connection of the pool does not see.
var errTwoServers = errors.New("elector: the pool leads to two servers, and only one of them has the lock: " +
	"is an address moving in a failover, or does it lead to several primaries?")

// errLifeTaken is of a session that cannot take the lock by which others know it.
var errLifeTaken = errors.New("elector: another session holds the lock by which this one is known: does a stranger use this database?")

// CheckOutside returns an error if a statement has found the connection inside a
// transaction of other code.
func (s *Session) CheckOutside(inTransaction bool) error {
	if !inTransaction || s.inside {
		return nil
	}
	s.pin.Taint()
	return pgerr.ErrOpenTransaction
}

// TimedOut reports whether err says that a call has taken longer than the validity.
func (s *Session) TimedOut(err error) bool { return errors.Is(err, s.errTimeout) }

// refusesSetting reports whether the server refused a session setting, and not the
// session: an invalid value, a lack of rights, one that cannot be changed now, one that is
// not supported, or an unknown name.
func refusesSetting(err error) bool {
	if errors.Is(err, pgerr.ErrServerReadOnly) {
		return false
	}
	switch pgerr.State(err) {
	case "22023", "42501", "55P02", "0A000", "42704":
		return true
	}
	return false
}
