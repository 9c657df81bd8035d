package electortest_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/electortest"
)

// The context ends between the driver's call and its statement, while the process stands still.
func TestAConnectionWhoseTransactionCouldNotBeEndedIsNotUsedAgain(t *testing.T) {
	for name, end := range map[string]func(*sql.Tx) error{"COMMIT": (*sql.Tx).Commit, "ROLLBACK": (*sql.Tx).Rollback} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := electortest.NewServer()
				defer server.Close()
				process := server.NewProcess()
				pool := process.Open()
				defer pool.Close()
				pool.SetMaxOpenConns(1)
				ctx, cancel := context.WithCancel(t.Context())
				tx, err := pool.BeginTx(ctx, nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := db.New(tx).ApplySettings(t.Context(), db.ApplySettingsParams{OnlyLocal: true, Settings: `[{"name":"statement_timeout","value":"7s"}]`}); err != nil {
					t.Fatal(err)
				}
				process.Freeze()
				ended := make(chan error, 1)
				go func() { ended <- end(tx) }()
				synctest.Wait()
				cancel()
				if err := <-ended; !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v", name, err)
				}
				process.Thaw()
				if kept, err := db.New(pool).SessionEnders(t.Context()); err != nil || len(kept) > 0 {
					t.Errorf("the next user of the connection has the settings %v of the transaction, %v", kept, err)
				}
			})
		})
	}
}
