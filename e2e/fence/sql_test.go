//go:build unix

package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/e2e/must"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/fence"
)

var shared = pgcluster.NewShared()

func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Around(m)) }

// overDrivers runs a test over both drivers, each with a new database.
func overDrivers(t *testing.T, test func(t *testing.T, store *sql.DB)) {
	t.Helper()
	for name, driver := range map[string]string{"pq": "postgres", "pgx": "pgx"} {
		t.Run(name, func(t *testing.T) {
			c := shared.Get(t)
			check(t, c.CreateDatabase(t.Context(), "store_"+name))
			store, err := sql.Open(driver, c.DSN(pgcluster.ForDatabase("store_"+name)))
			check(t, err)
			t.Cleanup(func() {
				check(t, store.Close())
				check(t, c.Exec(context.Background(), "DROP DATABASE store_"+name+" WITH (FORCE)"))
			})
			test(t, store)
		})
	}
}

var check = must.Expect

func inTx(t *testing.T, store *sql.DB, level sql.IsolationLevel, fn func(*sql.Tx) error) error {
	t.Helper()
	tx, err := store.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
	check(t, err)
	if err := fn(tx); err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}

func TestAdvanceRefusesAnOlderTokenForItsResourceOnly(t *testing.T) {
	overDrivers(t, func(t *testing.T, store *sql.DB) {
		_, err := store.Exec(fence.CreateTable)
		check(t, err)
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
			resource, oops := "lamp at "+level.String(), errors.New("oops")
			err := inTx(t, store, level, func(tx *sql.Tx) error { check(t, fence.Advance(t.Context(), tx, resource, 9)); return oops })
			if !errors.Is(err, oops) { // and the token is forgotten
				t.Error(err)
			}
			for i, step := range []struct {
				resource string
				token    int64
				stale    bool
			}{
				{resource, 7, false}, {resource, 7, false}, {resource, 6, true}, {resource, 1 << 48, false},
				{resource, 7, true}, {"another " + resource, 6, false}, {resource, 1<<48 + 1, false},
			} {
				err := inTx(t, store, level, func(tx *sql.Tx) error { return fence.Advance(t.Context(), tx, step.resource, step.token) })
				if errors.Is(err, fence.ErrStale) != step.stale || (err != nil) != step.stale {
					t.Errorf("%s, step %d: %v", level, i, err)
				}
			}
		}
	})
}

// Many writers use random tokens. In commit order, the tokens of their writes never fall.
func TestConcurrentWritersCommitInTheOrderOfTheirTokens(t *testing.T) {
	overDrivers(t, func(t *testing.T, store *sql.DB) {
		_, err := store.Exec(fence.CreateTable + `; CREATE TABLE log (n serial, token bigint)`)
		check(t, err)
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
			_, err := store.Exec("TRUNCATE log; DELETE FROM fence")
			check(t, err)
			var writers sync.WaitGroup
			for i := range 8 {
				writers.Go(func() {
					for j := range 25 {
						token := int64(j*4 + (i*7+j*3)%11)
						for {
							err := inTx(t, store, level, func(tx *sql.Tx) error {
								if err := fence.Advance(t.Context(), tx, "log", token); err != nil {
									return err
								}
								_, err := tx.Exec("INSERT INTO log (token) VALUES ($1)", token)
								return err
							})
							var state interface{ SQLState() string }
							if errors.As(err, &state) && state.SQLState() == "40001" {
								continue
							}
							if err != nil && !errors.Is(err, fence.ErrStale) {
								t.Error(err)
							}
							break
						}
					}
				})
			}
			writers.Wait()
			var all, wrong int
			check(t, store.QueryRow(`SELECT count(*), count(*) FILTER (WHERE token < before)
				FROM (SELECT token, lag(token) OVER (ORDER BY n) AS before FROM log) AS l`).Scan(&all, &wrong))
			if all == 0 || wrong > 0 {
				t.Errorf("%s: of %d writes, %d came after one with a newer token", level, all, wrong)
			}
		}
	})
}

// The documentation quotes the two functions below.

// paint changes the lamp, unless a newer term has touched it.
func paint(ctx context.Context, store *sql.DB, term *elector.Term, color string) error {
	tx, err := store.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := fence.Advance(ctx, tx, "lamp", term.Token()); err != nil {
		return err // fence.ErrStale: another leads
	}
	if _, err := tx.ExecContext(ctx, "UPDATE lamp SET color = $1", color); err != nil {
		return err
	}
	return tx.Commit()
}

// repaint does the same where the row itself has a column for the token.
func repaint(ctx context.Context, store *sql.DB, term *elector.Term, color string) error {
	return fence.Applied(store.ExecContext(ctx,
		"UPDATE lamp SET color = $1, token = $2 WHERE token <= $2", color, term.Token()))
}

func TestTheDocumentedWritesRefuseAnEarlierTerm(t *testing.T) {
	overDrivers(t, func(t *testing.T, store *sql.DB) {
		_, err := store.Exec(fence.CreateTable + `; CREATE TABLE lamp (color text, token bigint NOT NULL DEFAULT 0); INSERT INTO lamp VALUES ('white')`)
		check(t, err)
		e, err := elector.New(store, "lamp")
		check(t, err)
		var terms []*elector.Term
		for range 2 {
			term, err := e.Campaign(t.Context())
			check(t, err)
			terms = append(terms, term)
			check(t, term.Resign(t.Context()))
		}
		for _, write := range []func(context.Context, *sql.DB, *elector.Term, string) error{paint, repaint} {
			check(t, write(t.Context(), store, terms[0], "red"))
			check(t, write(t.Context(), store, terms[1], "green"))
			if err := write(t.Context(), store, terms[0], "red"); !errors.Is(err, fence.ErrStale) {
				t.Errorf("the first term writes: %v", err)
			}
			_, err := store.Exec("UPDATE lamp SET token = 0")
			check(t, err)
		}
		var color string
		check(t, store.QueryRow("SELECT color FROM lamp").Scan(&color))
		if color != "green" {
			t.Errorf("the lamp is %s", color)
		}
	})
}
