package sqlmock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/lib/pq"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// upTo expects the first n statements of an attempt, and answers the next with
// what a server would that must be refused.
func upTo(n int, answer ...any) func(sqlmock.Sqlmock) {
	return func(mock sqlmock.Sqlmock) {
		f, s := fault{}, attempt[n]
		if err, ok := answer[0].(error); ok {
			f.err = err
		} else {
			s.answer = nil
			for _, v := range answer {
				s.answer = append(s.answer, v)
			}
		}
		for _, s := range attempt[:n] {
			s.expect(mock, fault{})
		}
		s.expect(mock, f)
	}
}

var refusals = []struct {
	name   string
	server func(sqlmock.Sqlmock)
	want   error
}{
	{"a hot standby", upTo(0, firstPID, true, 150000, "PostgreSQL 15", asked, false), elector.ErrServerReadOnly},
	{"an old server", upTo(0, firstPID, false, 139999, "PostgreSQL 13.99", asked, false), elector.ErrUnsupportedServer},
	{"a pooler that loses a prepared statement of pgx", alwaysForgets(0, "26000"), elector.ErrSessionPooled},
	{"a pooler that has a prepared statement already", alwaysForgets(2, "42P05"), elector.ErrSessionPooled},
	{"one backend for two connections", upTo(2, firstPID, asked, false), elector.ErrSessionPooled},
	{"a backend that strangers use, too", func(mock sqlmock.Sqlmock) {
		upTo(4, secondPID, asked+1, false)(mock)
		query(mock, "LastAsked").WillReturnRows(row(secondPID, asked+1, false)) // and not because of what it saw before
	}, elector.ErrSessionPooled},
	{"a pooler in statement mode", upTo(5, &pq.Error{Code: "08P01"}), elector.ErrSessionPooled},
	{"another backend during a transaction", upTo(6, secondPID+1, false, 150000, "PostgreSQL 15", asked, false), elector.ErrSessionPooled},
	{"a statement that is lost during a transaction", alwaysForgets(6, "26000"), elector.ErrSessionPooled},
	{"a statement that is there already in a transaction", alwaysForgets(8, "42P05"), elector.ErrSessionPooled},
	{"an outcome that nobody knows", upTo(10, "perhaps", sessionPID, 0, ""), elector.ErrUnsupportedServer},
	{"locks that do not show", upTo(11, false, sessionPID, 0, noEpoch, false), elector.ErrUnsupportedServer},
}

func TestAServerThatCannotKeepThePromiseIsRefusedForGood(t *testing.T) {
	for _, r := range refusals {
		bubble(t, r.name, func(t *testing.T) {
			pool, mock := newMock(t)
			if r.server(mock); errors.Is(r.want, elector.ErrSessionPooled) { // believed only if it repeats
				r.server(mock)
				r.server(mock)
			}
			e, rec := newElector(t, pool)
			err := e.Run(patience(t), nil)
			wantError(t, err, r.want)
			wantFailures(t, rec, hooks.OpCampaign)
			if f := rec.Failures()[0]; !f.Permanent || f.Err != err {
				t.Errorf("reported %+v", f)
			}
			if c := rec.Campaigns(); len(c) != 1 || c[0].Outcome != hooks.Failed || c[0].Next != 0 || len(rec.Elected()) != 0 {
				t.Errorf("campaigns %+v, elected %+v", c, rec.Elected())
			}
			if n := pool.Stats().InUse; n != 1 { // the mock's own
				t.Errorf("%d connections are in use", n)
			}
		})
	}
}

// A connection that is cut in the middle of a check can look like a pooler.
func TestAPoolerIsRefusedOnlyIfItShowsOnEachConnection(t *testing.T) {
	for _, r := range refusals {
		if !errors.Is(r.want, elector.ErrSessionPooled) {
			continue
		}
		bubble(t, r.name, func(t *testing.T) {
			pool, mock := newMock(t)
			r.server(mock)
			r.server(mock)
			expectTerm(mock, 1)
			expectResign(mock)
			e, rec := newElector(t, pool)
			resign(t, campaign(t, e))
			wantFailures(t, rec)
		})
	}
}

// A pool that has passed a check is not refused any more, whatever its connections meet.
func TestAPoolThatHasPassedACheckIsBehindNoPooler(t *testing.T) {
	for _, r := range refusals {
		if !errors.Is(r.want, elector.ErrSessionPooled) {
			continue
		}
		bubble(t, r.name, func(t *testing.T) {
			pool, mock := newMock(t)
			expectServerCheck(mock)
			expectAttempt(mock, "granted")
			query(mock, "Confirm").WillReturnRows(row(true, sessionPID+1, 745, noEpoch, false))
			query(mock, "EvictHolder").WithArgs(sessionPID, orders).WillReturnRows(row(true)) // the lock stays on one that others share
			for range 3 {
				r.server(mock)
			}
			expectTerm(mock, 1)
			expectResign(mock)
			e, rec := newElector(t, pool)
			resign(t, campaign(t, e))
			wantFailures(t, rec, hooks.OpCampaign, hooks.OpCampaign)
			for _, f := range rec.Failures() {
				wantError(t, f.Err, elector.ErrSessionPooled)
				if f.Permanent {
					t.Errorf("refused for good: %v", f.Err)
				}
			}
		})
	}
}

// Other code has left a transaction open on a connection of the pool.
func TestAGrantInsideATransactionIsLeftForAnotherAtOnce(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 744)
		expectResign(mock)
		expectAttempt(mock, "granted")
		query(mock, "Confirm").WillReturnRows(row(true, sessionPID, 0, noEpoch, true))
		expectTerm(mock, 745)
		expectResign(mock)
		e, rec := newElector(t, pool)
		resign(t, campaign(t, e))
		start := time.Now()
		resign(t, campaign(t, e))
		if took := time.Since(start); took != 0 {
			t.Errorf("took %v", took)
		}
		wantFailures(t, rec)
	})
}

func TestARefusalIsToldByEachWayToCampaign(t *testing.T) {
	ways := map[string]func(*testing.T, *elector.Elector) error{
		"Run":         func(t *testing.T, e *elector.Elector) error { return e.Run(patience(t), nil) },
		"Campaign":    func(t *testing.T, e *elector.Elector) error { _, err := e.Campaign(patience(t)); return err },
		"TryCampaign": func(t *testing.T, e *elector.Elector) error { _, _, err := e.TryCampaign(t.Context()); return err },
		"Start and Stop": func(t *testing.T, e *elector.Elector) error {
			wantError(t, e.Start(patience(t)))
			settle()
			err := e.Stop(t.Context())
			wantError(t, e.Stop(t.Context())) // told once
			return err
		},
	}
	for name, campaign := range ways {
		bubble(t, name, func(t *testing.T) {
			pool, mock := newMock(t)
			refusals[0].server(mock)
			e, _ := newElector(t, pool)
			wantError(t, campaign(t, e), elector.ErrServerReadOnly)
			refusals[1].server(mock) // and the elector can be used again
			wantError(t, campaign(t, e), elector.ErrUnsupportedServer)
		})
	}
}

func TestAPoolOfOneConnectionIsTooSmall(t *testing.T) {
	bubble(t, "at New", func(t *testing.T) {
		pool, _ := newMock(t)
		pool.SetMaxOpenConns(1)
		e, err := elector.New(pool, "orders")
		wantError(t, err, elector.ErrConfig)
		if e != nil {
			t.Error("an elector came with the error")
		}
	})
	bubble(t, "at New, to watch", func(t *testing.T) {
		pool, _ := newMock(t)
		pool.SetMaxOpenConns(2)
		_, err := elector.New(pool, "orders", elector.WithWatch())
		wantError(t, err, elector.ErrConfig)
		_, err = elector.NewSession(pool, elector.WithWatch())
		wantError(t, err, elector.ErrConfig)
		pool.SetMaxOpenConns(3)
		_, err = elector.New(pool, "orders", elector.WithWatch())
		wantError(t, err)
	})
	bubble(t, "set after New", func(t *testing.T) {
		pool, mock := newMock(t)
		e, rec := newElector(t, pool)
		expectTerm(mock, 1)
		expectResign(mock)
		resign(t, campaign(t, e)) // checked, and found good
		pool.SetMaxOpenConns(1)
		wantError(t, e.Run(patience(t), nil), elector.ErrConfig)
		wantFailures(t, rec, hooks.OpCampaign)
	})
	bubble(t, "none is too large", func(t *testing.T) {
		pool, _ := newMock(t)
		for _, n := range []int{0, 2, 1000} {
			pool.SetMaxOpenConns(n)
			_, err := elector.New(pool, "orders")
			wantError(t, err)
		}
	})
}

func TestANilPoolIsAnErrorOfConfiguration(t *testing.T) {
	e, err := elector.New((*sql.DB)(nil), "orders")
	if !errors.Is(err, elector.ErrConfig) || e != nil {
		t.Errorf("got %v, %v", e, err)
	}
}

// A candidate that waits in the server leaves it when it is refused.
func TestAPoolThatBecomesTooSmallForAParkedCandidateGetsItsConnectionBack(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectParked(mock, parks)
		expectVain(mock)
		e, rec := newElector(t, pool, elector.WithStandby(elector.Wait))
		time.AfterFunc(time.Second, func() { pool.SetMaxOpenConns(1) })
		wantError(t, e.Run(patience(t), nil), elector.ErrConfig)
		settle()
		if n := pool.Stats().InUse; n != 1 { // the mock's own
			t.Errorf("%d connections are in use", n)
		}
		wantFailures(t, rec, hooks.OpCampaign)
	})
}

// Only if the pool gave no connection in time it may be too small, or the server away.
func TestAPoolThatGivesNoConnectionIsNamedOnlyIfItIsWhatFailed(t *testing.T) {
	const named = "MaxOpenConns large enough?"
	bubble(t, "in time", func(t *testing.T) {
		pool, _ := newMock(t)
		pool.SetMaxOpenConns(2)
		other, err := pool.Conn(t.Context())
		wantError(t, err)
		e, _ := newElector(t, pool)
		if _, _, err = e.TryCampaign(t.Context()); !contains(err, named) {
			t.Errorf("got %v", err)
		}
		wantError(t, other.Close())
	})
	bubble(t, "before the session is closed", func(t *testing.T) {
		pool, _ := newMock(t)
		pool.SetMaxOpenConns(2)
		other, err := pool.Conn(t.Context())
		wantError(t, err)
		s, err := elector.NewSession(pool)
		wantError(t, err)
		e, err := s.Elector("orders")
		wantError(t, err)
		time.AfterFunc(time.Second, func() { wantError(t, s.Close(context.Background())) })
		_, err = e.Campaign(patience(t))
		if wantError(t, err, elector.ErrStopped); contains(err, named) {
			t.Errorf("got %v", err)
		}
		wantError(t, other.Close())
	})
	bubble(t, "it is closed", func(t *testing.T) {
		pool, _, err := sqlmock.New()
		wantError(t, err)
		e, _ := newElector(t, pool)
		_ = pool.Close()
		if _, _, err = e.TryCampaign(t.Context()); err == nil || contains(err, named) {
			t.Errorf("got %v", err)
		}
	})
}
