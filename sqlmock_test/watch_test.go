package sqlmock_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

// A watched leader has a second connection, which waits for a lock that its session holds. Both send
// statements at the same time, so their order is unknown.

const watcherPID = 201

// watched is a leader with a watch, and its mock.
type watched struct {
	pool *sql.DB
	mock sqlmock.Sqlmock
	e    *elector.Elector
	rec  *hookstest.Recorder
}

// newWatched elects a watched leader.
func newWatched(t *testing.T) watched { return newWatchedThat(t, func(error) {}) }

func newWatchedThat(t *testing.T, complains func(error)) watched {
	t.Helper()
	pool, mock := newMockThat(t, complains)
	mock.MatchExpectationsInOrder(false)
	expectTerm(mock, 1)
	e, rec := newElector(t, pool, elector.WithWatch())
	return watched{pool, mock, e, rec}
}

// secondLock expects that the session takes the watched lock.
func (w watched) secondLock() *sqlmock.ExpectedQuery {
	return query(w.mock, "TryPair").WillReturnRows(row(true))
}

// watcher expects the set-up of the other connection, and a wait of the given length.
func (w watched) watcher(waits time.Duration) *sqlmock.ExpectedExec {
	query(w.mock, "PrepareWait").WillReturnRows(row(watcherPID, false, 14, "1.5"))
	query(w.mock, "InTransaction").WillReturnRows(row(false))
	query(w.mock, "TryPair").WillReturnRows(row(false))
	return w.mock.ExpectExec("-- name: WaitLock ").WillDelayFor(waits).WillReturnResult(sqlmock.NewResult(0, 0))
}

// asked expects the query after a wait.
func (w watched) asked(ended bool) *sqlmock.ExpectedQuery {
	return query(w.mock, "HoldsPair").WillReturnRows(row(ended, watcherPID))
}

// waits expects another wait without a result.
func (w watched) waits(d time.Duration) {
	w.mock.ExpectExec("-- name: WaitLock ").WillDelayFor(d).WillReturnResult(sqlmock.NewResult(0, 0))
}

// The session's connection may be dead, and a heartbeat never be answered: none is sent.
func TestAWatchedTermEndsWithItsBackend(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		w := newWatchedThat(t, func(err error) { t.Errorf("%.150s …", err) })
		w.secondLock()
		w.watcher(500 * time.Millisecond)
		w.asked(true).WillDelayFor(100 * time.Millisecond)
		term := campaign(t, w.e)
		<-term.Context().Done()
		if held := time.Since(term.ElectedAt()); held != 600*time.Millisecond || w.e.IsLeader() || term.Valid() {
			t.Errorf("held for %v", held)
		}
		wantError(t, context.Cause(term.Context()), elector.ErrSessionLost)
		wantError(t, term.Resign(t.Context()), elector.ErrNotLeader)
		wantFailures(t, w.rec, hooks.OpHeartbeat)
		wantInUse(t, w.pool, 1)
	})
}

func TestAWatchChangesNeitherHeartbeatsNorValidity(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		w := newWatched(t)
		w.secondLock()
		w.watcher(2 * time.Second)
		w.asked(false)
		for range 4 {
			w.waits(2 * time.Second)
			w.asked(false)
		}
		w.waits(never)
		expectHeartbeats(w.mock, 5)
		expectResign(w.mock)
		term := campaign(t, w.e)
		time.Sleep(11 * time.Second)
		for i, b := range w.rec.Heartbeats() {
			if at := b.At.Sub(term.ElectedAt()); at != time.Duration(i+1)*2*time.Second || b.Deadline.Sub(b.At) != 7*time.Second {
				t.Errorf("heartbeat %d came after %v: %+v", i+1, at, b)
			}
		}
		if n := len(w.rec.Heartbeats()); n != 5 {
			t.Errorf("%d heartbeats", n)
		}
		start := time.Now()
		resign(t, term)
		if took := time.Since(start); took > 2*grace { // a server would have granted the watcher its lock at once
			t.Errorf("a resignation took %v", took)
		}
		wantFailures(t, w.rec)
	})
}

func TestASilentServerEndsAWatchedTermWhenItsValidityDoes(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		w := newWatched(t)
		w.secondLock()
		w.watcher(never)
		heartbeat.expect(w.mock, noAnswer)
		term := campaign(t, w.e)
		<-term.Context().Done()
		if held := time.Since(term.ElectedAt()); held != 7*time.Second {
			t.Errorf("held for %v", held)
		}
		wantError(t, context.Cause(term.Context()), elector.ErrLeaseExpired)
		_ = term.Resign(t.Context())
	})
}

func TestAFaultOfTheWatcherCausesAHeartbeatAtOnce(t *testing.T) {
	for _, f := range []fault{anyError[0], anyError[1], anyError[4]} {
		for name, answer := range map[string]fault{"which is answered": {}, "which fails": {err: errTerminated}} {
			bubble(t, f.name+", "+name, func(t *testing.T) {
				w := newWatched(t)
				w.secondLock()
				w.watcher(500 * time.Millisecond).WillReturnError(f.err)
				heartbeat.expect(w.mock, answer)
				if answer.err == nil {
					w.watcher(never)
					expectResign(w.mock)
				}
				term := campaign(t, w.e)
				time.Sleep(2 * time.Second)
				if answer.err != nil {
					wantError(t, context.Cause(term.Context()), elector.ErrSessionLost, errTerminated)
					if held := w.rec.Demoted()[0].Held; held != 500*time.Millisecond {
						t.Errorf("held for %v", held)
					}
					wantError(t, term.Resign(t.Context()), elector.ErrNotLeader)
					return
				}
				if beats := w.rec.Heartbeats(); len(beats) != 1 || beats[0].At.Sub(term.ElectedAt()) != 500*time.Millisecond {
					t.Errorf("heartbeats: %+v", beats)
				}
				resign(t, term)
				wantFailures(t, w.rec)
			})
		}
	}
}

// The term goes on. The attempts to watch become less frequent.
func TestAWatchThatCannotBeSetUpIsReportedOnceAndTriedAgain(t *testing.T) {
	fails := map[string]struct {
		locked bool // the session has the lock
		fail   func(watched)
		want   []error
	}{
		"no room for the lock": {false, func(w watched) { w.secondLock().WillReturnError(errFull) }, []error{elector.ErrLockTableFull, errFull}},
		"a lock that is taken": {false, func(w watched) { query(w.mock, "TryPair").WillReturnRows(row(false)) }, []error{elector.ErrUnsupportedServer}},
		"no connection":        {true, func(w watched) { query(w.mock, "PrepareWait").WillReturnError(errFull) }, []error{elector.ErrLockTableFull, errFull}},
		"no wait":              {true, func(w watched) { w.watcher(0).WillReturnError(errFull) }, []error{elector.ErrLockTableFull, errFull}},
		"no answer after it": {true, func(w watched) {
			w.watcher(0)
			w.asked(false).WillReturnError(errFull)
		}, []error{errFull}},
		"an answer of another backend": {true, func(w watched) {
			w.watcher(0)
			query(w.mock, "HoldsPair").WillReturnRows(row(true, watcherPID+1))
		}, []error{elector.ErrSessionPooled}},
	}
	for name, c := range fails {
		bubble(t, name, func(t *testing.T) {
			w := newWatched(t)
			if c.locked {
				w.secondLock()
			}
			const attempts = 8
			for range attempts {
				c.fail(w)
			}
			if !c.locked {
				w.secondLock()
			}
			w.watcher(never)
			const beats = 20
			expectHeartbeats(w.mock, beats)
			expectResign(w.mock)
			term := campaign(t, w.e)
			// Count expectations, since two heartbeats at one moment may be one event.
			for term.Valid() && !strings.Contains(w.mock.ExpectationsWereMet().Error(), "-- name: Unlock ") {
				time.Sleep(500 * time.Millisecond)
			}
			if took := time.Since(term.ElectedAt()); took < 20*time.Second {
				t.Errorf("%d heartbeats in %v", beats, took)
			}
			wantFailures(t, w.rec, hooks.OpWatch)
			if f := w.rec.Failures()[0]; f.Permanent {
				t.Errorf("reported %+v", f)
			}
			wantError(t, w.rec.Failures()[0].Err, c.want...)
			if !term.Valid() {
				t.Error("not leading any more")
			}
			resign(t, term)
		})
	}
}
