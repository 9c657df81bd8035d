package session

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// closeGrace is how long to wait for a driver to close a connection before it
// is left to itself.
const closeGrace = time.Second

// A Session is one pinned connection and the backend behind it. No driver call
// is trusted to return: each is made on a goroutine of its own, one at a time,
// and whoever waits for it waits no longer than its context allows. The methods
// may be called from any goroutine.
//
// A session ends in one of two ways. giveBack returns the connection to the
// pool, and is only for one on which nothing was changed. discard closes it:
// sql.Conn.Close would return it to the pool with its settings, and the lock,
// still in place.
type Session struct {
	lease Lease
	conn  *sql.Conn
	q     *db.Queries
	tx    *sql.Tx // in which q asks, if any

	tainted bool // by a transaction that other code has left open

	process processClock            // nil for the process that this is
	turn    chan struct{}           // held by the call under way; kept for ever by discard
	ctx     context.Context         // done when the session has ended; its cause says why
	cancel  context.CancelCauseFunc // ends the session
	wire    context.Context         // of the driver's calls: done when the connection is given up, which may be later
	unwire  context.CancelFunc
	gone    chan struct{} // closed once keep has discarded the connection
	late    error         // the cause when a call takes longer than the validity that is left
	stuck   func(error)   // told of a driver call that is left to itself

	pid   int32        // of the backend that the first statement reached
	began atomic.Int64 // when that backend began, by the server's word; 0 until it was asked

	proof atomic.Pointer[instant] // just before the last answered statement was sent

	commits        *commits                // what else must prove the session; nil if nothing
	acked          atomic.Pointer[instant] // just before the last acknowledged commit was sent
	unacknowledged atomic.Pointer[error]   // why the last one that was not was not
	termCtx        context.Context         // done when no term may go on: the session has ended, or its commits prove nothing
	endTerms       context.CancelCauseFunc

	identity atomic.Pointer[identity] // of its server, once asked
	met      atomic.Pointer[identity] // another server, to be compared with
	newest   *newest                  // primary that its owner has seen

	users   users         // what its locks are still needed for
	evict   func()        // ends the backend if a pooler has moved us from it; may be nil
	suspect chan struct{} // asks keep for a heartbeat at once
	watcher chan struct{} // closed when the watcher has gone; nil if there is none
}

// connectTimeout is at least how long a connection may take to open. Nothing is held
// meanwhile, and a driver that tries several hosts in turn needs time for each: one that is
// frozen takes all of its connect_timeout.
const connectTimeout = 30 * time.Second

// borrow takes a connection from the pool. The session carries the values of
// ctx but outlives it.
func borrow(ctx context.Context, pool *sql.DB, l Lease, stuck func(error)) (*Session, error) {
	s := &Session{lease: l, turn: make(chan struct{}, 1), gone: make(chan struct{}), suspect: make(chan struct{}, 1), stuck: stuck,
		late: fmt.Errorf("%w within %v", ErrNoAnswer, l.Validity())}
	s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	s.termCtx, s.endTerms = context.WithCancelCause(s.ctx)
	s.wire, s.unwire = context.WithCancel(context.WithoutCancel(ctx))
	s.process, _ = pool.Driver().(processClock)
	bound := l.Validity()
	if stats := pool.Stats(); stats.MaxOpenConnections == 0 || stats.InUse < stats.MaxOpenConnections {
		bound = max(bound, connectTimeout) // else no connection is opened, but one awaited that others use
	}
	waitCtx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	answered, stop := context.WithTimeout(ctx, bound+closeGrace) // the driver's error names the host
	defer stop()
	conn, err := backoff.AwaitOr(answered, func(context.Context) (*sql.Conn, error) { return pool.Conn(waitCtx) }, func(conn *sql.Conn) {
		_ = conn.Close() // nothing was done on it, so the pool may have it back
	})
	if err != nil {
		return nil, noConnection(ctx, waitCtx, pool, bound, err)
	}
	s.conn, s.q = conn, db.New(conn)
	s.renew(s.now())
	return s, nil
}

// do makes one driver call. It returns early when ctx ends, and then the call
// goes on: cancelling it would cost the session (both drivers close a
// connection whose context ends). The call itself is cancelled when the
// connection is given up, and not as soon as the session could not be valid any
// more: the driver would close a connection whose locks may still be needed.
func do[T any](ctx context.Context, s *Session, call func(context.Context, *db.Queries) (T, error)) (T, error) {
	var none T
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	if err := s.takeTurn(ctx); err != nil {
		return none, err
	}
	type answer struct {
		value T
		err   error
	}
	answered := make(chan answer, 1)
	callCtx, cancel := context.WithTimeoutCause(s.ctx, s.left(), s.late)
	go func() {
		defer cancel()
		sent := s.now()
		value, err := call(s.wire, s.q)
		if isMissingStatement(err) && s.tx == nil { // which would have failed with it
			value, err = call(s.wire, s.q) // nothing was executed, and the driver prepares it anew
		}
		switch {
		case err == nil:
			s.renew(sent)
		case pgerr.State(err) == "25P02" && s.tx == nil:
			s.tainted, err = true, pgerr.Wrap(errOpenTransaction, err)
		}
		<-s.turn
		answered <- answer{value, pgerr.CauseOr(callCtx, err)}
	}()
	select {
	case a := <-answered:
		return a.value, a.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	case <-callCtx.Done():
		select {
		case a := <-answered: // the call's own cancel, after its answer
			return a.value, a.err
		default:
			return none, context.Cause(callCtx)
		}
	}
}

// takeTurn waits for its turn: for as long as the calls before are answered.
func (s *Session) takeTurn(ctx context.Context) error {
	for {
		select {
		case s.turn <- struct{}{}:
			return nil
		case <-time.After(s.left()): // while another call is stuck
			if s.left() <= 0 {
				return s.late
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
	}
}

// doAnew is do for a connection that holds nothing: the call may take the whole
// validity, however long those before it have taken.
func doAnew[T any](ctx context.Context, s *Session, call func(context.Context, *db.Queries) (T, error)) (T, error) {
	s.renew(s.now())
	return do(ctx, s, call)
}

// begin has the next calls made within a transaction, until rollBack.
func (s *Session) begin(ctx context.Context) error {
	_, err := doAnew(ctx, s, func(ctx context.Context, _ *db.Queries) (struct{}, error) {
		tx, err := s.conn.BeginTx(ctx, nil)
		if err == nil {
			s.tx, s.q = tx, db.New(tx)
		}
		return struct{}{}, err
	})
	return err
}

// rollBack ends the transaction, and returns the error that it was given, if any.
func (s *Session) rollBack(ctx context.Context, err error) error {
	_, failed := doAnew(ctx, s, func(context.Context, *db.Queries) (struct{}, error) {
		tx := s.tx
		s.tx, s.q = nil, db.New(s.conn)
		return struct{}{}, tx.Rollback()
	})
	if err != nil {
		return err
	}
	return failed
}

// prepare prepares statements of one row, which then cost one round trip with any
// driver, and need not be planned.
func (s *Session) prepare(ctx context.Context, statements ...string) error {
	_, err := do(ctx, s, func(ctx context.Context, _ *db.Queries) (struct{}, error) {
		p := prepared{Conn: s.conn, stmts: map[string]*sql.Stmt{}}
		for _, statement := range statements {
			stmt, err := s.conn.PrepareContext(ctx, statement)
			if err != nil {
				return struct{}{}, err
			}
			p.stmts[statement] = stmt
		}
		s.q = db.New(p)
		return struct{}{}, nil
	})
	return err
}

// prepared is a connection with some of its statements prepared.
type prepared struct {
	*sql.Conn
	stmts map[string]*sql.Stmt
}

func (p prepared) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if stmt := p.stmts[query]; stmt != nil {
		return stmt.QueryRowContext(ctx, args...)
	}
	return p.Conn.QueryRowContext(ctx, query, args...)
}

// giveBack returns the connection to the pool.
func (s *Session) giveBack() {
	_ = s.conn.Close()
}

// discard closes the connection. If a call is stuck in the driver, the connection
// is left to a goroutine that closes it when the call returns.
func (s *Session) discard() {
	s.cancel(errClosed)
	s.unwire() // wakes the call under way, if the driver listens
	if s.evict != nil && errors.Is(context.Cause(s.ctx), ErrSessionPooled) {
		s.evict()
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.turn <- struct{}{}
		s.hangUp()
	}()
	select {
	case <-closed:
	case <-time.After(closeGrace):
		s.stuck(fmt.Errorf("elector: the driver does not return from a call on a connection that is given up (backend %d): "+
			"it is left alone and closed when the driver returns: %w", s.pid, context.Cause(s.ctx)))
	}
}

// hangUp closes the connection, by the one portable way to tell the pool that it
// must not be used again. The driver's connection may itself be borrowed from a pool
// below (a pgxpool, behind any wrapper), to which closing it would return it. Such a
// pool does not keep a connection that is inside a transaction. (The server logs a
// warning if there is one already.)
func (s *Session) hangUp() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.wire), closeGrace/2)
	defer cancel()
	if s.tx != nil {
		_ = s.tx.Rollback()
	}
	if !s.tainted {
		_, _ = s.conn.ExecContext(ctx, "BEGIN")
	}
	_ = s.conn.Raw(func(any) error { return driver.ErrBadConn })
}
