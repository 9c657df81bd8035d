package session

import (
	"errors"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/internal/pgerr"
)

// errClosed ends a session that its owner has closed.
var errClosed = errors.New("elector: the session was closed")

// CheckOutside returns an error if a statement has found the connection inside a
// transaction of other code.
func (s *Session) CheckOutside(inTransaction bool) error {
	if !inTransaction || s.InTransaction() {
		return nil
	}
	s.pin.Taint()
	return pgerr.ErrOpenTransaction
}

// A timeout is returned for a call that takes longer than the validity.
type timeout struct{ validity time.Duration }

func (t timeout) Error() string { return fmt.Sprintf("%v within %v", pgerr.ErrNoAnswer, t.validity) }
func (timeout) Unwrap() error   { return pgerr.ErrNoAnswer }

// TimedOut reports whether err says that a call of a session that is not started has taken longer than
// the validity.
func TimedOut(err error) bool {
	var t timeout
	return errors.As(err, &t)
}

// Timeout is the cause of a context that ends a call which takes longer than the validity.
func (s *Session) Timeout() error {
	if s.IsStarted() { // there is a lease
		return pgerr.ErrLeaseExpired
	}
	return timeout{s.Proof.Lease.Validity()}
}
