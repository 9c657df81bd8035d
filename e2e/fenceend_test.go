//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
)

// Whenever the term ends while its transaction is under way, the error says that
// it has ended, and why.
func TestAFencedTransactionThatOutlivesItsTermSaysSo(t *testing.T) {
	t.Parallel()
	for name, outlives := range map[string]func(t *testing.T, term *elector.Term, pool *sql.DB, end func()) error{
		"before it begins": func(t *testing.T, term *elector.Term, pool *sql.DB, end func()) error {
			pool.SetMaxOpenConns(1)
			busy, err := pool.Conn(soon(t))
			check(t, err)
			defer busy.Close()
			go end()
			return term.InTx(soon(t), pool, nil, func(*sql.Tx) error { t.Error("fn was called"); return nil })
		},
		"in a statement of its work": func(t *testing.T, term *elector.Term, pool *sql.DB, end func()) error {
			return term.InTx(soon(t), pool, nil, func(tx *sql.Tx) error {
				go end()
				_, err := tx.ExecContext(term.Context(), "SELECT pg_sleep(60)")
				return err
			})
		},
		"between two statements of its work": func(t *testing.T, term *elector.Term, pool *sql.DB, end func()) error {
			return term.InTx(soon(t), pool, nil, func(tx *sql.Tx) error {
				end()
				_, err := tx.ExecContext(context.Background(), "SELECT 1")
				return err
			})
		},
		"before it commits": func(t *testing.T, term *elector.Term, pool *sql.DB, end func()) error {
			return term.InTx(soon(t), pool, nil, func(*sql.Tx) error { end(); return nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overEach(t, func(t *testing.T, d drivers) {
				s := onShared(t)
				c, term := s.lead(t, d.open(t, 0, s.DSN()), s.election(t))
				err := outlives(t, term, d.open(t, 1, s.DSN()), func() {
					s.terminate(t, s.leaderPID(t, c.Key()))
					<-term.Context().Done()
				})
				for _, want := range []error{elector.ErrRolledBack, elector.ErrNotLeader, elector.ErrSessionLost} {
					wraps(t, err, want)
				}
				if elector.Retryable(err) {
					t.Errorf("it is said to be worth another try: %v", err)
				}
			})
		})
	}
}

// On a link that is dead no call of a driver need ever return. Those that InTx makes
// for its end are not waited for beyond the time that the work has.
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
			overEach(t, func(t *testing.T, d drivers) {
				const drain = 4 * time.Second
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
