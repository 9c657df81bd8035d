//go:build unix

package e2e_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

// Neither driver tells InTx that a statement of fn has ended the transaction.
func TestInTxNoticesThatItsFunctionEndsTheTransaction(t *testing.T) {
	t.Parallel()
	oops := errors.New("oops")
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		pool := d.open(t, 0, s.DSN())
		_, term := s.lead(t, pool, s.election(t))
		for _, ends := range []string{"COMMIT", "COMMIT AND CHAIN", "ROLLBACK", "ROLLBACK AND CHAIN", "COMMIT; BEGIN"} {
			for _, fails := range []error{nil, oops} {
				ledger := s.ledger(t)
				err := term.InTx(soon(t), pool, nil, func(tx *sql.Tx) error {
					check(t, note(ledger, "before")(tx))
					for _, statement := range strings.Split(ends, ";") {
						_, err := tx.Exec(statement)
						check(t, err)
					}
					check(t, note(ledger, "behind")(tx))
					return fails
				})
				wraps(t, err, elector.ErrOutcomeUnknown)
				if fails != nil {
					wraps(t, err, oops)
				}
				if errors.Is(err, elector.ErrRolledBack) || elector.Retryable(err) {
					t.Errorf("%s: %v", ends, err)
				}
				if strings.Contains(ends, " ") { // another transaction has begun, which has no fence
					notes := list[string](t, s.admin, "SELECT note FROM "+ledger)
					if fmt.Sprint(notes) == "[before behind]" || fmt.Sprint(notes) == "[behind]" {
						t.Errorf("after %s the ledger says %q", ends, notes)
					}
				}
			}
		}
		// What ends a part of the transaction does not end it, nor does fn's own RESET ALL.
		expect(t, term.InTx(soon(t), pool, nil, func(tx *sql.Tx) error {
			for _, statement := range []string{"SAVEPOINT s", "RESET ALL", "SET LOCAL TimeZone = 'Asia/Tokyo'", "ROLLBACK TO s", "RELEASE s"} {
				if _, err := tx.Exec(statement); err != nil {
					return err
				}
			}
			return nil
		}))
		if !term.Valid() {
			t.Error("the term has ended")
		}
	})
}

// A prepared transaction keeps the guard lock, has no backend, and outlives everything.
func TestAPreparedTransactionThatBlocksTheNextLeaderIsNamed(t *testing.T) {
	t.Parallel()
	s := on(t, own(t, pgcluster.WithSetting("max_prepared_transactions", "4")))
	overEach(t, func(t *testing.T, d drivers) {
		election, gid := s.election(t), unique("order's")
		ledger := s.ledger(t)
		first, term := s.lead(t, d.open(t, 0, s.DSN()), election)
		err := term.InTx(soon(t), first.pool, nil, func(tx *sql.Tx) error {
			check(t, note(ledger, "in two phases")(tx))
			_, err := tx.Exec("PREPARE TRANSACTION '" + strings.ReplaceAll(gid, "'", "''") + "'")
			return err
		})
		named := func(err error) bool {
			return strings.Contains(fmt.Sprint(err), gid) && strings.Contains(fmt.Sprint(err), "ROLLBACK PREPARED")
		}
		if wraps(t, err, elector.ErrOutcomeUnknown); !named(err) {
			t.Errorf("got %v", err)
		}
		check(t, term.Resign(soon(t)))
		blocked := func(f hooks.Failure) bool { return named(f.Err) }
		next := s.stand(t, d.open(t, 0, s.DSN()), election, briefly).run(t, nil)
		wait(t, next, blocked)
		if !throughPooler {
			shared := s.share(t, d.open(t, 0, s.DSN()), briefly).join(t, []string{election}).run(t, nil)
			_, err := hookstest.Wait(soon(t), shared.rec, blocked)
			expect(t, err)
			shared.close(t)
		}
		if n := len(next.rec.Elected()); n != 0 {
			t.Errorf("elected %d times", n)
		}
		_, err = s.admin.Exec("ROLLBACK PREPARED '" + strings.ReplaceAll(gid, "'", "''") + "'")
		check(t, err)
		next.elected(t)
	})
}
