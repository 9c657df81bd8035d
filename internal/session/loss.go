package session

import (
	"context"
	"errors"

	"github.com/pgelector/pgelector/db"
)

// errUnchecked is returned for a driver before the first check of its server.
var errUnchecked = errors.New("elector: the server has not been checked yet")

// ListensForLoss returns nil if the connections of sessions are waited on between two
// statements, so that their loss is known at once. Otherwise it says why they cannot be: then
// the loss is looked for each 250 ms. It may be called from any goroutine.
func (from *Source) ListensForLoss() error {
	if why := from.deaf.Load(); why != nil {
		return *why
	}
	return errUnchecked
}

// TryListening finds out whether connections can be waited on, on one that holds nothing. deaf
// says why they cannot be.
func (from *Source) TryListening(ctx context.Context) (deaf, err error) {
	if why := from.deaf.Load(); why != nil {
		return *why, nil
	}
	err = from.LendIn(ctx, false, func(s *Session) (err error) {
		deaf, err = s.pin.TryListening(ctx)
		return err
	})
	if deaf != nil { // whatever became of that connection
		err = nil
	}
	return deaf, err
}

// listen has the end of the session's connection noticed at once, if it can be waited on. One
// loss has the other sessions of the pool ask at once.
func (from *Source) listen(s *Session) {
	if from.ListensForLoss() != nil {
		return
	}
	go s.pin.Listen(s.life.ctx, func(err error) {
		s.life.cancel(s.causeOf(err))
		Suspect(from.pool)
	})
}

// lookForLoss sends an empty statement, unless the connection is waited on, or used: so a
// session that the server has ended is noticed before the next heartbeat.
func (s *Session) lookForLoss() error {
	if s.pin.IsBusy() {
		return nil
	}
	_, err := Quiet(s).Call(s.life.ctx, func(ctx context.Context, _ *db.Queries) error { return s.pin.Ping(ctx) }, nil)
	return s.causeOf(err)
}

// PingDriver sends a statement that no driver prepares.
func (s *Session) PingDriver(ctx context.Context) error {
	_, err := s.call(ctx, true, func(ctx context.Context, _ *db.Queries) error { return s.pin.Ping(ctx) }, nil)
	return err
}
