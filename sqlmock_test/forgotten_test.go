package sqlmock_test

import (
	"fmt"
	"testing"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/jackc/pgx/v5/pgconn"
)

// callOf is the statement from which a statement of an attempt is asked again: itself, or
// the beginning of the transaction that has failed with it.
var callOf = map[int]int{0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 6: 6, 7: 5, 8: 5, 10: 10, 11: 11}

// forgets expects the first n statements of an attempt, and answers the next by an
// error of its prepared statement.
func forgets(mock sqlmock.Sqlmock, n int, state string) {
	expectAttemptUpTo(mock, n, fault{err: &pgconn.PgError{Code: state}})
	from := callOf[n]
	if attempt[from].name == "BEGIN" {
		mock.ExpectRollback()
	}
	for _, s := range attempt[from:n] {
		s.expect(mock, fault{})
	}
}

// alwaysForgets is forgets, and then the same error once more, as of a pooler.
func alwaysForgets(n int, state string) func(sqlmock.Sqlmock) {
	return func(mock sqlmock.Sqlmock) {
		forgets(mock, n, state)
		attempt[n].expect(mock, fault{err: &pgconn.PgError{Code: state}})
	}
}

// Other code may have run DISCARD ALL on a connection of the pool.
func TestAStatementThatIsForgottenOnceIsAskedAgain(t *testing.T) {
	for n := range callOf {
		for _, state := range []string{"26000", "42P05"} {
			bubble(t, fmt.Sprint(n, " ", attempt[n].name, " ", state), func(t *testing.T) {
				pool, mock := newMock(t)
				forgets(mock, n, state)
				for _, s := range attempt[n:] {
					s.expect(mock, fault{})
				}
				expectResign(mock)
				e, rec := newElector(t, pool)
				resign(t, campaign(t, e))
				if failures := rec.Failures(); len(failures) > 0 {
					t.Errorf("reported: %v", failures)
				}
			})
		}
	}
}
