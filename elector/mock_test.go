package elector_test

import (
	"database/sql/driver"

	"github.com/DATA-DOG/go-sqlmock"
)

// expectTerm expects a server check and an election. The helpers of
// ../sqlmock_test are for more than that.
func expectTerm(mock sqlmock.Sqlmock, token int64) {
	describe := func() { expect(mock, "DescribeServer", 101, false, 150000, "PostgreSQL 15", 1, false) }
	describe()
	for round := range 3 {
		if round == 2 {
			mock.ExpectBegin()
		}
		describe()
		expect(mock, "LastAsked", 102, 1, false)
	}
	expect(mock, "ApplySettings", 11)
	mock.ExpectRollback()
	expect(mock, "TryLock", "granted", 200)
	expect(mock, "Confirm", true, 200, token, "0", false)
}

func expect(mock sqlmock.Sqlmock, statement string, row ...driver.Value) {
	mock.ExpectQuery("-- name: " + statement + " ").WillReturnRows(sqlmock.NewRows(make([]string, len(row))).AddRow(row...))
}
