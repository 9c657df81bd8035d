package session

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/DATA-DOG/go-sqlmock"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/pgerr"
)

func TestTheNewestPrimaryIsRememberedFromItsLastProof(t *testing.T) {
	seen := identity{db.IdentifyRow{System: 7, Timeline: 2}}
	began := time.Now()
	for what, c := range map[string]struct {
		own  identity
		at   time.Duration
		want identity
	}{
		"it is seen again":        {seen, time.Second, seen},
		"it was seen before":      {seen, -time.Second, seen},
		"it was replaced":         {identity{db.IdentifyRow{System: 7, Timeline: 3}}, time.Second, identity{db.IdentifyRow{System: 7, Timeline: 3}}},
		"an older one is seen":    {identity{db.IdentifyRow{System: 7, Timeline: 1}}, time.Second, seen},
		"another cluster is seen": {identity{db.IdentifyRow{System: 8, Timeline: 3}}, time.Second, seen},
	} {
		n := &newest{seen: seen, at: began}
		n.still(&c.own, began.Add(c.at))
		at := began
		if c.at > 0 && n.seen == c.own {
			at = began.Add(c.at)
		}
		if n.seen != c.want || n.at != at {
			t.Errorf("%s: got %v at %v, want %v at %v", what, n.seen, n.at.Sub(began), c.want, at.Sub(began))
		}
	}
}

// A transactional is a Server in transaction scope that has seen the primary of timeline 2. A
// pooler may lead each of its transactions to another server.
func transactional(t *testing.T) (v *Source, mock sqlmock.Sqlmock) {
	t.Helper()
	pool, mock, err := sqlmock.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	v = NewSource(pool, Config{Lease: leaseOf(10*time.Second, 2*time.Second, time.Second), Scope: TransactionScope})
	v.newest.saw(identity{db.IdentifyRow{System: 7, Timeline: 2}})
	return v, mock
}

func expectIdentify(mock sqlmock.Sqlmock, timeline int) {
	mock.ExpectQuery("-- name: Identify ").WillReturnRows(
		sqlmock.NewRows([]string{"system", "timeline", "host", "port"}).AddRow(7, timeline, "", 0))
}

func expectTransaction(mock sqlmock.Sqlmock, timeline int) {
	mock.ExpectBegin()
	for _, first := range []string{"RepeatableRead", "ReadCommitted", "Savepoint"} {
		mock.ExpectExec("-- name: " + first + " ").WillReturnResult(sqlmock.NewResult(0, 0))
	}
	expectIdentify(mock, timeline)
	mock.ExpectExec("-- name: ReleaseIt ").WillReturnResult(sqlmock.NewResult(0, 0))
}

func TestATransactionOnTheOldPrimaryIsNotLent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, mock := transactional(t)
		expectIdentify(mock, 2)
		expectTransaction(mock, 1)
		mock.ExpectRollback()
		if _, err := v.lend(t.Context(), true); !errors.Is(err, pgerr.ErrOldPrimary) {
			t.Errorf("got %v", err)
		}
		if n := v.pool.Stats().OpenConnections; n != 0 {
			t.Errorf("%d connections are open", n)
		}
	})
}

func TestATransactionOnTheNewestPrimaryIsAProofOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, mock := transactional(t)
		time.Sleep(time.Second)
		expectIdentify(mock, 2)
		expectTransaction(mock, 2)
		s, err := v.lend(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		mock.ExpectRollback()
		expectTransaction(mock, 2)
		if err := v.Anew(t.Context(), s); err != nil {
			t.Error(err)
		}
		if age := time.Since(v.newest.at); age > time.Second {
			t.Errorf("last seen %v ago", age)
		}
		mock.ExpectRollback()
		s.Discard()
	})
}
