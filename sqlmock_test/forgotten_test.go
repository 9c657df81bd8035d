package sqlmock_test

import (
	"fmt"
	"testing"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/jackc/pgx/v5/pgconn"
)

// callOf is the statement with which the call begins that a statement of an
// attempt belongs to: the comparison of two backends, or a whole transaction, is
// one call, but for what it asks on the other connection.
var callOf = map[int]int{0: 0, 1: 1, 2: 1, 3: 3, 4: 3, 6: 6, 7: 5, 8: 5, 10: 10, 11: 11}

// forgets expects the first n statements of an attempt, and answers the next by an
// error of its prepared statement. The call that it belongs to is then made again.
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
