package electortest_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/DATA-DOG/go-sqlmock"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
)

// A mocked server forwards to a mock, and keeps what it reports.
type mocked struct {
	*electortest.Server
	sqlmock.Sqlmock
	pool *sql.DB

	mu       sync.Mutex
	reported []string
}

func (m *mocked) report(args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reported = append(m.reported, fmt.Sprint(args...))
}

func newMocked(t *testing.T) *mocked {
	t.Helper()
	behind, mock, err := sqlmock.New()
	if err != nil {
		t.Fatal(err)
	}
	m := &mocked{Server: electortest.NewServer(), Sqlmock: mock}
	m.Forward(behind, m.report)
	m.pool = m.Open()
	t.Cleanup(func() {
		_ = m.pool.Close()
		m.Close()
		_ = behind.Close()
	})
	return m
}

// use makes the pool that of another process.
func (m *mocked) use(p *electortest.Process) *electortest.Process {
	_ = m.pool.Close()
	m.pool = p.Open()
	return p
}

// lead runs fn in one term of a candidate with default options, and returns its error.
func (m *mocked) lead(t *testing.T, fn func(ctx context.Context, term *elector.Term) error) error {
	t.Helper()
	e, err := elector.New(m.pool, "orders")
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.TryRun(t.Context(), fn)
	return err
}

// wantMet checks that all was sent that was expected, and how many statements were reported.
func (m *mocked) wantMet(t *testing.T, reported int) {
	t.Helper()
	if err := m.ExpectationsWereMet(); err != nil {
		t.Error(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.reported) != reported {
		t.Errorf("reported %d statements, want %d: %q", len(m.reported), reported, m.reported)
	}
}

func TestOnlyTheProgramsStatementsAreForwarded(t *testing.T) {
	for name, driver := range map[string]electortest.Driver{"pgx": electortest.PGX, "pq": electortest.PQ} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMocked(t)
				process := m.use(m.NewProcess())
				process.SetDriver(driver)
				another := m.Open()
				defer another.Close()
				follower, err := elector.New(another, "orders")
				if err != nil {
					t.Fatal(err)
				}
				m.ExpectExec("INSERT").WithArgs("tea").WillReturnResult(sqlmock.NewResult(0, 1))
				m.ExpectQuery("SELECT").WillReturnRows(sqlmock.NewRows([]string{"n"}).AddRow(7))
				err = m.lead(t, func(ctx context.Context, term *elector.Term) error {
					if err := follower.Start(ctx); err != nil {
						t.Error(err)
					}
					time.Sleep(10 * time.Second)
					result, err := m.pool.ExecContext(ctx, "INSERT INTO orders VALUES ($1)", "tea")
					if err != nil {
						return err
					}
					if n, err := result.RowsAffected(); n != 1 || err != nil {
						t.Error(n, err)
					}
					time.Sleep(10 * time.Second)
					var n int
					if err := m.pool.QueryRowContext(ctx, "SELECT count(*) AS n FROM orders").Scan(&n); n != 7 || err != nil {
						t.Error(n, err)
					}
					if err := term.Verify(ctx); err != nil {
						t.Error(err)
					}
					_, err = follower.Leader(ctx)
					return err
				})
				if err != nil {
					t.Error(err)
				}
				if err := follower.Stop(t.Context()); err != nil {
					t.Error(err)
				}
				m.wantMet(t, 0)
			})
		})
	}
}

func TestTransactionsAreForwardedAsTheyEnd(t *testing.T) {
	boom := errors.New("boom")
	insert := func(tx *sql.Tx) error { _, err := tx.Exec("INSERT"); return err }
	expectInsert := func(m *mocked) { m.ExpectExec("INSERT").WillReturnResult(sqlmock.NewResult(0, 1)) }
	for name, c := range map[string]struct {
		expect func(m *mocked)
		fn     func(tx *sql.Tx) error
		want   []error
		told   int
	}{
		"it commits":                 {expect: func(m *mocked) { m.ExpectBegin(); expectInsert(m); m.ExpectCommit() }, fn: insert},
		"it has no statement":        {expect: func(m *mocked) { m.ExpectBegin(); m.ExpectCommit() }, fn: func(*sql.Tx) error { return nil }},
		"its function fails at once": {expect: func(m *mocked) { m.ExpectBegin(); m.ExpectRollback() }, fn: func(*sql.Tx) error { return boom }, want: []error{boom}},
		"its function fails later":   {expect: func(m *mocked) { m.ExpectBegin(); expectInsert(m); m.ExpectRollback() }, fn: func(tx *sql.Tx) error { return errors.Join(insert(tx), boom) }, want: []error{boom}},
		"its statement fails":        {expect: func(m *mocked) { m.ExpectBegin(); m.ExpectExec("INSERT").WillReturnError(boom); m.ExpectRollback() }, fn: insert, want: []error{boom}, told: 1},
		"its BEGIN fails":            {expect: func(m *mocked) { m.ExpectBegin().WillReturnError(boom) }, fn: insert, want: []error{boom}, told: 1},
		"its COMMIT fails":           {expect: func(m *mocked) { m.ExpectBegin(); expectInsert(m); m.ExpectCommit().WillReturnError(boom) }, fn: insert, want: []error{boom}, told: 1},
		"it goes on after an error that it expects": {expect: func(m *mocked) {
			m.ExpectBegin()
			m.ExpectQuery("SELECT").WillReturnError(sql.ErrNoRows)
			expectInsert(m)
			m.ExpectCommit()
		}, fn: func(tx *sql.Tx) error {
			var n int
			if err := tx.QueryRow("SELECT").Scan(&n); err != sql.ErrNoRows { // the very value
				return fmt.Errorf("got %w", err)
			}
			return insert(tx)
		}},
		"its ROLLBACK fails": {expect: func(m *mocked) { m.ExpectBegin(); m.ExpectRollback().WillReturnError(errors.New("gone")) }, fn: func(*sql.Tx) error { return boom }, want: []error{boom}, told: 1},
	} {
		for way, transaction := range map[string]func(t *testing.T, m *mocked) error{
			"InTx": func(t *testing.T, m *mocked) error {
				return m.lead(t, func(ctx context.Context, term *elector.Term) error { return term.InTx(ctx, m.pool, nil, c.fn) })
			},
			"BeginTx": func(t *testing.T, m *mocked) error {
				tx, err := m.pool.BeginTx(t.Context(), nil)
				if err != nil {
					return err
				}
				if err := c.fn(tx); err != nil {
					return errors.Join(err, tx.Rollback())
				}
				return tx.Commit()
			},
		} {
			t.Run(way+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := newMocked(t)
					c.expect(m)
					err := transaction(t, m)
					if (err != nil) != (len(c.want) > 0) {
						t.Error(err)
					}
					for _, want := range c.want {
						if !errors.Is(err, want) {
							t.Errorf("%v does not wrap %v", err, want)
						}
					}
					if way == "InTx" && err != nil && !errors.Is(err, elector.ErrRolledBack) {
						t.Error(err)
					}
					synctest.Wait()
					m.wantMet(t, c.told)
				})
			})
		}
	}
}

func TestADatabasesOptionsArgumentsAndResultsArriveAsTheyAre(t *testing.T) {
	m := newMocked(t)
	ctx := t.Context()
	boom := errors.New("boom")

	m.ExpectQuery("named").WithArgs(sql.Named("id", 7)).WillReturnRows(sqlmock.NewRows([]string{"a", "b"}).AddRow("x", nil).AddRow("y", time.Unix(9, 0)).RowError(1, boom))
	rows, err := m.pool.QueryContext(ctx, "named", sql.Named("id", 7))
	if err != nil {
		t.Fatal(err)
	}
	columns, _ := rows.Columns()
	n := 0
	for rows.Next() {
		n++
	}
	if n != 1 || rows.Err() != boom || strings.Join(columns, " ") != "a b" {
		t.Errorf("%d rows, columns %v, error %v", n, columns, rows.Err())
	}
	_ = rows.Close()

	m.ExpectExec("result").WillReturnResult(sqlmock.NewErrorResult(boom))
	result, err := m.pool.ExecContext(ctx, "result")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := result.RowsAffected(); err != boom {
		t.Error(err)
	}

	prepare := m.ExpectPrepare("prepared").WillBeClosed()
	prepare.ExpectExec().WithArgs(1).WillReturnResult(sqlmock.NewResult(3, 1))
	prepare.ExpectQuery().WithArgs(2).WillReturnRows(sqlmock.NewRows([]string{"a"}).AddRow(5))
	statement, err := m.pool.PrepareContext(ctx, "prepared")
	if err != nil {
		t.Fatal(err)
	}
	if result, err = statement.ExecContext(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if id, _ := result.LastInsertId(); id != 3 {
		t.Error(id)
	}
	var five int
	if err := statement.QueryRowContext(ctx, 2).Scan(&five); five != 5 || err != nil {
		t.Error(five, err)
	}
	if err := statement.Close(); err != nil {
		t.Error(err)
	}
	m.ExpectPrepare("refused").WillReturnError(boom)
	if _, err := m.pool.PrepareContext(ctx, "refused"); err != boom {
		t.Error(err)
	}
	m.wantMet(t, 1)
}

// An argument that only the driver of the program's own database understands.
type point struct{ x, y int }

func TestArgumentsAreConvertedByTheDatabaseBehind(t *testing.T) {
	behind, mock, err := sqlmock.New(sqlmock.ValueConverterOption(pointConverter{}))
	if err != nil {
		t.Fatal(err)
	}
	defer behind.Close()
	server := electortest.NewServer()
	defer server.Close()
	pool := server.Open()
	defer pool.Close()
	if _, err := pool.Exec("INSERT", point{1, 2}); err == nil {
		t.Error("an argument of an unknown type was accepted")
	}
	server.Forward(behind)
	mock.ExpectExec("INSERT").WithArgs("1/2").WillReturnResult(sqlmock.NewResult(0, 1))
	if _, err := pool.Exec("INSERT", point{1, 2}); err != nil {
		t.Error(err)
	}
}

type pointConverter struct{}

func (pointConverter) ConvertValue(v any) (driver.Value, error) {
	if p, ok := v.(point); ok {
		return fmt.Sprintf("%d/%d", p.x, p.y), nil
	}
	return driver.DefaultParameterConverter.ConvertValue(v)
}

func TestAStatementThatWasNotExpectedIsReportedWithTheLineOfTheService(t *testing.T) {
	m := newMocked(t)
	line := func() string { _, _, line, _ := runtime.Caller(1); return fmt.Sprintf("forward_test.go:%d: ", line+1) }
	var want []string
	expect := func(line string) { want = append(want, line) }

	expect(line())
	_, _ = m.pool.Exec("DELETE")
	expect(line())
	_, _ = m.pool.Prepare("DELETE")
	expect(line())
	_, _ = m.pool.Begin()
	want = append(want, "Term.InTx: BEGIN: ")
	_ = m.lead(t, func(ctx context.Context, term *elector.Term) error {
		return term.InTx(ctx, m.pool, nil, func(*sql.Tx) error { return nil })
	})
	_ = m.lead(t, func(ctx context.Context, term *elector.Term) error {
		m.ExpectBegin()
		return term.InTx(ctx, m.pool, nil, func(tx *sql.Tx) error {
			expect(line())
			_, err := tx.Exec("DELETE")
			return err
		})
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.reported) < len(want) {
		t.Fatalf("reported %q", m.reported)
	}
	for i, line := range want {
		if !strings.HasPrefix(m.reported[i], line) || !strings.Contains(m.reported[i], "not expected") {
			t.Errorf("reported %q, want line %q", m.reported[i], line)
		}
	}
}

func TestAFaultRollsTheTransactionOfTheDatabaseBack(t *testing.T) {
	for name, fault := range map[string]func(m *mocked, p *electortest.Process){
		"crash":     func(m *mocked, _ *electortest.Process) { m.Crash() },
		"terminate": func(m *mocked, _ *electortest.Process) { m.Stop() },
		"kill":      func(_ *mocked, p *electortest.Process) { p.Kill() },
		"freeze":    func(_ *mocked, p *electortest.Process) { p.Freeze(); time.AfterFunc(time.Minute, p.Thaw) },
		"cut":       func(_ *mocked, p *electortest.Process) { p.Cut(electortest.Both); time.AfterFunc(time.Minute, p.Mend) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMocked(t)
				process := m.use(m.NewProcess())
				m.ExpectBegin()
				m.ExpectExec("INSERT").WillReturnResult(sqlmock.NewResult(0, 1))
				m.ExpectRollback()
				var err error
				_ = m.lead(t, func(ctx context.Context, term *elector.Term) error {
					err = term.InTx(ctx, m.pool, nil, func(tx *sql.Tx) error {
						if _, err := tx.Exec("INSERT"); err != nil {
							t.Error(err)
						}
						fault(m, process)
						<-ctx.Done()
						return ctx.Err()
					})
					return err
				})
				rolledBack := name == "freeze" && errors.Is(err, elector.ErrRolledBack) // if the server answers before the session ends
				if !errors.Is(err, elector.ErrOutcomeUnknown) && !rolledBack {
					t.Error(err)
				}
				time.Sleep(2 * time.Minute)
				m.wantMet(t, 0)
			})
		})
	}
}

func TestAStatementThatHangsEndsWithItsContext(t *testing.T) {
	for name, send := range map[string]func(ctx context.Context, m *mocked) error{
		"EXEC": func(ctx context.Context, m *mocked) error {
			m.ExpectExec("INSERT").WillDelayFor(time.Hour).WillReturnResult(sqlmock.NewResult(0, 1))
			_, err := m.pool.ExecContext(ctx, "INSERT")
			return err
		},
		"BEGIN": func(ctx context.Context, m *mocked) error {
			m.ExpectBegin().WillDelayFor(time.Hour)
			_, err := m.pool.BeginTx(ctx, nil)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMocked(t)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start := time.Now()
				if err := send(ctx, m); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				m.Close()
				synctest.Wait()
				if took := time.Since(start); took != time.Second {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

// sqlc names statements of programs as it names those of this library.
func TestAStatementThatSqlcNamedIsTheProgramsUnlessTheLibrarySendsIt(t *testing.T) {
	const getAuthor = "-- name: GetAuthor :one\nSELECT id FROM authors WHERE id = $1"
	m := newMocked(t)
	m.ExpectQuery("SELECT id FROM authors").WithArgs(1).WillReturnRows(sqlmock.NewRows([]string{"id"}).AddRow(1))
	var id int
	if err := m.pool.QueryRowContext(t.Context(), getAuthor, 1).Scan(&id); err != nil || id != 1 {
		t.Error(id, err)
	}
	m.ExpectPrepare("SELECT id FROM authors")
	if _, err := m.pool.PrepareContext(t.Context(), getAuthor); err != nil {
		t.Error(err)
	}
	m.wantMet(t, 0)

	m.Forward(nil)
	m.Handle(func(s electortest.Statement) (electortest.Answer, error) {
		return electortest.Answer{Rows: [][]any{{int64(2)}}}, nil
	})
	if err := m.pool.QueryRowContext(t.Context(), getAuthor, 1).Scan(&id); err != nil || id != 2 {
		t.Error(id, err)
	}
}

// whenAsked is an argument that calls the function when the mock compares it.
type whenAsked func()

func (call whenAsked) Match(driver.Value) bool { call(); return true }

// A connection that is lost is rolled back on the server, whose Close waits for that.
func TestAfterCloseNothingIsSentAndNothingReported(t *testing.T) {
	for range 50 {
		behind, mock, err := sqlmock.New()
		if err != nil {
			t.Fatal(err)
		}
		var closed atomic.Bool
		server := electortest.NewServer()
		server.Forward(behind, func(args ...any) {
			if closed.Load() {
				t.Error("reported after Close: ", fmt.Sprint(args...))
			}
		})
		pool := server.Open()
		mock.ExpectBegin()
		mock.ExpectExec("UPDATE").WithArgs(whenAsked(func() { go server.Crash() })).WillDelayFor(time.Hour)
		mock.ExpectRollback()
		e, err := elector.New(pool, "orders")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = e.TryRun(t.Context(), func(ctx context.Context, term *elector.Term) error {
			return term.InTx(ctx, pool, nil, func(tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "UPDATE", 1)
				return err
			})
		})
		server.Close()
		closed.Store(true)
		if err := mock.ExpectationsWereMet(); err != nil {
			t.Error(err)
		}
		_ = behind.Close()
	}
}

func TestTheProgramReadsAndClosesTheRowsItself(t *testing.T) {
	boom := errors.New("boom")
	m := newMocked(t)
	one := func() *sqlmock.Rows {
		return sqlmock.NewRowsWithColumnDefinition(sqlmock.NewColumn("n").OfType("INT8", int64(0))).AddRow(int64(1))
	}
	m.ExpectQuery("first").WillReturnRows(one(), one().AddRow(int64(2))).RowsWillBeClosed()
	rows, err := m.pool.Query("first")
	if err != nil {
		t.Fatal(err)
	}
	if types, err := rows.ColumnTypes(); err != nil || types[0].DatabaseTypeName() != "INT8" {
		t.Error(types, err)
	}
	n := 0
	for more := true; more; more = rows.NextResultSet() {
		for rows.Next() {
			n++
		}
	}
	if n != 3 || rows.Err() != nil {
		t.Errorf("%d rows: %v", n, rows.Err())
	}
	if err := rows.Close(); err != nil {
		t.Error(err)
	}

	m.ExpectQuery("second").WillReturnRows(one().CloseError(boom))
	if rows, err = m.pool.Query("second"); err != nil {
		t.Fatal(err)
	}
	if err := rows.Close(); err != boom {
		t.Error(err)
	}

	m.ExpectQuery("third").WillReturnRows(one()).RowsWillBeClosed()
	if rows, err = m.pool.Query("third"); err != nil {
		t.Fatal(err)
	}
	if m.ExpectationsWereMet() == nil {
		t.Error("rows that are open count as closed")
	}
	_ = rows.Close()
	m.wantMet(t, 0)
}

func TestAReportThatEndsItsGoroutineHoldsUpNothing(t *testing.T) {
	behind, _, err := sqlmock.New()
	if err != nil {
		t.Fatal(err)
	}
	defer behind.Close()
	server := electortest.NewServer()
	defer server.Close()
	server.Forward(behind, func(...any) { runtime.Goexit() })
	if _, err := server.Open().Exec("DELETE"); err == nil {
		t.Error("a statement that was not expected succeeded")
	}
}

func TestForwardingWorksThroughAPooler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMocked(t)
		m.use(m.NewPooler(10).NewProcess())
		for range 3 {
			m.ExpectBegin()
			m.ExpectExec("INSERT").WillReturnResult(sqlmock.NewResult(0, 1))
			m.ExpectCommit()
		}
		err := m.lead(t, func(ctx context.Context, term *elector.Term) (err error) {
			for range 3 {
				err = errors.Join(err, term.InTx(ctx, m.pool, nil, func(tx *sql.Tx) error { _, err := tx.Exec("INSERT"); return err }))
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		m.wantMet(t, 0)
	})
}
