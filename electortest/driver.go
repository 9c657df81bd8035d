package electortest

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/pgelector/pgelector/db"
)

var (
	_ driver.Connector          = (*connector)(nil)
	_ io.Closer                 = (*connector)(nil)
	_ driver.Pinger             = (*conn)(nil)
	_ driver.QueryerContext     = (*conn)(nil)
	_ driver.ExecerContext      = (*conn)(nil)
	_ driver.ConnBeginTx        = (*conn)(nil)
	_ driver.ConnPrepareContext = (*conn)(nil)
	_ driver.SessionResetter    = (*conn)(nil)
	_ driver.NamedValueChecker  = (*conn)(nil)
	_ driver.Validator          = (*conn)(nil)
	_ driver.StmtQueryContext   = statementOf{}
	_ driver.StmtExecContext    = statementOf{}
)

// A connector makes connections of a process, for one pool.
type connector struct {
	p    *Process
	home *Server // that closes the pool
}

// Close is called when the pool is closed.
func (c *connector) Close() error {
	c.home.mu.Lock()
	defer c.home.mu.Unlock()
	delete(c.home.pools, c)
	return nil
}

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	made, err := c.p.connect(ctx)
	if err != nil {
		return nil, err // not a nil *conn in an interface
	}
	if c.p.imitates() == PGX {
		return waitable{made}, nil
	}
	return made, nil
}

// A waitable connection is like a connection of pgx: the library waits on it between two statements.
type waitable struct{ *conn }

// WaitForEnd waits until ctx is done, or until the client hears that the connection has ended, and
// returns why.
func (w waitable) WaitForEnd(ctx context.Context) error {
	c := w.conn
	b := c.b
	for b != nil && ctx.Err() == nil {
		changed := c.p.next()
		if c.p.isKilled() {
			return ErrKilled
		}
		select {
		case <-b.told:
		case <-changed:
			continue
		case <-ctx.Done():
			return nil
		}
		if !c.p.arrive(ctx.Done()) || !c.p.thaws(ctx) {
			return nil
		}
		c.dead = true
		return cmp.Or(b.final, error(errCut))
	}
	<-ctx.Done()
	return nil
}

func (c *connector) Driver() driver.Driver { return processDriver{c.p} }

// processDriver is the driver of a process's pools.
type processDriver struct{ p *Process }

// Open fails: Server.Open and Process.Open make pools.
func (processDriver) Open(string) (driver.Conn, error) {
	return nil, errors.New("electortest: use Server.Open or Process.Open")
}

// Ping is a round trip.
func (c *conn) Ping(ctx context.Context) error {
	_, err := c.call(ctx, &message{kind: aPing})
	return err
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.query(ctx, query, args, nil)
}

func (c *conn) query(ctx context.Context, query string, args []driver.NamedValue, of *prepared) (driver.Rows, error) {
	a, err := c.statement(ctx, aQuery, query, args, of)
	if err != nil {
		return nil, err
	}
	if a.rows != nil {
		return a.rows, nil
	}
	return &rows{answer: a}, nil
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	switch query { // transactions by statement
	case "BEGIN":
		return driver.RowsAffected(0), c.begin(ctx, context.WithoutCancel(ctx), &message{own: true})
	case "COMMIT":
		return driver.RowsAffected(0), c.endTx(ctx, aCommit)
	case "ROLLBACK":
		return driver.RowsAffected(0), c.endTx(ctx, aRollback)
	case db.Nothing:
		return driver.RowsAffected(0), c.Ping(ctx)
	}
	return c.exec(ctx, query, args, nil)
}

func (c *conn) exec(ctx context.Context, query string, args []driver.NamedValue, of *prepared) (driver.Result, error) {
	a, err := c.statement(ctx, anExec, query, args, of)
	if err != nil {
		return nil, err
	}
	return cmp.Or[driver.Result](a.result, driver.RowsAffected(a.Affected)), nil
}

// statement sends a statement. A database that it is forwarded to gets the arguments as they are.
func (c *conn) statement(ctx context.Context, kind messageKind, query string, args []driver.NamedValue, of *prepared) (Answer, error) {
	m := &message{kind: kind, query: query, prepared: of}
	forwards := c.sends(m)
	for i, arg := range args {
		value, err := any(arg.Value), error(nil)
		if !forwards {
			value, err = driver.DefaultParameterConverter.ConvertValue(arg.Value)
		} else if arg.Name != "" {
			value = sql.Named(arg.Name, value)
		}
		if err != nil {
			return Answer{}, fmt.Errorf("electortest: argument $%d: %w", i+1, err)
		}
		m.args = append(m.args, value)
	}
	return c.call(ctx, m)
}

// sends completes a statement by who sends it, and reports whether it goes to another database.
func (c *conn) sends(m *message) bool {
	if _, known := statements[m.query]; known {
		return false
	}
	who := callerOf()
	m.foreign = nameOf(m.query) == "" || !who.own // sqlc names the statements of programs, too
	m.line = who.line
	if m.foreign && who.line != "" {
		c.line = who.line
	}
	return m.foreign && c.p.forwards()
}

// CheckNamedValue accepts any argument: statement converts it.
func (c *conn) CheckNamedValue(*driver.NamedValue) error { return nil }

// BeginTx begins a transaction. It ignores the isolation level.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	m := &message{opts: opts}
	if c.p.forwards() {
		who := callerOf()
		m.line, m.own = cmp.Or(who.line, "Term.InTx"), who.own
	}
	return transactionOf{c}, c.begin(ctx, ctx, m)
}

// begin begins a transaction, whose context is tx.
func (c *conn) begin(ctx, tx context.Context, m *message) error {
	before := c.tx // BEGIN may be sent within a transaction
	c.tx, m.kind = tx, aBegin
	_, err := c.call(ctx, m)
	if err != nil {
		c.tx = before
	}
	return err
}

// Begin implements driver.Conn.
func (c *conn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

// A transactionOf is the transaction of a connection, with the context of BeginTx.
type transactionOf struct{ c *conn }

func (t transactionOf) Commit() error   { return t.end(aCommit) }
func (t transactionOf) Rollback() error { return t.end(aRollback) }

func (t transactionOf) end(how messageKind) error {
	ctx := t.c.tx
	err := t.c.endTx(ctx, how)
	if errors.Is(err, errNotSent) { // the transaction is open; as pgx does
		t.c.abort()
	}
	return err
}

func (c *conn) endTx(ctx context.Context, how messageKind) error {
	m := &message{kind: how}
	if c.p.forwards() {
		m.line = cmp.Or(callerOf().line, "after "+c.line)
	}
	_, err := c.call(ctx, m)
	if !errors.Is(err, errNotSent) {
		c.tx = nil
	}
	return err
}

// abort closes the connection, which rolls its transaction back.
func (c *conn) abort() {
	c.tx = nil
	if !c.dead && c.b != nil {
		c.giveUp(c.b)
	}
	c.dead = true
}

// PrepareContext returns a statement. Only a forwarded statement is sent.
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	p := &prepared{}
	if !c.sends(&message{query: query}) {
		return statementOf{c: c, query: query}, nil
	}
	_, err := c.statement(ctx, aPrepare, query, nil, p)
	return statementOf{c, query, p}, err
}

// Prepare implements driver.Conn.
func (c *conn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

// A statementOf is a prepared statement of a connection.
type statementOf struct {
	c        *conn
	query    string
	prepared *prepared // nil unless it is forwarded
}

func (s statementOf) Close() error  { return s.prepared.close() }
func (s statementOf) NumInput() int { return -1 }

func (s statementOf) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.c.query(ctx, s.query, args, s.prepared)
}

func (s statementOf) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.c.exec(ctx, s.query, args, s.prepared)
}

// Query and Exec implement driver.Stmt. database/sql does not call them.
func (s statementOf) Query(args []driver.Value) (driver.Rows, error)  { return nil, driver.ErrSkip }
func (s statementOf) Exec(args []driver.Value) (driver.Result, error) { return nil, driver.ErrSkip }

// rows are the rows of an answer.
type rows struct {
	answer Answer
	next   int
}

func (r *rows) Close() error { return nil }

func (r *rows) Columns() []string {
	if r.answer.Columns == nil && len(r.answer.Rows) > 0 {
		return make([]string, len(r.answer.Rows[0]))
	}
	return r.answer.Columns
}

func (r *rows) Next(into []driver.Value) error {
	if r.next >= len(r.answer.Rows) {
		return io.EOF
	}
	row := r.answer.Rows[r.next]
	if len(row) != len(into) {
		return newError(unsupported, "electortest: row %d has %d values, but the answer has %d columns", r.next+1, len(row), len(into))
	}
	for i, value := range row {
		into[i] = value
	}
	r.next++
	return nil
}

// An Error is an error of the server. Like the errors of lib/pq and pgx it has a method
// SQLState.
type Error struct {
	Code    string // the SQLSTATE
	Message string
}

func (e *Error) Error() string {
	return fmt.Sprintf("electortest: %s (SQLSTATE %s)", e.Message, e.Code)
}

// SQLState returns the SQLSTATE.
func (e *Error) SQLState() string { return e.Code }

func newError(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// The SQLSTATEs of this server.
const (
	unsupported        = "0A000"
	invalidValue       = "22023"
	internalError      = "XX000"
	failedTransaction  = "25P02"
	idleInTransaction  = "25P03"
	invalidText        = "22P02"
	undefinedObject    = "42704"
	outOfMemory        = "53200"
	tooManyConnections = "53300"
	lockNotAvailable   = "55P03"
	queryCanceled      = "57014"
	adminShutdown      = "57P01"
	idleSession        = "57P05"
)

// errCut is the client's error if the other end closed the connection without a message.
var errCut = fmt.Errorf("electortest: the connection was closed by the other end: %w", io.ErrUnexpectedEOF)

// isFatal reports whether the error ended the session.
func isFatal(err error) bool {
	e, ok := err.(*Error)
	if !ok {
		return err == errCut
	}
	switch e.Code {
	case idleInTransaction, adminShutdown, idleSession:
		return true
	}
	return false
}

// A conn is the client's end of a connection.
type conn struct {
	p    *Process
	end  *backend  // the server's end; nil through a pooler
	b    *backend  // end, or the backend that the pooler lent for a transaction
	last time.Time // when the last message arrives; messages stay in order
	dead bool
	tx   context.Context // of the transaction; nil if none
	line string          // of the tested program, that sent the last statement
}

// connect makes a connection, in one round trip.
func (p *Process) connect(ctx context.Context) (*conn, error) {
	p.awaitThaw(ctx, false)
	defer p.awaitThaw(ctx, false)
	if !p.arrive(ctx.Done()) || !p.pass(ctx) {
		return nil, closedBy(ctx)
	}
	server, pooler, err := p.reach(ctx)
	if err != nil {
		return nil, err
	}
	c := &conn{p: p}
	if pooler == nil {
		b, err := server.connect()
		if err != nil {
			return nil, err
		}
		c.b, c.end = b, b
	}
	p.mu.Lock()
	p.conns[c] = true
	killed := p.killed
	p.mu.Unlock()
	if killed { // Kill may have missed the connection
		c.Close()
		return nil, ErrKilled
	}
	return c, nil
}

// reach returns the server to connect to. While the host of that server is dead, nobody answers.
func (p *Process) reach(ctx context.Context) (*Server, *Pooler, error) {
	for {
		p.mu.Lock()
		server, pooler, killed, changed := p.server, p.pooler, p.killed, p.changed
		p.mu.Unlock()
		if killed {
			return nil, nil, ErrKilled
		}
		answers := server.answers()
		if answers == nil || pooler != nil {
			return server, pooler, nil
		}
		select {
		case <-answers:
		case <-changed:
		case <-ctx.Done():
			return nil, nil, closedBy(ctx)
		}
	}
}

// pass waits until requests pass.
func (p *Process) pass(ctx context.Context) bool {
	for blocked := p.blocked(requests); blocked != nil && !p.isKilled(); blocked = p.blocked(requests) {
		select {
		case <-blocked:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// errNotSent is the error of a call whose context had ended before. The connection stays as it was.
var errNotSent = errors.New("electortest: nothing was sent")

// closedBy returns the error of a call whose context ended.
func closedBy(ctx context.Context) error {
	return fmt.Errorf("electortest: the connection was closed: %w", context.Cause(ctx))
}

// call sends a message and waits for the answer.
func (c *conn) call(ctx context.Context, m *message) (Answer, error) {
	c.p.awaitThaw(ctx, c.tx != nil)
	defer c.p.awaitThaw(ctx, c.tx != nil)
	switch {
	case c.p.isKilled():
		return Answer{}, ErrKilled
	case c.dead:
		return Answer{}, driver.ErrBadConn
	case ctx.Err() != nil:
		return Answer{}, fmt.Errorf("%w: %w", errNotSent, ctx.Err())
	}
	b, err := c.route(ctx, m)
	if err != nil {
		return Answer{}, err
	}
	m.reply, m.ctx = make(chan answer, 1), context.WithoutCancel(ctx)
	c.send(b, m)
	a, ok := c.await(ctx, b, m)
	if !ok {
		c.giveUp(b)
		return Answer{}, closedBy(ctx)
	}
	if c.p.isKilled() {
		return Answer{}, ErrKilled
	}
	c.dead = c.dead || isFatal(a.err)
	return a.Answer, a.err
}

// await waits for the answer. ok is false if the context ended first.
func (c *conn) await(ctx context.Context, b *backend, m *message) (a answer, ok bool) {
	done := ctx.Done()
	for waiting := true; waiting; {
		changed := c.p.next()
		if c.p.isKilled() {
			return a, true
		}
		select {
		case a = <-m.reply:
			waiting = false
		case <-b.told:
			select {
			case a = <-m.reply: // sent just before
			default:
				a.err = b.final
			}
			waiting = false
		case <-changed:
		case <-done:
			if !c.isStubborn() {
				return a, false
			}
			c.dead, done = true, nil
			c.cancel(b)
		}
	}
	for !c.p.arrive(done) {
		if !c.isStubborn() {
			return a, false
		}
		c.dead, done = true, nil
	}
	if ctx.Err() != nil && c.dead && a.err == nil { // a cancel may have come too late
		a.err = closedBy(ctx)
	}
	return a, true
}

// isStubborn reports whether a call ignores the end of its context.
func (c *conn) isStubborn() bool {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	return c.p.driver == PQ && c.tx == nil
}

// send sends a message.
func (c *conn) send(b *backend, m *message) {
	m.from = c.p
	m.arrives = time.Now().Add(c.p.delay())
	if m.arrives.Before(c.last) {
		m.arrives = c.last
	}
	c.last = m.arrives
	b.post(m)
}

// cancel cancels the current statement over a separate connection, unless the network is
// cut.
func (c *conn) cancel(b *backend) {
	if c.p.blocked(requests) == nil {
		time.AfterFunc(c.p.delay(), func() { b.cancelFor(c) })
	}
}

// giveUp closes a connection during a call.
func (c *conn) giveUp(b *backend) {
	c.dead = true
	c.cancel(b)
	c.hangUp(b)
}

func (c *conn) hangUp(b *backend) {
	m := &message{kind: aBye}
	if c.p.pooler != nil {
		m.client, m.after = c, c.p.pooler.put
	}
	c.send(b, m)
}

// Close closes the connection. The server learns of it when the message arrives.
func (c *conn) Close() error {
	c.p.mu.Lock()
	delete(c.p.conns, c)
	c.p.mu.Unlock()
	if c.b != nil {
		c.hangUp(c.b)
		c.b = nil
	}
	c.dead = true
	return nil
}

// IsValid reports whether the pool may keep the connection.
func (c *conn) IsValid() bool { return !c.dead }

// ResetSession is called before the pool lends the connection again.
func (c *conn) ResetSession(context.Context) error {
	c.p.mu.Lock()
	checks := c.p.driver == PGX && !c.p.cut[answers]
	c.dead = c.dead || c.p.killed
	c.p.mu.Unlock()
	if checks && c.b != nil {
		select {
		case <-c.b.told:
			c.dead = true
		default:
		}
	}
	if c.dead {
		return driver.ErrBadConn
	}
	return nil
}
