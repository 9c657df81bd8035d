//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
)

// slowToCommit makes a ledger whose transactions wait in COMMIT, in a deferred constraint,
// until letGo is called.
func (s *server) slowToCommit(t *testing.T) (ledger string, key int64, letGo func()) {
	t.Helper()
	ledger = s.ledger(t)
	key = elector.KeyFromName(ledger)
	gate, err := s.admin.Conn(t.Context())
	check(t, err)
	t.Cleanup(func() { expect(t, gate.Close()) })
	_, err = gate.ExecContext(t.Context(), "SELECT pg_advisory_lock($1)", key)
	check(t, err)
	_, err = s.admin.Exec(`CREATE FUNCTION wait_` + ledger + `() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN PERFORM pg_advisory_lock_shared(TG_ARGV[0]::bigint); PERFORM pg_advisory_unlock_shared(TG_ARGV[0]::bigint);
		RETURN NULL; END'`)
	check(t, err)
	t.Cleanup(func() { _, err := s.admin.Exec("DROP FUNCTION wait_" + ledger + " CASCADE"); expect(t, err) })
	_, err = s.admin.Exec("CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON " + ledger + " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait_" +
		ledger + fmt.Sprintf("('%d')", key))
	check(t, err)
	return ledger, key, func() {
		_, err := gate.ExecContext(context.Background(), "SELECT pg_advisory_unlock($1)", key)
		expect(t, err)
	}
}

// committing waits until a transaction is in COMMIT, and returns its backend.
func (s *server) committing(t *testing.T, key int64) (pid int) {
	t.Helper()
	eventually(t, "a transaction is in COMMIT", func() bool {
		pids := s.locksOf(t, key, "NOT granted AND objsubid = 1")
		if len(pids) == 1 {
			pid = pids[0]
		}
		return len(pids) == 1
	})
	return pid
}

func TestInTxWhoseConnectionIsLostDuringTheCommitHasAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]struct {
		lose func(l link, pid int)
		want []string // the final content of the ledger; nil if both are possible (pgx asks the server to cancel the COMMIT)
	}{
		"reset":      {func(l link, _ int) { l.proxy.Reset() }, nil},
		"black hole": {func(l link, _ int) { l.proxy.BlackHole() }, []string{"perhaps"}},
		"terminated": {func(l link, pid int) { _, _ = l.admin.Exec("SELECT pg_terminate_backend($1)", pid) }, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overEach(t, func(t *testing.T, d drivers) {
				l := behindAProxy(t)
				ledger, key, letGo := l.slowToCommit(t)
				// InTx waits one lease for the answer. A server that has received COMMIT
				// goes on meanwhile.
				length := lease
				if name == "black hole" {
					length = short
				}
				c, term := l.server.lead(t, d.open(t, 0, l.DSN()), l.election(t), elector.WithLease(length))
				pool := d.open(t, 0, l.cut())
				t.Cleanup(l.proxy.Heal)
				outcome := make(chan error, 1)
				go func() { outcome <- term.InTx(soon(t), pool, nil, note(ledger, "perhaps")) }()
				pid := l.committing(t, key)
				lose.lose(l, pid)
				if name == "black hole" {
					letGo() // the server commits, and its answer is lost
					wraps(t, <-outcome, elector.ErrOutcomeUnknown)
				} else {
					wraps(t, <-outcome, elector.ErrOutcomeUnknown)
					letGo()
				}
				// The next leader's term begins after the transaction has ended.
				_ = term.Resign(soon(t))
				_, next := l.server.lead(t, d.open(t, 0, l.DSN()), c.Election())
				expect(t, next.Verify(soon(t)))
				if lose.want != nil {
					l.notes(t, ledger, lose.want...)
				}
				if n := len(l.holders(t, c.Key())); n != 1 {
					t.Errorf("the next leader has begun, and %d sessions hold its locks", n)
				}
			})
		})
	}
}

// If the term ends during its transaction, the error says that it has ended, and why.
func TestInTxReportsThatItsTermHasEnded(t *testing.T) {
	t.Parallel()
	for name, work := range map[string]func(term *elector.Term, tx *sql.Tx, end func()) error{
		"in a statement of its work": func(term *elector.Term, tx *sql.Tx, end func()) error {
			go end()
			_, err := tx.ExecContext(term.Context(), "SELECT pg_sleep(60)")
			return err
		},
		"between two statements of its work": func(_ *elector.Term, tx *sql.Tx, end func()) error {
			end()
			_, err := tx.ExecContext(context.Background(), "SELECT 1")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overEach(t, func(t *testing.T, d drivers) {
				s := onShared(t)
				c, term := s.lead(t, d.open(t, 0, s.DSN()), s.election(t))
				err := term.InTx(soon(t), d.open(t, 1, s.DSN()), nil, func(tx *sql.Tx) error {
					return work(term, tx, func() {
						s.terminate(t, s.leaderPID(t, c.Key()))
						<-term.Context().Done()
					})
				})
				for _, want := range []error{elector.ErrRolledBack, elector.ErrNotLeader, elector.ErrSessionLost} {
					wraps(t, err, want)
				}
				if elector.Retryable(err) {
					t.Errorf("reported as retryable: %v", err)
				}
			})
		})
	}
}

// On a dead link a driver call may never return. InTx does not wait for its last calls
// longer than the drain.
func TestAFencedTransactionOnADeadLinkReturnsBeforeTheDrainIsOver(t *testing.T) {
	t.Parallel()
	for name, outlives := range map[string]func(t *testing.T, term *elector.Term, tx *sql.Tx, cut func()) error{
		"between two statements": func(t *testing.T, term *elector.Term, tx *sql.Tx, cut func()) error {
			cut()
			<-term.Context().Done()
			return nil
		},
		"in its rollback": func(t *testing.T, term *elector.Term, tx *sql.Tx, cut func()) error {
			cut()
			return errors.New("not now")
		},
		"in its commit": func(t *testing.T, term *elector.Term, tx *sql.Tx, cut func()) error {
			cut()
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overEach(t, func(t *testing.T, d drivers) {
				const drain = 10 * time.Second
				l := behindAProxy(t)
				c := l.stand(t, d, 0, l.election(t), elector.WithLease(2*drain), elector.WithDrain(drain))
				term, err := c.Campaign(soon(t))
				check(t, err)
				err = term.InTx(soon(t), c.pool, nil, func(tx *sql.Tx) error { return outlives(t, term, tx, l.proxy.BlackHole) })
				returned := time.Now()
				<-term.Context().Done()
				if err == nil || returned.After(term.Deadline().Add(drain)) {
					t.Errorf("InTx returned %v after the term, with %v", returned.Sub(term.Deadline()), err)
				}
				l.proxy.Heal()
				_ = term.Resign(soon(t))
			})
		})
	}
}

func TestInTxRollsBackWhenItsFunctionFails(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		ledger := s.ledger(t)
		pool := d.open(t, 0, s.DSN())
		c, term := s.lead(t, pool, s.election(t))
		oops := errors.New("oops")
		err := term.InTx(soon(t), pool, nil, func(tx *sql.Tx) error { check(t, note(ledger, "failed")(tx)); return oops })
		wraps(t, err, oops)
		wraps(t, err, elector.ErrRolledBack)

		func() {
			defer func() {
				if recovered := recover(); recovered != "panicked" {
					t.Errorf("recovered %v", recovered)
				}
			}()
			_ = term.InTx(soon(t), pool, nil, func(tx *sql.Tx) error { check(t, note(ledger, "panicked")(tx)); panic("panicked") })
		}()

		// After a failed statement the transaction cannot commit, even if fn returns nil.
		err = term.InTx(soon(t), pool, nil, func(tx *sql.Tx) error {
			check(t, note(ledger, "hidden")(tx))
			_, _ = tx.Exec("SELECT 1/0")
			return nil
		})
		wraps(t, err, elector.ErrRolledBack)

		ctx, cancel := context.WithCancelCause(soon(t))
		err = term.InTx(ctx, pool, nil, func(tx *sql.Tx) error {
			check(t, note(ledger, "interrupted")(tx))
			cancel(oops)
			_, err := tx.Exec("SELECT pg_sleep(1)") // lib/pq interrupts it
			return err
		})
		wraps(t, err, elector.ErrRolledBack)

		if !term.Valid() {
			t.Error("the term has ended")
		}
		expect(t, term.InTx(soon(t), pool, nil, note(ledger, "done")))
		s.notes(t, ledger, "done")
		eventually(t, "no transaction is left", func() bool { return len(s.holders(t, c.Key())) == 1 })
	})
}
