package sqlmock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgelector/pgelector/elector"
)

// fenced has the statements of the first fenced transaction of a term. INSERT is that of fn.
var fenced = []statement{
	{"TryPair", values(true)},
	{"BEGIN", nil},
	{"EnterTerm", values("entered", ours)},
	{"INSERT", nil},
	{"FencedTransaction", values(ours)},
	{"COMMIT", nil},
}

// expectFenced expects these statements up to the i-th, which has the fault.
func expectFenced(mock sqlmock.Sqlmock, i int, f fault) {
	for j, s := range fenced[:i+1] {
		f := f
		if j < i {
			f = fault{}
		}
		switch s.name {
		case "INSERT":
			mock.ExpectExec("INSERT").WillDelayFor(f.after).WillReturnError(f.err).WillReturnResult(driver.RowsAffected(1))
		case "COMMIT":
			mock.ExpectCommit().WillReturnError(f.err)
		default:
			s.expect(mock, f)
		}
	}
}

// expectNothing expects the statement that shows whether the server lives after a COMMIT that failed.
func expectNothing(mock sqlmock.Sqlmock) *sqlmock.ExpectedExec {
	return mock.ExpectExec("-- name: Nothing ").WillReturnResult(driver.RowsAffected(0))
}

func insert(ctx context.Context) func(*sql.Tx) error {
	return func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO orders DEFAULT VALUES")
		return err
	}
}

func notCalled(t *testing.T) func(*sql.Tx) error {
	return func(*sql.Tx) error { t.Error("the function was called"); return nil }
}

// leave resigns a term at the end of a test.
func leave(t *testing.T, mock sqlmock.Sqlmock, term *elector.Term) {
	t.Helper()
	settle()
	if term.Valid() {
		expectResign(mock)
	}
	_ = term.Resign(t.Context())
}

func TestAFaultInAFencedTransactionTellsWhetherItWasCommitted(t *testing.T) {
	for i, s := range fenced {
		for _, f := range anyError {
			gone := f.err == driver.ErrBadConn
			if f.after > 0 || s.name == "BEGIN" && gone { // a heartbeat would come at the same time; the pool would try again
				continue
			}
			bubble(t, s.name+"/"+f.name, func(t *testing.T) {
				pool, mock := newMock(t)
				if gone { // the elector checks whether the session has ended, too, at any time
					pool, mock = newMockInAnyOrder(t)
				}
				expectTerm(mock, 1)
				expectFenced(mock, i, f)
				if s.name == "INSERT" && gone {
					query(mock, "FencedTransaction").WillReturnError(f.err)
				} else if s.name == "INSERT" {
					query(mock, "FencedTransaction").WillReturnRows(row(ours))
				}
				if s.name == "COMMIT" && !gone {
					expectNothing(mock)
				}
				if s.name != "TryPair" && s.name != "BEGIN" && s.name != "COMMIT" && !gone {
					mock.ExpectRollback()
				}
				if s.name == "INSERT" && gone || s.name == "FencedTransaction" {
					query(mock, "FencedOutcome").WillReturnRows(row("aborted"))
				}
				if s.name == "TryPair" && !gone { // which says nothing of the lock
					query(mock, "HoldsLock").WillReturnRows(row(true, sessionPID))
				}
				if s.name != "TryPair" && gone {
					expectHeartbeat(mock)
				}
				e, _ := newElector(t, pool)
				term := campaign(t, e)
				defer leave(t, mock, term)
				err := term.InTx(t.Context(), pool, nil, insert(t.Context()))
				want, other := elector.ErrRolledBack, elector.ErrOutcomeUnknown
				if s.name == "COMMIT" && gone { // after any other error the connection works: it was an answer
					want, other = other, want
				}
				wantError(t, err, want, f.want)
				if errors.Is(err, other) {
					t.Errorf("got %v", err)
				}
			})
		}
	}
}

// Once the connection is gone, only the server knows.
func TestWhatBecameOfATransactionIsAskedOnTheSessionOfItsTerm(t *testing.T) {
	for name, c := range map[string]struct {
		asked []any // the outcomes, in turn, or errors
		want  error
	}{
		"it was rolled back":             {[]any{"aborted"}, elector.ErrRolledBack},
		"it is about to be":              {[]any{"in progress", "in progress", "aborted"}, elector.ErrRolledBack},
		"its function has committed it":  {[]any{"committed"}, elector.ErrOutcomeUnknown},
		"so has a function, late":        {[]any{"in progress", "committed"}, elector.ErrOutcomeUnknown},
		"the server was replaced":        {[]any{""}, elector.ErrOutcomeUnknown},
		"the session is not told either": {[]any{errPlain}, elector.ErrOutcomeUnknown},
	} {
		bubble(t, name, func(t *testing.T) {
			pool, mock := newMockInAnyOrder(t)
			expectTerm(mock, 1)
			expectFenced(mock, 3, fault{err: driver.ErrBadConn})
			query(mock, "FencedTransaction").WillReturnError(driver.ErrBadConn)
			expectHeartbeat(mock)
			for _, outcome := range c.asked {
				if err, failed := outcome.(error); failed {
					query(mock, "FencedOutcome").WillReturnError(err)
					mock.ExpectBegin().WillReturnError(err) // on the pool
				} else {
					query(mock, "FencedOutcome").WillReturnRows(row(outcome))
				}
			}
			e, _ := newElector(t, pool)
			term := campaign(t, e)
			defer leave(t, mock, term)
			err := term.InTx(t.Context(), pool, nil, insert(t.Context()))
			wantError(t, err, c.want, driver.ErrBadConn)
			if errors.Is(err, elector.ErrRolledBack) == errors.Is(err, elector.ErrOutcomeUnknown) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// No driver tells.
func TestATransactionThatAStatementEndsHasAnUnknownOutcome(t *testing.T) {
	bubble(t, "by COMMIT AND CHAIN", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectFenced(mock, 3, fault{})
		query(mock, "FencedTransaction").WillReturnRows(row("4712 1700000000.000000"))
		mock.ExpectRollback()
		mock.ExpectBegin().WillReturnError(errors.New("too busy")) // was it prepared?
		e, _ := newElector(t, pool)
		term := campaign(t, e)
		defer leave(t, mock, term)
		err := term.InTx(t.Context(), pool, nil, insert(t.Context()))
		if wantError(t, err, elector.ErrOutcomeUnknown); errors.Is(err, elector.ErrRolledBack) {
			t.Errorf("got %v", err)
		}
	})
}

// A driver returns a PANIC like any error, so InTx sends an empty statement afterwards. If the disk was
// full while COMMIT was flushed, the server shuts down, and its recovery decides the outcome. The
// failure of a constraint is an answer in any case.
func TestAServerThatPanicsDuringCommitLeavesTheOutcomeUnknown(t *testing.T) {
	full := &pgconn.PgError{Severity: "PANIC", Code: "53100", Message: "could not write to file: No space left on device"}
	for name, c := range map[string]struct {
		err  error
		asks int
		gone bool
		want error
	}{
		"the server is gone":                 {full, 1, true, elector.ErrOutcomeUnknown},
		"the connection goes on":             {full, 1, false, elector.ErrRolledBack},
		"a unique constraint":                {&pgconn.PgError{Severity: "ERROR", Code: "23505"}, 0, true, elector.ErrRolledBack},
		"a timeout of an idle transaction":   {&pgconn.PgError{Severity: "ERROR", Code: "25P03"}, 0, true, elector.ErrRolledBack},
		"transactions that do not serialize": {&pgconn.PgError{Severity: "ERROR", Code: "40001"}, 0, true, elector.ErrRolledBack},
		"an outcome that nobody knows":       {&pgconn.PgError{Severity: "ERROR", Code: "40003"}, 0, true, elector.ErrOutcomeUnknown},
	} {
		bubble(t, name, func(t *testing.T) {
			pool, mock := newMock(t)
			expectTerm(mock, 1)
			expectFenced(mock, len(fenced)-1, fault{err: c.err})
			for range c.asks {
				if asked := expectNothing(mock); c.gone {
					asked.WillReturnError(driver.ErrBadConn)
					expectHeartbeat(mock)
				}
			}
			if c.asks == 0 && errors.Is(c.want, elector.ErrOutcomeUnknown) {
				expectHeartbeat(mock)
			}
			expectResign(mock)
			e, _ := newElector(t, pool)
			term := campaign(t, e)
			wantError(t, term.InTx(t.Context(), pool, nil, insert(t.Context())), c.want, c.err)
			settle()
			resign(t, term)
		})
	}
}

// InTx tries as many connections as may have been idle, and keeps no dead one.
func TestATransactionIsBegunOnAnotherConnectionIfOneIsDead(t *testing.T) {
	for name, c := range map[string]struct {
		dead  int
		other error
	}{
		"one of two is dead":       {dead: 1},
		"two of two are dead":      {dead: 2},
		"all that it tries":        {dead: 3, other: driver.ErrBadConn},
		"that is no reason to try": {other: errPlain},
	} {
		bubble(t, name, func(t *testing.T) {
			pool, mock := newMockInAnyOrder(t) // there is a heartbeat as well
			expectTerm(mock, 1)
			for range c.dead {
				mock.ExpectBegin().WillReturnError(driver.ErrBadConn)
			}
			switch {
			case c.other == nil:
				expectFenced(mock, len(fenced)-1, fault{})
			default:
				expectFenced(mock, 0, fault{})
			}
			if c.dead == 0 {
				mock.ExpectBegin().WillReturnError(c.other)
			}
			if c.dead > 0 {
				expectHeartbeat(mock)
			}
			expectResign(mock)
			e, _ := newElector(t, pool)
			term := campaign(t, e)
			idle(t, pool, 2)
			before := pool.Stats().InUse
			err := term.InTx(t.Context(), pool, nil, insert(t.Context()))
			if c.other == nil {
				wantError(t, err)
			} else {
				wantError(t, err, elector.ErrRolledBack, c.other)
			}
			if n := pool.Stats().InUse; n != before {
				t.Errorf("%d connections are in use, and %d were before", n, before)
			}
			settle()
			resign(t, term)
		})
	}
}

// idle gives the pool n idle connections.
func idle(t *testing.T, pool *sql.DB, n int) {
	t.Helper()
	pool.SetMaxIdleConns(n)
	var all []*sql.Conn
	for range n {
		conn, err := pool.Conn(t.Context())
		wantError(t, err)
		all = append(all, conn)
	}
	for _, conn := range all {
		wantError(t, conn.Close())
	}
}

func TestAFencedTransactionIsRefusedOutsideTheTerm(t *testing.T) {
	for outcome, want := range map[string]error{
		"superseded": elector.ErrNotLeader, "ended": elector.ErrNotLeader, "perhaps": elector.ErrNotLeader,
		"open": elector.ErrRolledBack, // nothing else
	} {
		ends := outcome != "open"
		bubble(t, outcome, func(t *testing.T) {
			pool, mock := newMock(t)
			expectTerm(mock, 1)
			expectFenced(mock, 1, fault{}) // up to BEGIN
			query(mock, "EnterTerm").WillReturnRows(row(outcome, ""))
			if ends {
				query(mock, "Identify").WillReturnRows(row(4711, 1, "10.0.0.1", 5432))
			}
			mock.ExpectRollback()
			if ends {
				query(mock, "HoldsLock").WillReturnRows(row(false, sessionPID))
			}
			e, _ := newElector(t, pool)
			term := campaign(t, e)
			defer leave(t, mock, term)
			wantError(t, term.InTx(t.Context(), pool, nil, notCalled(t)),
				elector.ErrRolledBack, want)
			if ended := term.Context().Err() != nil; ended != ends {
				t.Errorf("the term has ended: %v", ended)
			}
		})
	}
}

// The server refuses the transaction, but the session still holds the lock.
func TestARefusedTransactionOfATermThatGoesOnSaysWhatTheServerSaw(t *testing.T) {
	own := values(4711, 2, "10.0.0.1", 5432)
	for name, c := range map[string]struct {
		outcome string
		reached []driver.Value // nil if unknown
		want    string
		wraps   error
	}{
		"a stranger has the guard": {outcome: "superseded", reached: own, want: "does a stranger use this database?", wraps: elector.ErrRolledBack},
		"another leads elsewhere":  {outcome: "superseded", reached: values(4712, 2, "10.0.0.9", 5432), want: "another cluster (timeline 2 at 10.0.0.9:5432)", wraps: elector.ErrConfig},
		"another leads on the old": {outcome: "superseded", reached: values(4711, 1, "", 0), want: "the pool has reached timeline 1", wraps: elector.ErrOldPrimary},
		"superseded, but unknown":  {outcome: "superseded", want: "not on the server and database of this pool", wraps: elector.ErrConfig},
		"unknown":                  {outcome: "ended", want: "not on the server and database of this pool", wraps: elector.ErrConfig},
		"another database":         {outcome: "ended", reached: own, want: "another database of this server", wraps: elector.ErrConfig},
		"another cluster":          {outcome: "ended", reached: values(4712, 3, "10.0.0.9", 5432), want: "another cluster (timeline 3 at 10.0.0.9:5432)", wraps: elector.ErrConfig},
		"a standby":                {outcome: "ended", reached: values(4711, 0, "10.0.0.2", 5432), want: "a standby at 10.0.0.2:5432", wraps: elector.ErrServerReadOnly},
		"the old primary":          {outcome: "ended", reached: values(4711, 1, "", 0), want: "the pool has reached timeline 1", wraps: elector.ErrOldPrimary},
	} {
		bubble(t, name, func(t *testing.T) {
			pool, mock := newMock(t)
			expectTerm(mock, 1)
			e, _ := newElector(t, pool)
			term := campaign(t, e)
			tries := 1
			if c.wraps == elector.ErrServerReadOnly || c.wraps == elector.ErrOldPrimary { // the pool may lead to several servers in turn
				tries += pool.Stats().Idle + 3
			}
			expectFenced(mock, 0, fault{})
			for try := range tries {
				mock.ExpectBegin()
				query(mock, "EnterTerm").WillReturnRows(row(c.outcome, ""))
				reached := query(mock, "Identify")
				if c.reached == nil {
					reached.WillReturnError(errPlain)
				} else {
					reached.WillReturnRows(row(c.reached...))
				}
				mock.ExpectRollback()
				query(mock, "HoldsLock").WillReturnRows(row(true, sessionPID))
				if c.reached != nil && try == 0 {
					query(mock, "Identify").WillReturnRows(row(own...))
				}
			}
			expectResign(mock)
			err := term.InTx(t.Context(), pool, nil, notCalled(t))
			wantError(t, err, elector.ErrRolledBack, c.wraps)
			retryable := c.wraps == elector.ErrRolledBack // the term goes on, and its pool is the right one
			if !strings.Contains(err.Error(), c.want) || errors.Is(err, elector.ErrNotLeader) || elector.Retryable(err) != retryable || !term.Valid() {
				t.Errorf("got %v, valid %v", err, term.Valid())
			}
			resign(t, term)
		})
	}
}

// While a transaction begins, its term may be resigned. Or its context may end, which does not end
// the term.
func TestATransactionThatItsTermInterruptsIsNotTheLeaders(t *testing.T) {
	for i, s := range fenced[:3] {
		for _, resigns := range []bool{true, false} {
			if resigns && s.name == "TryPair" {
				continue // it is sent on the session
			}
			bubble(t, fmt.Sprintf("%s, resigns: %t", s.name, resigns), func(t *testing.T) {
				pool, mock := newMock(t)
				expectTerm(mock, 1)
				expectFenced(mock, i, fault{after: 2 * time.Second})
				if s.name == "EnterTerm" {
					mock.ExpectRollback()
				}
				expectResign(mock)
				e, rec := newElector(t, pool, elector.WithHeartbeatInterval(3500*time.Millisecond))
				term := campaign(t, e)
				ctx, want := t.Context(), []error{elector.ErrRolledBack, elector.ErrNotLeader, elector.ErrResigned}
				if resigns {
					time.AfterFunc(time.Second, func() { _ = term.Resign(context.Background()) })
				} else {
					var stop context.CancelFunc
					ctx, stop = context.WithTimeout(ctx, time.Second)
					defer stop()
					want = []error{elector.ErrRolledBack, context.DeadlineExceeded}
				}
				err := term.InTx(ctx, pool, nil, notCalled(t))
				wantError(t, err, want...)
				if resigns == term.Valid() || !resigns && errors.Is(err, elector.ErrNotLeader) {
					t.Errorf("valid: %t, %v", term.Valid(), err)
				}
				time.Sleep(2 * time.Second)
				resign(t, term)
				wantFailures(t, rec)
			})
		}
	}
}

func TestAfterItsContextHasEndedARefusedTransactionHasNoReason(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectFenced(mock, 1, fault{})
		query(mock, "EnterTerm").WillReturnRows(row("superseded", ""))
		query(mock, "Identify").WillReturnRows(row(4711, 1, "10.0.0.1", 5432))
		mock.ExpectRollback()
		query(mock, "HoldsLock").WillDelayFor(2 * time.Second).WillReturnRows(row(true, sessionPID))
		expectResign(mock)
		e, _ := newElector(t, pool, elector.WithHeartbeatInterval(3500*time.Millisecond))
		term := campaign(t, e)
		ctx := within(t, time.Second)
		err := term.InTx(ctx, pool, nil, notCalled(t))
		if wantError(t, err, elector.ErrRolledBack, context.DeadlineExceeded); errors.Is(err, elector.ErrNotLeader) {
			t.Errorf("got %v", err)
		}
		time.Sleep(2 * time.Second)
		resign(t, term)
	})
}
