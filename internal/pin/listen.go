package pin

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"sync"
	"time"
)

// PostgreSQL tells a client why it ends its session before it frees the session's locks. So
// between two calls the connection is waited on: what the server says is read at once, and not
// with the next statement.
//
// The lock order: the one who waits holds the call slot, and inside sql.Conn.Raw the mutex of
// the driver's connection. Whoever wants the slot first ends the wait (ear.interrupt), then
// queues for the slot. Nobody may use the *sql.Conn without the slot: it would wait for the
// mutex, and nobody would end the wait.

// ErrDeaf is returned when a driver's connection cannot be waited on. The message says why.
var ErrDeaf = errors.New("elector: this driver's connections cannot be waited on")

// A waiter is a driver's connection that can be waited on. Drivers of tests implement it;
// waiterOf makes one of pgx's.
type waiter interface {
	// WaitForEnd waits until ctx is done, and then returns nil and leaves the connection as
	// it was; or until the connection has ended, and returns why. What arrives meanwhile is
	// read and dropped.
	WaitForEnd(ctx context.Context) error
}

// An ear is the wait of a connection, and who wants it to end.
type ear struct {
	mu     sync.Mutex
	wanted int                // those who want the call slot
	quiet  chan struct{}      // closed when nobody wants it any more; nil while nobody does
	stop   context.CancelFunc // ends the wait; nil while nobody waits
}

// interrupt ends the wait, and lets none begin until done is called.
func (e *ear) interrupt() (done func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.wanted++; e.wanted == 1 {
		e.quiet = make(chan struct{})
	}
	if e.stop != nil {
		e.stop()
	}
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.wanted--; e.wanted == 0 {
			close(e.quiet)
			e.quiet = nil
		}
	}
}

// begin begins a wait, unless somebody wants the slot. Then quiet is closed when nobody does.
func (e *ear) begin(ctx context.Context) (waiting context.Context, quiet <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.wanted > 0 {
		return nil, e.quiet
	}
	waiting, e.stop = context.WithCancel(ctx)
	return waiting, nil
}

// end ends what begin has begun.
func (e *ear) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stop()
	e.stop = nil
}

// Listen waits on the connection between the calls until ctx is done. If the connection ends
// before, Listen calls lost with what the server said, or how the connection broke. If it
// cannot be waited on, Listen returns, and calls nobody.
func (c *Conn) Listen(ctx context.Context, lost func(error)) {
	for {
		select {
		case c.slot <- struct{}{}:
		case <-ctx.Done():
			return
		}
		waiting, quiet := c.ear.begin(ctx)
		var err error
		if quiet == nil {
			err = c.withWaiter(func(w waiter) error { return w.WaitForEnd(waiting) })
			c.ear.end()
		}
		if err != nil && !errors.Is(err, ErrDeaf) && ctx.Err() == nil {
			c.broken.Store(true)
			lost(err)
		}
		<-c.slot
		if err != nil {
			return
		}
		if quiet != nil {
			select {
			case <-quiet:
			case <-ctx.Done():
				return
			}
		}
	}
}

// withWaiter calls fn with the driver's connection. The slot is held. An error, or a panic,
// in the function of Raw would cost the connection.
func (c *Conn) withWaiter(fn func(waiter) error) (err error) {
	raw := c.conn.Raw(func(conn any) error {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("elector: the driver panicked while its connection was waited on: %v", p)
			}
		}()
		var w waiter
		if w, err = waiterOf(conn); err == nil {
			err = fn(w)
		}
		return nil
	})
	return cmp.Or(err, raw)
}

// trialBound is how long a trial may take. A driver that needs longer to end a wait would
// delay each statement.
const trialBound = 500 * time.Millisecond

// TryListening finds out whether the connection can be waited on. deaf says why it cannot be,
// and wraps ErrDeaf. After another error, too, the connection must be discarded.
func (c *Conn) TryListening(ctx context.Context) (deaf, err error) {
	if err := c.takeSlot(ctx); err != nil {
		return nil, err
	}
	defer func() { <-c.slot }()
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	found, ended := make(chan waiter, 1), make(chan error, 1)
	go func() {
		defer close(found)
		ended <- c.withWaiter(func(w waiter) error {
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
		if errors.Is(err, ErrDeaf) {
			return err, nil
		}
		return nil, err
	case <-time.After(trialBound):
	}
	if w, ok := w.(io.Closer); ok { // or the connection could not be discarded
		_ = w.Close()
	}
	err = fmt.Errorf("%w: a wait did not end within %v of its deadline", ErrDeaf, trialBound)
	return err, err
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
			return nil, fmt.Errorf("%w: they are of type %T", ErrDeaf, conn)
		}
	}
	return nil, fmt.Errorf("%w: more than %d wrappers are around them", ErrDeaf, maxWrappers)
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
		return fmt.Errorf("%w: their network connection knows no deadlines: %w", ErrDeaf, err)
	}
	set := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(set)
		_ = c.net.SetReadDeadline(time.Unix(1, 0))
	})
	defer func() {
		if !stop() {
			<-set
			_ = c.net.SetReadDeadline(time.Time{})
		}
	}()
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
			return fmt.Errorf("%w: their network connection has deadlines of its own: %w", ErrDeaf, err)
		default:
			return nil
		}
	}
}
