// Package listen notices the loss of a session at once: between two statements it waits on the
// session's connection, where the driver permits that.
package listen

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"time"

	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/live"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
)

// A Part listens on each session that is kept alive, if a check has found that it can.
type Part struct {
	election.NoPart
	Deaf func() error // why the source's connections cannot be waited on; nil if they can
}

// Started listens on the session. A loss ends the session, and makes the other sessions of the pool ask at once.
func (p Part) Started(s *election.Session) {
	if p.Deaf() != nil {
		return
	}
	go backoff.Apart(func() {
		if s.Listen(s.Context(), wait) {
			live.Suspect(s.Source().Pool())
		}
	})()
}

// wait is a pin.Wait.
func wait(ctx context.Context, conn any) error {
	w, err := waiterOf(conn)
	if err != nil {
		return err
	}
	return w.WaitForEnd(ctx)
}

// Before makes a trial on a connection that holds nothing, and then calls ask on it: the answer to ask, which
// is needed in any case, shows whether the connection has outlived the trial. deaf says why such connections
// cannot be waited on; nil if they can. A trial that fails costs a connection, and nothing else: err is the error of ask. with
// calls a function with a connection, and closes the connection if the function returns an error.
func Before(ctx context.Context, with func(func(*pin.Conn) error) error, ask func(*pin.Conn) error) (deaf, err error) {
	waited := false
	err = with(func(c *pin.Conn) error {
		var spoilt bool
		deaf, spoilt = try(ctx, c)
		if waited = spoilt || deaf == nil; spoilt {
			return deaf
		}
		return ask(c)
	})
	switch {
	case err == nil || !waited || pgerr.OfStatement(err) || ctx.Err() != nil:
		return deaf, err
	case errors.Is(deaf, errEndless): // needs no other witness, and takes long
		return deaf, with(ask)
	}
	return again(ctx, with, ask)
}

// again makes a trial on another connection, and calls ask before and after the trial: the first connection
// may have been dead before its trial.
func again(ctx context.Context, with func(func(*pin.Conn) error) error, ask func(*pin.Conn) error) (deaf, err error) {
	err = with(func(c *pin.Conn) error {
		if err := ask(c); err != nil {
			return err
		}
		if deaf, _ = try(ctx, c); deaf != nil {
			return deaf
		}
		if err := ask(c); err != nil {
			deaf = fmt.Errorf("%w: one did not outlive a trial: %w", pin.ErrDeaf, err)
		}
		return deaf
	})
	if deaf != nil && ctx.Err() == nil { // so ask was answered
		return deaf, nil
	}
	return nil, err
}

// trialBound is how long one wait of a trial may take to end. A driver that needs longer would delay each
// statement.
const trialBound = 500 * time.Millisecond

var errEndless = fmt.Errorf("%w: a wait did not end within %v of its deadline", pin.ErrDeaf, trialBound)

// readBegins is how long a Read gets to begin, so that the deadline must end one that has begun.
const readBegins = 5 * time.Millisecond

// try finds out whether the connection can be waited on. A wait must end if it is told to end before it begins,
// and if it is told so afterwards. deaf says why the connection cannot be waited on, and wraps pin.ErrDeaf. If
// spoilt, the connection must be discarded.
func try(ctx context.Context, c *pin.Conn) (deaf error, spoilt bool) {
	for pause := time.Duration(0); ; {
		began := time.Now()
		w, err := tryOnce(ctx, c, pause)
		if err != nil {
			return pgerr.Wrap(pin.ErrDeaf, err), w != nil
		}
		if _, ok := w.(pgxConn); !ok || pause > 0 { // others hear of the end by a context
			return nil, false
		}
		pause = min(max(readBegins, 10*time.Since(began)), trialBound) // a busy machine takes longer
	}
}

// tryOnce waits once, and ends the wait after the pause. It returns what was waited on, nil if nothing was.
func tryOnce(ctx context.Context, c *pin.Conn, pause time.Duration) (w waiter, err error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	if pause == 0 {
		cancel()
	}
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
	if w = <-found; w != nil {
		time.Sleep(pause)
	}
	cancel()
	select {
	case err := <-ended:
		return w, err
	case <-time.After(trialBound):
	}
	if w, ok := w.(io.Closer); ok { // or the connection could not be discarded
		_ = w.Close()
	}
	return w, errEndless
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

// pgxStdlib is the package of the only driver whose connections are called by reflection.
const pgxStdlib = "github.com/jackc/pgx/v5/stdlib"

// A pgxConn is a connection of pgx.
type pgxConn struct {
	wait func([]reflect.Value) []reflect.Value // pgx.Conn.WaitForNotification
	net  net.Conn
}

// pgxOf returns the connection of pgx that the driver's connection is, or nil. It imports
// nothing, and names each method by a constant: with a variable the linker would keep every
// method of the program.
func pgxOf(conn any) waiter {
	v := reflect.ValueOf(conn)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Type().Elem().PkgPath() != pgxStdlib {
		return nil
	}
	return waiterBelow(v)
}

// waiterBelow returns the connection of pgx below that of its stdlib, or nil if a version of pgx has other methods.
func waiterBelow(v reflect.Value) waiter {
	own, ok := resultOf(v.MethodByName("Conn"))
	if !ok {
		return nil
	}
	pg, ok := resultOf(own.MethodByName("PgConn"))
	if !ok {
		return nil
	}
	wire, ok := pg.Interface().(interface{ Conn() net.Conn })
	// Not the method of PgConn, which leaves each notification in the buffer of pgx.Conn.
	wait := own.MethodByName("WaitForNotification")
	if !ok || !wait.IsValid() || wait.Type().NumIn() != 1 || wait.Type().In(0) != reflect.TypeFor[context.Context]() ||
		wait.Type().NumOut() != 2 || wait.Type().Out(1) != reflect.TypeFor[error]() {
		return nil
	}
	return pgxConn{wait.Call, wire.Conn()}
}

// resultOf calls a method without arguments that returns a pointer.
func resultOf(method reflect.Value) (result reflect.Value, ok bool) {
	if !method.IsValid() || method.Type().NumIn() != 0 || method.Type().NumOut() != 1 || method.Type().Out(0).Kind() != reflect.Pointer {
		return result, false
	}
	result = method.Call(nil)[0]
	return result, !result.IsNil()
}

// Close closes the network connection below pgx, and so ends a wait.
func (c pgxConn) Close() error { return c.net.Close() }

// WaitForEnd ends the wait by a deadline, not by the context of the call: the user's
// configuration of pgx decides what the end of a context does, and it may cost the connection
// or send a cancel request.
func (c pgxConn) WaitForEnd(ctx context.Context) (err error) {
	if err := c.net.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("%w: their network connection knows no deadlines: %w", pin.ErrDeaf, err)
	}
	defer c.endBy(ctx)()
	background := []reflect.Value{reflect.ValueOf(context.Background())}
	for {
		err, _ = c.wait(background)[1].Interface().(error)
		var network net.Error
		switch {
		case err == nil && ctx.Err() == nil: // a notification
		case err == nil:
			return nil
		case !errors.As(err, &network) || !network.Timeout():
			return err
		case ctx.Err() == nil: // another deadline than ours
			return fmt.Errorf("%w: their network connection has deadlines of its own: %w", pin.ErrDeaf, err)
		default:
			return nil
		}
	}
}

// endBy ends the wait by a deadline when ctx is done. A network connection may set a deadline of its own
// as a Read begins, which overwrites ours: so ours is set again until the wait has returned.
func (c pgxConn) endBy(ctx context.Context) (returned func()) {
	over, set := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(set)
		for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
			_ = c.net.SetReadDeadline(time.Unix(1, 0))
			select {
			case <-over:
				return
			case <-time.After(pause):
			}
		}
	})
	return func() {
		close(over)
		if !stop() {
			<-set
			_ = c.net.SetReadDeadline(time.Time{})
		}
	}
}
