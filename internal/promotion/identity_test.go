package promotion

import (
	"context"
	"database/sql/driver"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/internal/drivertest"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/live"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/seat"
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

// A pooler leads the transactions of a candidate to servers of the same cluster.
type pooler struct {
	*Part
	from     *election.Source
	outside  int64 // the timeline of the server that answers outside a transaction
	inside   int64 // and of the one that answers within the next transaction
	answered int64 // by the server that answers now
}

// transactional makes a pooler, and a source in transaction scope that has seen the primary of timeline 2.
func transactional(t *testing.T) *pooler {
	t.Helper()
	p := &pooler{Part: New(time.Hour, func() bool { return true }), outside: 2, inside: 2, answered: 2}
	pool := (&drivertest.Driver{
		Beginning:   func(context.Context, driver.TxOptions) error { p.answered = p.inside; return nil },
		RollingBack: func() error { p.answered = p.outside; return nil },
		Exec:        func(context.Context, string) (int64, error) { return 0, nil },
		Query: func(_ context.Context, statement string, _ []any) (drivertest.Rows, error) {
			if drivertest.NameOf(statement) != "Identify" {
				t.Errorf("asked %s", statement)
			}
			return drivertest.One(int64(7), p.answered, "", int64(0))
		},
	}).Open()
	t.Cleanup(func() { _ = pool.Close() })
	p.from = election.NewSource(pool, election.SessionConfig{Lease: lease.Lease{Length: 10 * time.Second, Heartbeat: 2 * time.Second, Drain: time.Second},
		Statements: func(from *election.Source) election.Statements {
			return transaction.New(from, &seat.Asks{}, func() bool { return false })
		}, Parts: []election.Part{p.Part}})
	p.newest.saw(identity{db.IdentifyRow{System: 7, Timeline: 2}})
	return p
}

// A pooler may lead each transaction to another server than the connection was on.
func TestATransactionOnTheOldPrimaryIsNotLent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := transactional(t)
		p.inside = 1
		if _, err := p.from.Lend(t.Context()); !errors.Is(err, pgerr.ErrOldPrimary) {
			t.Errorf("got %v", err)
		}
		if n := p.from.Pool().Stats().InUse; n != 0 {
			t.Errorf("%d connections are in use", n)
		}
	})
}

func TestATransactionOnTheNewestPrimaryIsAProofOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := transactional(t)
		time.Sleep(time.Second)
		p.outside, p.answered = 1, 1
		s, err := p.from.Lend(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := p.from.MayKeep(t.Context(), s); err != nil { // as the deputy does
			t.Error(err)
		}
		s.GiveBack()
		if age := time.Since(p.newest.at); age > time.Second {
			t.Errorf("last seen %v ago", age)
		}
		if n := p.from.Pool().Stats().InUse; n != 0 {
			t.Errorf("%d connections are in use", n)
		}
	})
}

// A session that its owner keeps meets the promoted server, and is discarded. One that is elected ends.
func TestASessionOnTheOldPrimaryEndsWhenThePoolReachesTheNewOne(t *testing.T) {
	for _, started := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			old := electortest.NewServer()
			defer old.Close()
			standby := old.NewStandby(0)
			defer standby.Close()
			process := old.NewProcess()
			pool := process.Open()
			defer pool.Close()
			p := New(time.Second, func() bool { return false })
			from := election.NewSource(pool, election.SessionConfig{CandidateID: "a", Lease: lease.Lease{Length: 10 * time.Second, Heartbeat: 2 * time.Second, Drain: time.Second},
				Parts: []election.Part{p, live.Part{}}})
			s, err := from.Lend(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if started {
				locks, _, err := s.Try(t.Context(), election.Want{Key: 7})
				if err == nil {
					_, err = s.Confirm(t.Context(), locks...)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := from.MayKeep(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if err := standby.Promote(); err != nil {
				t.Fatal(err)
			}
			process.ConnectTo(standby) // from now on; the session stays where it is
			if started {
				ProbeServer(t.Context(), pool, time.Second)
				<-s.Context().Done()
			} else {
				time.Sleep(2 * time.Second)
				if err := from.MayKeep(t.Context(), s); !errors.Is(err, pgerr.ErrOldPrimary) {
					t.Errorf("got %v", err)
				}
			}
			if cause := context.Cause(s.Context()); !errors.Is(cause, pgerr.ErrOldPrimary) || !errors.Is(cause, pgerr.ErrSessionLost) {
				t.Errorf("ended by %v", cause)
			}
			if newest, ok := p.newest.within(time.Minute); !ok || newest.Timeline != 2 {
				t.Errorf("the newest is %v", newest)
			}
			s.Close()
		})
	}
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
