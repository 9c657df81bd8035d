// Package pin is one connection of a *sql.DB, pinned. It makes one call at a time and trusts
// none to return, it lets a part wait on the connection between calls, and it never gives back to
// the pool what was changed. It knows no lease and no lock, and it alone touches a *sql.Conn.
package pin

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// CloseGrace is how long a driver gets to close a connection before it is abandoned.
const CloseGrace = time.Second

// SendGrace is how long a call under way gets to send its statement before it is cancelled. A
// driver that has sent nothing reports driver.ErrBadConn although its connection lives.
// database/sql then closes it as it is, and a pool below database/sql uses it again.
const SendGrace = 50 * time.Millisecond

// A Call asks the server something by the statements of q.
type Call = func(ctx context.Context, q *db.Queries) error

// A Conn is one pinned connection. It ends in one of two ways. GiveBack returns it to the
// pool, and is only for one on which nothing was changed. Discard closes it: sql.Conn.Close
// would return it to the pool with its settings and locks.
//
// Call, Listen, Raw, IsBroken, IsBusy and Discard may be called from any goroutine. The other methods are
// for the one who holds the call slot, within Call, or for the only user of the connection.
type Conn struct {
	conn     *sql.Conn
	q        *db.Queries
	tx       *sql.Tx              // in which q asks; nil outside a transaction
	prepared map[string]*sql.Stmt // by their texts
	tainted  bool                 // other code has left a transaction open
	inside   bool                 // all statements are made inside transactions, so nothing stays on the connection

	slot   chan struct{}   // held by the call under way, and for ever by Discard
	ctx    context.Context // of driver calls: done when the connection is given up
	giveUp context.CancelFunc
	broken atomic.Bool // the last call found the connection broken

	ear ear
}

// Take takes a connection from the pool, within that time.
// late reports that the time was over before ctx was.
func Take(ctx context.Context, pool *sql.DB, within time.Duration) (c *Conn, late bool, err error) {
	waitCtx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	answered, stop := context.WithTimeout(ctx, within+CloseGrace) // the driver's error names the host
	defer stop()
	conn, err := backoff.AwaitOr(answered, func(context.Context) (*sql.Conn, error) { return pool.Conn(waitCtx) }, func(conn *sql.Conn) {
		_ = conn.Close() // unused, so the pool may have it back
	})
	if err != nil {
		return nil, ctx.Err() == nil && waitCtx.Err() != nil, pgerr.Connecting(err)
	}
	c = &Conn{conn: conn, q: db.New(conn), prepared: map[string]*sql.Stmt{}, slot: make(chan struct{}, 1)}
	c.ctx, c.giveUp = context.WithCancel(context.Background())
	return c, false, nil
}

// CheckOpen returns an error if the pool is closed. It asks for a connection with a context that is done, so
// it connects to nothing.
func CheckOpen(pool *sql.DB) error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := pool.Conn(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Call makes a call, with the values of ctx, when earlier calls are answered. It waits for the answer until
// ctx is done. Then it returns the cause, and the call goes on: cancelling it would cost the
// connection, because both drivers close one whose context ends. The error of a call wraps ErrOpenTransaction if other code has left
// a transaction open on the connection, and the cause of ctx if ctx is done. late is called if the call succeeds when Call has
// returned; it may be nil.
func (c *Conn) Call(ctx context.Context, call Call, late func()) (answered bool, err error) {
	if err := c.takeSlot(ctx); err != nil {
		return false, err
	}
	within, stop := backoff.Either(context.WithoutCancel(ctx), c.ctx)
	return backoff.Answer(ctx, func() error {
		defer func() { stop(); <-c.slot }()
		outside := c.tx == nil
		err := call(within, c.q)
		if pgerr.IsMissingStatement(err) && outside { // a transaction has failed with it
			err = call(within, c.q) // nothing was executed, and the driver prepares it anew
		}
		c.broken.Store(pgerr.Broken(err))
		if pgerr.State(err) == "25P02" && c.tx == nil { // of other code, and it has failed
			c.tainted = true
			err = pgerr.Wrap(pgerr.ErrOpenTransaction, err)
		}
		return pgerr.CauseOr(ctx, err)
	}, late)
}

// takeSlot waits until earlier calls are answered. It ends the wait for a loss.
func (c *Conn) takeSlot(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	defer c.ear.interrupt()()
	select {
	case c.slot <- struct{}{}:
		return nil
	case <-ctx.Done(): // if another call is stuck
		return context.Cause(ctx)
	}
}

// IsBroken reports whether the last call found the connection broken.
func (c *Conn) IsBroken() bool { return c.broken.Load() }

// Taint records that other code has left a transaction open.
func (c *Conn) Taint() { c.tainted = true }

// StayInside promises that all statements are made inside transactions, so that nothing stays on the connection.
func (c *Conn) StayInside() { c.inside = true }

// StaysInside reports whether StayInside was called.
func (c *Conn) StaysInside() bool { return c.inside }

// IsBusy reports whether a call is under way, or the connection is waited on.
func (c *Conn) IsBusy() bool { return len(c.slot) > 0 }

// Ping sends an empty statement, which no driver prepares. It does so below database/sql, which
// closes a connection whose ping fails, and beside an open transaction would wait for ever.
func (c *Conn) Ping(ctx context.Context) (err error) {
	raw := c.conn.Raw(func(conn any) error {
		switch conn := conn.(type) {
		case driver.Pinger:
			err = conn.Ping(ctx)
		case driver.ExecerContext: // a wrapper may hide Ping, and nil must mean that the server has answered
			_, err = conn.ExecContext(ctx, db.Nothing, nil)
		case driver.Conn: // the least that a driver has
			var statement driver.Stmt
			if statement, err = conn.Prepare(db.Nothing); err == nil {
				err = statement.Close()
			}
		}
		return nil
	})
	return cmp.Or(err, raw)
}

// GiveBack returns the connection, which is in no transaction, to the pool.
func (c *Conn) GiveBack() { _ = c.conn.Close() }

// Discard closes the connection. If a call does not return, the connection is closed when it
// does, and Discard returns false after CloseGrace. clean says that nothing stays on the
// connection outside a transaction, dead that the server may not hear a ROLLBACK.
func (c *Conn) Discard(clean, dead bool) (closed bool) {
	defer c.giveUp()
	ctx, cancel := context.WithTimeout(context.Background(), CloseGrace)
	defer cancel()
	_, err := backoff.Await(ctx, func(context.Context) (any, error) {
		c.ear.interrupt() // for good
		select {
		case c.slot <- struct{}{}:
		case <-time.After(SendGrace):
			c.giveUp() // wakes the call under way, if the driver listens
			c.slot <- struct{}{}
		}
		c.closeForGood(clean, dead)
		return nil, nil
	})
	return err == nil
}

func (c *Conn) closeForGood(clean, dead bool) {
	if c.tx != nil {
		if dead {
			c.giveUp() // drivers then close it, and ask nothing
		}
		_ = c.tx.Rollback()
	}
	CloseForGood(context.WithoutCancel(c.ctx), c.conn, clean || c.tainted || c.inside)
}

// CloseForGood closes a connection, by the one portable way to tell the pool not to use
// it again. The driver's connection may itself come from a pool (a pgxpool, behind any
// wrapper), to which closing would return it. Such a pool does not keep a connection that
// is inside a transaction. (The server logs a warning if there is one already.) clean says that such a
// pool may keep the connection, or that it is inside a transaction.
func CloseForGood(ctx context.Context, conn *sql.Conn, clean bool) {
	_ = AfterTx(func() error {
		if !clean && !leaveOpen(ctx, conn) {
			ctx, cancel := context.WithTimeout(ctx, CloseGrace/2)
			defer cancel()
			_, _ = conn.ExecContext(ctx, "BEGIN")
		}
		return conn.Raw(func(any) error { return driver.ErrBadConn })
	})
}

// AfterTx makes a call on a *sql.Conn after a transaction whose context may have ended. Then
// database/sql rolls back in a goroutine of its own, and closes the connection if it is broken.
// A method that comes just then panics, because it checks whether the connection is closed
// before it locks the connection (grabConn, up to Go 1.26 at least). Then the connection is closed.
func AfterTx(call func() error) (err error) {
	defer func() {
		if recover() != nil {
			err = sql.ErrConnDone
		}
	}()
	return call()
}

// leaveOpen begins a transaction, if the driver can be asked directly. The pool must not see
// an error: it would close the connection at once. The first attempt may have been cancelled,
// or its time over before it was sent, if the process did not run for a while.
func leaveOpen(ctx context.Context, conn *sql.Conn) (direct bool) {
	_ = conn.Raw(func(conn any) error {
		execer, ok := conn.(driver.ExecerContext)
		for attempt := 0; ok && attempt < 2; attempt++ {
			ctx, cancel := context.WithTimeout(ctx, CloseGrace/4)
			_, err := execer.ExecContext(ctx, "BEGIN", nil)
			cancel()
			if direct = !errors.Is(err, driver.ErrSkip); err == nil || !direct {
				break
			}
		}
		return nil
	})
	return direct
}
