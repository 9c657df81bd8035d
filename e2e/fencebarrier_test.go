//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// Settings of a term that learns of its end late.
const (
	longLease = 30 * time.Second
	rarely    = 10 * time.Second
)

// campaigning starts a campaign in the background.
func campaigning(t *testing.T, c *candidate) <-chan *elector.Term {
	t.Helper()
	elected := make(chan *elector.Term, 1)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(elected)
		term, err := c.Campaign(ctx)
		if err == nil {
			elected <- term
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		if term, leading := c.Term(); leading {
			_ = term.Resign(soon(t))
		}
	})
	return elected
}

// atTheBarrier waits until the next leader holds the lock and waits for the last term's
// transactions.
func (s *server) atTheBarrier(t *testing.T, key int64) {
	t.Helper()
	eventually(t, "the next leader is at the barrier", func() bool {
		return len(s.locksOf(t, key, "NOT granted AND objsubid = 2")) == 1
	})
}

func TestTheNextLeaderWaitsForTheTransactionsOfTheLast(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]elector.Option{"polling": nil, "waiting": {elector.WithStandby(elector.Wait)}} {
		t.Run(name, func(t *testing.T) {
			overDrivers(t, func(t *testing.T, d drivers) {
				s := onShared(t)
				ledger := s.ledger(t)
				election := s.election(t)
				pool := d.open(t, 0, s.DSN())
				c, term := s.lead(t, pool, election, elector.WithLease(longLease), elector.WithHeartbeatInterval(rarely))
				second := s.stand(t, d.open(t, 1, s.DSN()), election, append(opts, elector.WithLease(longLease), elector.WithHeartbeatInterval(rarely))...)
				elected := campaigning(t, second)
				second.follows(t)
				err := term.InTx(soon(t), pool, nil, func(tx *sql.Tx) error {
					check(t, note(ledger, "in time")(tx))
					s.terminate(t, s.leaderPID(t, c.Key()))
					s.atTheBarrier(t, c.Key())
					select {
					case <-elected:
						t.Error("elected during a transaction of the last term")
					default:
					}
					// By now no other transaction of the old term may begin.
					wraps(t, term.InTx(soon(t), pool, nil, note(ledger, "late")), elector.ErrNotLeader)
					return nil
				})
				// The first transaction commits, or InTx reports the rollback: the second
				// InTx has ended the term.
				if err != nil {
					wraps(t, err, elector.ErrRolledBack)
				}
				next := <-elected
				if next == nil || next.Token() <= term.Token() {
					t.Fatalf("elected %v", next)
				}
			})
		})
	}
}

func TestATransactionThatBeganInTimeCommitsAndTheNextLeaderSeesIt(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		ledger := s.ledger(t)
		election := s.election(t)
		pool := d.open(t, 0, s.DSN())
		c, term := s.lead(t, pool, election, elector.WithLease(longLease), elector.WithHeartbeatInterval(rarely))
		second := s.stand(t, d.open(t, 1, s.DSN()), election, elector.WithLease(longLease), elector.WithHeartbeatInterval(rarely))
		elected := campaigning(t, second)
		second.follows(t)
		check(t, term.InTx(soon(t), pool, nil, func(tx *sql.Tx) error {
			s.terminate(t, s.leaderPID(t, c.Key()))
			s.atTheBarrier(t, c.Key())
			return note(ledger, "in time")(tx)
		}))
		next := <-elected
		err := next.InTx(soon(t), second.pool, &sql.TxOptions{Isolation: sql.LevelSerializable}, func(tx *sql.Tx) error {
			if n := one[int](t, tx, "SELECT count(*) FROM "+ledger); n != 1 {
				t.Errorf("the next leader sees %d notes", n)
			}
			return note(ledger, "next")(tx)
		})
		expect(t, err)
		wraps(t, term.InTx(soon(t), pool, nil, note(ledger, "late")), elector.ErrNotLeader)
		s.notes(t, ledger, "in time", "next")
	})
}

// The barrier of one election does not block the session's other elections.
func TestASessionOfManyElectionsWaitsForTheTransactionsOfTheLastLeader(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		ledger := s.ledger(t)
		election, another := s.election(t), s.election(t)
		pool := d.open(t, 0, s.DSN())
		c, term := s.lead(t, pool, election, elector.WithLease(longLease), elector.WithHeartbeatInterval(rarely))
		many, err := elector.NewSession(d.open(t, 1, s.DSN()), elector.WithLease(lease), elector.WithHeartbeatInterval(heartbeat), elector.WithRetryInterval(retry))
		check(t, err)
		t.Cleanup(func() { expect(t, many.Close(soon(t))) })
		other, err := many.Elector(another)
		check(t, err)
		otherTerm, err := other.Campaign(soon(t))
		check(t, err)
		second, err := many.Elector(election)
		check(t, err)
		elected := campaigning(t, &candidate{Elector: second})
		check(t, term.InTx(soon(t), pool, nil, func(tx *sql.Tx) error {
			old := s.leaderPID(t, c.Key())
			s.terminate(t, old)
			eventually(t, "the session has the lock", func() bool {
				pids := s.holders(t, c.Key())
				return len(pids) == 2 && !slices.Contains(pids, old)
			})
			before := otherTerm.RenewedAt()
			eventually(t, "the other elections go on", func() bool { return otherTerm.RenewedAt().Sub(before) > 2*heartbeat })
			select {
			case <-elected:
				t.Error("elected during a transaction of the last term")
			default:
			}
			return note(ledger, "in time")(tx)
		}))
		next := <-elected
		if next == nil || next.Token() <= term.Token() {
			t.Fatalf("elected %v", next)
		}
		wraps(t, term.InTx(soon(t), pool, nil, note(ledger, "late")), elector.ErrNotLeader)
		s.notes(t, ledger, "in time")
	})
}

// A leader without open transactions does not delay the next one.
func TestTheBarrierDoesNotWaitWithoutAnOpenTransaction(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		pool := d.open(t, 0, s.DSN())
		c, term := s.lead(t, pool, election)
		expect(t, term.InTx(soon(t), pool, nil, func(*sql.Tx) error { return nil }))
		second := s.stand(t, d.open(t, 1, s.DSN()), election)
		elected := campaigning(t, second)
		second.follows(t)
		s.terminate(t, s.leaderPID(t, c.Key()))
		<-elected
		for _, f := range second.rec.Failures() {
			t.Errorf("%s: %v", f.Op, f.Err)
		}
		for _, e := range second.rec.Campaigns() {
			if e.Outcome == hooks.Failed {
				t.Error("an attempt failed")
			}
		}
	})
}
