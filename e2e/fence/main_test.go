//go:build unix

package fence_test

import (
	"context"
	"database/sql"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/e2e/pgcluster"
)

var shared = pgcluster.NewShared()

func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Around(m)) }

// overDrivers repeats a test over both drivers, each with a store of its own.
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

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}
