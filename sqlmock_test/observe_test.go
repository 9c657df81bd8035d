package sqlmock_test

import (
	"database/sql/driver"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
)

var (
	since   = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	holder  = statement{"Holder", values(200, "web-2", "app", "10.0.0.2", since.UnixMicro())}
	waiters = statement{"Waiters", values(201, "web-3", "app", "", 0, since.UnixMicro())}
)

// expectLeader expects to be asked who leads; "" is nobody.
func expectLeader(mock sqlmock.Sqlmock, pid int, id string) {
	rows := sqlmock.NewRows(make([]string, 5))
	if id != "" {
		rows.AddRow(pid, id, "app", "", 0)
	}
	query(mock, "Holder").WillReturnRows(rows)
}

func TestAFaultOfLeaderAndCandidatesIsReturned(t *testing.T) {
	for _, f := range append([]fault{badAnswer}, anyError...) {
		for _, s := range []statement{holder, waiters} {
			bubble(t, s.name+"/"+f.name, func(t *testing.T) {
				pool, mock := newMock(t)
				e, _ := newElector(t, pool)
				if s.name == "Waiters" {
					expectLeader(mock, 0, "")
				}
				times := 1
				if f.err == driver.ErrBadConn {
					times = 3 // the pool itself tries other connections
				}
				for range times {
					s.expect(mock, f)
				}
				all, err := e.Candidates(t.Context())
				if err == nil || all != nil {
					t.Errorf("got %v, %v", all, err)
				}
				if f.want != nil {
					wantError(t, err, f.want)
				}
			})
		}
	}
}
