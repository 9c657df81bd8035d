package sqlmock_test

import (
	"context"
	"database/sql/driver"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"

	"github.com/pgelector/pgelector/elector"
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

func TestTheLeaderIsAsTheServerSays(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		e, _ := newElector(t, pool)
		holder.expect(mock, slow)
		got, err := e.Leader(t.Context())
		want := elector.Leader{CandidateID: "web-2", PID: 200, User: "app", Addr: "10.0.0.2", Connected: since.Local()}
		if got != want || err != nil {
			t.Errorf("got %+v, %v", got, err)
		}
		expectLeader(mock, 0, "")
		_, err = e.Leader(t.Context())
		wantError(t, err, elector.ErrNoLeader)
	})
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

func TestCandidatesListsTheLeaderAndThenWhoWaits(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		e, _ := newElector(t, pool)
		holder.expect(mock, fault{})
		waiters.expect(mock, fault{})
		all, err := e.Candidates(t.Context())
		if err != nil || len(all) != 2 || !all[0].Leading || all[0].CandidateID != "web-2" ||
			all[1].Leading || all[1].CandidateID != "web-3" || !all[1].Waiting.Equal(since) || !all[1].Connected.IsZero() {
			t.Errorf("got %+v, %v", all, err)
		}
		expectLeader(mock, 0, "")
		query(mock, "Waiters").WillReturnRows(sqlmock.NewRows(make([]string, 6)))
		if all, err := e.Candidates(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("got %+v, %v", all, err)
		}
	})
}

func TestObserveYieldsEachChangeAndEachErrorOnce(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectLeader(mock, 0, "")
		expectLeader(mock, 0, "")
		expectLeader(mock, 200, "web-1")
		expectLeader(mock, 200, "web-1")
		holder.expect(mock, anyError[0])
		holder.expect(mock, anyError[1])
		expectLeader(mock, 200, "web-1")
		expectLeader(mock, 300, "web-1") // the same candidate, on another session
		expectLeader(mock, 0, "")
		expectLeader(mock, 400, "web-2")
		e, _ := newElector(t, pool)
		want := []struct {
			pid int32
			err error
		}{{0, elector.ErrNoLeader}, {200, nil}, {0, errPlain}, {200, nil}, {300, nil}, {0, elector.ErrNoLeader}, {400, nil}}
		for leader, err := range e.Observe(t.Context()) {
			if leader.PID != want[0].pid {
				t.Errorf("got %+v, want %+v", leader, want[0])
			}
			if want[0].err != nil {
				wantError(t, err, want[0].err)
			} else {
				wantError(t, err)
			}
			if want = want[1:]; len(want) == 0 {
				break
			}
		}
	})
}

func TestObserveEndsWithItsContext(t *testing.T) {
	bubble(t, "while it waits", func(t *testing.T) {
		pool, mock := newMock(t)
		expectLeader(mock, 0, "")
		e, _ := newElector(t, pool)
		ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer stop()
		start := time.Now()
		for _, err := range e.Observe(ctx) {
			wantError(t, err, elector.ErrNoLeader)
		}
		if time.Since(start) != 100*time.Millisecond {
			t.Errorf("after %v", time.Since(start))
		}
	})
	bubble(t, "while it asks", func(t *testing.T) {
		pool, mock := newMock(t)
		holder.expect(mock, noAnswer)
		e, _ := newElector(t, pool)
		ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer stop()
		for leader, err := range e.Observe(ctx) {
			t.Errorf("yielded %v, %v", leader, err)
		}
	})
}

// A backend's number may come again, for another session of the same candidate.
func TestObserveTellsTwoSessionsOfOneNumberApart(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		for i := range 2 {
			query(mock, "Holder").WillReturnRows(row(200, "web-2", "app", "", since.Add(time.Duration(i)*time.Hour).UnixMicro()))
		}
		e, _ := newElector(t, pool)
		changes := 0
		for _, err := range e.Observe(t.Context()) {
			wantError(t, err)
			if changes++; changes == 2 {
				break
			}
		}
	})
}

// That nobody leads, and that the server cannot be asked, are two things to know.
func TestObserveTellsNoLeaderFromNoAnswer(t *testing.T) {
	for _, failsFirst := range []bool{true, false} {
		bubble(t, "", func(t *testing.T) {
			pool, mock := newMock(t)
			want := []error{elector.ErrNoLeader, errPlain}
			if failsFirst {
				want = []error{errPlain, elector.ErrNoLeader}
			}
			for _, err := range want {
				if err == errPlain {
					holder.expect(mock, fault{err: errPlain})
				} else {
					expectLeader(mock, 0, "")
				}
			}
			e, _ := newElector(t, pool)
			for _, err := range e.Observe(t.Context()) {
				wantError(t, err, want[0])
				if want = want[1:]; len(want) == 0 {
					break
				}
			}
		})
	}
}
