package pin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
)

// PostgreSQL tells a client why it ends its session before it frees the session's locks. So
// between two calls the connection can be waited on: what the server says is read at once, and
// not with the next statement.
//
// The lock order: the one who waits holds the call slot, and inside sql.Conn.Raw the mutex of
// the driver's connection. Whoever wants the slot first ends the wait (ear.interrupt), then
// queues for the slot. Nobody may use the *sql.Conn without the slot: it would wait for the
// mutex, and nobody would end the wait.

// A Wait waits on a driver's connection until ctx is done, and then returns nil and leaves the
// connection as it was; or until the connection has ended, and returns why.
type Wait = func(ctx context.Context, conn any) error

// ErrDeaf is returned when a driver's connection cannot be waited on. The message says why.
var ErrDeaf = errors.New("elector: this driver's connections cannot be waited on")

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
func (c *Conn) Listen(ctx context.Context, wait Wait, lost func(error)) {
	for {
		select {
		case c.slot <- struct{}{}:
		case <-ctx.Done():
			return
		}
		waiting, quiet := c.ear.begin(ctx)
		var err error
		if quiet == nil {
			err = c.raw(func(conn any) error { return wait(waiting, conn) })
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

// Raw calls fn with the driver's connection when earlier calls are answered.
func (c *Conn) Raw(ctx context.Context, fn func(conn any) error) error {
	if err := c.takeSlot(ctx); err != nil {
		return err
	}
	defer func() { <-c.slot }()
	return c.raw(fn)
}

// raw is Raw for one who holds the slot. An error, or a panic, in the function of sql.Conn.Raw
// would cost the connection.
func (c *Conn) raw(fn func(conn any) error) (err error) {
	failed := c.conn.Raw(func(conn any) error {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("%w: the driver, or a wrapper around it, panicked: %v", ErrDeaf, p)
			}
		}()
		err = fn(conn)
		return nil
	})
	return cmp.Or(err, failed)
}
