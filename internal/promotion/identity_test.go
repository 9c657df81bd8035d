package promotion

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/DATA-DOG/go-sqlmock"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/session"
	"github.com/pgelector/pgelector/internal/transaction"
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

// A transactional is a Source in transaction scope that has seen the primary of timeline 2. A
// pooler may lead each of its transactions to another server.
func transactional(t *testing.T) (p *Part, v *session.Source, mock sqlmock.Sqlmock) {
	t.Helper()
	pool, mock, err := sqlmock.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	p = New(time.Hour)
	v = session.NewSource(pool, session.Config{Lease: lease.Lease{Length: 10 * time.Second, Heartbeat: 2 * time.Second, Drain: time.Second}, Scope: session.TransactionScope, Inside: transaction.Part{}, Parts: []session.Part{p}})
	p.newest.saw(identity{db.IdentifyRow{System: 7, Timeline: 2}})
	return p, v, mock
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
		_, v, mock := transactional(t)
		expectIdentify(mock, 2)
		expectTransaction(mock, 1)
		mock.ExpectRollback()
		if _, err := v.Lend(t.Context(), true); !errors.Is(err, pgerr.ErrOldPrimary) {
			t.Errorf("got %v", err)
		}
		if n := v.Pool().Stats().OpenConnections; n != 0 {
			t.Errorf("%d connections are open", n)
		}
	})
}

func TestATransactionOnTheNewestPrimaryIsAProofOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, v, mock := transactional(t)
		time.Sleep(time.Second)
		expectIdentify(mock, 2)
		expectTransaction(mock, 2)
		s, err := v.Lend(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		mock.ExpectRollback()
		expectTransaction(mock, 2)
		if err := v.Keep(t.Context(), s); err != nil { // as the deputy does
			t.Error(err)
		}
		if err := v.Anew(t.Context(), s); err != nil {
			t.Error(err)
		}
		if age := time.Since(p.newest.at); age > time.Second {
			t.Errorf("last seen %v ago", age)
		}
		mock.ExpectRollback()
		s.Discard()
	})
}

func TestOnlyAPromotedStandbyMakesAPrimaryOld(t *testing.T) {
	server := func(system, timeline int64) identity {
		return identity{db.IdentifyRow{System: system, Timeline: timeline}}
	}
	primary := server(7, 2)
	for what, c := range map[string]struct {
		other identity
		want  bool
	}{
		"a promoted standby": {server(7, 3), true},
		"itself":             {server(7, 2), false},
		"an older primary":   {server(7, 1), false},
		"a standby":          {server(7, 0), false},
		"another cluster":    {server(8, 3), false},
	} {
		if primary.isOlderThan(c.other) != c.want {
			t.Errorf("beside %s: want %t", what, c.want)
		}
	}
	if server(7, 0).isOlderThan(primary) {
		t.Error("a standby is an old primary")
	}
}
