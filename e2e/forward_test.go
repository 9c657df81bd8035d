//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
)

// The election runs in memory, and the program's own statements on a real server.
func TestARealServerTakesWhatElectortestForwards(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := onShared(t)
		behind := d.open(t, 0, s.database(t))
		server := electortest.NewServer()
		defer server.Close()
		server.Forward(behind, t.Log)
		pool := server.Open()
		_, err := pool.ExecContext(t.Context(), "CREATE TABLE orders (id bigint PRIMARY KEY, tags text[])")
		check(t, err)
		e, err := elector.New(pool, "orders")
		check(t, err)
		boom := errors.New("boom")
		insert := func(tx *sql.Tx, id int) error {
			_, err := tx.ExecContext(t.Context(), "INSERT INTO orders (id) VALUES ($1)", id)
			return err
		}
		_, err = e.TryRun(soon(t), func(ctx context.Context, term *elector.Term) error {
			check(t, term.InTx(ctx, pool, nil, func(tx *sql.Tx) error { return insert(tx, 1) }))
			wraps(t, term.InTx(ctx, pool, nil, func(tx *sql.Tx) error { return errors.Join(insert(tx, 2), boom) }), boom)
			err := term.InTx(ctx, pool, nil, func(tx *sql.Tx) error { return insert(tx, 1) }) // again
			if state, ok := errors.AsType[interface {
				error
				SQLState() string
			}](err); !ok || state.SQLState() != "23505" {
				t.Errorf("a duplicate: %v", err)
			}
			wraps(t, term.InTx(ctx, pool, nil, func(tx *sql.Tx) error { // a failed statement whose error is dropped
				_ = insert(tx, 1)
				return nil
			}), elector.ErrRolledBack)
			return term.InTx(ctx, pool, &sql.TxOptions{Isolation: sql.LevelSerializable}, func(tx *sql.Tx) error {
				if level := one[string](t, tx, "SHOW transaction_isolation"); level != "serializable" {
					t.Errorf("the transaction is %s", level)
				}
				return insert(tx, 3)
			})
		})
		check(t, err)
		if ids := list[int](t, behind, "SELECT id FROM orders ORDER BY id"); !slices.Equal(ids, []int{1, 3}) {
			t.Errorf("the table has %v", ids)
		}
	})
}
