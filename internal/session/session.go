package session

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// closeGrace is how long a driver gets to close a connection before it is abandoned.
const closeGrace = time.Second

// sendGrace is how long a call under way gets to send its statement before it is cancelled. A
// driver that has sent nothing reports driver.ErrBadConn although its connection lives.
// database/sql then closes it as it is, and a pool below database/sql uses it again.
const sendGrace = 50 * time.Millisecond

// A Session is one pinned connection and the server backend behind it. Its methods may
// be called from any goroutine. It ends in one of two ways. GiveBack returns the
// connection to the pool, and is only for one on which nothing was changed. Discard
// closes it: sql.Conn.Close would return it to the pool with its settings and locks.
type Session struct {
	lease       Lease
	conn        *sql.Conn
	q           *db.Queries
	tx          *sql.Tx                                 // in which q asks; nil outside a transaction
	inside      bool                                    // it has its locks inside a transaction
	prepared    map[string]*sql.Stmt                    // by their texts
	stays       bool                                    // PingTransaction follows each query
	forNow      bool                                    // a savepoint stays open, for TryForNow
	settings    string                                  // of the transaction
	borrowAside func(context.Context) (*Session, error) // a connection for Apart
	aside       *Session                                // makes the calls of Apart; may be nil
	tainted     bool                                    // other code has left a transaction open on the connection
	process     processClock                            // nil for this process

	callSlot   chan struct{}           // held by the call under way, and for ever by Discard
	ctx        context.Context         // done when the session has ended
	cancel     context.CancelCauseFunc // ends the session
	connCtx    context.Context         // of driver calls: done when the connection is given up, which may be later
	closeConn  context.CancelFunc
	closed     chan struct{} // closed when keep has discarded the connection
	errTimeout error         // of a call that takes longer than the validity that is left
	abandoned  func(error)   // reports a driver call that does not return

	number int64       // of this session, in this process
	pid    int32       // of the backend that the first statement reached
	server string      // when its server started; in session scope "" until a check or a request asks
	mark   string      // of its transaction, which only PingTransaction inside that shows; "" before a statement has told
	ending atomic.Bool // its transaction is being committed
	name   int64       // random; see Name
	named  atomic.Bool // the session holds that lock

	proof  atomic.Pointer[instant] // just before the last answered statement was sent
	broken atomic.Bool             // the last call found the connection broken

	acked          atomic.Pointer[instant] // just before the last acknowledged commit was sent
	unacknowledged atomic.Pointer[error]   // why the last commit was not acknowledged; nil if it was
	termCtx        context.Context         // done when no term may go on
	endTerms       context.CancelCauseFunc

	identity atomic.Pointer[identity] // of its server, once asked
	met      atomic.Pointer[identity] // another server to compare with
	looking  atomic.Bool              // whether LookAround asks for one
	seeking  atomic.Bool              // whether hear asks for them
	unheard  int                      // how often in a row it could not
	newest   *newest                  // the newest primary that its Server has seen

	holds   holds
	evict   func()        // terminates the backend if a pooler has moved the session from it; may be nil
	suspect chan struct{} // asks keep for a heartbeat at once

	beside  []func()       // started with the session; they return soon after its end
	helpers sync.WaitGroup // those that run, and LookAround
}

// borrowed counts the sessions of this process.
var borrowed atomic.Int64

// borrow takes a connection from the pool. The session carries the values of ctx but
// outlives it.
func borrow(ctx context.Context, pool *sql.DB, l Lease, abandoned func(error)) (*Session, error) {
	s := &Session{lease: l, callSlot: make(chan struct{}, 1), closed: make(chan struct{}), suspect: make(chan struct{}, 1), number: borrowed.Add(1), name: int64(rand.Uint64()),
		abandoned: abandoned, errTimeout: fmt.Errorf("%w within %v", ErrNoAnswer, l.Validity())}
	s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	s.termCtx, s.endTerms = context.WithCancelCause(s.ctx)
	s.connCtx, s.closeConn = context.WithCancel(context.WithoutCancel(ctx))
	s.process, _ = pool.Driver().(processClock)
	bound, stats := l.Validity(), pool.Stats()
	full := stats.MaxOpenConnections > 0 && stats.InUse >= stats.MaxOpenConnections
	if stats.Idle == 0 && !full {
		bound = max(bound, connectTimeout) // else the pool opens none: it has an idle one, or waits for one that others use
	}
	waitCtx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	answered, stop := context.WithTimeout(ctx, bound+closeGrace) // the driver's error names the host
	defer stop()
	conn, err := backoff.AwaitOr(answered, func(context.Context) (*sql.Conn, error) { return pool.Conn(waitCtx) }, func(conn *sql.Conn) {
		_ = conn.Close() // unused, so the pool may have it back
	})
	if err != nil {
		return nil, noConnection(ctx, waitCtx, pool, full, bound, err)
	}
	s.conn, s.q, s.prepared = conn, db.New(conn), map[string]*sql.Stmt{}
	s.renew(s.now())
	return s, nil
}

// checkOpen returns ErrPoolClosed if the pool is closed: one that is open has no connection for a
// context that is done. It connects to nothing.
func checkOpen(pool *sql.DB) error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := pool.Conn(ctx); !errors.Is(err, context.Canceled) {
		return pgerr.Wrap(ErrPoolClosed, err)
	}
	return nil
}

// An asker is Do, or a function like it.
type asker[T any] func(context.Context, *Session, func(context.Context, *db.Queries) (T, error)) (T, error)

// Do makes one driver call on the session. It waits for the answer until ctx ends, or the
// session does, or its validity runs out. Then it returns the cause, and the call goes on:
// cancelling it would cost the session, because both drivers close a connection whose
// context ends.
func Do[T any](ctx context.Context, s *Session, call func(context.Context, *db.Queries) (T, error)) (T, error) {
	return DoOr(ctx, s, call, func(T) {})
}

// DoOr is Do for an answer that must not be lost: drop receives one that comes when Do has
// returned.
func DoOr[T any](ctx context.Context, s *Session, call func(context.Context, *db.Queries) (T, error), drop func(T)) (T, error) {
	return do(ctx, s, true, func(ctx context.Context, q *db.Queries) (T, error) {
		value, err := call(ctx, q)
		if err == nil && s.stays {
			err = s.pingTransaction(ctx)
		}
		return value, err
	}, drop)
}

// pingTransaction asks whether the transaction goes on. It is called within Do.
func (s *Session) pingTransaction(ctx context.Context) error {
	if s.tx == nil {
		return errTransactionOver
	}
	var state string
	err := s.tx.QueryRowContext(ctx, db.PingTransaction).Scan(&state)
	if pgerr.State(err) == "42704" || err == nil && (state == "" || state != s.mark) {
		err = errTransactionOver
	}
	return err
}

// doSimple is Do for a statement without arguments and rows, which drivers send by the
// simple protocol.
func doSimple[T any](ctx context.Context, s *Session, call func(context.Context, *db.Queries) (T, error)) (T, error) {
	return do(ctx, s, true, call, func(T) {})
}

// do makes a call. Its success proves that the session lives if it asks the server in any case.
func do[T any](ctx context.Context, s *Session, proves bool, call func(context.Context, *db.Queries) (T, error), drop func(T)) (T, error) {
	either, stop := backoff.Either(ctx, s.ctx)
	defer stop()
	waiting, cancel := s.whileValid(either)
	defer cancel()
	if err := s.takeSlot(waiting); err != nil {
		var none T
		return none, err
	}
	return backoff.AwaitOr(waiting, func(context.Context) (T, error) {
		defer func() { <-s.callSlot }()
		sent, outside := s.now(), s.tx == nil
		value, err := call(s.connCtx, s.q)
		if isMissingStatement(err) && outside { // a transaction has failed with it
			value, err = call(s.connCtx, s.q) // nothing was executed, and the driver prepares it anew
		}
		s.broken.Store(pgerr.Broken(err))
		switch {
		case err == nil:
			if proves {
				s.renew(sent)
			}
		case pgerr.State(err) == "25P02" && s.tx == nil:
			s.tainted, err = true, pgerr.Wrap(ErrOpenTransaction, err)
		case s.stays: // the server has released the locks
			defer s.cancel(pgerr.Wrap(ErrSessionLost, err))
		}
		return value, pgerr.CauseOr(waiting, err)
	}, drop)
}

// whileValid returns a copy of ctx that ends with errTimeout when the validity runs out.
func (s *Session) whileValid(ctx context.Context) (valid context.Context, stop func()) {
	valid, expire := context.WithCancelCause(ctx)
	var timer *time.Timer
	look := func() {
		if left := s.left(); left <= 0 {
			expire(s.errTimeout)
		} else if valid.Err() == nil {
			timer.Reset(min(left, glance))
		}
	}
	timer = time.AfterFunc(math.MaxInt64, look)
	look()
	return valid, func() {
		expire(nil)
		timer.Stop()
	}
}

// takeSlot waits until the calls before are answered.
func (s *Session) takeSlot(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case s.ctx.Err() != nil: // which ctx may not know yet
		return context.Cause(s.ctx)
	}
	select {
	case s.callSlot <- struct{}{}:
		return nil
	case <-ctx.Done(): // if another call is stuck
		return context.Cause(ctx)
	}
}

// doFresh is Do on a connection that holds nothing: the call may take the whole validity,
// however long those before it took.
func doFresh[T any](ctx context.Context, s *Session, call func(context.Context, *db.Queries) (T, error)) (T, error) {
	s.renew(s.now())
	return Do(ctx, s, call)
}

// Lease is the time arithmetic of the session.
func (s *Session) Lease() Lease { return s.lease }

// begin has the next calls made within a transaction, until rollBack.
func (s *Session) begin(ctx context.Context) error {
	_, err := doFresh(ctx, s, func(ctx context.Context, _ *db.Queries) (*sql.Tx, error) {
		tx, err := s.conn.BeginTx(ctx, nil)
		if err == nil && s.inside {
			s.identity.Store(nil) // a pooler may lead each transaction to another server
		}
		if err == nil {
			s.tx, s.q, s.mark = tx, db.New(tx), ""
		}
		for _, level := range []string{db.RepeatableRead, db.ReadCommitted} {
			if err == nil && s.inside {
				_, err = tx.ExecContext(ctx, level)
			}
		}
		if state := pgerr.State(err); state == "25001" || state == "25P02" {
			err = pgerr.Wrap(ErrOpenTransaction, err)
		}
		return tx, err
	})
	return err
}

// rollBack ends the transaction. It returns err, or why the rollback failed.
func (s *Session) rollBack(ctx context.Context, err error) error {
	_, failed := doFresh(ctx, s, func(context.Context, *db.Queries) (any, error) {
		tx := s.tx
		s.tx, s.q, s.stays = nil, db.New(s.conn), false
		return nil, tx.Rollback()
	})
	if err != nil {
		return err
	}
	return failed
}

// Prepare prepares those of the statements, of one row each, that are not prepared yet. They
// then cost one round trip with any driver, and are not planned again. Inside a transaction
// it does nothing: a pooler would keep them.
func (s *Session) Prepare(ctx context.Context, statements ...string) error {
	if s.inside {
		return nil
	}
	_, err := do(ctx, s, false, func(ctx context.Context, _ *db.Queries) (any, error) {
		for _, statement := range statements {
			if s.prepared[statement] != nil {
				continue
			}
			stmt, err := s.conn.PrepareContext(ctx, statement)
			if err != nil {
				return nil, err
			}
			s.prepared[statement] = stmt
		}
		s.q = db.New(preparing{s.conn, s.prepared})
		return nil, nil
	}, func(any) {})
	return err
}

// preparing is a connection with some of its statements prepared.
type preparing struct {
	*sql.Conn
	prepared map[string]*sql.Stmt
}

func (p preparing) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if stmt := p.prepared[query]; stmt != nil {
		return stmt.QueryRowContext(ctx, args...)
	}
	return p.Conn.QueryRowContext(ctx, query, args...)
}

// GiveBack returns the connection to the pool. It rolls a transaction back, and closes the
// connection if that takes long.
func (s *Session) GiveBack() {
	s.StillNewest()
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	if s.tx != nil && s.rollBack(ctx, nil) != nil {
		s.Discard()
		return
	}
	_ = s.conn.Close()
	s.dropAside()
}

// dropAside gives back the connection beside the session, if there is one.
func (s *Session) dropAside() {
	if s.aside != nil {
		s.aside.GiveBack()
		s.aside = nil
	}
}

// Discard ends the session and closes its connection. If a driver call does not return,
// the connection is closed when it does.
func (s *Session) Discard() {
	s.StillNewest()
	s.cancel(errClosed)
	defer s.helpers.Wait()
	defer s.closeConn()
	if s.aside != nil {
		defer s.aside.Discard()
	}
	if s.evict != nil && errors.Is(context.Cause(s.ctx), ErrSessionPooled) {
		s.evict()
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	_, err := backoff.Await(ctx, func(context.Context) (any, error) {
		select {
		case s.callSlot <- struct{}{}:
		case <-time.After(sendGrace):
			s.closeConn() // wakes the call under way, if the driver listens
			s.callSlot <- struct{}{}
		}
		s.closeForGood()
		return nil, nil
	})
	if err != nil {
		s.abandoned(fmt.Errorf("elector: the driver does not return from a call on a connection that is given up (backend %d): "+
			"it is left alone and closed when the driver returns: %w", s.pid, context.Cause(s.ctx)))
	}
}

// closeForGood closes the connection, by the one portable way to tell the pool not to use
// it again. The driver's connection may itself come from a pool (a pgxpool, behind any
// wrapper), to which closing would return it. Such a pool does not keep a connection that
// is inside a transaction. (The server logs a warning if there is one already.)
func (s *Session) closeForGood() {
	if s.tx != nil {
		if !errors.Is(context.Cause(s.ctx), errClosed) {
			s.closeConn() // the connection may be dead: drivers then close it, and ask nothing
		}
		_ = s.tx.Rollback()
	}
	_ = afterTx(func() error {
		if !s.inside && !s.tainted && !s.leaveOpen() { // in transaction scope nothing stays on a connection
			ctx, cancel := context.WithTimeout(context.WithoutCancel(s.connCtx), closeGrace/2)
			defer cancel()
			_, _ = s.conn.ExecContext(ctx, "BEGIN")
		}
		return s.conn.Raw(func(any) error { return driver.ErrBadConn })
	})
}

// afterTx makes a call on a *sql.Conn after a transaction whose context may have ended. Then
// database/sql rolls back in a goroutine of its own, and closes the connection if it is broken.
// A method that comes just between panics, because it looks whether the connection is closed
// before it locks it (grabConn, up to Go 1.26 at least). The connection is closed then.
func afterTx(call func() error) (err error) {
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
func (s *Session) leaveOpen() (direct bool) {
	_ = s.conn.Raw(func(conn any) error {
		execer, ok := conn.(driver.ExecerContext)
		for attempt := 0; ok && attempt < 2; attempt++ {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(s.connCtx), closeGrace/4)
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

// holds counts the work that relies on the session's locks. While there is any, the
// connection of a session that has ended stays open: the server may know nothing of the
// end (it hears us, and we do not hear it), and would give the locks to others.
type holds struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when n falls to 0; nil while nobody waits for that
}
