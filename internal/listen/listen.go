// Package listen has the loss of a session noticed at once: between two statements its connection
// is waited on, where the driver permits that.
package listen

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/pgelector/pgelector/internal/pin"
	"github.com/pgelector/pgelector/internal/session"
)

// A Part listens on each session that is kept alive, if a check has found that it can.
type Part struct{ session.NoPart }

// Started has the loss end the session, and the other sessions of the pool ask at once.
func (Part) Started(from *session.Source, s *session.Session) {
	if from.ListensForLoss() != nil {
		return
	}
	go s.Pin().Listen(s.Context(), wait, func(err error) {
		s.Broke(err)
		session.Suspect(from.Pool())
	})
}

// wait is a pin.Wait.
func wait(ctx context.Context, conn any) error {
	w, err := waiterOf(conn)
	if err != nil {
		return err
	}
	return w.WaitForEnd(ctx)
}

// Try finds out whether the connections of a source can be waited on, on one that holds nothing. deaf
// says why they cannot be.
func Try(ctx context.Context, from *session.Source) (deaf, err error) {
	if why := from.ListensForLoss(); !errors.Is(why, session.ErrUnchecked) {
		return why, nil
	}
	err = from.LendIn(ctx, false, func(s *session.Session) (err error) {
		deaf, err = try(ctx, s.Pin())
		return err
	})
	if deaf != nil { // whatever became of that connection
		err = nil
	}
	return deaf, err
}

// trialBound is how long a trial may take. A driver that needs longer to end a wait would
// delay each statement.
const trialBound = 500 * time.Millisecond

// try finds out whether the connection can be waited on. deaf says why it cannot be, and wraps
// pin.ErrDeaf. After another error, too, the connection must be discarded.
func try(ctx context.Context, c *pin.Conn) (deaf, err error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	found, ended := make(chan waiter, 1), make(chan error, 1)
	go func() {
		defer close(found)
		ended <- c.Raw(ctx, func(conn any) error {
			w, err := waiterOf(conn)
			if err != nil {
				return err
			}
			found <- w
			return w.WaitForEnd(waiting)
		})
	}()
	w := <-found
	if _, ok := w.(pgxConn); ok {
		time.Sleep(time.Millisecond) // so that the deadline must end a read that has begun
	}
	cancel()
	select {
	case err := <-ended:
		if errors.Is(err, pin.ErrDeaf) {
			return err, nil
		}
		return nil, err
	case <-time.After(trialBound):
	}
	if w, ok := w.(io.Closer); ok { // or the connection could not be discarded
		_ = w.Close()
	}
	err = fmt.Errorf("%w: a wait did not end within %v of its deadline", pin.ErrDeaf, trialBound)
	return err, err
}

// A waiter is a driver's connection that can be waited on. Drivers of tests implement it;
// waiterOf makes one of pgx's.
type waiter interface {
	// WaitForEnd is a pin.Wait. What arrives meanwhile is read and dropped.
	WaitForEnd(ctx context.Context) error
}

// maxWrappers bounds how many wrappers of a driver are opened.
const maxWrappers = 8

// waiterOf finds the connection that can be waited on, below what wraps it.
func waiterOf(conn any) (waiter, error) {
	for range maxWrappers {
		if w, ok := conn.(waiter); ok {
			return w, nil
		}
		if w := pgxOf(conn); w != nil {
			return w, nil
		}
		switch wrapper := conn.(type) {
		case interface{ Raw() driver.Conn }:
			conn = wrapper.Raw()
		case interface{ Unwrap() driver.Conn }:
			conn = wrapper.Unwrap()
		case interface{ WrappedConn() driver.Conn }:
			conn = wrapper.WrappedConn()
		default:
			return nil, fmt.Errorf("%w: they are of type %T", pin.ErrDeaf, conn)
		}
	}
	return nil, fmt.Errorf("%w: more than %d wrappers are around them", pin.ErrDeaf, maxWrappers)
}
