//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/pgelector/pgelector/elector"
)

var errOops = errors.New("oops")

// A txFunction is one of InTx. It executes the statements, whatever becomes of them, and ends.
type txFunction struct {
	statements string // separated by semicolons; INSIDE and BEHIND are written to the ledger
	then       func(tx *sql.Tx) error
	endsTx     bool // it breaks the contract: it ends the transaction
	commits    bool // and InTx commits it, if nothing else ends
}

func returns(err error) func(*sql.Tx) error { return func(*sql.Tx) error { return err } }

var txFunctions = map[string]txFunction{
	"returns nil":                           {"INSIDE", returns(nil), false, true},
	"returns an error":                      {"INSIDE", returns(errOops), false, false},
	"panics":                                {"INSIDE", func(*sql.Tx) error { panic("oops") }, false, false},
	"ends its goroutine":                    {"INSIDE", func(*sql.Tx) error { runtime.Goexit(); return nil }, false, false},
	"returns nil after an error":            {"INSIDE;SELECT 1/0", returns(nil), false, false},
	"goes back to a savepoint":              {"INSIDE;SAVEPOINT s;SELECT 1/0;ROLLBACK TO s", returns(nil), false, true},
	"goes back, and fails":                  {"SAVEPOINT s;INSIDE;ROLLBACK TO s;RELEASE s", returns(errOops), false, false},
	"leaves a savepoint":                    {"SAVEPOINT s;INSIDE", returns(nil), false, true},
	"fails behind a savepoint":              {"INSIDE;SAVEPOINT s;SELECT 1/0", returns(nil), false, false},
	"leaves rows open":                      {"INSIDE", leavesRows, false, false},
	"Commit":                                {"INSIDE", (*sql.Tx).Commit, true, false},
	"Rollback":                              {"INSIDE", (*sql.Tx).Rollback, true, false},
	"COMMIT":                                {"INSIDE;COMMIT", returns(nil), true, false},
	"COMMIT, and an error":                  {"INSIDE;COMMIT", returns(errOops), true, false},
	"COMMIT, and more":                      {"INSIDE;COMMIT;BEHIND", returns(nil), true, false},
	"COMMIT; BEGIN":                         {"INSIDE;COMMIT;BEGIN;BEHIND", returns(nil), true, false},
	"COMMIT AND CHAIN":                      {"INSIDE;COMMIT AND CHAIN;BEHIND", returns(nil), true, false},
	"COMMIT AND CHAIN, and an error":        {"INSIDE;COMMIT AND CHAIN;BEHIND", returns(errOops), true, false},
	"COMMIT AND CHAIN, a statement fails":   {"INSIDE;COMMIT AND CHAIN;SELECT 1/0", returns(nil), true, false},
	"COMMIT AND CHAIN, and rows left open":  {"INSIDE;COMMIT AND CHAIN", leavesRows, true, false},
	"COMMIT, and its connection breaks":     {"INSIDE;COMMIT;SELECT pg_terminate_backend(pg_backend_pid())", returns(nil), true, false},
	"its connection breaks":                 {"INSIDE;SELECT pg_terminate_backend(pg_backend_pid())", returns(nil), false, false},
	"its connection breaks, and it says so": {"INSIDE", breaks, false, false},
	"ROLLBACK":                              {"INSIDE;ROLLBACK", returns(nil), true, false},
	"ROLLBACK AND CHAIN":                    {"INSIDE;ROLLBACK AND CHAIN;BEHIND", returns(nil), true, false},
}

func leavesRows(tx *sql.Tx) error {
	rows, err := tx.Query("SELECT generate_series(1, 100000)")
	if err == nil {
		rows.Next()
	}
	return nil
}

func breaks(tx *sql.Tx) error {
	_, err := tx.Exec("SELECT pg_terminate_backend(pg_backend_pid())")
	return err
}

// A stage is where a function of InTx runs, and what else may end.
type stage struct {
	*server
	term   *elector.Term
	c      *candidate
	cancel context.CancelCauseFunc
	pid    int // of the transaction
}

// alsoEnds are what may end beside the transaction, before or after the statements of its function.
var alsoEnds = map[string]struct {
	before, after func(t *testing.T, s *stage)
	endsTerm      bool
}{
	"nothing else": {},
	"the term":     {after: loseTerm, endsTerm: true},
	"its context":  {after: func(_ *testing.T, s *stage) { s.cancel(errOops) }},
	"Close": {after: func(t *testing.T, s *stage) {
		go func() { _ = s.c.Close(context.Background()) }()
		closed(t, "the term ends", s.term.Context().Done())
	}, endsTerm: true},
	"the connection, before": {before: breakConnection},
	"the connection, after":  {after: breakConnection},
}

func loseTerm(t *testing.T, s *stage) {
	s.terminate(t, s.leaderPID(t, s.c.Key()))
	closed(t, "the term ends", s.term.Context().Done())
}

func breakConnection(t *testing.T, s *stage) {
	_, err := s.admin.Exec("SELECT pg_terminate_backend($1, 60000)", s.pid)
	expect(t, err)
}

// Whoever is told that nothing was committed may do it again.
func TestInTxNeverLiesAboutWhatWasCommitted(t *testing.T) {
	t.Parallel()
	for name, scope := range map[string]elector.Scope{"session": elector.SessionScope, "transaction": elector.TransactionScope} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overEach(t, func(t *testing.T, d drivers) {
				s := direct(t)
				ledger := s.ledger(t)
				pool := d.open(t, 0, s.DSN())
				var lasting *stage
				for end, also := range alsoEnds {
					for name, fn := range txFunctions {
						on := lasting
						if on == nil || !on.term.Valid() {
							c, term := s.lead(t, pool, s.election(t), elector.WithLease(20*lease), elector.WithScope(scope))
							on = &stage{server: s, term: term, c: c}
						}
						if lasting = on; also.endsTerm {
							lasting = nil
						}
						what := name + " / " + end
						err, returned := on.inTx(t, pool, ledger, what, fn, also.before, also.after)
						on.judge(t, what, ledger, fn, end == "nothing else", returned, err)
						if also.endsTerm && err != nil {
							wraps(t, err, elector.ErrNotLeader)
						}
						if also.endsTerm {
							_ = on.term.Resign(soon(t))
						}
					}
				}
			})
		})
	}
}

// inTx runs the function. returned is whether InTx did.
func (s *stage) inTx(t *testing.T, pool *sql.DB, ledger, note string, fn txFunction, before, after func(*testing.T, *stage)) (err error, returned bool) {
	t.Helper()
	var ctx context.Context
	ctx, s.cancel = context.WithCancelCause(t.Context())
	defer s.cancel(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		err = s.term.InTx(ctx, pool, nil, func(tx *sql.Tx) error {
			s.pid = 0
			_ = tx.QueryRow("SELECT pg_backend_pid()").Scan(&s.pid)
			if before != nil {
				before(t, s)
			}
			for statement := range strings.SplitSeq(fn.statements, ";") {
				if statement == "INSIDE" || statement == "BEHIND" {
					statement = fmt.Sprintf("INSERT INTO %s VALUES ('%s: %s')", ledger, note, statement)
				}
				_, _ = tx.Exec(statement)
			}
			if after == nil {
				return fn.then(tx)
			}
			defer after(t, s)
			return fn.then(tx)
		})
		returned = true
	}()
	closed(t, note+": InTx returns", done)
	return err, returned
}

// judge compares what InTx says with the ledger.
func (s *stage) judge(t *testing.T, what, ledger string, fn txFunction, alone, returned bool, err error) {
	t.Helper()
	got := list[string](t, s.admin, "SELECT split_part(note, ': ', 2) FROM "+ledger+" WHERE split_part(note, ': ', 1) = $1 ORDER BY 1 DESC", what)
	rolledBack, unknown := errors.Is(err, elector.ErrRolledBack), errors.Is(err, elector.ErrOutcomeUnknown)
	switch {
	case !returned:
		if len(got) > 0 {
			t.Errorf("%s: it panicked or ended its goroutine, and the ledger says %q", what, got)
		}
	case err == nil:
		if !fn.commits || !alone || len(got) != 1 {
			t.Errorf("%s: no error, and the ledger says %q", what, got)
		}
	case rolledBack == unknown:
		t.Errorf("%s: %v", what, err)
	case rolledBack && (len(got) > 0 || fn.commits && alone):
		t.Errorf("%s: the ledger says %q, and InTx: %v", what, got, err)
	case unknown && !fn.endsTx:
		t.Errorf("%s: the outcome could be known: %v", what, err)
	}
}
