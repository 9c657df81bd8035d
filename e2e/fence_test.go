//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
)

// lead makes a candidate that leads. Its term is resigned at the end of the test.
func (s *server) lead(t *testing.T, pool *sql.DB, election string, opts ...elector.Option) (*candidate, *elector.Term) {
	t.Helper()
	c := s.stand(t, pool, election, opts...)
	term, err := c.Campaign(soon(t))
	check(t, err)
	t.Cleanup(func() { _ = term.Resign(soon(t)) })
	return c, term
}

// ledger makes a table with one column, note, which is dropped at the end of the test.
func (s *server) ledger(t *testing.T) string {
	t.Helper()
	name := strings.ReplaceAll(unique("ledger"), "-", "_")
	_, err := s.admin.Exec("CREATE TABLE " + name + " (note text)")
	check(t, err)
	t.Cleanup(func() {
		_, err := s.admin.Exec("DROP TABLE " + name)
		expect(t, err)
	})
	return name
}

// note returns a function for InTx that writes a note.
func note(ledger, text string) func(*sql.Tx) error {
	return func(tx *sql.Tx) error {
		_, err := tx.Exec("INSERT INTO " + ledger + " VALUES ('" + text + "')")
		return err
	}
}

// notes fails the test unless the ledger has exactly these notes.
func (s *server) notes(t *testing.T, ledger string, want ...string) {
	t.Helper()
	got := list[string](t, s.admin, "SELECT note FROM "+ledger+" ORDER BY note")
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the ledger says %q, want %q", got, want)
	}
}

// leaderPID returns the backend that holds an election's lock. Other backends may hold the
// guard lock, which has the same key.
func (s *server) leaderPID(t *testing.T, key int64) int {
	t.Helper()
	pids := s.locksOf(t, key, "granted AND objsubid = 1")
	if len(pids) != 1 {
		t.Fatalf("the backends %v hold the lock, want one", pids)
	}
	return pids[0]
}

func TestInTxCommitsInsideTheTerm(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		ledger := s.ledger(t)
		_, term := s.lead(t, d.open(t, 0, s.DSN()), s.election(t))
		expect(t, term.InTx(soon(t), d.open(t, 0, s.DSN()), nil, note(ledger, "first")))
		expect(t, term.InTx(soon(t), d.open(t, 1, s.DSN()), nil, note(ledger, "second")))
		s.notes(t, ledger, "first", "second")
	})
}

func TestInTxWorksAtEveryIsolationLevel(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		ledger := s.ledger(t)
		pool := d.open(t, 0, s.DSN())
		_, term := s.lead(t, pool, s.election(t))
		for _, level := range []sql.IsolationLevel{sql.LevelDefault, sql.LevelReadUncommitted, sql.LevelReadCommitted,
			sql.LevelRepeatableRead, sql.LevelSerializable} {
			err := term.InTx(soon(t), pool, &sql.TxOptions{Isolation: level}, note(ledger, strings.ToLower(level.String())))
			if err != nil {
				t.Errorf("%s: %v", level, err)
			}
			err = term.InTx(soon(t), pool, &sql.TxOptions{Isolation: level, ReadOnly: true}, func(tx *sql.Tx) error {
				_, err := tx.Exec("SELECT * FROM " + ledger)
				return err
			})
			if err != nil {
				t.Errorf("%s, read only: %v", level, err)
			}
			err = term.InTx(soon(t), pool, &sql.TxOptions{Isolation: level, ReadOnly: true}, note(ledger, "forbidden"))
			wraps(t, err, elector.ErrRolledBack)
		}
		s.notes(t, ledger, "default", "read committed", "read uncommitted", "repeatable read", "serializable")
	})
}

func TestInTxIsRefusedAfterTheTerm(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		for name, end := range map[string]func(*testing.T, link, *candidate, *elector.Term){
			"resigned": func(t *testing.T, _ link, _ *candidate, term *elector.Term) {
				expect(t, term.Resign(soon(t)))
			},
			"terminated": func(t *testing.T, l link, c *candidate, _ *elector.Term) {
				l.terminateUnheard(t, c)
				l.frees(t, c.Key())
			},
			"terminated, and another leads": func(t *testing.T, l link, c *candidate, _ *elector.Term) {
				l.terminateUnheard(t, c)
				l.lead(t, d.open(t, 0, l.DSN()), c.Election())
			},
		} {
			for _, before := range [][]string{nil, {"in time"}} { // transactions of the term
				t.Run(fmt.Sprint(name, " after ", len(before)), func(t *testing.T) {
					s := onShared(t)
					ledger := s.ledger(t)
					pool := d.open(t, 0, s.DSN())
					// The term learns of its end from InTx.
					l := s.behindAProxy(t)
					c, term := l.leadUnheard(t, d, s.election(t))
					for _, text := range before {
						expect(t, term.InTx(soon(t), pool, nil, note(ledger, text)))
					}
					end(t, l, c, term)
					// Once it is refused, InTx asks the session, which would not answer for the rest of the lease.
					defer time.AfterFunc(200*time.Millisecond, l.proxy.Heal).Stop()
					for range 2 {
						err := term.InTx(soon(t), pool, nil, func(*sql.Tx) error { t.Error("fn was called"); return nil })
						wraps(t, err, elector.ErrNotLeader)
						wraps(t, err, elector.ErrRolledBack)
						if elector.Retryable(err) {
							t.Error("reported as retryable")
						}
					}
					if term.Context().Err() == nil {
						t.Error("the term goes on")
					}
					s.notes(t, ledger, before...)
				})
			}
		}
	})
}

// A role that has become another one at its login does not see when its own backend began, nor does one
// that another role has replaced, as Vault's do.
func TestInTxNeedsNoRightToSeeTheSession(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		owner, other := s.role(t, nil), s.role(t, nil)
		login := s.role(t, map[string]string{"role": owner})
		_, err := s.admin.Exec(`GRANT "` + owner + `" TO "` + login + `"`)
		check(t, err)
		pool := d.open(t, 0, s.DSN(pgcluster.ForRole(login)))
		if role := one[string](t, pool, "SELECT current_user"); role != owner {
			t.Fatalf("the role is %q", role)
		}
		_, term := s.lead(t, pool, s.election(t))
		for _, pool := range []*sql.DB{pool, d.open(t, 0, s.DSN(pgcluster.ForRole(other)))} {
			expect(t, term.InTx(soon(t), pool, nil, func(*sql.Tx) error { return nil }))
		}
		if !term.Valid() {
			t.Errorf("the term has ended: %v", context.Cause(term.Context()))
		}
	})
}

// The same lock in another database, or on another server, is another lock.
func TestInTxOnAnotherDatabaseIsRefusedAndKeepsTheTerm(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		election := s.election(t)
		_, term := s.lead(t, d.open(t, 0, s.DSN()), election)
		elsewhere := d.open(t, 0, s.database(t))
		s.lead(t, elsewhere, election) // an election with the same name has a leader there
		err := term.InTx(soon(t), elsewhere, nil, func(*sql.Tx) error { t.Error("fn was called"); return nil })
		wraps(t, err, elector.ErrConfig)
		wraps(t, err, elector.ErrRolledBack)
		if !term.Valid() || errors.Is(err, elector.ErrNotLeader) || !strings.Contains(err.Error(), "another database") {
			t.Errorf("valid %v: %v", term.Valid(), err)
		}
	})
}

// The server starts the timer of transaction_timeout with the transaction, and a shorter
// timeout that is set later does not change a timer that runs.
func TestAFencedTransactionHasOneLeaseWhateverTheRolesTimeout(t *testing.T) {
	t.Parallel()
	s := onShared(t)
	if one[int](t, s.admin, "SELECT current_setting('server_version_num')::int") < 170000 {
		t.Skip("transaction_timeout came with PostgreSQL 17")
	}
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		pool := d.open(t, 0, s.DSN(pgcluster.ForRole(s.role(t, map[string]string{"transaction_timeout": "1h"}))))
		_, term := s.lead(t, pool, s.election(t), briefly)
		err := term.InTx(soon(t), pool, nil, func(tx *sql.Tx) error {
			for began := time.Now(); time.Since(began) < 3*short; {
				if _, err := tx.Exec("SELECT pg_sleep(0.1)"); err != nil {
					return err
				}
			}
			t.Error("the transaction goes on")
			return nil
		})
		wraps(t, err, elector.ErrRolledBack)
		if !term.Valid() {
			t.Error("the term has ended")
		}
	})
}

func TestInTxReportsASerializationFailureAsRetryable(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		ledger := s.ledger(t)
		pool := d.open(t, 0, s.DSN())
		_, term := s.lead(t, pool, s.election(t))
		check(t, term.InTx(soon(t), pool, nil, note(ledger, "a")))
		opts := &sql.TxOptions{Isolation: sql.LevelSerializable}
		reads := func(tx *sql.Tx) error { return tx.QueryRow("SELECT count(*) FROM " + ledger).Scan(new(int)) }
		for name, disturb := range map[string]func() error{
			"at a statement": func() error { _, err := s.admin.Exec("UPDATE " + ledger + " SET note = 'b'"); return err },
			"at the commit": func() error { // each of two transactions reads what the other writes, so only one may commit
				return term.InTx(soon(t), pool, opts, func(tx *sql.Tx) error { return errors.Join(reads(tx), note(ledger, "c")(tx)) })
			},
		} {
			attempts, err := 0, error(nil)
			for again := true; again; again = elector.Retryable(err) {
				attempts++
				err = term.InTx(soon(t), pool, opts, func(tx *sql.Tx) error {
					err := reads(tx)
					if name == "at the commit" {
						err = errors.Join(err, note(ledger, "d")(tx))
					}
					if attempts == 1 {
						check(t, disturb())
					}
					if name == "at a statement" && err == nil {
						_, err = tx.Exec("UPDATE " + ledger + " SET note = note || 'x'")
					}
					return err
				})
			}
			if err != nil || attempts != 2 {
				t.Errorf("%s: %d attempts, %v", name, attempts, err)
			}
		}
	})
}
